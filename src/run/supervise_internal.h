/* run/supervise_internal.h: the supervisor's parts, for supervise*.c only. */
#ifndef NEAP_RUN_SUPERVISE_INTERNAL_H
#define NEAP_RUN_SUPERVISE_INTERNAL_H

#include "analyze/oom.h"
#include "run/group.h"
#include "run/guard.h"
#include "run/last_output.h"
#include "run/observe.h"
#include "run/orphans.h"
#include "run/outcome.h"
#include "run/supervise.h"
#include "run/tee.h"

#include <signal.h>
#include <sys/types.h>

/* The command while it runs. */
struct neap_child {
	pid_t pid;      /* 0: none */
	bool own_group; /* pid is also its process group */
	bool ended;
	uint64_t killed_ns; /* when we sent SIGKILL; 0: not yet */
	int wait_status;    /* once ended */
	uint64_t ended_ns;
};

/* One run. The struct lies in memory that the supervisor shares with the guard. So when the supervisor is killed, the
 * guard has the newest figures and requests. Memory behind pointers is not shared: the guard sees it as it was when
 * the command started. So after that, only the memory of last_card may change. */
struct neap_supervise {
	struct neap_supervise_options options;
	char folder[4096], run_id[NEAP_RUN_ID_CAPACITY];
	int lock_fd, signal_fd;
	bool owned; /* we own the folder without a lock: base/owner.h */
	/* A file that reserves disk space for the result; -1 once the space is needed */
	int room_fd;
	sigset_t signals, mask_before; /* the signals we read; the mask that the command gets back */
	struct neap_monitor *monitor;  /* NULL: no driver */
	struct neap_observe observe;
	struct neap_group group; /* the command's */
	struct neap_guard guard; /* its parent; notes its end when we are killed */
	struct neap_tee tee;     /* passes its output on */
	/* The value of CUDA_VISIBLE_DEVICES for the command: UUIDs; "": unchanged */
	char visible[48 * NEAP_TURN_DEVICES];
	struct neap_parameters parameters; /* of this start */
	struct neap_ladder ladder;
	bool asks;            /* the program reports its batch, from which `parameters` and `ladder` are made */
	uint64_t batch_parts; /* how many parts it divides its batch into, in this start */
	bool model_alone;     /* the last failure: the model alone did not fit, whatever the batch */
	struct neap_child child;
	/* of this start */
	size_t rung;         /* its place on the ladder */
	uint64_t host_kills; /* the host's kill counter when this start began */
	int canceled_by;     /* the first signal from the user */
	unsigned cancel_count;
	struct neap_limits_state limits;
	uint64_t host_poll_ns; /* when to read host memory next */
	/* The length of stderr.log, or of the file that stderr is, when this start began */
	uint64_t started_ns, log_offset;
	uint64_t tee_offset;          /* how many bytes had passed through the tee when this start began */
	struct neap_last_output last; /* the end of its output; once ended */
	uint64_t cards_shown;
	/* How long after the start to search for a Python without neap's environment; 0: at the first sample */
	uint64_t astray_ns;
	char astray[400];         /* such a Python process, and the cause; "" if there is none */
	struct neap_keeps *keeps; /* the kept histories; only the supervisor uses them */
	/* of the whole run */
	bool started_once;
	uint64_t first_started_ns, first_wall_ns;
	uint64_t waited_ns, drain_ns, ooms;
	struct neap_buffer last_card; /* text; empty: no OOM */
	bool drained;
	bool simulated_reported; /* has reported that no kernel runs */
	char unwatched[256];     /* why no device could be named before the start; "" */
	char drain_note[512];
	uint32_t retries;
};

static inline const struct neap_clock *neap_supervise_clock(const struct neap_supervise *run)
{
	return run->options.clock ? run->options.clock : neap_clock_system();
}

static inline uint64_t neap_supervise_now(const struct neap_supervise *run)
{
	return neap_clock_now(neap_supervise_clock(run));
}

/* supervise_begin.c */

/* The command with the parameters of this start in place. The caller frees the words. */
enum neap_status neap_supervise_argv(const struct neap_supervise *run, char ***ret_argv, struct neap_error *err);
void neap_supervise_argv_free(char **argv);
/* The command's processes. */
struct neap_orphans_of neap_supervise_processes(const struct neap_supervise *run);
/* Frees part of the disk space reserved for the result, for RUN/ended. */
void neap_supervise_headroom_for_end(struct neap_supervise *run);

/* supervise.c */

/* In the guard, once the supervisor is dead and the command has ended: writes the end to disk, unless it is there. */
void neap_supervise_take_over(struct neap_supervise *run, int wait_status);

/* supervise_retry.c */

/* Forget the batch that the program reported, before a start; read it, once the command has ended. */
void neap_supervise_forget_batch(struct neap_supervise *run);
void neap_supervise_read_batch(struct neap_supervise *run);
/* Whether a command that ran out of memory would be started again. */
bool neap_supervise_has_rung(const struct neap_supervise *run);
/* If memory ran out, takes the next rung. False: there is none, and the log says why. */
bool neap_supervise_again(struct neap_supervise *run, const struct neap_verdict *verdict);

/* supervise_child.c */

/* Ends the guard of a start. A command that still runs ends with it. */
void neap_child_guard_end(struct neap_supervise *run);
/* Starts the command. *ret_spawn_errno: why exec failed, below 0: why its folder could not be entered; then there is
 * no child. Errors: those of the logs, of pipes and of the guard; nothing was started. */
enum neap_status neap_child_start(struct neap_supervise *run, char *const *argv, int *ret_spawn_errno,
				  struct neap_error *err);
/* Before any start: checks that the logs can be written. */
enum neap_status neap_child_logs_check(const struct neap_supervise *run, struct neap_error *err);
/* Sends a signal to the command, or to its whole group if it has its own. */
void neap_child_signal(struct neap_supervise *run, int number);
/* Sleeps until an event or for `wait_ns`; then reaps ended processes and passes signals on. */
void neap_child_wait(struct neap_supervise *run, uint64_t wait_ns);
enum neap_status neap_child_signals_begin(struct neap_supervise *run, struct neap_error *err);
void neap_child_signals_end(struct neap_supervise *run);

/* supervise_wait.c */

/* Waits until the run may start. *ret_may_start false: *evidence says why not. Errors: the queue's (run/turn.h). */
enum neap_status neap_supervise_wait(struct neap_supervise *run, struct neap_evidence *evidence, bool *ret_may_start,
				     struct neap_error *err);

/* supervise_limits.c */

/* Before any start: fails with NEAP_ENOSPC if the disk is already below its limit and has no room for a run's files.
 */
enum neap_status neap_supervise_limits_check(const struct neap_supervise *run, struct neap_error *err);
/* Reads the limited quantities, warns near a limit, and ends a command that crossed one. Returns the time when they
 * were read: reading may take long. */
uint64_t neap_supervise_limits_poll(struct neap_supervise *run, uint64_t now_ns);
/* Notes the limit that was crossed in this start. */
void neap_supervise_limits_evidence(const struct neap_supervise *run, struct neap_evidence *evidence);

/* supervise_spec.c */

/* Writes folder/spec.json. */
enum neap_status neap_supervise_spec_write(const struct neap_supervise *run, struct neap_error *err);

/* supervise_evidence.c */

/* Calls `visit` for each file of this start whose name is the prefix and a PID. */
void neap_facts_each_file(struct neap_supervise *run, const char *prefix,
			  void (*visit)(struct neap_supervise *run, const char *path, pid_t pid, void *context),
			  void *context);
/* Calls `visit` for each recording of this start. */
void neap_facts_each_recording(struct neap_supervise *run,
			       void (*visit)(struct neap_supervise *run, const char *path, pid_t pid, void *context),
			       void *context);
/* Once the command has ended: counts processes that no sample saw as attached. */
void neap_facts_meet_recorded(struct neap_supervise *run);
/* neap_record_read, retried for a while if host memory is short. */
enum neap_status neap_facts_read(const char *path, struct neap_record *ret_record, struct neap_error *err);
/* After a sample: shows the cards of OOMs since the last one. */
void neap_facts_show_cards(struct neap_supervise *run);
/* After a sample: reports once that the run is simulated, when its first process has loaded the stand-ins. */
void neap_facts_show_simulated(struct neap_supervise *run);
/* Collects evidence of its end from the recordings and logs of this start. */
void neap_facts_evidence(struct neap_supervise *run, struct neap_evidence *evidence);
/* Keeps the recordings of this start when another follows: record.PID becomes start-N.record.PID. */
void neap_facts_set_aside(struct neap_supervise *run);

/* supervise_astray.c: called at each sample, until a process of the run is simulated or attached. */
void neap_supervise_astray_poll(struct neap_supervise *run, uint64_t now_ns);

/* supervise_keep.c: only the supervisor calls these; the guard leaves kept events to neap_recordings_cut. */

/* At each sample: keeps what the recordings' rings will overwrite. */
void neap_supervise_keep_poll(struct neap_supervise *run);
/* Called when a start is over. The files stay. */
void neap_supervise_keep_end(struct neap_supervise *run);

/* supervise_last.c */

/* Before a start: notes where its output will begin. */
void neap_supervise_last_begin(struct neap_supervise *run);
/* After the command has ended: fills run->last, and the evidence that its output gives. */
void neap_supervise_last_read(struct neap_supervise *run, struct neap_evidence *evidence);

/* supervise_facts.c */

/* The facts known without its recordings: names, times, observations. Quick. The caller frees the result. */
enum neap_status neap_facts_plain(struct neap_supervise *run, const struct neap_verdict *verdict,
				  struct neap_result *ret_result, struct neap_error *err);
/* Adds the facts of the recordings, and the verdict. */
enum neap_status neap_facts_complete(struct neap_supervise *run, const struct neap_verdict *verdict,
				     struct neap_result *result, struct neap_error *err);
/* Does both: gives all facts, once the run is over. */
enum neap_status neap_facts_result(struct neap_supervise *run, const struct neap_verdict *verdict,
				   struct neap_result *ret_result, struct neap_error *err);

/* supervise_curve.c. Errors: NEAP_ENOMEM. */

/* Fills the result's samples; `record`: NULL none. */
enum neap_status neap_facts_curve(const struct neap_supervise *run, const struct neap_record *record,
				  struct neap_result *result, struct neap_error *err);
/* Fills its marks. */
enum neap_status neap_facts_marks(const struct neap_supervise *run, const struct neap_record *record,
				  struct neap_result *result, struct neap_error *err);

/* run_stage.c: see run_stage.h. Each is on disk when it returns. */

/* Before the first start. Errors: NEAP_ENOSPC, NEAP_EIO; then nothing may be started. */
enum neap_status neap_run_stage_begin(const struct neap_supervise *run, struct neap_error *err);
/* Before the files of a start are moved aside for a restart. */
void neap_run_stage_begin_again(const struct neap_supervise *run);
/* The command has ended. `rung_left`: after an OOM it would be restarted. */
enum neap_status neap_run_stage_end(struct neap_supervise *run, const struct neap_evidence *evidence, bool rung_left,
				    struct neap_error *err);

/* supervise_host.c */

/* The kills of the host's OOM killer so far; *ret_name: the counter's name. */
uint64_t neap_host_kills(const char **ret_name);

#endif
