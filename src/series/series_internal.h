/* series/series_internal.h: the state of a series while it runs; shared by series*.c and src/slurm. */
#ifndef NEAP_SERIES_SERIES_INTERNAL_H
#define NEAP_SERIES_SERIES_INTERNAL_H

#include "base/clock.h"
#include "base/units.h"
#include "series/journal.h"
#include "series/packing.h"
#include "series/series.h"
#include "series/series_attempt.h"
#include "series/series_state.h"
#include "store/history.h"

/* An attempt that has started and not ended. */
struct neap_running {
	struct neap_attempt attempt;
	struct neap_series *series;
	size_t of;   /* index of the experiment; count: the slot is free, and the other fields have no meaning */
	bool placed; /* its needs and device are known: we started it, or the journal has them */
	struct neap_needs needs;
	size_t device;        /* its index in `headroom`; NEAP_PACKING_ANY: it was given no device */
	bool announced;       /* an earlier process started it, and we have reported that we wait for it */
	bool asked;           /* usual_ns was read from the history */
	uint64_t usual_ns;    /* its usual time; 0: unknown */
	sig_atomic_t cancels; /* how often it was asked to end */
};

struct neap_series {
	const struct neap_spec *spec;
	const struct neap_series_options *options;
	struct neap_series_summary *summary;
	struct neap_journal *journal;
	struct neap_series_state state;
	struct neap_history *history; /* NULL: it cannot be opened; the series runs without it */
	bool history_behind;          /* the history lacks a result: put all results into it again at the end */
	struct neap_running running[NEAP_SPEC_PARALLEL];
	struct neap_running *now; /* the one of `running` that the current step is about */
	struct neap_series_headroom headroom;
	bool journal_torn;    /* writing a record failed: no other record can follow */
	bool ending;          /* an error occurred: start nothing more */
	unsigned unbegun;     /* how many of our supervisors in a row ended before they started their command */
	bool device_seen;     /* a run of ours had a device, so if there is no device now, it was lost */
	uint64_t progress_ns; /* when progress was last shown */
	size_t device_of;     /* the experiment that waits for a device; count: none */
	uint64_t device_since_ns;
};

static inline uint64_t neap_series_now(const struct neap_series *series)
{
	return neap_clock_now(series->options->clock ? series->options->clock : neap_clock_system());
}

/* How often a running attempt is checked. We notice the end of our own supervisor at once, and the end of an adopted
 * one within this time. */
#define NEAP_SERIES_SAMPLE_MS 25

/* Prints the lines that its supervisor has written since the last call. */
void neap_series_show(struct neap_running *running);

/* series_end.c: the kinds of steps that end an attempt or an experiment. */

/* Called when the attempt has a result: journals its end, and drops the attempt. */
enum neap_status neap_series_take(struct neap_series *series, struct neap_step step, struct neap_error *err);

/* Called when the attempt has no result. Only an attempt that began can be lost. */
enum neap_status neap_series_lose(struct neap_series *series, struct neap_step step, bool began,
				  struct neap_error *err);

/* Called when the supervisor was killed after its command had ended: ends the command's leftovers and makes the
 * result. */
enum neap_status neap_series_take_ended(struct neap_series *series, struct neap_step step, struct neap_error *err);

/* Called when the experiment has lost too many attempts. */
enum neap_status neap_series_give_up(struct neap_series *series, struct neap_step step, struct neap_error *err);

/* Prints the supervisor's last lines and drops the attempt. Does nothing if there is none. */
void neap_series_release(struct neap_series *series, struct neap_running *running);

/* Prints one line of progress. */
void neap_series_report_line(const struct neap_series *series, const char *format, ...) NEAP_PRINTF(2, 3);

/* Takes ownership of the record (NULL: memory was short), adds the time (wall_ns), writes it to disk, then applies it
 * to the state. Errors: of neap_journal_append. */
enum neap_status neap_series_append(struct neap_series *series, json_t *entry, struct neap_error *err);

/* Prints the line of an attempt's end. */
void neap_series_report_end(const struct neap_series *series, struct neap_step step,
			    const struct neap_result *result);

/* Whether retry_failed asks for another attempt. It never does after an OOM, which the ladder handles, nor after a
 * limit, which would stop the next attempt too. */
bool neap_series_is_to_be_retried(const struct neap_series *series, struct neap_step step,
				  const struct neap_result *result);

/* Whether the experiment lost its device and must be restarted. One that keeps losing its device ends. */
bool neap_series_is_deviceless(const struct neap_series *series, struct neap_step step,
			       const struct neap_result *result);

/* series_edit.c: if the file was edited, or with --only-failed: reports and journals which experiments are kept and
 * which run. `dry_run`: only reports. Errors: NEAP_EBUSY while an attempt from before the edit still runs;
 * NEAP_ENOENT for --only-failed when nothing has started. */
enum neap_status neap_series_edit(struct neap_series *series, bool dry_run, struct neap_error *err);

/* Ends and reports the processes of a run whose supervisor was killed. */
void neap_series_end_leftovers(const struct neap_series *series, const char *run_id);

/* Call when all experiments have ended: writes the report and the journal's last record. */
enum neap_status neap_series_finish(struct neap_series *series, struct neap_error *err);

void neap_series_open_history(struct neap_series *series);

/* Fills the summary's `failed` and `left`. */
void neap_series_count_ends(struct neap_series *series);

/* How often the user has asked to stop. */
sig_atomic_t neap_series_interrupts(const struct neap_series *series);

/* series_progress.c: calls options->progress. */
void neap_series_progress_show(struct neap_series *series);

/* series_needs.c */

/* An experiment's needs: from the file, measured by an earlier run, estimated, or else the whole device. `text` is
 * for the supervisor, `words` for people. */
void neap_series_needs(struct neap_series *series, const struct neap_experiment *experiment,
		       char text[NEAP_UNITS_CAPACITY], char words[64]);

/* With options->estimate, estimates each experiment whose needs are not known otherwise, and journals the estimate.
 * If an estimate fails, reports it, and the experiment runs as without estimates. Errors: NEAP_ECANCELED; those of
 * neap_series_append. */
enum neap_status neap_series_estimate(struct neap_series *series, struct neap_error *err);

/* series_device.c */

/* Before a series starts: checks that the devices named by experiments exist. Skips experiments with a wait_limit,
 * which wait, and all if there is no driver. Errors: NEAP_ENODEVICE, with a list of the devices. */
enum neap_status neap_series_device_check(const struct neap_spec *spec, struct neap_error *err);

/* Called when a supervisor found no device. Waits a while and returns true if another attempt should be made; false
 * if there is no reason to retry, or the time is up. *ret_status: NEAP_ECANCELED if the user interrupted the wait. */
bool neap_series_device_wait(struct neap_series *series, struct neap_step step, enum neap_status *ret_status,
			     struct neap_error *err);

/* An experiment's device was lost: waits until the device with this UUID ("": any) can be read again. Errors:
 * NEAP_ENODEVICE when it does not come back within the experiment's wait_limit; NEAP_ECANCELED. */
enum neap_status neap_series_device_return(struct neap_series *series, struct neap_step step, const char *uuid_text,
					   struct neap_error *err);

/* Puts a result into the history. Failures are logged, not returned. */
void neap_series_keep(struct neap_series *series, const struct neap_result *result);

/* Fills the summary's comparisons, as the file asks. Errors: NEAP_ENOMEM. */
enum neap_status neap_series_compare(struct neap_series *series, struct neap_error *err);

/* Makes a result for an experiment that has none, from the journal, with the reason why it has none. */
enum neap_status neap_series_make_result(struct neap_series *series, size_t at, const char *why,
					 struct neap_result *ret_result, struct neap_error *err);

/* Reads every experiment's result, makes missing ones from the journal, and writes the page. */
enum neap_status neap_series_report(struct neap_series *series, struct neap_error *err);

#endif
