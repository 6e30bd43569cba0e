/* machine/sample.h: one sample of every device and every attached process, from outside: NVML and statistics pages.
 * Creates no CUDA context. */
#ifndef NEAP_MACHINE_SAMPLE_H
#define NEAP_MACHINE_SAMPLE_H

#include "device/ledger.h"
#include "machine/who.h"
#include "proto/page.h"

struct json_t;

struct neap_sample_process {
	struct neap_ledger_process account;
	bool stray;          /* attached, but without allocator on this device: it does not use its context here */
	size_t stray_from;   /* if stray: index of the device that it uses */
	struct neap_who who; /* neap_sample_who fills it */
};

struct neap_sample_device {
	struct neap_reading reading;
	struct neap_ledger ledger;
	struct neap_sample_process *processes;
	size_t process_count;
	bool left_out; /* not to be shown */
};

struct neap_sample {
	enum neap_backend backend;
	struct neap_sample_device *devices;
	size_t device_count;
	struct neap_attached *attached;
	size_t attached_count;
};

/* Takes a sample. NVML and the pages are read at slightly different times. If the ledger leaves bytes unexplained,
 * takes the sample again, a few times, and keeps the one that leaves the fewest. The caller calls neap_sample_fini,
 * also after a failure. */
enum neap_status neap_sample_take(struct neap_monitor *monitor, const char *runtime_folder,
				  struct neap_sample *ret_sample, struct neap_error *err);
void neap_sample_fini(struct neap_sample *sample);

/* Reads `who` of every process on the devices that are not left out, once for each PID. */
void neap_sample_who(struct neap_sample *sample);

const char *neap_sample_backend_name(enum neap_backend backend);

/* The bytes that attached processes hold on the device outside their allocators and contexts, as far as the driver
 * lists them. */
int64_t neap_sample_other(const struct neap_sample_device *device);

/* The bytes of a process that is not attached, as the ledger counts them: 0 for an attached one. */
uint64_t neap_sample_not_attached(const struct neap_ledger_process *account);

/* The next device that an attached process uses and NVML does not list: a MIG instance, or another machine's view.
 * NULL: no more. `cursor` begins at 0. */
const struct neap_published *neap_sample_next_unlisted(const struct neap_sample *sample,
						       const struct neap_attached *attached, size_t *cursor);
uint64_t neap_sample_reserved(const struct neap_published *published);

/* Sorts the processes of each device by "memory" or "time" (descending), "pid", "user" or "name" (ascending). False:
 * no such key, nothing was sorted. */
bool neap_sample_sort(struct neap_sample *sample, const char *key);

/* A process's command line as neap_sample_who read it; "?": not known. */
const char *neap_sample_command(const struct neap_sample_process *process);

/* A process's name for a terminal: bytes that are not printable become '?'. "" when there is no such process. */
void neap_sample_name(pid_t pid, char ret_name[64]);

/* sample_json.c. The JSON of `neap info --json` and of `neap serve`, which the caller owns. `wall_ns`: when the
 * sample was taken. Omits devices that are left out, and the processes on them. */
struct json_t *neap_sample_json(const struct neap_sample *sample, uint64_t wall_ns);

#endif
