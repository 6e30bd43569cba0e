/* run/limits.h: decides when neap warns about a running command, asks it to end and ends it. Others act on the
 * decision.
 *
 *   limit       measures                                                   warns at             crossed when
 *   ---------   --------------------------------------------------------   ------------------   -------------
 *   time        how long the command has run                               -                    it is reached
 *   device      bytes of the run on the watched device, from the driver    90 % of it           above
 *   host        host memory of the run's processes together                90 % of it           above
 *   disk        bytes free where the run's folder is                       below 10/9 of it     below
 *
 *   fine --(crossed)--> asked: SIGTERM --(grace over)--> killed: SIGKILL
 *
 * The first crossed limit counts; later readings change nothing. An unknown reading (NEAP_READING_UNKNOWN) crosses no
 * limit. Pure.
 */
#ifndef NEAP_RUN_LIMITS_H
#define NEAP_RUN_LIMITS_H

#include <stdbool.h>
#include <stddef.h>
#include <stdint.h>

#define NEAP_READING_UNKNOWN UINT64_MAX

enum neap_limit { NEAP_LIMIT_TIME, NEAP_LIMIT_DEVICE, NEAP_LIMIT_HOST, NEAP_LIMIT_DISK, NEAP_LIMITS };

/* 0: no such limit. */
struct neap_limits {
	uint64_t at[NEAP_LIMITS]; /* nanoseconds; bytes */
	uint64_t grace_ns;        /* between SIGTERM and SIGKILL */
};

/* A zeroed struct is the initial state. */
struct neap_limits_state {
	bool warned[NEAP_LIMITS];
	bool asked, killed;
	enum neap_limit crossed; /* if asked: the limit that was crossed */
	uint64_t reading;        /* if asked: the reading that crossed it */
	uint64_t asked_ns;       /* if asked: when */
};

enum neap_limits_action {
	NEAP_LIMITS_NOTHING,
	NEAP_LIMITS_WARN, /* about *ret_limit; call again, there may be more warnings */
	NEAP_LIMITS_ASK,
	NEAP_LIMITS_KILL,
};

/* Returns the next action, and changes the state as if the caller had done it. `readings`: by enum neap_limit. */
enum neap_limits_action neap_limits_next(const struct neap_limits *limits, struct neap_limits_state *state,
					 const uint64_t readings[NEAP_LIMITS], uint64_t now_ns,
					 enum neap_limit *ret_limit);

/* Returns after how many nanoseconds neap_limits_next may decide otherwise, if the readings stay the same and the
 * command has run for `ran_ns`; UINT64_MAX: never. */
uint64_t neap_limits_due_ns(const struct neap_limits *limits, const struct neap_limits_state *state, uint64_t ran_ns,
			    uint64_t now_ns);

/* "host memory 3.10 GiB above 3.00 GiB". */
void neap_limits_text(const struct neap_limits *limits, enum neap_limit limit, uint64_t reading, char *text,
		      size_t capacity);

#endif
