/* neap/train.h: the training session: what a training loop tells neap, and what neap does for it.
 *
 * The loop reports instants (marks), steps and out-of-memory; the session cleans up when asked to, watches for leaks,
 * keeps the effective batch size while it takes rungs of the degradation ladder, and writes events from which the
 * parent (`neap run`) reports. A *step* is one optimizer update; a *tick* one micro-batch.
 *
 *     neap_train_begin(&t, ...)                      mark "start"; leftovers and cache cleared if asked
 *     neap_train_mark(t, NEAP_MARK_MODEL_READY, 0)
 *     for each step:
 *       again:
 *         neap_train_settings(t, &now)               how this step runs: the split, and the rungs in force
 *         for each micro-batch (neap_split_part): status = work(); if NEAP_EOOM: goto oom;  neap_train_tick(t)
 *         neap_train_step(t, loss)                   one optimizer update done
 *         if (neap_train_request(t, NULL) != NEAP_TRAIN_GO_ON) save a checkpoint; break
 *         continue
 *       oom:
 *         free what the step allocated
 *         if (neap_train_recover(t, &err) == NEAP_OK) goto again;      one rung down, the same samples again
 *         else give up
 *     neap_train_end(&t)
 *     free everything, close the device; neap_restart(argv, "--resume", &now, &err) if that was the request
 *
 * Threads: one session is used by one thread at a time.
 */
#ifndef NEAP_TRAIN_H
#define NEAP_TRAIN_H

#include "neap/alloc.h"
#include "neap/log.h"

#ifdef __cplusplus
extern "C" {
#endif

enum neap_mark {
	NEAP_MARK_START = 1,
	NEAP_MARK_MODEL_READY = 2,
	NEAP_MARK_OPTIMIZER_READY = 3,
	NEAP_MARK_EPOCH_END = 4, /* value: the epoch, from 1 */
	NEAP_MARK_EVERY_N = 5,   /* written by the session, every `mark_every_steps` */
	NEAP_MARK_SAVED = 6,     /* a checkpoint or the model was saved. value: the step */
	NEAP_MARK_OOM = 7,       /* written by the session */
	NEAP_MARK_END = 8,       /* written by the session */
	NEAP_MARK_EVALUATION = 9,
	NEAP_MARK_FAILED = 10, /* the loop gives up for another reason than memory: the session has failed */
	NEAP_MARK_USER = 100,
};

/* Why a cleanup ran. Also the bits of `cleanup_points` (1u << reason). */
enum neap_cleanup_reason {
	NEAP_CLEANUP_START = 0,
	NEAP_CLEANUP_END = 1,
	NEAP_CLEANUP_FAILURE = 2,
	NEAP_CLEANUP_SAVED = 3,
	NEAP_CLEANUP_EPOCH = 4,
	NEAP_CLEANUP_EVERY_STEP = 5,
	NEAP_CLEANUP_PERIODIC = 6, /* every N steps, epochs or ticks */
	NEAP_CLEANUP_OOM = 7,      /* always done before a rung is taken */
	NEAP_CLEANUP_REQUEST = 8,  /* `neap clear` or neap_clear */
	NEAP_CLEANUP_LOW = 9,      /* at a threshold of low memory, before a rung is taken */
	NEAP_CLEANUP_LEAK = 10,    /* by force, because of a leak (NEAP_ON_LEAK_CLEAR) */
};

/* The rungs of the ladder, from the gentlest. A rung the caller does not offer is skipped. */
enum neap_rung {
	NEAP_RUNG_NONE = 0,
	NEAP_RUNG_SPLIT = 1, /* micro-batch halved, rounded up, and more of them */
	NEAP_RUNG_EFFICIENT_ATTENTION = 2,
	NEAP_RUNG_MIXED_PRECISION = 3, /* changes numerics: only if asked for */
	NEAP_RUNG_CHECKPOINTING = 4,   /* gradient checkpointing */
	NEAP_RUNG_STOP = 5,            /* nothing is left: stop with a clear last word */
};

/* How the samples of one update are computed. Each rank computes `batch` samples in `accumulate` parts, the
 * micro-batches. Their sizes differ by at most one, the larger ones come first, and `micro_batch` is the largest: 514
 * samples in 4 parts are 129 + 129 + 128 + 128. batch x ranks is the effective batch, and never changes. */
struct neap_split {
	uint64_t micro_batch;
	uint64_t accumulate;
	uint64_t ranks;
	uint64_t batch; /* 0: micro_batch x accumulate */
};

/* Samples of one update on one rank; UINT64_MAX when that is too large a number. */
NEAP_API uint64_t neap_split_batch(const struct neap_split *split);

/* Makes the numbers of a split agree, as a session does when it begins. Zero accumulate or ranks become 1, a zero
 * batch micro_batch x accumulate. Then `accumulate` becomes the fewest parts of at most `micro_batch` samples, and
 * `micro_batch` the largest of these parts. A split whose numbers overflow stays as it is. */
NEAP_API void neap_split_settle(struct neap_split *split);

/* One micro-batch: `samples` samples from number `first` on. `weight` is its share of the batch's samples. The
 * gradient of the batch's mean loss is the sum over the parts of weight x the gradient of the part's mean loss. */
struct neap_part {
	uint64_t first, samples;
	double weight;
};

/* The parts of a batch of `samples`: neap_split_batch of them, or fewer in the last batch of an epoch, which has as
 * few parts as can hold it. `index`: from 0; from the number of parts on, a part has no samples. Pure functions. */
NEAP_API uint64_t neap_split_parts(const struct neap_split *split, uint64_t samples);
NEAP_API struct neap_part neap_split_part(const struct neap_split *split, uint64_t samples, uint64_t index);

/* "2 x 129 + 2 x 128" between `before` and `after` where the parts are not equal, else "". Returns ret_text. */
#define NEAP_SPLIT_ROOM 112
NEAP_API const char *neap_split_unequal(const struct neap_split *split, const char *before, const char *after,
					char ret_text[NEAP_SPLIT_ROOM]);

/* How a step runs. `rungs`: the ones in force, as bits 1u << enum neap_rung; of efficient attention, mixed precision
 * and checkpointing only, since a split shows in `split`. */
struct neap_train_settings {
	struct neap_split split;
	uint32_t rungs;
};

#define NEAP_RUNGS_SWITCHED                                                                                          \
	(1u << NEAP_RUNG_EFFICIENT_ATTENTION | 1u << NEAP_RUNG_MIXED_PRECISION | 1u << NEAP_RUNG_CHECKPOINTING)
#define NEAP_RUNGS_OFFERABLE (NEAP_RUNGS_SWITCHED | 1u << NEAP_RUNG_SPLIT)

/* Decides the next rung: a pure function. `offered`: bits 1u << enum neap_rung; `ret_next`: the settings afterwards.
 * The first of these that is offered and not in force: a split into micro-batches of half the size, rounded up, and
 * as few of them as hold the same samples, down to micro-batch 1 (257 x 2 becomes 129 + 129 + 128 + 128); then
 * efficient attention, mixed precision, checkpointing. The effective batch stays. NEAP_RUNG_STOP when nothing is
 * left; then the settings stay.
 */
NEAP_API enum neap_rung neap_ladder_next(const struct neap_train_settings *now, uint32_t offered,
					 struct neap_train_settings *ret_next);

/* "memory-efficient attention", "mixed precision", ... Static text; "" for anything that is not a rung. */
NEAP_API const char *neap_rung_name(enum neap_rung rung);

/* Thresholds on the memory left, checked when a step ends; 0: never. Degrading and stopping need two steps in a row
 * below the threshold; after a rung, the session waits eight steps for its effect; while degrading is on and a rung
 * is left to take, nothing is stopped. A value that cannot be read counts as unknown and is ignored. */
struct neap_levels {
	uint64_t warn_bytes;    /* below: a warning, once until a quarter more is left again */
	uint64_t degrade_bytes; /* below: a cleanup, then a rung of the ladder (a warning where none is left) */
	uint64_t stop_bytes;    /* below: neap_train_request says NEAP_TRAIN_STOP */
};

#define NEAP_LEFT_UNKNOWN UINT64_MAX
/* A rung or a stop needs so many steps in a row below its threshold: a single dip does not count. */
#define NEAP_THRESHOLD_STEPS 2
/* After a rung, the session waits this many steps for its effect before it acts again. */
#define NEAP_THRESHOLD_SETTLE 8

/* The state of one kind of memory between steps. Zeroed: nothing seen yet. */
struct neap_threshold {
	bool warned;                        /* until a quarter more than the threshold is left again */
	uint64_t below_degrade, below_stop; /* steps in a row */
	uint64_t settled_at;                /* the step from which on the session may act again */
};

enum neap_threshold_act {
	NEAP_THRESHOLD_NOTHING = 0,
	NEAP_THRESHOLD_WARN = 1,    /* once, until it has risen again */
	NEAP_THRESHOLD_DEGRADE = 2, /* clean up, then take a rung */
	NEAP_THRESHOLD_STOP = 3,
};

/* The rule by which a session acts on its levels, for loops without a session: decides for the end of step `step`
 * (from 1), `left_bytes` being left (NEAP_LEFT_UNKNOWN: nothing happens, and the counts of steps in a row restart).
 * `rung_left`: the ladder has a rung to take. Degrading comes before stopping: a stop is decided only when no rung
 * can be taken or degrading is not asked for. A pure function but for `threshold`. */
NEAP_API enum neap_threshold_act neap_threshold_decide(struct neap_threshold *threshold,
						       const struct neap_levels *levels, uint64_t left_bytes,
						       bool rung_left, uint64_t step);

/* The threshold of warnings: if no rung is left, that of degrading warns, too. */
NEAP_API uint64_t neap_threshold_warns_below(const struct neap_levels *levels, bool rung_left);

/* What to do before memory ends because it leaks. */
enum neap_on_leak {
	NEAP_ON_LEAK_WARN = 0,
	NEAP_ON_LEAK_CLEAR = 1,   /* call what was registered with neap_attach_on_clear, by force; then clean up */
	NEAP_ON_LEAK_RESTART = 2, /* neap_train_request says NEAP_TRAIN_RESTART */
};

/* A zeroed struct is the default but for micro_batch, which must be given. */
struct neap_train_options {
	const char *name;           /* in log lines; NULL: "training" */
	struct neap_split split;    /* settled by neap_split_settle */
	uint64_t total_steps;       /* if known: for "memory will end at step N" */
	bool clear_memory_on_start; /* before the first mark: see neap_train_begin */
	uint32_t
		cleanup_points; /* bits: 1u << enum neap_cleanup_reason. FAILURE: at the end of a session that gave up
				   or was marked FAILED. PERIODIC needs a period below; OOM, REQUEST, LOW and
				   LEAK happen in any case */
	uint64_t cleanup_every_steps, cleanup_every_epochs, cleanup_every_ticks; /* 0: never */
	uint64_t mark_every_steps;                                               /* 0: never */
	uint64_t leak_watch_every_steps;                                         /* 0: every 20 */
	enum neap_on_leak on_leak;
	uint64_t leak_margin_steps; /* act so many steps before the earliest at which memory may end. 0: half of
				       leak_watch_every_steps, at least 1 */
	struct neap_levels device; /* left at the step's peak: the device's free bytes and our cache, within our limit
				      (neap_set_fraction), beyond what was allocated at the peak */
	struct neap_levels host;   /* available on the host and within our control groups, when the step ends */
	uint64_t host_limit_bytes; /* of our resident memory: what is left below it counts for `host`, too. 0: none */
	bool no_ladder;            /* neap_train_recover only cleans up and always refuses */
	uint32_t rungs_offered; /* bits 1u << enum neap_rung that the loop can take when asked to; 0: SPLIT alone */
	uint32_t rungs_active;  /* bits: in force from the start, without SPLIT */
	uint32_t layers;        /* that checkpointing would compute again one by one: its saving is predicted from
				   it. 0: not known */
	const struct neap_log_sink *log; /* NULL: silent */
};

struct neap_train;

/* Errors: NEAP_EINVAL when micro_batch is 0 or cleanup_points, rungs, levels or on_leak make no sense, NEAP_ENOMEM.
 * The allocator outlives the session.
 *
 * With clear_memory_on_start the session looks, through NVML, for processes of earlier runs that still hold memory of
 * our device. It ends those of this user that neap started, if their run is over or their supervisor is gone
 * (SIGTERM, 2 s, SIGKILL, at most 30 s), and waits for their memory (at most 10 s). The log names the others of this
 * user, and counts those of other users. Our own run, and any run whose supervisor lives, are never touched. Then the
 * session empties the cache. This takes time only where a process has to end; failures are logged. */
NEAP_API enum neap_status neap_train_begin(struct neap_alloc *alloc, const struct neap_train_options *options,
					   struct neap_train **ret_train, struct neap_error *err);

/* Only clears leftovers, as clear_memory_on_start does, for a process that uses another allocator (PyTorch's).
 * `uuid`: the device, as the driver of NEAP_DEVICE reports it. `log` may be NULL. Errors: NEAP_EINVAL without a UUID;
 * those of reading the devices (nothing was done). */
NEAP_API enum neap_status neap_clear_leftovers(const unsigned char *uuid, const struct neap_log_sink *log,
					       struct neap_error *err);

NEAP_API void neap_train_mark(struct neap_train *train, enum neap_mark mark, uint64_t value);
/* How the step that begins now is to run. They change only in neap_train_recover and, at a low-memory threshold, in
 * neap_train_step: ask before each attempt at a step. */
NEAP_API void neap_train_settings(const struct neap_train *train, struct neap_train_settings *ret_settings);
/* Tells the session that the loop continues after step `step` of an earlier process (a checkpoint was loaded). The
 * numbering continues from there. */
NEAP_API void neap_train_resumed(struct neap_train *train, uint64_t step);
/* Tells the session that one micro-batch, the next part of neap_split_part, is done. */
NEAP_API void neap_train_tick(struct neap_train *train);
/* Tells the session that one optimizer update is done. `loss` is recorded; NAN when there is none. */
NEAP_API void neap_train_step(struct neap_train *train, double loss);
/* Records a number, for a curve. `name`: static text. */
NEAP_API void neap_train_metric(struct neap_train *train, const char *name, double value);

/* After NEAP_EOOM, when the step's own memory has been freed: cleans up, logs in detail, takes the next rung.
 * NEAP_OK: do the step again with the settings that are now in force. NEAP_EOOM: the ladder is at its end; the
 * message is the last word. */
NEAP_API enum neap_status neap_train_recover(struct neap_train *train, struct neap_error *err);

/* The session's request to the loop, which checks it after each step. A request stays once made. */
enum neap_train_request {
	NEAP_TRAIN_GO_ON = 0,
	NEAP_TRAIN_STOP = 1,    /* memory is nearly gone: save a checkpoint, end with status NEAP_EXIT_STOPPED */
	NEAP_TRAIN_RESTART = 2, /* a leak will use up the memory: save a checkpoint, end the session, neap_restart */
};
/* `ret_reason` may be NULL; gets "device memory below 1.00 GiB (...)", "" without a request; lives as long as the
 * session. */
NEAP_API enum neap_train_request neap_train_request(const struct neap_train *train, const char **ret_reason);

/* The exit status of a program that stopped early and can be continued (EX_TEMPFAIL). `neap run` reports
 * "stopped early" for a program that was asked to stop, whether it ends with this or with 0. */
#define NEAP_EXIT_STOPPED 75

/* Restarts this process in place: the same program (/proc/self/exe), PID and environment, with `argv`, and `flag`
 * (NULL: none) at the end unless `argv` has it. Only an exec gives back all that leaked, on the device and on the
 * host. Call it in the main thread, when the session has ended and the devices are closed: it detaches the agent, has
 * the driver's open files closed by the exec, and does not return. What is recorded afterwards continues in the same
 * recording. `settings`: those in force at the end (from neap_train_settings, before neap_train_end). A session of
 * the new image begins with them, if it has the same effective batch and is offered their rungs, so that settings
 * that did not fit are not tried again. NULL: it begins with its own settings. On an error the process is as it was,
 * but detached: NEAP_ENOMEM, NEAP_ENOENT, NEAP_EIO, ... of execve. */
NEAP_API enum neap_status neap_restart(char *const *argv, const char *flag,
				       const struct neap_train_settings *settings, struct neap_error *err);
/* How often this process has restarted: NEAP_RESTARTS=PID.COUNT in its environment, and with settings
 * PID.COUNT.MICRO_BATCH.ACCUMULATE.RANKS.RUNGS.BATCH. */
NEAP_API unsigned neap_restarts(void);

/* Cleans up now: empties the cache, logs the lines of a cleanup with the bytes it gave back and its cost. (A session
 * also warns when three of its cleanups in a row, for one reason, gave nothing back, or only memory that the next
 * step reserved again. The warning names their cost, and the option to omit.) `ret_freed_bytes` and `log` may be
 * NULL. Errors: those of neap_empty_cache. */
NEAP_API enum neap_status neap_clear(struct neap_alloc *alloc, const struct neap_log_sink *log,
				     uint64_t *ret_freed_bytes, struct neap_error *err);

struct neap_train_summary {
	uint64_t steps, ticks, ooms, rungs, cleanups;
	uint64_t cleanup_freed_bytes, cleanup_ns;
	struct neap_split split; /* in force at the end */
	uint32_t rungs_active;   /* likewise: bits 1u << enum neap_rung */
	uint64_t peak_allocated_bytes, peak_reserved_bytes;
	double leak_bytes_per_step; /* 0: none found */
	double leak_confidence;     /* 0..1 of the finding */
	/* At which step memory will end, as predicted last, and the interval (99 % of the slope). 0: no leak found */
	uint64_t memory_ends_step, memory_ends_low_step, memory_ends_high_step;
	enum neap_train_request request; /* in force at the end */
};

/* Ends the session (last mark, cleanup if asked, one line of summary) and frees it. `ret_summary` may be NULL. NULL
 * and zero are fine. */
NEAP_API void neap_train_end(struct neap_train *train, struct neap_train_summary *ret_summary);

/* A scope that reports what happened inside it, in two lines at its end, with host and device memory and their
 * changes:
 *
 *     NAME: Memory usage: 2.4 GB (Δ+0.3 GB)
 *     GPU memory: 8.2 GB allocated, 10.1 GB cached (Δ+1.5 GB, Δ-0.2 GB)
 *
 * The struct is the caller's; `name` outlives it. A second end does nothing. */
struct neap_scope {
	struct neap_alloc *alloc;
	const struct neap_log_sink *log;
	const char *name;
	uint64_t began_ns, host_bytes;
	int64_t allocated_bytes, reserved_bytes;
	uint64_t peak_bytes; /* the allocator's peak when it began */
};
NEAP_API void neap_scope_begin(struct neap_scope *scope, struct neap_alloc *alloc, const struct neap_log_sink *log,
			       const char *name);
NEAP_API void neap_scope_end(struct neap_scope *scope);

#ifdef __cplusplus
}
#endif
#endif
