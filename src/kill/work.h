/* kill/work.h: the work of `neap kill`, step by step, so that the caller can show it and ask in between:
 *
 *   neap_sample_take -> neap_kill_work_plan -> neap_kill_work_account -> (ask) -> neap_kill_work_end
 *
 * One thread.
 */
#ifndef NEAP_KILL_WORK_H
#define NEAP_KILL_WORK_H

#include "base/ending.h"
#include "kill/plan.h"
#include "machine/sample.h"

#include <jansson.h>

struct neap_kill_device {
	struct neap_reading before; /* right before the first signal; the targets' bytes come from their pages */
	struct neap_reading after;  /* the last reading */
	bool touched;               /* a target holds memory on this device, or may */
	bool held_unknown;          /* the driver does not report the bytes of some target */
	uint64_t held_bytes;        /* the targets' bytes, as far as they are known */
	uint64_t left_bytes;        /* bytes that are not free again; 0: all are */
};

/* A zeroed struct is empty. The caller sets `sample`, `grace_ms` and `dry_run`. */
struct neap_kill_work {
	struct neap_kill_plan plan;       /* made by neap_kill_work_plan */
	struct neap_sample sample;        /* before the first signal */
	struct neap_kill_device *devices; /* one per device of `sample`; made by neap_kill_work_account */
	struct neap_ended *ended;         /* one per target, late ones too, once they were signalled; NULL before */
	uint64_t grace_ms, drain_ns;      /* drain_ns: from the end of the last process to the last reading */
	bool dry_run;
};

/* The processes to end: exactly one of `pids`, `device` and `mine` is set. */
struct neap_kill_wanted {
	const pid_t *pids; /* these processes, or NULL */
	size_t pid_count;
	const char *device; /* all on this device (an index, or the beginning of a UUID), or NULL */
	bool mine;          /* every GPU process of this user */
};

/* Makes work->plan from work->sample and the current processes. Errors: NEAP_EINVAL: `wanted` has none of the three,
 * or several; NEAP_ENOENT: no such device; NEAP_ENOMEM; NEAP_EIO without /proc. */
enum neap_status neap_kill_work_plan(struct neap_kill_work *work, const struct neap_kill_wanted *wanted,
				     struct neap_error *err);

/* Makes work->devices from the sample and the plan; call it again after a newer sample. Errors: NEAP_ENOMEM. */
enum neap_status neap_kill_work_account(struct neap_kill_work *work, struct neap_error *err);

/* Ends the targets (end.h), and waits at most `drain_limit_ns` for their memory to come back. Errors: those of
 * neap_kill_end and of reading the devices; if work->ended is set then, the processes in it were signalled. */
enum neap_status neap_kill_work_end(struct neap_kill_work *work, struct neap_monitor *monitor,
				    uint64_t drain_limit_ns, struct neap_error *err);
void neap_kill_work_fini(struct neap_kill_work *work);

/* Returns the bytes that a process holds on a device; NEAP_BYTES_UNKNOWN: not known. */
uint64_t neap_kill_bytes(const struct neap_sample_device *device, pid_t pid);
/* Returns the bytes of all targets on all devices, as far as they are known. */
uint64_t neap_kill_held(const struct neap_kill_work *work);
/* Returns the bytes on all devices that are not free again. */
uint64_t neap_kill_left(const struct neap_kill_work *work);
/* Returns how many of the targets' bytes on a device are free again. */
uint64_t neap_kill_returned(const struct neap_kill_device *device);
/* Returns how many targets still live. */
size_t neap_kill_alive(const struct neap_kill_work *work);

/* work_json.c. Describes all of it as one object, which the caller owns. */
json_t *neap_kill_json(const struct neap_kill_work *work);

#endif
