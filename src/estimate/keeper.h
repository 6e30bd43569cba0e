/* estimate/keeper.h: the process around a simulated run.
 *
 *   neap estimate ── keeper ── neap run ── the program
 *                    └ in the view (view.h) ─────────┘
 *
 * The keeper makes the view, starts `neap run` in it, passes SIGTERM on, and when all of the run's processes have
 * ended measures what was written and leaves the facts in the run's folder. It ends with its parent, and `neap run`
 * with it: a view lives as long as a process in it. All descriptors that the user's shell handed down are closed: a
 * program could write a file of the user through them. One thread. */
#ifndef NEAP_ESTIMATE_KEEPER_H
#define NEAP_ESTIMATE_KEEPER_H

#include "estimate/view.h"

#include <sys/types.h>

struct neap_keeper_options {
	enum neap_view_kind kind; /* not IN_PLACE */
	struct neap_view_options view;
	bool temporary;                /* nobody needs the run's folder if the parent is killed: it is removed then */
	const char *keep;              /* the folder of this run in --keep-writes, which is there; NULL: none */
	char *const *argv;             /* of `neap run`, NULL-terminated */
	int (*prepare)(void *context); /* in the process that becomes `neap run`: its environment. Returns 0 */
	void *context;
};

/* Returns when `neap run` starts, or cannot be started; nothing of the program has run then. Its end is the keeper's
 * end. Errors: NEAP_ECANCELED: a signal came; NEAP_ESTATE: the keeper was killed; others: the system does not allow
 * this kind, or something failed. */
enum neap_status neap_keeper_start(const struct neap_keeper_options *options, pid_t *ret_pid, struct neap_error *err);

#endif
