/* store/result.h: the facts of a finished run: `result.json` in the run's folder, and a row of the history.
 *
 * A run is one execution of a command (one attempt). Its supervisor (`neap run`) holds the lock of the run's folder
 * from before the command starts until result.json is there, whole:
 *
 *   RUN/lock          flock(2), held by the supervisor (inherited from the series process that made the folder)
 *   RUN/spec.json     command, parameters, needs
 *   RUN/record.PID    the recording of each attached process of the run
 *   RUN/simulated.PID one per process on the stand-ins for NVIDIA's libraries: run/simulated.h
 *   RUN/stdout.log, RUN/stderr.log   with --log
 *   RUN/result.json   published whole at the end
 *
 *   lock held                     the run is running
 *   lock free, result.json        the run is over
 *   lock free, no result.json     the supervisor died: run/run_stage.h shows whether the command ran, or had ended
 */
#ifndef NEAP_STORE_RESULT_H
#define NEAP_STORE_RESULT_H

#include "neap/status.h"

#include "base/buffer.h"

#include <stdbool.h>
#include <stddef.h>

#define NEAP_RESULT_SCHEMA 1

enum neap_outcome {
	NEAP_OUTCOME_OK = 0,
	NEAP_OUTCOME_FAILED,    /* ended with a status other than 0, and no sign of OOM */
	NEAP_OUTCOME_OOM,       /* device memory ran out; `evidence` says how we know */
	NEAP_OUTCOME_HOST_OOM,  /* the host's own OOM killer */
	NEAP_OUTCOME_SIGNALED,  /* ended by a signal that neap did not send */
	NEAP_OUTCOME_TIMEOUT,   /* its time limit passed and neap ended it */
	NEAP_OUTCOME_CANCELED,  /* the user interrupted it */
	NEAP_OUTCOME_NOT_FOUND, /* the command does not exist or cannot be run (126, 127) */
	NEAP_OUTCOME_NO_MEMORY, /* the bytes it needs did not become free in time: never started */
	NEAP_OUTCOME_LOST,      /* its supervisor died without a result (written by the series) */
	NEAP_OUTCOME_STOPPED,   /* its session asked it to stop early because memory was short, or neap ended it at a
				   limit; `evidence` says why */
	NEAP_OUTCOME_KILLED,    /* `neap kill` ended it */
	NEAP_OUTCOME_NO_DEVICE, /* it failed because its device was lost; `evidence` says how we know */
	NEAP_OUTCOME_COUNT
};

/* "ok", "failed", "oom", ...; never NULL. */
const char *neap_outcome_name(enum neap_outcome outcome);

struct neap_result_sample {
	uint64_t time_ns; /* since the start */
	uint64_t allocated_bytes, reserved_bytes;
	uint64_t device_bytes; /* all of the run's processes as the driver reports them; UINT64_MAX unknown */
};

/* A named instant, from the training session or the program. */
struct neap_result_mark {
	uint64_t time_ns; /* since the start */
	uint64_t value;   /* epoch or step */
	char name[48];
};

/* An attached process of the run's last start. In a distributed training: its ranks and their children. */
enum neap_role {
	NEAP_ROLE_PROCESS = 0,
	NEAP_ROLE_RANK,
	NEAP_ROLE_WORKER, /* loads data for the rank */
	NEAP_ROLE_COUNT
};

/* "process", "rank", "worker"; never NULL. */
const char *neap_role_name(enum neap_role role);

struct neap_result_rank {
	enum neap_role role;
	uint64_t rank, local_rank; /* UINT64_MAX: none (null in JSON) */
	uint64_t pid;
	char device[4 * 48]; /* UUIDs of the devices it used, separated by spaces; "" unknown */
	uint64_t peak_allocated_bytes, peak_reserved_bytes;
	uint64_t steps, ooms;
};

#define NEAP_RESULT_RANKS 64
#define NEAP_RESULT_MARKS 256 /* of more, the first and the last half are kept */

struct neap_result {
	char *name;       /* experiment or program */
	char *command;    /* as typed, one line */
	char *parameters; /* "micro_batch=32 accumulate=1", of the last attempt */
	char *run_id;
	char *device_name, *device_uuid, *backend; /* backend: "cuda" or "sim" */
	enum neap_outcome outcome;
	char *evidence; /* the reason for the outcome: one line */
	char *folder;   /* the run's, absolute; "" unknown */
	/* For a command that did not end well, if its output could be read: */
	char *error_line;    /* its exception, else its last line; "" */
	char *last_lines;    /* its last lines, at most 16; "" */
	char *last_lines_of; /* "stderr" or "stdout and stderr"; "" nothing could be read */
	int exit_status;     /* 0..255, or 128 + signal */
	uint64_t started_wall_ns, ended_wall_ns, duration_ns; /* of the command, all retries included */
	uint64_t device_total_bytes;
	bool attached;                                      /* some process of the run was */
	uint64_t peak_allocated_bytes, peak_reserved_bytes; /* of attached processes, exact; 0 when none */
	/* Highest sample of the driver's figure, or the reserved peak plus a context if no sample saw it; 0 unknown.
	 */
	uint64_t peak_device_bytes;
	uint64_t headroom_bytes; /* device total - driver reserved - highest use seen, others included */
	uint64_t waited_ns;      /* for the bytes it needs, before the start */
	uint64_t drain_ns;       /* from its last process's end until its memory was free */
	bool drained;            /* false: gave up waiting; `drain_note` names what still held memory */
	char *drain_note;
	uint32_t retries;     /* restarts of the command after an OOM */
	uint32_t ooms, rungs; /* inside the process and by restarts together */
	char *rung; /* "micro_batch 64 -> 16, accumulate 1 -> 4, mixed precision": splits taken, and the other rungs
		       in force at the end, taken or set; "" none */
	uint64_t steps;
	double last_loss;   /* NAN: unknown (null in JSON) */
	char *leak_verdict; /* "clean", "leak", "too short", "not watched" */
	double leak_bytes_per_step, leak_confidence;
	/* The step at which the session last predicted memory to end, with its interval; 0: none. */
	uint64_t memory_ends_step, memory_ends_low_step, memory_ends_high_step;
	uint32_t restarts; /* how often the process restarted in place */
	char *fluctuation; /* one line: amplitude, cause; "" unknown */
	char *savings;     /* one line: the bytes that rungs would have saved at the peak; "" none */
	char *cleanup;     /* one line: count, bytes given back, cost; "" none */
	/* Upward advice: the largest micro-batch that is predicted to fit. */
	char *advice; /* one line, for people; also why there is none; "" when nothing was recorded */
	uint64_t micro_batch, accumulate; /* in force at the end; 0: unknown, no session */
	uint64_t batch;               /* samples of an update on one rank: at most the two multiplied; 0 likewise */
	uint64_t advised_micro_batch; /* 0: none */
	uint64_t advised_headroom_bytes, advised_uncertainty_bytes;      /* with it; to either side */
	uint64_t kept_micro_batch, kept_accumulate, kept_headroom_bytes; /* the largest that keeps the batch */
	char *stray_contexts; /* one line: contexts on devices that their process did not use; "" none */
	char *not_attached;   /* one line: processes that used a device and were not attached, and why; "" none */
	char *simulated; /* one line: neap's stand-ins for NVIDIA's libraries were used, with the parts not modelled;
			    "" unused */
	char *containment; /* one line: how the run's processes are identified; "" nothing was started */
	char *oom_card;    /* text of the last card; "" when there was no OOM */
	struct neap_result_sample *samples; /* the memory curve, oldest first */
	size_t sample_count;
	struct neap_result_mark *marks; /* oldest first; of the process with the highest peak */
	size_t mark_count;
	struct neap_result_rank *ranks; /* ranks first; by rank, role and PID; at most NEAP_RESULT_RANKS */
	size_t rank_count;
};

/* All strings of a result are owned by it, allocated by malloc, never NULL after read or init. */
enum neap_status neap_result_init(struct neap_result *result, struct neap_error *err);
void neap_result_fini(struct neap_result *result);

/* Replaces an owned string. */
enum neap_status neap_result_set(char **field, const char *text, struct neap_error *err);

/* As JSON, appended to `text`; `name` is for errors. From it: the errors of read. */
enum neap_status neap_result_format(const char *name, const struct neap_result *result, struct neap_buffer *text,
				    struct neap_error *err);
enum neap_status neap_result_parse(const char *name, const struct neap_buffer *text, struct neap_result *ret_result,
				   struct neap_error *err);

/* Writes PATH whole; reads it, checking every field. Errors of read: NEAP_ENOENT; NEAP_EPARSE with line and column,
 * for damage; NEAP_ENOMEM and NEAP_EIO do not mean damage: retry later. */
enum neap_status neap_result_write(const char *path, const struct neap_result *result, struct neap_error *err);
enum neap_status neap_result_read(const char *path, struct neap_result *ret_result, struct neap_error *err);

#endif
