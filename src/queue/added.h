/* queue/added.h: commands that wait in the queue without a terminal (`neap queue add`).
 *
 *   RUN/queued     texts that end with a NUL: how many come before the environment; the options of `neap run`, "--",
 *                  the command; the environment. 0600, and removed when the run is over
 *   RUN/revive     the queue's folder: a command of this run wanted the runner
 *   RUN/neap.log   what `neap run` prints; RUN/stdout.log and RUN/stderr.log have the command's output
 *
 * An added ticket outlives its process. The user's runner (`neap queue run`, one for each user) starts a `neap run`
 * for each such ticket that has none, and hands the ticket's lock on to it. After a kill at any instant, the run's
 * folder tells the runner what to do (run/run_stage.h):
 *
 *   its lock is held             the guard of a killed supervisor is still ending the command: the runner waits
 *   no command was started       the same run is started again, at its place in the queue. If its `neap run` did not
 *                                reach the queue, or failed there for a reason that may pass (a full disk), it is
 *                                started after a pause (neap_ticket_pause_ns). After NEAP_QUEUE_TRIES of these starts
 *                                the ticket has given up
 *   its command had ended        the runner makes the run's result and removes the ticket, and does not run it again
 *   it has a result              the runner removes the ticket
 *   its command was killed       another run is started, in another folder, at the same place. After NEAP_QUEUE_LOST
 *                                lost runs the ticket has given up, and waits for `neap queue resume` or `end`
 *
 * The runner ends when none of its user's tickets is left, and comes back with the next `neap queue` of any kind.
 */
#ifndef NEAP_QUEUE_ADDED_H
#define NEAP_QUEUE_ADDED_H

#include "queue/queue.h"
#include "run/argv.h"

#define NEAP_QUEUE_STARTED 32 /* so many of a user's added tickets, the first ones, have a waiting process at once */

struct neap_added {
	const struct neap_argv *options; /* the options of `neap run`, without those that this module adds */
	char *const *command;            /* NULL-terminated */
	struct neap_needs needs;
	uint32_t gpus;
	const char *device; /* NULL: any */
};

/* Makes a ticket, last in order, that has no process yet, and its run's folder. Then call neap_queue_revive. Takes
 * the queue's lock. Errors: NEAP_EINVAL: it needs more than the machine has; those of making a folder and a
 * ticket. */
enum neap_status neap_queue_add(struct neap_queue *queue, struct neap_monitor *monitor,
				const struct neap_added *added, struct neap_ticket *ret_ticket,
				struct neap_error *err);

/* Removes RUN/queued: an environment may hold secrets, and once the run is over nobody needs it. */
void neap_added_forget(const char *folder);

/* Starts the user's runner if there is none and an added ticket has no process. `program`: neap's own. Inside a run
 * it writes RUN/revive instead, so that the run starts the runner when it is over: a runner inside a run would end
 * with it. */
enum neap_status neap_queue_revive(struct neap_queue *queue, const char *program, struct neap_error *err);

/* Called for a run that is over. Starts the runner if the run's RUN/revive asks for it. */
enum neap_status neap_queue_revive_left(const char *run_folder, const char *program, struct neap_error *err);

/* Works as the user's runner. Returns when nothing is left to do, or another process is the runner. */
enum neap_status neap_queue_runner(struct neap_queue *queue, const char *program, struct neap_error *err);

#endif
