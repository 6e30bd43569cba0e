/* cli/estimate_progress.h: what `neap estimate` and `neap check` do while runs are under way: they note signals, and
 * show on stderr what goes on: on a terminal one line that is written over, elsewhere a plain line every 10 s. */
#ifndef NEAP_CLI_ESTIMATE_PROGRESS_H
#define NEAP_CLI_ESTIMATE_PROGRESS_H

#include "estimate/runs.h"

/* SIGINT and SIGTERM are noted from here on; 0: none came. */
void estimate_catch_signals(void);
int estimate_interrupted(void);

struct estimate_progress {
	uint64_t next_ns; /* of what goes on, when it is shown again; 0: as soon as it may be */
};

/* The go_on of a struct neap_estimate_watch, whose context is a struct estimate_progress: until a signal has come. */
bool estimate_progress_go_on(void *context, const char *what, uint64_t elapsed_ns);

#endif
