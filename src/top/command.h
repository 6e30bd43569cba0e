/* top/command.h: `neap clear`, `fraction` and `kill` on behalf of `neap top`: the same command, started as a process
 * of its own, so that all its checks hold and nothing waits for it. One thread.
 *
 *   start --poll(fd)--> read ... -> done: its exit code and what it printed
 */
#ifndef NEAP_TOP_COMMAND_H
#define NEAP_TOP_COMMAND_H

#include "top/view.h"

struct neap_top_command {
	pid_t pid; /* 0: none runs */
	int fd;    /* readable when it has printed something, or has ended */
	bool preview;
	size_t length;
	char text[NEAP_TOP_TEXT]; /* what it printed so far; more is dropped */
};

/* Starts what view->verb asks of view->target; `preview`: only finds out what it would do. A process that has ended
 * is left alone: NEAP_ENOENT. Errors: NEAP_EIO. */
enum neap_status neap_top_command_start(struct neap_top_command *verb, const struct neap_top_view *view, bool preview,
					struct neap_error *err);

/* Reads what there is. True when it has ended: then `ret_code` has its exit code. */
bool neap_top_command_read(struct neap_top_command *verb, int *ret_code);

/* Lets it continue alone. */
void neap_top_command_leave(struct neap_top_command *verb);

#endif
