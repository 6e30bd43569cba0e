/* cli/look.h: one look at every device and every attached process, from outside: NVML and statistics pages. Creates
 * no CUDA context. */
#ifndef NEAP_CLI_LOOK_H
#define NEAP_CLI_LOOK_H

#include "cli/who.h"
#include "device/ledger.h"
#include "proto/page.h"

struct look_process {
	struct neap_ledger_process account;
	bool stray;        /* attached, but with no allocator on this device: a context that it does not use */
	size_t stray_from; /* then: index of the device it does use */
	struct who who;    /* look_who fills it */
};

struct look_device {
	struct neap_reading reading;
	struct neap_ledger ledger;
	struct look_process *processes;
	size_t process_count;
	bool left_out; /* not to be shown */
};

struct look {
	enum neap_backend backend;
	struct look_device *devices;
	size_t device_count;
	struct neap_attached *attached;
	size_t attached_count;
};

/* A reading and the pages are of instants that differ a little: where the ledger then leaves something unexplained,
 * looks again, a few times, and keeps what left the least. The caller calls look_fini, also after a failure. */
enum neap_status look_take(struct neap_monitor *monitor, const char *runtime_folder, struct look *ret_look,
			   struct neap_error *err);
void look_fini(struct look *look);

/* Reads `who` of every process on the devices that are not left out, once for each PID. */
void look_who(struct look *look);

const char *look_backend_name(enum neap_backend backend);

/* What attached processes hold on the device beside their allocators and contexts, as far as the driver lists them.
 */
int64_t look_other(const struct look_device *device);

/* A process's name for a terminal: bytes that are not printable become '?'. "" when there is no such process. */
void look_name(pid_t pid, char ret_name[64]);

#endif
