/* series/prune.h: which runs' folders and recordings under STATE go, by age, number and size.
 *
 *   neap_prune_scan    looks: STATE/runs/ID, and for recordings STATE/series/NAME/runs/EXPERIMENT-N of finished
 * series neap_prune_plan    decides; pure neap_prune_apply   deletes, each run under its lock, after looking again
 *
 * What never goes: a run that is under way, or whose result can still be made; an attempt of a series that is not
 * finished; any file that neap does not make (a folder that has one stays whole); anything that a link leads to. The
 * history keeps its rows. One thread.
 */
#ifndef NEAP_SERIES_PRUNE_H
#define NEAP_SERIES_PRUNE_H

#include "neap/status.h"

#include <stdbool.h>
#include <stddef.h>
#include <stdint.h>

/* Which runs. A run goes that passes the filters and that one of the bounds is against; without a bound, each that
 * passes the filters. */
struct neap_prune_rules {
	bool recordings; /* only the recordings go: results, logs and all else stay */
	/* Filters. Names are patterns with *, ? and [...]; NULL: any. */
	const char *series, *name, *outcome;
	uint64_t since_wall_ns; /* ended then or later; 0: no bound */
	/* Bounds. */
	uint64_t until_wall_ns; /* ended before; 0: none */
	bool has_max, has_max_bytes;
	uint64_t max, max_bytes; /* at most so many runs, and so many bytes, the newest */
	/* Against all bounds. */
	uint64_t keep_last; /* so many of the newest stay */
};

struct neap_prune_run {
	char *folder;
	char *series;         /* "" a run of its own */
	char *name, *outcome; /* "" not known */
	uint64_t ended_wall_ns;
	uint64_t bytes, recording_bytes; /* on the disk */
	bool goes;
};

struct neap_prune {
	struct neap_prune_run *runs; /* newest first */
	size_t count, room;
	size_t busy; /* runs under way, and series that are not finished: not among the runs */
};

/* `facts`: read each run's name and outcome, too. A zeroed struct becomes one to call neap_prune_fini for, also on
 * failure. Errors: NEAP_ENOMEM. Folders that cannot be read are passed over. */
enum neap_status neap_prune_scan(const char *state_folder, bool series, bool facts, struct neap_prune *prune,
				 struct neap_error *err);
void neap_prune_fini(struct neap_prune *prune);

/* Sets `goes`. */
void neap_prune_plan(struct neap_prune *prune, const struct neap_prune_rules *rules);

struct neap_prune_done {
	size_t runs, busy, foreign, failed; /* deleted; begun meanwhile; with files that are not neap's; others */
	uint64_t bytes;                     /* that are free now */
	char foreign_path[512];             /* the first such file */
	struct neap_error error;            /* of the first that failed */
};

void neap_prune_apply(const struct neap_prune *prune, bool recordings, struct neap_prune_done *ret_done);

/* What the recordings in STATE/runs may take: beyond it those of the oldest runs go at the end of a run.
 * NEAP_RECORDINGS_MAX in the environment is another size, or "unlimited". */
#define NEAP_PRUNE_DEFAULT_BYTES (1ull << 30)
#define NEAP_PRUNE_VARIABLE      "NEAP_RECORDINGS_MAX"

/* Applies that bound. Errors: NEAP_EPARSE for a variable that is no size; then nothing goes. */
enum neap_status neap_prune_default(const char *state_folder, struct neap_prune_done *ret_done,
				    struct neap_error *err);

/* Whether neap makes files of this name in a run's folder. */
bool neap_prune_is_ours(const char *name);

#endif
