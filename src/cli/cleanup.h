/* cli/cleanup.h: `neap clear` and `neap reset`: attached processes are asked to empty their caches, and the answer
 * says what that gave back and what it cost. */
#ifndef NEAP_CLI_CLEANUP_H
#define NEAP_CLI_CLEANUP_H

#include "cli/command.h"

struct cleanup_options {
	bool force;
	bool stats_only;  /* empties nothing */
	bool reset_peaks; /* restarts the peak statistics afterwards: `neap reset` */
};

/* For the processes that --pid and --all choose. Returns the exit code: the last failure's, when some did not. */
int cleanup_run(const struct neap_arguments *arguments, const struct cleanup_options *options);

#endif
