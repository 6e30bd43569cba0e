/* estimate/keeper.h: the process around a simulated run.
 *
 *   neap estimate ── keeper ── neap run ── the program
 *                    └ in the view (view.h) ─────────┘
 *
 * The keeper makes the view, starts `neap run` in it and passes SIGTERM on. When all of the run's processes have
 * ended, it measures what they wrote and leaves the facts in the run's folder. When its parent dies, the keeper ends,
 * and `neap run` with it: a view lives as long as a process in it. The keeper closes all descriptors that the user's
 * shell handed down: through them a program could write the user's files. One thread. */
#ifndef NEAP_ESTIMATE_KEEPER_H
#define NEAP_ESTIMATE_KEEPER_H

#include "estimate/view.h"

#include <sys/types.h>

struct neap_keeper_options {
	enum neap_view_kind kind; /* not IN_PLACE */
	struct neap_view_options view;
	/* If the parent is killed, the run's folder is removed, because nobody needs it. */
	bool temporary;
	const char *keep;  /* the folder of this run in --keep-writes, which exists; NULL: none */
	char *const *argv; /* of `neap run`, NULL-terminated */
	/* Called in the process that becomes `neap run`: sets its environment. Returns 0. */
	int (*prepare)(void *context);
	void *context;
};

/* Returns when `neap run` starts, or cannot be started; the program has not run yet. The keeper ends when the run
 * ends. Errors: NEAP_ECANCELED: a signal came; NEAP_ESTATE: the keeper was killed; others: the system does not allow
 * this kind, or something failed. */
enum neap_status neap_keeper_start(const struct neap_keeper_options *options, pid_t *ret_pid, struct neap_error *err);

#endif
