/* store/history.h: all runs, in SQLite (WAL) at STATE/history.db.
 *
 * Threads: one handle, one thread. Several processes may write at once (they wait up to 30 s for each other).
 */
#ifndef NEAP_STORE_HISTORY_H
#define NEAP_STORE_HISTORY_H

#include "store/result.h"

struct neap_history;

#define NEAP_HISTORY_SCHEMA 4 /* `PRAGMA user_version` */

/* Opens the file, or creates it. Converts the file of an earlier neap, from 0.1 on, in place. Renames a damaged file
 * to PATH.damaged-TIME, and a file with a schema that it cannot read to PATH.earlier-TIME, and starts a new one:
 * `ret_note` (room for 512, may be NULL) then reports this, else is "". Opens a file that cannot be written (the disk
 * is full) for reading, with a note. Errors: NEAP_EIO, NEAP_ENOSPC, NEAP_EPERM, NEAP_EBUSY, and NEAP_ENOTSUP for the
 * file of a newer neap. */
enum neap_status neap_history_open(const char *path, struct neap_history **ret_history, char *ret_note,
				   struct neap_error *err);
void neap_history_close(struct neap_history *history);

/* Adds a run, with its marks and a curve of at most NEAP_HISTORY_SAMPLES points. Replaces a run with the same run_id,
 * so that a resumed series adds nothing twice. `key`: runs with the same key belong to the same experiment, see
 * neap_history_peak; "" none. */
enum neap_status neap_history_put(struct neap_history *history, const char *series, const char *key,
				  const struct neap_result *result, struct neap_error *err);

#define NEAP_HISTORY_SAMPLES 256

/* The highest device bytes of any successful run of this experiment in this series: the driver's figure, or the bytes
 * that the allocators reserved if that is more (the driver's figure is sampled, and may miss the peak). Ignores runs
 * with a different key: editing an experiment's command changes its key. NEAP_ENOENT: no such run, or none was
 * measured. */
enum neap_status neap_history_peak(struct neap_history *history, const char *series, const char *experiment,
				   const char *key, uint64_t *ret_bytes, struct neap_error *err);

/* The duration of the last successful run of this experiment; `key` as above. NEAP_ENOENT: no such run. */
enum neap_status neap_history_duration(struct neap_history *history, const char *series, const char *experiment,
				       const char *key, uint64_t *ret_ns, struct neap_error *err);

/* How much of a result is read. */
enum neap_history_depth {
	NEAP_HISTORY_WHOLE,
	NEAP_HISTORY_FIELDS, /* without its lists */
	/* run_id, name, outcome, ended_wall_ns, duration_ns, steps, rung, and in peak_device_bytes the higher of the
	 * peaks on the device and reserved; the other fields have any value */
	NEAP_HISTORY_LISTED,
};

/* Which runs; a zeroed struct: all. Names are patterns with *, ? and [...] (SQLite's GLOB). */
struct neap_history_filter {
	const char *series, *name, *outcome;   /* NULL: any. outcome: its name */
	const char *run;                       /* a run_id, or its beginning */
	uint64_t since_wall_ns, until_wall_ns; /* of the end; 0: no bound */
	uint64_t limit;                        /* only so many, the newest; 0: all */
	enum neap_history_depth depth;         /* less than WHOLE: find keeps the results that it gives */
};

struct neap_history_run {
	const char *series; /* "" none */
	const char *key;
	struct neap_result *result; /* whole, with a thinned curve; to take it over, leave a zeroed one */
};

/* Calls `visit` for each run, newest first, until it returns false. The run is valid only during the call. Errors:
 * also NEAP_EPARSE for a result that neap did not write; what `depth` leaves out is not looked into. */
enum neap_status neap_history_find(struct neap_history *history, const struct neap_history_filter *filter,
				   bool (*visit)(void *context, struct neap_history_run *run), void *context,
				   struct neap_error *err);

struct neap_history_chosen {
	struct neap_result result;
	char *series;
};

/* Finds one run by its id, by the beginning of its id if no other run has it, or the newest run of that name. The
 * caller calls neap_history_chosen_fini. Errors: NEAP_ENOENT, and NEAP_EINVAL if several begin like that. */
enum neap_status neap_history_choose(struct neap_history *history, const char *wanted,
				     struct neap_history_chosen *ret_chosen, struct neap_error *err);
void neap_history_chosen_fini(struct neap_history_chosen *chosen);

/* Reads "2d" (before now_ns), or a local time: "2026-11-20", "2026-11-20 18:30", "2026-11-20T18:30:05". Returns false
 * if it is neither. */
bool neap_history_time_parse(const char *text, uint64_t now_ns, uint64_t *ret_wall_ns);

/* Counts the runs that the filter finds (ignores its limit). */
enum neap_status neap_history_count(struct neap_history *history, const struct neap_history_filter *filter,
				    uint64_t *ret_count, struct neap_error *err);

/* Deletes the runs that the filter finds (ignores its limit), and shrinks the file. */
enum neap_status neap_history_prune(struct neap_history *history, const struct neap_history_filter *filter,
				    uint64_t *ret_count, struct neap_error *err);

#endif
