/* run/guard.c: see guard.h. */
#include "run/guard.h"

#include "base/file.h"
#include "run/group.h"

#include <errno.h>
#include <fcntl.h>
#include <signal.h>
#include <stdio.h>
#include <string.h>
#include <sys/prctl.h>
#include <sys/wait.h>
#include <unistd.h>

/* Closes everything but the pipe: no lock, and no reader of the run's output, may wait for us. */
static int close_all_but(int pipe_fd)
{
	int null_fd = open("/dev/null", O_RDWR);
	for (int fd = 0; null_fd >= 0 && fd <= 2; fd++)
		dup2(null_fd, fd);
	if (pipe_fd != 3)
		dup2(pipe_fd, 3);
	close_range(4, ~0u, 0);
	setsid();
	if (chdir("/"))
		return 3;
	return 3;
}

/* Never returns. Ignores signals sent to the whole group or session: it ends when its supervisor does. */
static void guard(int pipe_fd)
{
	char line[4200] = "", heard[4200];
	size_t length = 0;
	ssize_t got;
	sigset_t all;
	sigfillset(&all);
	sigprocmask(SIG_SETMASK, &all, NULL);
	prctl(PR_SET_PDEATHSIG, 0);
	prctl(PR_SET_NAME, "neap-guard");
	int fd = close_all_but(pipe_fd);
	char byte;
	while ((got = read(fd, &byte, 1)) > 0 || (got < 0 && errno == EINTR)) {
		if (got < 0)
			continue;
		if (byte != '\n' && length < sizeof heard - 1) {
			heard[length++] = byte;
			continue;
		}
		heard[length] = '\0';
		memcpy(line, heard, length + 1);
		length = 0;
	}
	if (line[0]) {
		struct neap_group group = {0};
		snprintf(group.path, sizeof group.path, "%s", line);
		neap_group_kill(group.path);
		neap_group_remove(&group);
	}
	_exit(0);
}

void neap_guard_start(struct neap_guard *ret_guard)
{
	int fds[2];
	*ret_guard = (struct neap_guard){.fd = -1};
	if (pipe2(fds, O_CLOEXEC))
		return;
	pid_t pid = fork();
	if (!pid) {
		close(fds[1]);
		guard(fds[0]);
	}
	close(fds[0]);
	if (pid < 0)
		close(fds[1]);
	else
		*ret_guard = (struct neap_guard){pid, fds[1]};
}

void neap_guard_set_group(struct neap_guard *guard, const char *path)
{
	char line[4300];
	int length = snprintf(line, sizeof line, "%s\n", path ? path : "");
	if (guard->pid)
		neap_fd_write(guard->fd, line, (size_t)length, NULL); /* it is dead: nothing can be done */
}

void neap_guard_end(struct neap_guard *guard)
{
	if (!guard->pid)
		return;
	neap_guard_set_group(guard, NULL);
	close(guard->fd);
	while (waitpid(guard->pid, NULL, 0) < 0 && errno == EINTR)
		;
	*guard = (struct neap_guard){.fd = -1};
}
