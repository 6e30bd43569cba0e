/* kill/end.h: ends the processes of a plan, and all that they start meanwhile.
 *
 *   SIGTERM, SIGCONT -> a time of grace; new processes get SIGTERM once all earlier ones have ended
 *   those that remain: SIGSTOP, search, SIGSTOP to new ones, ... until there are none: a stopped process cannot fork
 *   SIGKILL to all of them
 *
 * Every signal goes through a pidfd whose start time was compared: never to a reused PID.
 */
#ifndef NEAP_KILL_END_H
#define NEAP_KILL_END_H

#include "kill/work.h"

/* Fills work->ended, and adds new processes to work->plan. Takes at most the grace and about 30 s. Errors:
 * NEAP_ENOMEM, NEAP_EIO without /proc; if work->ended is set then, the processes in it were signalled. */
enum neap_status neap_kill_end(struct neap_kill_work *work, struct neap_error *err);

/* Makes a plan for `choices` from the current processes. */
enum neap_status neap_kill_plan_now(const struct neap_kill_choice *choices, size_t choice_count,
				    struct neap_kill_plan *ret_plan, struct neap_error *err);

#endif
