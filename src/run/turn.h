/* run/turn.h: tells a run when it may start. A run that needs device memory asks, before its first start, until it
 * may start, and learns on which devices. src/queue answers. One thread.
 */
#ifndef NEAP_RUN_TURN_H
#define NEAP_RUN_TURN_H

#include "run/drain.h"

#include <stdbool.h>

#define NEAP_TURN_DEVICES 32

struct neap_turn_answer {
	enum neap_headroom found;
	bool others;                       /* LATER: other runs of the queue are before it, or hold what it needs */
	size_t devices[NEAP_TURN_DEVICES]; /* NVML's indices: NOW: its own; else those that it may use. The first is
					      watched */
	char uuids[NEAP_TURN_DEVICES][48];
	size_t device_count;
	bool narrowed;    /* NOW: it may see only these */
	uint64_t wait_ns; /* LATER: until it asks again */
	char text[400];   /* LATER, for people: what it waits for; NEVER: why. "": not known */
};

struct neap_turn {
	/* Errors: the queue's own; then the run cannot start. */
	enum neap_status (*ask)(void *context, struct neap_monitor *monitor, struct neap_turn_answer *ret_answer,
				struct neap_error *err);
	void (*show)(void *context, const char *text); /* called while it waits, with each new text; "" at the end */
	void *context;
	bool any_device; /* the device is not known before the turn */
	bool patient;    /* wait_limit_ns counts only while no other run is in the way */
	int fd;          /* the lease's lock, once it has asked; -1: none. The command's guard keeps it */
	char name[24];   /* the lease's number, once it has asked: NEAP_LEASE of the command */
};

#endif
