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
	NEAP_OUTCOME_HOST_OOM,  /* the host's OOM killer ended it */
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

/* "ok", "failed", "oom", ...; never NULL. The second finds the outcome with a name; false: there is none. */
const char *neap_outcome_name(enum neap_outcome outcome);
bool neap_outcome_named(const char *name, enum neap_outcome *ret_outcome);

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

enum neap_result_kind {
	NEAP_RESULT_TEXT,
	NEAP_RESULT_BYTES,
	NEAP_RESULT_NS,
	NEAP_RESULT_WALL,
	NEAP_RESULT_COUNT,
	NEAP_RESULT_SMALL,
	NEAP_RESULT_STATUS,
	NEAP_RESULT_NUMBER,
	NEAP_RESULT_SHARE,
	NEAP_RESULT_LOSS,
	NEAP_RESULT_BOOL,
	NEAP_RESULT_OUTCOME,
};

#define NEAP_RESULT_TYPE_TEXT    char *
#define NEAP_RESULT_TYPE_BYTES   uint64_t
#define NEAP_RESULT_TYPE_NS      uint64_t
#define NEAP_RESULT_TYPE_WALL    uint64_t
#define NEAP_RESULT_TYPE_COUNT   uint64_t
#define NEAP_RESULT_TYPE_SMALL   uint32_t
#define NEAP_RESULT_TYPE_STATUS  int
#define NEAP_RESULT_TYPE_NUMBER  double
#define NEAP_RESULT_TYPE_SHARE   double
#define NEAP_RESULT_TYPE_LOSS    double
#define NEAP_RESULT_TYPE_BOOL    bool
#define NEAP_RESULT_TYPE_OUTCOME enum neap_outcome

struct neap_result {
#define X(KIND, name, label) NEAP_RESULT_TYPE_##KIND name;
#include "store/result_fields.h"
#undef X
	struct neap_result_sample *samples; /* the memory curve, oldest first */
	size_t sample_count;
	struct neap_result_mark *marks; /* oldest first; of the process with the highest peak */
	size_t mark_count;
	struct neap_result_rank *ranks; /* ranks first; by rank, role and PID; at most NEAP_RESULT_RANKS */
	size_t rank_count;
};

enum {
#define X(KIND, name, label) NEAP_RESULT_FIELD_##name,
#include "store/result_fields.h"
#undef X
	NEAP_RESULT_FIELDS
};

/* The table, for code that treats all fields alike. */
struct neap_result_field {
	const char *key, *label;
	enum neap_result_kind kind;
	size_t offset;
};
extern const struct neap_result_field neap_result_fields[NEAP_RESULT_FIELDS];

static inline const void *neap_result_at(const struct neap_result *result, const struct neap_result_field *field)
{
	return (const char *)result + field->offset;
}

/* All strings of a result are owned by it, allocated by malloc, never NULL after read or init. */
enum neap_status neap_result_init(struct neap_result *result, struct neap_error *err);
void neap_result_fini(struct neap_result *result);

/* Replaces an owned string. */
enum neap_status neap_result_set(char **field, const char *text, struct neap_error *err);

/* Append a result as JSON to `text`, and parse one; `name` is for errors. A number that JSON cannot hold is written
 * as INT64_MAX, or as 0 if it is not finite. Errors of parse: those of neap_result_read. */
enum neap_status neap_result_format(const char *name, const struct neap_result *result, struct neap_buffer *text,
				    struct neap_error *err);
enum neap_status neap_result_parse(const char *name, const struct neap_buffer *text, struct neap_result *ret_result,
				   struct neap_error *err);

/* Reads the fields of `text`, and not the lists, into an initialised result, much faster than parse. False, with some
 * fields of `result` changed: the text is not as neap writes it, or is not simple, so that parse must read it. */
bool neap_result_read_lines(const char *text, struct neap_result *result);

/* Writes PATH whole; reads it, checking every field. Errors of read: NEAP_ENOENT; NEAP_EPARSE with line and column,
 * for damage; NEAP_ENOMEM and NEAP_EIO do not mean damage: retry later. */
enum neap_status neap_result_write(const char *path, const struct neap_result *result, struct neap_error *err);
enum neap_status neap_result_read(const char *path, struct neap_result *ret_result, struct neap_error *err);

#endif
