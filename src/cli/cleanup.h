/* cli/cleanup.h: what `neap clear` and `neap reset` share: asking attached processes to empty their caches, and
 * saying what that gave back and what it cost. */
#ifndef NEAP_CLI_CLEANUP_H
#define NEAP_CLI_CLEANUP_H

#include "cli/command.h"

/* For the help of both. */
#define CLEANUP_BOUND                                                                                                \
	"A process answers within 30 s, or: 75, and what it has not begun by then it does not do. One that is "      \
	"stopped cannot answer: 75 at once, nothing changed.\n"                                                      \
	"\n"                                                                                                         \
	"Exit codes: 0 done; 64 usage; 66 no such process, or it ended before it answered; 69 not attached; 75 no "  \
	"answer in time, stopped, or a graph is being captured just now; 76 it answered nonsense; 77 another "       \
	"user's. With several processes: the last failure's."

struct cleanup_options {
	const char *command; /* "clear" */
	bool force;
	bool stats_only;  /* empties nothing */
	bool reset_peaks; /* begins the peak statistics anew, afterwards */
	bool json;
};

/* For the processes that --pid and --all choose. Returns the exit code: the last failure's, when some did not. */
int cleanup_run(const struct neap_arguments *arguments, const struct cleanup_options *options);

#endif
