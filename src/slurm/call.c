/* slurm/call.c: see call.h. */
#include "slurm/call.h"

#include "base/clock.h"
#include "base/error.h"
#include "base/paths.h"
#include "base/printable.h"

#include <errno.h>
#include <fcntl.h>
#include <poll.h>
#include <signal.h>
#include <stdbool.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/wait.h>
#include <unistd.h>

#define LIMIT_NS    (120 * NEAP_NS_PER_S)
#define LIMIT_BYTES (64u * 1024 * 1024)

extern char **environ;

static bool is_habit(const char *entry)
{
	static const char *const prefixes[] = {
		"SQUEUE_",           "SACCT_",       "SLURM_CLUSTERS=", "SBATCH_CLUSTERS=", "SBATCH_WAIT=",
		"SBATCH_ARRAY_INX=", "SBATCH_DEBUG="};
	for (size_t i = 0; i < sizeof prefixes / sizeof *prefixes; i++)
		if (!strncmp(entry, prefixes[i], strlen(prefixes[i])))
			return true;
	return false;
}

/* In the child: never returns. */
static void become(char *const *words, char **environment, int output_fd, int errors_fd, int report_fd)
{
	struct sigaction usual = {.sa_handler = SIG_DFL};
	setpgid(0, 0);
	sigaction(SIGPIPE, &usual, NULL);
	sigaction(SIGXFSZ, &usual, NULL);
	int null_fd = open("/dev/null", O_RDONLY | O_CLOEXEC);
	if (null_fd >= 0 && dup2(null_fd, STDIN_FILENO) >= 0 && dup2(output_fd, STDOUT_FILENO) >= 0 &&
	    dup2(errors_fd, STDERR_FILENO) >= 0)
		execvpe(words[0], words, environment);
	int cause = errno;
	ssize_t written = write(report_fd, &cause, sizeof cause);
	(void)written;
	_exit(127);
}

/* Reads both pipes until they end. */
static enum neap_status read_all(int fds[2], struct neap_buffer *buffers[2], const char *name, struct neap_error *err)
{
	const struct neap_deadline end = neap_deadline_in(neap_clock_system(), LIMIT_NS);
	bool open[2] = {true, true};
	char bytes[16384];
	while (open[0] || open[1]) {
		struct pollfd polled[2];
		for (int i = 0; i < 2; i++)
			polled[i] = (struct pollfd){.fd = open[i] ? fds[i] : -1, .events = POLLIN};
		if (neap_deadline_over(&end))
			return neap_fail(err, NEAP_ETIMEDOUT, "%s did not answer within two minutes", name);
		poll(polled, 2, 1000);
		for (int i = 0; i < 2; i++) {
			if (!polled[i].revents)
				continue;
			ssize_t got = read(fds[i], bytes, sizeof bytes);
			if (got > 0)
				neap_buffer_append(buffers[i], bytes, (size_t)got);
			else if (!got || (errno != EINTR && errno != EAGAIN))
				open[i] = false;
			if (buffers[i]->length > LIMIT_BYTES)
				return neap_fail(err, NEAP_EPROTO, "%s printed more than 64 MiB", name);
		}
	}
	return neap_buffer_status(buffers[0], err) ? NEAP_ENOMEM : neap_buffer_status(buffers[1], err);
}

/* EACCES may come from an unreadable folder of PATH: the command is missing all the same. */
static enum neap_status explain_exec(const char *name, int cause, struct neap_error *err)
{
	if (cause == ENOENT || (cause == EACCES && !neap_path_search(name)))
		return neap_fail(err, NEAP_ENOTSUP,
				 "%s is not on PATH: --slurm works on a machine with Slurm's commands "
				 "(Debian: slurm-client)",
				 name);
	return neap_fail_errno(err, cause, "starting %s", name);
}

static int wait_for(pid_t pid)
{
	int status = 0;
	while (waitpid(pid, &status, 0) < 0)
		if (errno != EINTR)
			return 255;
	return WIFSIGNALED(status) ? 128 + WTERMSIG(status) : WEXITSTATUS(status);
}

static char **make_environment(void)
{
	size_t count = 0, kept = 0;
	while (environ[count])
		count++;
	char **environment = calloc(count + 1, sizeof *environment);
	for (size_t i = 0; environment && i < count; i++)
		if (!is_habit(environ[i]))
			environment[kept++] = environ[i];
	return environment;
}

/* Runs it; *ret_exit_status is its own (128 + N: ended by signal N). */
static enum neap_status run(const struct neap_words *words, struct neap_buffer *buffers[2], char **environment,
			    int *ret_exit_status, struct neap_error *err)
{
	int pipes[3][2] = {{-1, -1}, {-1, -1}, {-1, -1}}; /* stdout, stderr, and why exec failed */
	const char *name = words->items[0];
	enum neap_status status = NEAP_OK;
	for (int i = 0; i < 3 && !status; i++)
		if (pipe2(pipes[i], O_CLOEXEC))
			status = neap_fail_errno(err, errno, "starting %s", name);
	pid_t pid = status ? -1 : fork();
	if (pid == 0)
		become(words->items, environment, pipes[0][1], pipes[1][1], pipes[2][1]);
	if (!status && pid < 0)
		status = neap_fail_errno(err, errno, "starting %s", name);
	for (int i = 0; i < 3; i++)
		if (pipes[i][1] >= 0)
			close(pipes[i][1]);
	if (!status) {
		int cause = 0, exit_status = 0;
		ssize_t got;
		while ((got = read(pipes[2][0], &cause, sizeof cause)) < 0 && errno == EINTR)
			;
		if (got == (ssize_t)sizeof cause)
			status = explain_exec(name, cause, err);
		else
			status = read_all((int[]){pipes[0][0], pipes[1][0]}, buffers, name, err);
		if (status)
			kill(pid, SIGKILL);
		exit_status = wait_for(pid);
		if (!status)
			*ret_exit_status = exit_status;
	}
	for (int i = 0; i < 3; i++)
		if (pipes[i][0] >= 0)
			close(pipes[i][0]);
	return status;
}

enum neap_status neap_slurm_call(const struct neap_words *words, struct neap_buffer *output, char complaint[200],
				 struct neap_error *err)
{
	struct neap_buffer errors = {0};
	char **environment = make_environment();
	int code = 0;
	enum neap_status status =
		environment ? run(words, (struct neap_buffer *[]){output, &errors}, environment, &code, err)
			    : neap_fail(err, NEAP_ENOMEM, "starting %s: out of memory", words->items[0]);
	complaint[0] = '\0';
	if (!status && code)
		neap_slurm_last_line(&errors, complaint, 200);
	if (!status && code && !*complaint)
		snprintf(complaint, 200, "exit status %d", code);
	neap_buffer_fini(&errors);
	free(environment);
	return status;
}

void neap_slurm_last_line(const struct neap_buffer *text, char *line, size_t room)
{
	const char *last = neap_buffer_string(text), *end = last + text->length;
	while (end > last && (end[-1] == '\n' || end[-1] == ' '))
		end--;
	for (const char *c = last; c < end; c++)
		if (*c == '\n')
			last = c + 1;
	const char *error = end > last ? memmem(last, (size_t)(end - last), "error: ", 7) : NULL;
	if (error)
		last = error + 7;
	neap_printable_bytes(line, room, last, (size_t)(end - last));
}
