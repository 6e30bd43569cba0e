/* estimate/keeper.c: see keeper.h. The keeper reports to its parent through a pipe whether the run starts: one byte
 * for yes, or a status and an error's message. */
#include "estimate/keeper.h"

#include "base/clock.h"
#include "base/error.h"
#include "base/file.h"
#include "base/process.h"
#include "base/spawn.h"
#include "run/run_stage.h"

#include <errno.h>
#include <fcntl.h>
#include <ftw.h>
#include <limits.h>
#include <signal.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/prctl.h>
#include <unistd.h>

#define STARTS     'y'
#define REAPS_MOST 200 /* of 50 ms */
#define REAP_NS    (50 * NEAP_NS_PER_MS)

static volatile sig_atomic_t runner; /* the PID of `neap run` */
static pid_t server;                 /* the PID of the process that serves views; 0: none, or it was reaped */

static void pass_on(int number)
{
	int error_number = errno;
	if (runner > 0)
		kill((pid_t)runner, number);
	errno = error_number;
}

static void set_handler(int number, void (*handler)(int))
{
	struct sigaction action = {.sa_handler = handler};
	sigaction(number, &action, NULL);
}

_Noreturn static void report(int pipe_fd, const struct neap_error *err)
{
	(void)!neap_fd_write(pipe_fd, err, sizeof *err, NULL);
	_exit(NEAP_SPAWN_FAILED);
}

struct start {
	const struct neap_keeper_options *options;
	int pipe_fd; /* to the keeper's parent */
	pid_t parent;
	char program[PATH_MAX]; /* neap itself */
};

/* Called in the process that becomes `neap run`. */
static int enter(void *context)
{
	const struct start *start = context;
	const struct neap_keeper_options *options = start->options;
	struct neap_error err = {0};
	options->prepare(options->context);
	if (options->kind == NEAP_VIEW_LANDLOCK ? neap_view_restrict(options->view.folder, &err)
						: neap_view_find_temporary(options->view.folder, &err))
		report(start->pipe_fd, &err);
	if (access(start->program, X_OK)) {
		neap_fail_errno(&err, errno, "%s: neap itself, in the view", start->program);
		report(start->pipe_fd, &err);
	}
	(void)!neap_fd_write(start->pipe_fd, &(char){STARTS}, 1, NULL);
	return 0;
}

static bool kill_child(void *context, const struct neap_process *process)
{
	(void)context;
	if (process->parent == getpid())
		kill(process->pid, SIGKILL);
	return true;
}

/* Ends the processes that a killed `neap run` left behind. They are this process's children now. */
static void end_the_rest(void)
{
	for (int i = 0; i < REAPS_MOST; i++) {
		pid_t ended;
		while ((ended = waitpid(-1, NULL, WNOHANG)) > 0)
			;
		if (ended < 0 && errno == ECHILD)
			return;
		neap_process_each(kill_child, NULL, NULL);
		neap_clock_sleep(neap_clock_system(), REAP_NS);
	}
}

/* Returns how `neap run` ended, as of wait(2). */
static int wait_for_run(void)
{
	int status = 0, other;
	pid_t ended;
	while ((ended = waitpid(-1, &other, 0)) != (pid_t)runner) {
		if (ended < 0 && errno != EINTR)
			return -1;
		if (ended == server)
			server = 0;
	}
	status = other;
	runner = 0;
	return status;
}

/* Starts `neap run` with the signals blocked, so that a signal that comes meanwhile is passed on. A terminal signals
 * every process: the keeper outlives its signals, to clean up. */
static enum neap_status start_run(struct start *start, struct neap_error *err)
{
	static const int of_terminal[] = {SIGINT, SIGHUP, SIGQUIT};
	sigset_t held, before;
	pid_t child = 0;
	sigemptyset(&held);
	sigaddset(&held, SIGTERM);
	for (size_t i = 0; i < 3; i++)
		sigaddset(&held, of_terminal[i]);
	sigprocmask(SIG_BLOCK, &held, &before);
	enum neap_status status = neap_spawn(&(struct neap_spawn){.doing = "starting a run",
								  .program = start->program,
								  .argv = start->options->argv,
								  .run = enter,
								  .context = start,
								  .death_signal = SIGTERM},
					     &child, err);
	runner = child;
	set_handler(SIGTERM, pass_on);
	for (size_t i = 0; i < 3; i++)
		set_handler(of_terminal[i], SIG_IGN);
	sigprocmask(SIG_SETMASK, &before, NULL);
	return status;
}

/* --- views of what the program forks --- */

struct service {
	int socket_fd;
	const struct neap_view *view;
	const struct neap_view_options *options;
};

static int serve(void *context)
{
	const struct service *service = context;
	return neap_view_serve(service->socket_fd, service->view, service->options);
}

/* Starts the service of views. Without it, the program forks no runs for other GPUs. */
static void start_service(const struct neap_view *view, const struct neap_view_options *options)
{
	struct service service = {neap_view_listen(options->folder), view, options};
	pid_t child;
	if (service.socket_fd < 0)
		return;
	if (!neap_spawn(
		    &(struct neap_spawn){
			    .doing = "serving views", .run = serve, .context = &service, .death_signal = SIGKILL},
		    &child, NULL))
		server = child;
	close(service.socket_fd);
}

static void end_service(const char *folder)
{
	neap_view_stop_listening(folder);
	if (server > 0)
		kill(server, SIGKILL);
}

/* --- after the death of the parent --- */

/* The folders above the run's folder, as they are outside the view. */
struct above {
	int fds[2];         /* the estimate's folder, and the one that it is in; -1: not known */
	char names[2][256]; /* the run's folder, and the estimate's */
};

static void find_above(const char *folder, struct above *above)
{
	char path[PATH_MAX];
	snprintf(path, sizeof path, "%s", folder);
	for (size_t i = 0; i < 2; i++) {
		char *slash = strrchr(path, '/');
		if (!slash || slash == path)
			return;
		snprintf(above->names[i], sizeof above->names[i], "%s", slash + 1);
		*slash = '\0';
		above->fds[i] = open(path, O_RDONLY | O_DIRECTORY | O_CLOEXEC);
	}
}

static int remove_entry(const char *path, const struct stat *status, int kind, struct FTW *place)
{
	(void)status;
	(void)kind;
	if (place->level > 0)
		(void)remove(path);
	return 0;
}

/* Of several runs, the last one to end removes the estimate's folder. */
static void remove_folders(const char *folder, const struct above *above)
{
	(void)nftw(folder, remove_entry, 16, FTW_DEPTH | FTW_PHYS);
	for (size_t i = 0; i < 2; i++)
		if (above->fds[i] >= 0)
			(void)unlinkat(above->fds[i], above->names[i], AT_REMOVEDIR);
}

/* The keeper's process. Closes every file that it inherited: each could lead the program out of its view. */
static int keep(void *context)
{
	struct start *start = context;
	const struct neap_keeper_options *options = start->options;
	struct neap_view view = {.scratch_fd = -1, .machine_fd = -1, .root_fd = -1, .facts = {.kind = options->kind}};
	struct neap_error err = {0};
	struct above above = {.fds = {-1, -1}};
	int keep_fd = -1;
	if (!neap_spawn_close_others(&start->pipe_fd, 1))
		neap_fail_errno(&err, errno, "/proc/self/fd");
	int null_fd = open("/dev/null", O_RDWR | O_CLOEXEC);
	if (!err.status && (null_fd < 0 || dup2(null_fd, STDIN_FILENO) < 0))
		neap_fail_errno(&err, errno, "/dev/null");
	ssize_t length = readlink("/proc/self/exe", start->program, sizeof start->program - 1);
	if (!err.status && (length < 0 || prctl(PR_SET_CHILD_SUBREAPER, 1)))
		neap_fail_errno(&err, errno, "starting a run");
	if (!err.status && options->keep && (keep_fd = open(options->keep, O_RDONLY | O_DIRECTORY | O_CLOEXEC)) < 0)
		neap_fail_errno(&err, errno, "%s", options->keep);
	find_above(options->view.folder, &above);
	if (!err.status && options->kind == NEAP_VIEW_MOUNTS)
		neap_view_enter(&options->view, &view, &err);
	if (err.status)
		report(start->pipe_fd, &err);
	prctl(PR_SET_PDEATHSIG, SIGTERM); /* a change of credentials clears it, so set it now */
	if (getppid() != start->parent)
		_exit(NEAP_SPAWN_FAILED);
	if (options->kind == NEAP_VIEW_MOUNTS && options->view.forks)
		start_service(&view, &options->view);
	if (start_run(start, &err))
		report(start->pipe_fd, &err);
	close(start->pipe_fd);
	int status = wait_for_run();
	end_service(options->view.folder);
	neap_run_stage_resolve(options->view.folder); /* the run's guard, now our child, may still write the end */
	end_the_rest();
	if (options->kind == NEAP_VIEW_MOUNTS)
		neap_view_measure(&view, keep_fd);
	if (options->temporary && getppid() != start->parent)
		remove_folders(options->view.folder, &above);
	else
		(void)!neap_view_facts_write(options->view.folder, &view.facts, NULL);
	return neap_exit_code(status);
}

/* Waits for the first report of the keeper. */
static enum neap_status hear(int pipe_fd, struct neap_error *err)
{
	struct neap_error heard = {0};
	size_t length = 0;
	while (length < sizeof heard) {
		ssize_t count = read(pipe_fd, (char *)&heard + length, sizeof heard - length);
		if (count < 0 && errno == EINTR)
			return neap_fail(err, NEAP_ECANCELED, "stopped");
		if (count <= 0)
			break;
		length += (size_t)count;
		if (length == 1 && *(char *)&heard == STARTS)
			return NEAP_OK;
	}
	if (length < sizeof heard)
		return neap_fail(err, NEAP_ESTATE, "the process that isolates the run was killed");
	heard.message[sizeof heard.message - 1] = '\0';
	return neap_fail(err, heard.status, "%s", heard.message);
}

enum neap_status neap_keeper_start(const struct neap_keeper_options *options, pid_t *ret_pid, struct neap_error *err)
{
	int ends[2];
	if (pipe2(ends, O_CLOEXEC))
		return neap_fail_errno(err, errno, "starting a run");
	pid_t child = 0;
	enum neap_status status =
		neap_spawn(&(struct neap_spawn){.doing = "starting a run",
						.run = keep,
						.context = &(struct start){options, ends[1], getpid(), ""},
						.death_signal = SIGTERM},
			   &child, err);
	close(ends[1]);
	if (!status)
		status = hear(ends[0], err);
	close(ends[0]);
	if (status && child > 0) {
		kill(child, SIGTERM);
		neap_spawn_end(child);
	}
	if (!status)
		*ret_pid = child;
	return status;
}
