/* base/spawn.h: starts a child process, waits for its end and reads what it writes. libc only.
 *
 *   neap_spawn           fork, set up, exec     its end: neap_spawn_wait, neap_spawn_end
 *   neap_spawn_run       all of it: start, read its output, wait for its end
 *   neap_spawn_become    set up and exec, in this process
 *
 * Set-up, in this order: the death signal, the group or session, the signals, the standard descriptors, `run`, exec.
 *
 * No signal handler of this process runs in the child: a caught signal has its default action there, and so have
 * SIGPIPE and SIGXFSZ. Other ignored signals stay ignored (nohup). No signal is blocked, unless `blocked` says so.
 * The functions given to pthread_atfork run, as at any fork.
 *
 * A process with threads may spawn: the child calls only functions that are safe in a signal handler, as long as
 * `run` does so too. glibc's malloc is safe there too. Another library's lock is not: a thread may hold it at the
 * fork.
 *
 * run/guard.c alone forks without this, twice. Its command must get the user's signals as `neap run` got them,
 * ignored ones too, and both set the command's group before either goes on; run/supervise_child.c sets that command
 * up. The guard also looks at the command's end before it reaps it (WNOWAIT). estimate/runs.c reaps with wait4, which
 * reports how much memory a run took.
 */
#ifndef NEAP_BASE_SPAWN_H
#define NEAP_BASE_SPAWN_H

#include "base/buffer.h"
#include "base/clock.h"

#include <sys/types.h>
#include <sys/wait.h>

#define NEAP_SPAWN_NULL   (-1) /* a standard descriptor: /dev/null */
#define NEAP_SPAWN_FAILED 71   /* exit code of a child that could not be set up */

/* The child's process group and session. */
enum neap_spawn_place { NEAP_SPAWN_SAME_GROUP, NEAP_SPAWN_OWN_GROUP, NEAP_SPAWN_OWN_SESSION };

struct neap_spawn {
	const char *doing;   /* how a message begins: "starting a run" */
	char *const *argv;   /* of the program; NULL: there is none, the child is `run` */
	const char *program; /* its path; NULL: argv[0], looked up in PATH */
	char **environment;  /* NULL: this process's, with the changes that `run` makes */
	/* With a program: called before exec; returns 0, or an errno that neap_spawn reports. Without: the child's
	 * work; returns its exit code. It may also call _exit, never exit. NULL: nothing to do. */
	int (*run)(void *context);
	void *context;
	int fds[3]; /* the new standard descriptors: NEAP_SPAWN_NULL, or one above 2; 0: unchanged */
	enum neap_spawn_place place;
	int death_signal; /* the child gets it when the thread that started it ends; 0: none */
	bool blocked;     /* all signals are blocked in `run`: only SIGKILL and its own faults end it early */

	/* For neap_spawn_run only; neap_spawn ignores these. */
	struct neap_buffer *output, *errors; /* its stdout and stderr are appended; NULL: as `fds` says */
	size_t limit_bytes;                  /* of each of the two; 0: no limit */
	uint64_t limit_ns;                   /* of the child's run time; 0: no limit */
	bool (*go_on)(void *context);        /* called every 50 ms or more often; false: SIGTERM. NULL: not called */
};

/* Returns once the program runs, `run` included; without a program, at once. The caller waits for its end.
 * Errors: the errno of fork, of the set-up or of exec, also in err->cause. */
enum neap_status neap_spawn(const struct neap_spawn *spawn, pid_t *ret_child, struct neap_error *err);

/* Becomes the program. Returns only if that fails, with the errno. Ignores death_signal. */
int neap_spawn_become(const struct neap_spawn *spawn);

/* The exit code that a shell would report: the process's own, or 128 + N if signal N ended it. */
static inline int neap_exit_code(int wait_status)
{
	return WIFSIGNALED(wait_status) ? 128 + WTERMSIG(wait_status) : WEXITSTATUS(wait_status);
}

/* Waits for the end of a child and reaps it. *ret_code: its exit code (neap_exit_code); -1: unknown, because this
 * process ignores SIGCHLD. False: the deadline has passed, and the child runs; a deadline in the past only asks. */
bool neap_spawn_wait(pid_t child, struct neap_deadline deadline, int *ret_code);

/* As neap_spawn_wait, without a deadline: returns the exit code. */
int neap_spawn_end(pid_t child);

/* Starts the child, reads until it has ended, reaps it. Does not wait for later output of the child's own children.
 * Errors: those of neap_spawn; NEAP_ECANCELED: `go_on` ended it; NEAP_ETIMEDOUT and NEAP_EPROTO: it passed a limit,
 * and was killed; NEAP_ENOMEM. */
enum neap_status neap_spawn_run(const struct neap_spawn *spawn, int *ret_code, struct neap_error *err);

/* For `run`: closes all descriptors but the standard ones and `keep`, in any order. False: some may still be open. */
bool neap_spawn_close_others(const int *keep, size_t count);

#endif
