/* cli/top_verb.h: `neap clear`, `fraction` and `kill` on behalf of `neap top`: the same command, started as a process
 * of its own, so that all its checks hold and nothing waits for it. One thread.
 *
 *   start --poll(fd)--> read ... -> done: its exit code and what it printed
 */
#ifndef NEAP_CLI_TOP_VERB_H
#define NEAP_CLI_TOP_VERB_H

#include "top/view.h"

struct top_verb {
	pid_t pid; /* 0: none runs */
	int fd;    /* readable when it has printed something, or has ended */
	bool preview;
	size_t length;
	char text[NEAP_TOP_TEXT]; /* what it printed so far; more is dropped */
};

/* Starts what view->verb asks of view->target; `preview`: only finds out what it would do. A process that has ended
 * is left alone: NEAP_ENOENT. Errors: NEAP_EIO. */
enum neap_status top_verb_start(struct top_verb *verb, const struct neap_top_view *view, bool preview,
				struct neap_error *err);

/* Reads what there is. True when it has ended: then `ret_code` has its exit code. */
bool top_verb_read(struct top_verb *verb, int *ret_code);

/* Lets it continue alone. */
void top_verb_leave(struct top_verb *verb);

#endif
