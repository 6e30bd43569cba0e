/* top/sample.h: a sample: the state that `neap top` saw at one instant, and the samples that it keeps. Plain data:
 * the command fills it, the frame and the keys only read it. One thread.
 *
 * A process is one row, however many devices it uses: its figures are sums over them.
 */
#ifndef NEAP_TOP_SAMPLE_H
#define NEAP_TOP_SAMPLE_H

#include "device/ledger.h"

#include <stdbool.h>

#define NEAP_TOP_HISTORY 300 /* instants kept: five minutes at one a second */
#define NEAP_TOP_DEVICES 64  /* bits of a process's set of devices */

enum neap_top_kind {
	NEAP_TOP_GPU,
	NEAP_TOP_UNIFIED, /* its memory is the host's: "free" is what the host has left */
};

struct neap_top_device {
	char name[96], uuid[48];
	enum neap_top_kind kind;
	struct neap_ledger ledger;
	int utilization_percent; /* -1: the driver does not report it; so below */
	int temperature_celsius, power_watts, power_limit_watts, clock_mhz;
	bool processes_known, processes_truncated;
};

struct neap_top_process {
	pid_t pid, parent; /* parent 0: not known */
	uint64_t start_ticks;
	uint64_t devices; /* bit D: it holds memory on device D */
	uint64_t stray;   /* bit D: only a context there, which it does not use */
	bool attached;
	bool launcher; /* it holds no device memory: it is shown because it started processes that do */
	bool bytes_known;
	uint64_t bytes; /* as the driver reports them, if bytes_known */
	uint64_t context, allocated, cached;
	int64_t other;               /* attached only: bytes that are none of these */
	uint64_t host_bytes, cpu_ns; /* resident host memory; processor time of all its threads */
	int busy_percent;            /* of its devices' multiprocessors, the busiest; -1: not known */
	uint64_t run_ns;             /* UINT64_MAX: not known */
	char run_time[24];           /* the same as ps shows it */
	char user[32], command[256], run_id[64], note[200];
};

struct neap_top_sample {
	uint64_t time_ns; /* of a clock that never goes back */
	struct neap_top_device *devices;
	size_t device_count;
	struct neap_top_process *processes;
	size_t process_count;
	size_t unlisted;         /* attached processes on a device that NVML does not list */
	uint64_t unlisted_bytes; /* the bytes that these have reserved there */
	bool simulated;
	bool host_known, host_by_group; /* by_group: a control group leaves less than the host has */
	uint64_t host_available_bytes;
};

void neap_top_sample_fini(struct neap_top_sample *sample);

/* A ring of samples; a zeroed struct is empty. */
struct neap_top_history {
	struct neap_top_sample samples[NEAP_TOP_HISTORY];
	size_t newest, count;
	uint64_t taken; /* samples ever taken */
};

/* Takes the sample over, and forgets the oldest when the ring is full. */
void neap_top_history_take(struct neap_top_history *history, struct neap_top_sample *sample);
void neap_top_history_fini(struct neap_top_history *history);
/* The sample that is `age` samples older than the newest; NULL: there is none. */
const struct neap_top_sample *neap_top_history_at(const struct neap_top_history *history, size_t age);

/* The process with this PID and this start time (a PID may be reused). NULL: it is not in the sample. */
const struct neap_top_process *neap_top_find(const struct neap_top_sample *sample, pid_t pid, uint64_t start_ticks);

/* The bytes that a process holds: the driver's figure, or if there is none, what the process publishes itself. */
uint64_t neap_top_held(const struct neap_top_process *process);

/* The growth of the process's bytes per minute, over the last minute or since it was first seen. False if it was
 * first seen less than two seconds ago. */
bool neap_top_growth(const struct neap_top_history *history, const struct neap_top_process *process,
		     int64_t *ret_bytes_per_minute);

/* The share of one processor that the process took since the sample before, in percent; above 100 if it ran on
 * several processors. -1: it was not there. */
int neap_top_cpu_percent(const struct neap_top_history *history, const struct neap_top_process *process);

/* take.c. Takes one sample: devices, processes, and each process's data from /proc. A process's parent in the sample
 * is its nearest ancestor there. A parent that uses no GPU is added if it started two or more processes that use one,
 * so that these stand together. Errors: those of neap_sample_take. */
enum neap_status neap_top_take(struct neap_monitor *monitor, const char *runtime_folder,
			       struct neap_top_sample *ret_sample, struct neap_error *err);

#endif
