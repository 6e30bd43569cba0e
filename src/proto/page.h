/* proto/page.h: the statistics page, which an attached process shows to processes of its user (RUNTIME/PID.page).
 *
 * The agent creates the file and maps it. Allocators write their parts. Readers never write and check everything;
 * they use pread, so that a truncated file gives an error, not a SIGBUS. A living process holds the file's lock
 * (flock): a page whose lock is free, or whose process is gone, counts as absent.
 */
#ifndef NEAP_PROTO_PAGE_H
#define NEAP_PROTO_PAGE_H

#include "neap/stats.h"

#include <stdbool.h>
#include <sys/types.h>

#define NEAP_PAGE_MAGIC   "NEAPPAGE"
#define NEAP_PAGE_VERSION 3u
#define NEAP_PAGE_DEVICES 16

struct neap_page {
	char magic[8];
	uint32_t version;
	uint32_t bytes; /* sizeof(struct neap_page) of the writer */
	uint64_t pid, start_ticks;
	char name[64];         /* the program's name */
	char run_id[64];       /* NEAP_RUN_ID, or "" */
	char series[64];       /* NEAP_SERIES, or "" */
	char record_path[512]; /* the recording; "" when there is none */
	char note[200];        /* a problem with its settings, for its user; "": none */
	uint64_t device_count; /* how many slots below were ever used; one whose UUID is zero is free. Stored last */
	struct neap_published devices[NEAP_PAGE_DEVICES];
};

/* An attached process as its page shows it. */
struct neap_attached {
	pid_t pid;
	uint64_t start_ticks;
	char name[64], run_id[64], record_path[512], note[200];
	size_t device_count; /* allocators; several may be of one device: see neap_attached_device */
	struct neap_published devices[NEAP_PAGE_DEVICES];
};

/* Reads RUNTIME/PID.page. If the process was stopped in the middle of an operation, returns the figures
 * as they stand, and the note says so. Errors: NEAP_ENOENT (not attached), NEAP_EPARSE, NEAP_EPERM, NEAP_EBUSY (after
 * 0.1 s). */
enum neap_status neap_page_read(const char *runtime_folder, pid_t pid, struct neap_attached *ret_attached,
				struct neap_error *err);

/* The facts that decide whether to ask a process for memory. */
struct neap_page_place {
	char run_id[64], series[64];
	size_t device_count;
	unsigned char uuids[NEAP_PAGE_DEVICES][16]; /* zero: no device */
};

/* Reads these facts from RUNTIME/PID.page without waiting: reads neither the process nor its figures. Errors: as
 * neap_page_read, without NEAP_EBUSY. */
enum neap_status neap_page_read_place(const char *runtime_folder, pid_t pid, struct neap_page_place *ret_place,
				      struct neap_error *err);

/* Calls `visit` with the PID of each page in the folder, in no order, until it returns false. Errors: NEAP_EIO and
 * the like for the folder. */
enum neap_status neap_page_each(const char *runtime_folder, bool (*visit)(void *context, pid_t pid), void *context,
				struct neap_error *err);

/* All attached processes that are alive, by PID. Deletes the files that dead processes left: page and socket at once
 * (or at the next listing, if a process is attaching at this moment), a recording in the runtime folder after a day.
 * Skips pages that cannot be read. Caller frees *ret_attached. */
enum neap_status neap_page_list(const char *runtime_folder, struct neap_attached **ret_attached, size_t *ret_count,
				struct neap_error *err);

/* Adds up the counters of all the process's allocators on one device; a sum of peaks is an upper bound. Counts the
 * process's one context once. False: it has no allocator there. */
bool neap_attached_device(const struct neap_attached *attached, const unsigned char uuid[16],
			  struct neap_published *ret_published);

/* The agent's side. */

struct neap_page_identity {
	pid_t pid;
	uint64_t start_ticks;
	const char *name, *run_id, *series, *record_path; /* cut where they do not fit */
};

/* A page that this process owns: mapped, its file locked. Zeroed: none. */
struct neap_page_owner {
	struct neap_page *page;
	int fd;
	dev_t device; /* of the file that fd was opened on: the program may have closed fd, and opened another */
	ino_t inode;
	char path[4096];
};

/* Takes a lock for creating PID.page and PID.sock. A process that deletes the files of dead processes never waits for
 * this lock, and deletes nothing while it is held. Without the lock, a process that restarts under its PID could lose
 * its new files to a process that has just found the old ones dead. Waits at most 0.1 s. Returns -1 if the lock is
 * not held: continue all the same. neap_page_making_end releases it. */
int neap_page_making_begin(const char *runtime_folder);
void neap_page_making_end(int held);

/* Makes RUNTIME/PID.page with no devices, replacing one that an earlier process of this PID left; it becomes visible
 * whole. Its space is taken at once. Errors: NEAP_ENOSPC, NEAP_EIO, NEAP_EPERM. */
enum neap_status neap_page_create(const char *runtime_folder, const struct neap_page_identity *identity,
				  struct neap_page_owner *ret_owner, struct neap_error *err);
/* Sets the `note` of struct neap_attached. */
void neap_page_note(struct neap_page_owner *owner, const char *note);
/* The first slot not in use, made visible to readers by neap_page_show once an allocator publishes there; NULL when
 * all are taken. One thread at a time, as the two below. */
struct neap_published *neap_page_slot(struct neap_page_owner *owner);
void neap_page_show(struct neap_page_owner *owner, const struct neap_published *slot);
/* Called when the allocator no longer writes there. */
void neap_page_hide(struct neap_page_owner *owner, struct neap_published *slot);
/* Removes the file and, with `unmap`, the mapping. Idempotent. */
void neap_page_destroy(struct neap_page_owner *owner, bool unmap);
/* In a forked child: puts private memory where the page was, so that allocators that still write there harm no
 * reader, and closes the file. Async-signal-safe. */
void neap_page_abandon(struct neap_page_owner *owner);

#endif
