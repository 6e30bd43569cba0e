/* cli/history_recover.h: runs whose supervisor was killed after their command had ended (run/run_stage.h), and before
 * the history had them. */
#ifndef NEAP_CLI_HISTORY_RECOVER_H
#define NEAP_CLI_HISTORY_RECOVER_H

#include "store/history.h"

/* Runs in STATE/runs that have a supervisor and no result yet. */
struct history_unfinished {
	size_t running;
	size_t draining; /* the command has ended, its memory is not free yet */
};

/* Makes the result of each such run in STATE/runs where there is none, and puts it into the history at `path`, which
 * is opened where it is not (*history NULL). Failures are printed; the next call tries again. */
void history_recover(const char *state, const char *path, struct neap_history **history,
		     struct history_unfinished *ret_unfinished);

#endif
