/* series/step.h: decides the next step of a series. Pure: no files, no processes, no clock.
 *
 *   state of an experiment, from the journal            state of its open attempt      next
 *   ------------------------------------------------    -----------------------------------    ---------------
 *   ended                                               -                                      the next one
 *   no open attempt, fewer than `limit` lost            -                                      START
 *   no open attempt, `limit` lost                       -                                      GIVE_UP
 *   open attempt (started, no end)                      its lock is held                       WAIT
 *   open attempt                                        lock free, a result, or its command
 *                                                       has ended and one can be made          TAKE
 *   open attempt                                        lock free, its command never began     SKIP
 *   open attempt                                        lock free, neither                     LOSE
 *   all ended                                           -                                      FINISH
 *
 * Experiments start in the file's order, one at a time or as many as the file allows.
 *
 *   invariant: at most `parallel` experiments have an open attempt, and none that has ended
 */
#ifndef NEAP_SERIES_STEP_H
#define NEAP_SERIES_STEP_H

#include <stdbool.h>
#include <stddef.h>
#include <stdint.h>

struct neap_step_experiment {
	uint32_t attempts;   /* started so far; the open or last one has this number */
	uint32_t lost;       /* how many of them were lost */
	bool open;           /* the last one was started and has no end */
	bool ended;          /* it has a result that counts */
	uint32_t failed;     /* attempts that failed and led to another */
	uint32_t deviceless; /* attempts that lost their device and led to another */
};

/* The state of the open attempt, from its lock and files. */
enum neap_step_found {
	NEAP_STEP_FOUND_NOTHING, /* lock free, no result: its supervisor died while its command ran */
	NEAP_STEP_FOUND_UNBEGUN, /* lock free, and its command was never begun */
	NEAP_STEP_FOUND_ENDED,   /* lock free, its command has ended, no result yet */
	NEAP_STEP_FOUND_LOCK,    /* its lock is held: its supervisor lives */
	NEAP_STEP_FOUND_RESULT,  /* lock free, and a result */
};

enum neap_step_kind {
	NEAP_STEP_START,
	NEAP_STEP_WAIT,
	NEAP_STEP_TAKE,
	NEAP_STEP_LOSE,
	NEAP_STEP_SKIP, /* count it as not started */
	NEAP_STEP_GIVE_UP,
	NEAP_STEP_FINISH,
};

struct neap_step {
	enum neap_step_kind kind;
	size_t experiment; /* which; `count` for FINISH */
	uint32_t attempt;  /* its number, from 1; START: the new one */
};

/* The first experiment from `from` on with an open attempt, or `count`: check it before asking for the next step. */
size_t neap_step_open(const struct neap_step_experiment *experiments, size_t count, size_t from);

/* The next step for an open attempt in this state: WAIT, TAKE, SKIP or LOSE. */
enum neap_step_kind neap_step_of_open(enum neap_step_found found);

/* Returns the next step besides the open attempts: START, GIVE_UP or FINISH. Returns WAIT (with experiment `count`,
 * for any of them) if `parallel` attempts are open, or if no other experiment is left. */
struct neap_step neap_step_beside(const struct neap_step_experiment *experiments, size_t count, size_t parallel,
				  uint32_t limit);

/* Decides for a series that runs one experiment at a time. `found`: the state of the first open attempt; ignored if
 * there is none. */
struct neap_step neap_step_next(const struct neap_step_experiment *experiments, size_t count,
				enum neap_step_found found, uint32_t limit);

#endif
