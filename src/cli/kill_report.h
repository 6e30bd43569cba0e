/* cli/kill_report.h: what `neap kill` says, for people and as JSON. */
#ifndef NEAP_CLI_KILL_REPORT_H
#define NEAP_CLI_KILL_REPORT_H

#include "base/ending.h"
#include "cli/kill_plan.h"
#include "cli/look.h"

struct kill_device {
	struct neap_reading before; /* right before the first signal, the targets' bytes filled in from their pages */
	struct neap_reading after;  /* the last look */
	bool touched;               /* a target holds something here, or it cannot be known */
	bool held_unknown;          /* the driver does not tell what some target holds */
	uint64_t held_bytes;        /* by the targets, as far as it is known */
	uint64_t left_bytes;        /* not back; 0: everything is */
};

#define KILL_HELD_ROOM (NEAP_UNITS_ROOM + 16)

struct kill_work {
	struct kill_plan plan;
	struct look look;            /* before the first signal */
	struct kill_device *devices; /* one per device of `look` */
	struct neap_ended *ended;    /* one per target, late ones too, once they were signalled; NULL before */
	uint64_t grace_ms, drain_ns; /* drain_ns: from the last process's end to the last look */
	bool dry_run;
};

/* The bytes that a process holds on a device: 0 nothing, NEAP_BYTES_UNKNOWN. */
uint64_t kill_bytes(const struct look_device *device, pid_t pid);
/* That what was asked for holds no device memory, as far as is known; "" it holds some, or there is no telling. */
const char *kill_holds_nothing(const struct kill_work *work);
/* Of all targets on all devices, as far as it is known. */
uint64_t kill_held(const struct kill_work *work);
/* The same for people, in `text`, KILL_HELD_ROOM bytes: "1.06 GiB", "at least 1.06 GiB", "an unknown amount". */
const char *kill_held_text(const struct kill_work *work, char *text);
/* Of all devices. */
uint64_t kill_left(const struct kill_work *work);
size_t kill_alive(const struct kill_work *work);

/* The targets as a tree with what they hold, and the refused. */
void kill_print_preview(const struct kill_work *work);
void kill_print_result(const struct kill_work *work);
/* Prints one object, or why it cannot. Returns the exit code for that. */
int kill_print_json(const struct kill_work *work);

#endif
