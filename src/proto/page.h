/* proto/page.h: the statistics page: what an attached process shows to anyone of the same user, in a file mapped by
 * both (RUNTIME/PID.page). The agent makes it, allocators write their part, readers never write and check everything. */
#ifndef NEAP_PROTO_PAGE_H
#define NEAP_PROTO_PAGE_H

#include "neap/stats.h"

#include <stdbool.h>
#include <sys/types.h>

#define NEAP_PAGE_MAGIC "NEAPPAGE"
#define NEAP_PAGE_VERSION 1u
#define NEAP_PAGE_DEVICES 16

struct neap_page {
	char magic[8];
	uint32_t version;
	uint32_t bytes; /* sizeof(struct neap_page) of the writer */
	uint64_t pid, start_ticks;
	char name[64];          /* the program's name */
	char run_id[64];        /* NEAP_RUN_ID, or "" */
	char record_path[512];  /* the recording; "" when there is none */
	uint64_t device_count;  /* slots in use below; stored last, with release */
	struct neap_published devices[NEAP_PAGE_DEVICES];
};

/* An attached process as its page shows it. */
struct neap_attached {
	pid_t pid;
	uint64_t start_ticks;
	char name[64], run_id[64], record_path[512];
	size_t device_count;
	struct neap_published devices[NEAP_PAGE_DEVICES];
};

/* Reads RUNTIME/PID.page. Errors: NEAP_ENOENT (not attached), NEAP_EPARSE, NEAP_EPERM, NEAP_EBUSY. */
enum neap_status neap_page_read(const char *runtime_folder, pid_t pid, struct neap_attached *ret_attached,
				struct neap_error *err);

/* All attached processes that are alive; pages of dead ones are removed in passing. Caller frees *ret_attached. */
enum neap_status neap_page_list(const char *runtime_folder, struct neap_attached **ret_attached, size_t *ret_count,
				struct neap_error *err);

#endif
