/* cli/cleanup.h: `neap clear` and `neap reset`: they ask attached processes to empty their caches, and report the
 * bytes given back and the cost. */
#ifndef NEAP_CLI_CLEANUP_H
#define NEAP_CLI_CLEANUP_H

#include "cli/command.h"

struct cleanup_options {
	bool force;
	bool stats_only;  /* empties nothing */
	bool reset_peaks; /* restarts the peak statistics afterwards: `neap reset` */
};

/* For the processes that --pid and --all choose. Returns the exit code: the last failure's, if some failed. */
int cleanup_run(const struct neap_arguments *arguments, const struct cleanup_options *options);

#endif
