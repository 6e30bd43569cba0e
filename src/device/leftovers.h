/* device/leftovers.h: finds processes that earlier runs of this user left on a device, and ends those that neap
 * started.
 *
 * A process that holds device memory is
 *
 *   left alone   if it is us, our ancestor or descendant, of our run, or its run's supervisor still holds the lock
 *   ended        if neap started it (NEAP_RUN_ID and NEAP_RUN_DIR in its starting environment) and the lock of its
 *                run is free: the run is over, or its supervisor is gone
 *   named        if it is of this user, but neap did not start it
 *   counted      if it is of another user, or of a PID namespace that we do not see
 */
#ifndef NEAP_DEVICE_LEFTOVERS_H
#define NEAP_DEVICE_LEFTOVERS_H

#include "base/process.h"
#include "device/monitor.h"
#include "neap/log.h"

enum neap_leftover { NEAP_LEFTOVER_NONE, NEAP_LEFTOVER_ENDED, NEAP_LEFTOVER_NAMED, NEAP_LEFTOVER_COUNTED };

/* The state of a process's run, from the run's folder. */
enum neap_run_state {
	NEAP_RUN_UNKNOWN, /* no run, or its folder or lock cannot be read */
	NEAP_RUN_GOES_ON, /* its supervisor holds the lock */
	NEAP_RUN_OVER,    /* its lock is free */
};

struct neap_leftover_facts {
	bool seen;    /* it is among the processes that we see */
	bool related; /* it is us, our ancestor or our descendant */
	uid_t uid;
	const char *run_id; /* NULL: none */
	enum neap_run_state run;
};

/* Decides; a pure function. `own_run_id`: NULL or "" when we are in none. */
enum neap_leftover neap_leftover_decide(const struct neap_leftover_facts *facts, uid_t own_uid,
					const char *own_run_id);

/* A zeroed struct: all devices, no run, silent. */
struct neap_leftovers_options {
	const unsigned char *uuid; /* only this device; NULL: all */
	const char *run_id;        /* our own run */
	uint64_t grace_ms;         /* between SIGTERM and SIGKILL; 0: 2000 */
	uint64_t drain_ms;         /* limit of the wait for the memory of ended processes; 0: 10000 */
	const struct neap_log_sink *log;
};

struct neap_leftovers {
	size_t ended, not_ended, named, counted;          /* processes */
	uint64_t ended_bytes, named_bytes, counted_bytes; /* as far as the driver says */
	bool drained;                                     /* the memory of the ended ones is free again */
	uint64_t drain_ns;
};

/* Searches, logs what it found, ends leftovers, and waits for their memory. Takes at most the grace, 30 s after
 * SIGKILL, and the drain; next to no time if nothing is to be ended. Ends at most 64 processes. Errors: those of
 * reading the devices; then nothing was done. */
enum neap_status neap_leftovers_clear(struct neap_monitor *monitor, const struct neap_leftovers_options *options,
				      struct neap_leftovers *ret_leftovers, struct neap_error *err);

#endif
