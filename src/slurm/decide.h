/* slurm/decide.h: decides what to do with an attempt that a task has claimed. Pure.
 *
 * The result in the attempt's folder shows how it ended. squeue shows whether the task is still in the queue. The end
 * of the task's output shows why Slurm ended it.
 *
 *   a result                        the task                       so
 *   -----------------------------   ----------------------------   -------------------------------------------------
 *   of another kind                 in any state                   TAKE
 *   canceled, signaled, failed      has begun the next attempt     CANCEL: Slurm requeued it
 *   (Slurm's SIGTERM may have       is there, or unknown           WAIT
 *   ended the command, or neap      is gone; time, memory          TAKE, as what it was
 *   first)                          is gone; cancelled, taken      CANCEL
 *                                   is gone, no cause              TAKE: it ended by itself
 *   none, its lock is held          in any state                   WAIT
 *   none                            has begun the next attempt     CANCEL: Slurm requeued it
 *                                   is there, or unknown           WAIT
 *                                   is gone; time, memory          TAKE, a result made from known facts
 *                                   is gone; cancelled, taken      CANCEL
 *                                   is gone, no cause              LOSE
 *
 * After CANCEL and LOSE there is another attempt; only LOSE counts against the limit of lost attempts.
 */
#ifndef NEAP_SLURM_DECIDE_H
#define NEAP_SLURM_DECIDE_H

#include "slurm/text.h"
#include "store/result.h"

#include <stdbool.h>

struct neap_slurm_facts {
	bool gone;                   /* squeue answered, and does not list the task */
	bool begun_again;            /* the same task has claimed the next attempt too */
	enum neap_slurm_cause cause; /* why Slurm ended it */
	bool lock_held;
	bool has_result;
	enum neap_outcome outcome; /* of that result */
};

enum neap_slurm_action {
	NEAP_SLURM_WAIT,
	NEAP_SLURM_TAKE,
	NEAP_SLURM_CANCEL,
	NEAP_SLURM_LOSE,
};

struct neap_slurm_verdict {
	enum neap_slurm_action action;
	enum neap_outcome outcome; /* TAKE: the outcome to write into the result */
	const char *why;           /* the reason shown to the user; static storage; "" if none is needed */
};

/* Whether a run with this outcome may have been ended by Slurm. */
bool neap_slurm_may_have_ended(enum neap_outcome outcome);

struct neap_slurm_verdict neap_slurm_decide(const struct neap_slurm_facts *facts);

#endif
