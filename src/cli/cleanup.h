/* cli/cleanup.h: what `neap clear` and `neap reset` share: asking attached processes to empty their caches, and
 * saying what that gave back and what it cost. */
#ifndef NEAP_CLI_CLEANUP_H
#define NEAP_CLI_CLEANUP_H

#include "cli/command.h"

struct cleanup_options {
	const char *command; /* "clear" */
	bool force;
	bool stats_only;  /* empties nothing */
	bool reset_peaks; /* restarts the peak statistics afterwards */
	bool json;
};

/* For the processes that --pid and --all choose. Returns the exit code: the last failure's, when some did not. */
int cleanup_run(const struct neap_arguments *arguments, const struct cleanup_options *options);

#endif
