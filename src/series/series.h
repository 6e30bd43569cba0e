/* series/series.h: runs a series of experiments, one after another or several at a time, each exactly once.
 *
 *   STATE/series/NAME-HASH/        hash of the file's path; then NAME-HASH-2, -3, ... once one is finished
 *     lock, journal                the progress (series/journal.h, series/series_state.h)
 *     runs/EXPERIMENT-N/           attempt N, with its supervisor's lock and result (store/result.h)
 *     report.html
 *
 * series/step.h decides the next step from the journal and the state of the open attempt; this module takes it. After
 * a kill at any instant, the journal, the lock or the result show how to continue:
 *
 *   before the start is journaled     no supervisor exists: the attempt is started as if for the first time
 *   before the supervisor exists      lock free, nothing started: another attempt, and none is lost
 *   while it runs                     it continues; the series waits for the lock and takes the result
 *   before its end is journaled       the result is taken again; the history replaces its row
 *
 * Killing a supervisor while its command runs loses the attempt; killing it later loses nothing (run/run_stage.h). A
 * series that ends early, for any reason, first waits for the supervisors that it started.
 */
#ifndef NEAP_SERIES_SERIES_H
#define NEAP_SERIES_SERIES_H

#include "report/comparison.h"
#include "series/series_progress.h"
#include "series/spec.h"
#include "store/result.h"

#include <signal.h>

struct neap_series_options {
	const char *file;         /* the series file: names the folder */
	const char *folder;       /* NULL: one under state_folder */
	const char *state_folder; /* where history.db and series/ are */
	const char *program;      /* neap's own, to start supervisors */
	bool resume;
	bool only_failed; /* with `resume`: rerun only failed experiments */
	/* The GPUs for which to estimate unknown needs, as for neap_estimate_plan; NULL: no estimates. */
	const char *estimate;
	bool estimate_in_place;                        /* estimates write the programs' files for real */
	bool quiet;                                    /* supervisors log only errors */
	void (*line)(void *context, const char *text); /* progress, for people */
	/* Called several times a second while an experiment runs; NULL: not called */
	void (*progress)(void *context, const struct neap_series_progress *progress);
	void *line_context;                      /* for `line` and `progress` */
	const volatile sig_atomic_t *interrupts; /* how often the user has asked to stop; NULL: never */
	const struct neap_clock *clock;          /* NULL: the system's. The supervisors do not use it */
};

struct neap_series_summary {
	char folder[4096];
	char report[4096];           /* the page's path; "" while unfinished */
	struct neap_result *results; /* one for each experiment, in the file's order; NULL while unfinished */
	size_t count;
	struct neap_comparison *comparisons; /* in the file's order; NULL while unfinished */
	size_t comparison_count;
	size_t failed;       /* experiments that ended without success */
	size_t left;         /* experiments that have not ended */
	int supervisor_exit; /* exit status of a supervisor whose failure ended the series; else 0 */
};

/* Runs the remaining experiments of `spec`. Fills *ret_summary in any case (free it with neap_series_summary_fini).
 * Errors: NEAP_EBUSY when another process runs it, or it is unfinished and `resume` is not given; NEAP_EPARSE for a
 * damaged journal; NEAP_EEXIST for a given `folder` with a finished series; NEAP_ECANCELED when interrupted;
 * NEAP_EINTERNAL with supervisor_exit; NEAP_ENOSPC, NEAP_EIO: resume later, nothing is lost. */
enum neap_status neap_series_run(const struct neap_spec *spec, const struct neap_series_options *options,
				 struct neap_series_summary *ret_summary, struct neap_error *err);

/* Reports what resuming would keep and run, but starts nothing. Errors: as above. */
enum neap_status neap_series_preview(const struct neap_spec *spec, const struct neap_series_options *options,
				     struct neap_error *err);

void neap_series_summary_fini(struct neap_series_summary *summary);

#endif
