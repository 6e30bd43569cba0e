/* series/slurm_decide.h: what becomes of an attempt that a task of a job array was to run. Pure.
 *
 * Two sides know of it: Slurm, and the attempt's folder. The claim in the folder (series/slurm_claim.h) decides who
 * may run it; the result says how it ended; Slurm says whether there is anything to wait for, and why there is no
 * result.
 *
 *   a result                        Slurm                          so
 *   -----------------------------   ----------------------------   -------------------------------------------------
 *   of another kind                 whatever                       TAKE
 *   canceled, signaled, failed      not over, or cannot be asked   WAIT
 *   (Slurm's SIGTERM may have       begun again (requeued)         CANCEL: the next attempt goes on
 *   done it, to neap or to the      timeout, out of memory         TAKE, as what it was
 *   command, whoever was first)     cancelled, preempted           CANCEL
 *                                   node failure                   CANCEL if it says canceled
 *                                   else                           TAKE: it was ended on its own account
 *   none, lock held                 whatever                       WAIT
 *   none                            not over, or cannot be asked   WAIT
 *   none, withdrawn                 whatever                       CANCEL: no task can run it any more
 *   none, begun                     begun again (requeued)         CANCEL: the next attempt goes on
 *                                   timeout, out of memory         TAKE, one that is made
 *                                   cancelled, preempted           CANCEL
 *                                   else                           LOSE
 *   none, not begun                 over                           WITHDRAW it, and ask again
 *
 * CANCEL and LOSE mean another attempt; only LOSE counts against the limit of lost ones.
 */
#ifndef NEAP_SERIES_SLURM_DECIDE_H
#define NEAP_SERIES_SLURM_DECIDE_H

#include "series/slurm_text.h"
#include "store/result.h"

#include <stdbool.h>

enum neap_slurm_claimed {
	NEAP_SLURM_UNCLAIMED,
	NEAP_SLURM_WITHDRAWN, /* by us: no task may begin it */
	NEAP_SLURM_BEGUN,     /* by a task */
};

struct neap_slurm_facts {
	bool asked;   /* Slurm could be asked, and `state` is what it said */
	bool has_job; /* the array was submitted, as far as is known */
	enum neap_slurm_state state;
	enum neap_slurm_claimed claimed;
	bool begun_again; /* the same task has claimed the next attempt */
	bool lock_held;
	bool has_result;
	enum neap_outcome outcome; /* of that result */
};

enum neap_slurm_action {
	NEAP_SLURM_WAIT,
	NEAP_SLURM_TAKE,
	NEAP_SLURM_CANCEL,
	NEAP_SLURM_LOSE,
	NEAP_SLURM_WITHDRAW,
};

struct neap_slurm_verdict {
	enum neap_slurm_action action;
	enum neap_outcome outcome; /* TAKE: what the result is to say */
	bool counts;               /* WITHDRAW: once withdrawn it is lost, else canceled */
	const char *why;           /* for people; static; "" when the result says it all */
};

/* Whether a run that ended so may have been ended by Slurm. */
bool neap_slurm_may_have_ended(enum neap_outcome outcome);

struct neap_slurm_verdict neap_slurm_decide(const struct neap_slurm_facts *facts);

#endif
