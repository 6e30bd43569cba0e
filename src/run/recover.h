/* run/recover.h: completes the runs of STATE/runs whose supervisor was killed between the end of the command and the
 * run's entry in the history. One thread. */
#ifndef NEAP_RUN_RECOVER_H
#define NEAP_RUN_RECOVER_H

#include "store/history.h"

/* Runs in STATE/runs that have a supervisor and no result yet. */
struct neap_run_unfinished {
	size_t running;
	size_t draining; /* the command has ended, its memory is not free yet */
};

/* Makes the missing results, and puts them into the history at `path`. Opens the history if *history is NULL. Calls
 * `report` for each run that failed; the next call tries it again. */
void neap_run_recover_all(const char *state, const char *path, struct neap_history **history,
			  void (*report)(const char *folder, const struct neap_error *err),
			  struct neap_run_unfinished *ret_unfinished);

#endif
