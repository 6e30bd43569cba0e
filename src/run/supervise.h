/* run/supervise.h: one run of a command (`neap run`), from the wait for its memory to its result.
 *
 *   begin     make the folder, take its lock
 *   run       [ wait for the bytes it needs -> start -> observe until it ends -> end leftovers -> drain ]
 *             restart one rung further down, while it runs out of memory and the ladder has a rung
 *   publish   result.json, whole
 *   end       give up the lock
 *
 * The supervisor is the subreaper of the run: all descendants of the command stay below it, however often they fork.
 * The command's parent is a guard (run/guard.h). If the supervisor is killed, the guard ends the command, or writes
 * its end to disk if it had already ended. The command dies with its guard (PR_SET_PDEATHSIG). Without a control
 * group the command's other processes are then found by their environment: neap_orphans_end(run_id, 0, ...).
 *
 * Signals: every signal that can be caught and was not ignored from the start is passed on to the command, and none
 * ends the supervisor. SIGINT, SIGTERM and SIGHUP ask the command's process group to end, the second one as SIGKILL;
 * the others go to the command alone, or to its group if a terminal sent them, and the command handles them. At a
 * terminal the command stays in the supervisor's group, so that the shell does job control.
 *
 * Threads: one supervise per process, in its main thread; the signal mask is changed between begin and end, and
 * SIGCHLD's disposition is set to the default.
 */
#ifndef NEAP_RUN_SUPERVISE_H
#define NEAP_RUN_SUPERVISE_H

#include "base/clock.h"
#include "base/log.h"
#include "run/degrade.h"
#include "run/drain.h"
#include "run/limits.h"
#include "run/turn.h"
#include "store/result.h"

#define NEAP_RUN_ID_CAPACITY 64

/* The defaults of `neap run`. */
#define NEAP_RUN_WAIT_LIMIT_NS  (600ull * 1000000000ull)
#define NEAP_RUN_DRAIN_LIMIT_NS (60ull * 1000000000ull)
#define NEAP_RUN_GRACE_NS       (10ull * 1000000000ull)

/* The caller's data, borrowed until the supervise ends. In a zeroed struct, all but `command` and `folder` have their
 * defaults. */
struct neap_supervise_options {
	char *const *command;  /* NULL-terminated, {NAME} not replaced yet */
	const char *name;      /* NULL: the program's */
	const char *folder;    /* the run's; created if missing */
	bool has_lock;         /* `lock_fd` is an open, locked fd of folder/lock */
	int lock_fd;           /* taken over: closed at the end */
	const char *run_id;    /* NULL: a new one. Letters, digits, '.', '_' and '-', at most 63 */
	const char *device;    /* index or UUID; NULL: the first visible */
	bool only_device;      /* the command sees only `device` */
	const char *directory; /* where the command is started; NULL: where we are */
	struct neap_needs needs;
	uint64_t wait_limit_ns;       /* how long to wait for these bytes */
	const struct neap_turn *turn; /* asked before the first start; NULL: only free memory decides */
	uint64_t drain_limit_ns;
	struct neap_limits limits; /* of each start; crossing one ends it */
	struct neap_parameters parameters;
	struct neap_ladder ladder;
	/* --on-oom auto without rules: ends if the model alone is too large; if there is no ladder, the program
	 * reports its batch (auto_ladder.h) the program for its batch (auto_ladder.h) */
	bool automatic;
	uint32_t retries;         /* restarts after an OOM, at most */
	char *const *environment; /* "NAME=VALUE", NULL-terminated: set in the command's environment; NULL: nothing */
	bool clear_memory_on_start;                    /* first end leftovers of earlier runs: device/leftovers.h */
	bool log_files;                                /* stdout and stderr of the command into the folder */
	const struct neap_log_sink *log;               /* NULL: silent */
	void (*show)(void *context, const char *text); /* OOM cards, as they happen; NULL: not shown */
	void *show_context;
	const struct neap_clock *clock; /* NULL: the system's. It never changes the command or its output */
};

struct neap_supervise;

/* "20261121-093000-12345-012345678": unique on this machine. */
void neap_run_id_make(char text[NEAP_RUN_ID_CAPACITY]);

/* Errors: NEAP_EBUSY when the run is running already, NEAP_EEXIST when the folder has a result, NEAP_EINVAL for a bad
 * run id or a {NAME} in the command that is not a parameter, NEAP_ENODEVICE for a `device` that is not there,
 * NEAP_ENOSPC for a disk below its limit, and those of making a folder. */
enum neap_status neap_supervise_begin(const struct neap_supervise_options *options,
				      struct neap_supervise **ret_supervise, struct neap_error *err);

/* Runs the command to its end. Returns NEAP_OK however the command ended (see *ret_result). Errors are the
 * supervisor's own (NEAP_ENOMEM; NEAP_EIO: fork or pipes failed). The caller frees the result. */
enum neap_status neap_supervise_run(struct neap_supervise *supervise, struct neap_result *ret_result,
				    struct neap_error *err);

/* Writes folder/result.json, and cuts the recordings to their written length. Errors: NEAP_ENOSPC, NEAP_EIO; then
 * there is no result.json. The caller calls neap_run_stage_forget once the history has the run too, if the run goes
 * there. */
enum neap_status neap_supervise_publish(struct neap_supervise *supervise, const struct neap_result *result,
					struct neap_error *err);

/* The run's folder, absolute. Borrowed. */
const char *neap_supervise_folder(const struct neap_supervise *supervise);

/* The watched device's index, as `neap info` counts, and how many devices there are. False: none is watched. */
bool neap_supervise_device(const struct neap_supervise *supervise, size_t *ret_index, size_t *ret_count);

void neap_supervise_end(struct neap_supervise *supervise);

#endif
