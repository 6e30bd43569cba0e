/* cli/kill_end.h: ends what a plan says, so that nothing of it is left.
 *
 *   SIGTERM, SIGCONT -> a time of grace; what came meanwhile gets its SIGTERM when all that were asked for are gone
 *   those left: SIGSTOP, look again, SIGSTOP to what is new, ... until nothing is: a stopped process forks no more
 *   SIGKILL to all of them
 *
 * Every signal goes through a pidfd whose start time was compared: never to a reused PID.
 */
#ifndef NEAP_CLI_KILL_END_H
#define NEAP_CLI_KILL_END_H

#include "cli/kill_report.h"

/* Fills work->ended, and adds what came meanwhile to work->plan. At most the grace and some 30 s. Errors:
 * NEAP_ENOMEM, NEAP_EIO without /proc; where work->ended is set, the processes that it has were signalled. */
enum neap_status kill_end(struct kill_work *work, struct neap_error *err);

/* A plan for `choices` from the processes that there are now. */
enum neap_status kill_plan_now(const struct kill_choice *choices, size_t choice_count, struct kill_plan *ret_plan,
			       struct neap_error *err);

#endif
