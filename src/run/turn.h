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
	bool others; /* LATER: other runs of the queue are before it, or hold what it needs */
	/* NVML's indices. NOW: the devices that the run gets; else those that it may use. The first is watched
	 * watched */
	size_t devices[NEAP_TURN_DEVICES];
	char uuids[NEAP_TURN_DEVICES][48];
	size_t device_count;
	bool narrowed;    /* NOW: the run may see only these devices */
	uint64_t wait_ns; /* LATER: how long until the run asks again */
	char text[400];   /* LATER, for people: what the run waits for; NEVER: why it cannot start; "": not known */
};

struct neap_turn {
	/* Errors: the queue's own; then the run cannot start. */
	enum neap_status (*ask)(void *context, struct neap_monitor *monitor, struct neap_turn_answer *ret_answer,
				struct neap_error *err);
	void (*show)(void *context, const char *text); /* called while it waits, with each new text; "" at the end */
	void *context;
	bool any_device; /* the device is not known before the turn */
	bool patient;    /* wait_limit_ns counts only the time while no other run is in the way */
	int fd;          /* the lease's lock, after the first ask; -1: none. The command's guard keeps it open */
	char name[24];   /* the lease's number, after the first ask: the command's NEAP_LEASE */
};

#endif
