/* top/command.c: see the header. */
#include "top/command.h"

#include "base/error.h"
#include "base/process.h"
#include "base/spawn.h"

#include <errno.h>
#include <fcntl.h>
#include <signal.h>
#include <stdio.h>
#include <string.h>
#include <unistd.h>

#define WORDS 8

/* Runs in the child: lets it survive a closed pipe. */
static int outlive_reader(void *unused)
{
	(void)unused;
	signal(SIGPIPE, SIG_IGN);
	return 0;
}

static void make_argv(const struct neap_top_view *view, bool preview, char pid[16], char fraction[NEAP_TOP_ENTRY],
		      char *argv[WORDS])
{
	static char program[] = "neap", clear[] = "clear", limit[] = "fraction", end[] = "kill", by_pid[] = "--pid",
		    dry_run[] = "--dry-run", yes[] = "--yes";
	size_t count = 0;
	snprintf(pid, 16, "%d", (int)view->target.pid);
	memcpy(fraction, view->fraction, NEAP_TOP_ENTRY);
	argv[count++] = program;
	argv[count++] = view->verb == NEAP_TOP_KILL ? end : view->verb == NEAP_TOP_CLEAR ? clear : limit;
	if (view->verb == NEAP_TOP_FRACTION)
		argv[count++] = fraction;
	argv[count++] = by_pid;
	argv[count++] = pid;
	if (view->verb == NEAP_TOP_KILL)
		argv[count++] = preview ? dry_run : yes;
	argv[count] = NULL;
}

enum neap_status neap_top_command_start(struct neap_top_command *verb, const struct neap_top_view *view, bool preview,
					struct neap_error *err)
{
	char pid[16], fraction[NEAP_TOP_ENTRY], *argv[WORDS];
	struct neap_error why;
	pid_t child;
	int ends[2];
	make_argv(view, preview, pid, fraction, argv);
	if (!neap_process_alive(view->target.pid, view->target.start_ticks))
		return neap_fail(err, NEAP_ENOENT, "process %d (%.40s) has ended: nothing was done",
				 (int)view->target.pid, view->target.command);
	if (pipe2(ends, O_CLOEXEC | O_NONBLOCK) != 0)
		return neap_fail(err, NEAP_EIO, "starting neap %s: %s", argv[1], strerror(errno));
	fcntl(ends[1], F_SETFL, 0); /* the command expects that writing to its end blocks */
	/* in a session of its own, where Ctrl-C does not reach it */
	enum neap_status status = neap_spawn(&(struct neap_spawn){.doing = "starting it",
								  .program = "/proc/self/exe",
								  .argv = argv,
								  .run = outlive_reader,
								  .fds = {NEAP_SPAWN_NULL, ends[1], ends[1]},
								  .place = NEAP_SPAWN_OWN_SESSION},
					     &child, &why);
	close(ends[1]);
	if (status) {
		close(ends[0]);
		return neap_fail(err, NEAP_EIO, "starting neap %s: %s", argv[1], strerror(why.cause));
	}
	verb->pid = child;
	verb->fd = ends[0];
	verb->preview = preview;
	verb->length = 0;
	verb->text[0] = '\0';
	return NEAP_OK;
}

bool neap_top_command_read(struct neap_top_command *verb, int *ret_code)
{
	char bytes[1024];
	ssize_t n;
	while ((n = read(verb->fd, bytes, sizeof bytes)) > 0) {
		size_t capacity = sizeof verb->text - 1 - verb->length;
		size_t kept = (size_t)n < capacity ? (size_t)n : capacity;
		memcpy(verb->text + verb->length, bytes, kept);
		verb->length += kept;
		verb->text[verb->length] = '\0';
	}
	if (n < 0 && (errno == EAGAIN || errno == EINTR))
		return false;
	close(verb->fd);
	*ret_code = neap_spawn_end(verb->pid);
	verb->pid = 0;
	return true;
}

void neap_top_command_leave(struct neap_top_command *verb)
{
	if (verb->pid)
		close(verb->fd);
	verb->pid = 0;
}
