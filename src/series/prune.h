/* series/prune.h: deletes runs' folders and recordings under STATE, by age, number and size.
 *
 *   neap_prune_scan    lists STATE/runs/ID, and for recordings STATE/series/NAME/runs/EXPERIMENT-N of
 *                      finished series
 *   neap_prune_plan    decides which runs go; pure
 *   neap_prune_apply   deletes each run under its lock, after checking again
 *
 * Never deletes a run that is running, or whose result can still be made; an attempt of an unfinished series; a
 * folder with a file that neap does not make; the target of a link. The history keeps its rows. One thread.
 */
#ifndef NEAP_SERIES_PRUNE_H
#define NEAP_SERIES_PRUNE_H

#include "neap/status.h"

#include <stdbool.h>
#include <stddef.h>
#include <stdint.h>

/* Selects runs. Deletes a run that passes the filters and exceeds one of the bounds; without bounds, every run that
 * passes the filters. */
struct neap_prune_rules {
	bool recordings; /* delete only recordings: results, logs and all other files stay */
	/* Filters. Names are patterns with *, ? and [...]; NULL: any. */
	const char *series, *name, *outcome;
	uint64_t since_wall_ns; /* runs that ended then or later; 0: no bound */
	/* Bounds. */
	uint64_t until_wall_ns; /* runs that ended before this time; 0: no bound */
	bool has_max, has_max_bytes;
	uint64_t max, max_bytes; /* keep at most this many runs and bytes, the newest */
	/* Overrides the bounds. */
	uint64_t keep_last; /* always keep this many of the newest */
};

struct neap_prune_run {
	char *folder;
	char *series;         /* "": the run belongs to no series */
	char *name, *outcome; /* "": not known */
	uint64_t ended_wall_ns;
	uint64_t bytes, recording_bytes; /* on the disk */
	bool goes;
};

struct neap_prune {
	struct neap_prune_run *runs; /* newest first */
	size_t count;
	size_t busy;          /* how many running runs and unfinished series: they are not in `runs` */
	uint64_t now_wall_ns; /* time of the scan; 0 before it: the scan reads the system's clock */
};

/* `facts`: also read each run's name and outcome. `prune`: zeroed before, but for now_wall_ns; call neap_prune_fini
 * also on failure. Errors: NEAP_ENOMEM. Skips folders that cannot be read. */
enum neap_status neap_prune_scan(const char *state_folder, bool series, bool facts, struct neap_prune *prune,
				 struct neap_error *err);
void neap_prune_fini(struct neap_prune *prune);

/* Sets `goes` of each run. */
void neap_prune_plan(struct neap_prune *prune, const struct neap_prune_rules *rules);

struct neap_prune_done {
	/* Deleted; started since the scan; with files that are not neap's; not deleted for other reasons. */
	size_t runs, busy, foreign, failed;
	uint64_t bytes;          /* freed */
	char foreign_path[512];  /* the first such file */
	struct neap_error error; /* the first failure's */
};

void neap_prune_apply(const struct neap_prune *prune, bool recordings, struct neap_prune_done *ret_done);

/* The limit for the recordings in STATE/runs. If they exceed it when a run that recorded ends there, the recordings
 * of the oldest runs are deleted. NEAP_RECORDINGS_MAX in the environment sets another size, or
 * "unlimited". */
#define NEAP_PRUNE_DEFAULT_BYTES (1ull << 30)
#define NEAP_PRUNE_VARIABLE      "NEAP_RECORDINGS_MAX"

/* Applies that limit if the run lies in STATE/runs and has `recorded`; else it reads no folder, since no recording
 * was added there. Errors: NEAP_EPARSE, after any run in STATE/runs, if the variable is not a size; then nothing is
 * deleted. */
enum neap_status neap_prune_default(const char *state_folder, const char *run_folder, bool recorded,
				    struct neap_prune_done *ret_done, struct neap_error *err);

/* Whether neap makes files of this name in a run's folder. */
bool neap_prune_is_ours(const char *name);

#endif
