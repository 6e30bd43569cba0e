/* series/series_internal.h: one series being run; shared by series*.c and src/slurm. */
#ifndef NEAP_SERIES_SERIES_INTERNAL_H
#define NEAP_SERIES_SERIES_INTERNAL_H

#include "base/clock.h"
#include "base/units.h"
#include "series/journal.h"
#include "series/series.h"
#include "series/series_attempt.h"
#include "series/series_room.h"
#include "series/series_state.h"
#include "store/history.h"

/* An attempt under way. */
struct neap_running {
	struct neap_attempt attempt;
	struct neap_series *series;
	size_t of;   /* the experiment; count: none, and ignore the other fields */
	bool placed; /* its needs and device are known: we started it, or from the journal */
	struct neap_needs needs;
	size_t device;        /* in `room`; NEAP_PACKING_ANY: none in particular */
	bool announced;       /* reported that we wait for it (adopted) */
	bool asked;           /* the history was asked for its usual time: */
	uint64_t usual_ns;    /* 0: unknown */
	sig_atomic_t cancels; /* how often it was asked to end */
};

struct neap_series {
	const struct neap_spec *spec;
	const struct neap_series_options *options;
	struct neap_series_summary *summary;
	struct neap_journal *journal;
	struct neap_series_state state;
	struct neap_history *history; /* NULL: it cannot be opened; the series runs without */
	bool history_behind;          /* a result is missing there: put all again at the end */
	struct neap_running running[NEAP_SPEC_PARALLEL];
	struct neap_running *now; /* of them, the current step's */
	struct neap_series_room room;
	bool journal_torn;    /* writing a record failed: none can follow */
	bool ending;          /* an error occurred: start nothing more */
	unsigned unbegun;     /* our supervisors, in a row, that ended before they started their command */
	bool device_seen;     /* a run of ours had one: if there is none now, it is lost */
	uint64_t progress_ns; /* when progress was shown */
	size_t device_of;     /* the experiment that waits for a device; count: none */
	uint64_t device_since_ns;
};

static inline uint64_t neap_series_now(const struct neap_series *series)
{
	return neap_clock_now(series->options->clock ? series->options->clock : neap_clock_system());
}

/* How often a running attempt is checked. The end of our own supervisor is noticed at once, of an adopted one within
 * this time. */
#define NEAP_SERIES_LOOK_MS 25

/* Prints what its supervisor has written since. */
void neap_series_show(struct neap_running *running);

/* series_end.c: the kinds of steps that end an attempt or an experiment. */

/* It has a result: journals what it means, and drops the attempt. */
enum neap_status neap_series_take(struct neap_series *series, struct neap_step step, struct neap_error *err);

/* It has none. Only an attempt that began can be lost. */
enum neap_status neap_series_lose(struct neap_series *series, struct neap_step step, bool began,
				  struct neap_error *err);

/* Its supervisor was killed after its command had ended: ends the command's leftovers and makes the result. */
enum neap_status neap_series_take_ended(struct neap_series *series, struct neap_step step, struct neap_error *err);

/* It was lost too often. */
enum neap_status neap_series_give_up(struct neap_series *series, struct neap_step step, struct neap_error *err);

/* Drops the attempt, after its supervisor's last lines; nothing where there is none. */
void neap_series_release(struct neap_series *series, struct neap_running *running);

/* One line of progress. */
void neap_series_say(const struct neap_series *series, const char *format, ...) NEAP_PRINTF(2, 3);

/* Takes the record over (NULL: memory was short); adds the time (wall_ns), makes it durable, then true. Errors: of
 * neap_journal_append. */
enum neap_status neap_series_append(struct neap_series *series, json_t *entry, struct neap_error *err);

/* Prints the line of an attempt's end. */
void neap_series_say_end(const struct neap_series *series, struct neap_step step, const struct neap_result *result);

/* Whether retry_failed asks for another attempt. Not after an OOM, which has its ladder, nor after a limit, which
 * would stop it again. */
bool neap_series_is_to_be_retried(const struct neap_series *series, struct neap_step step,
				  const struct neap_result *result);

/* Whether it lost its device and is to be restarted. An experiment that keeps losing its device ends. */
bool neap_series_is_deviceless(const struct neap_series *series, struct neap_step step,
			       const struct neap_result *result);

/* series_edit.c: if the file was edited since, or with --only-failed: reports and journals which experiments are kept
 * and which run. `look`: only reports. Errors: NEAP_EBUSY while an attempt from before the edit still runs;
 * NEAP_ENOENT for --only-failed when nothing has started. */
enum neap_status neap_series_edit(struct neap_series *series, bool look, struct neap_error *err);

/* Ends and reports the processes of a run whose supervisor was killed. */
void neap_series_end_leftovers(const struct neap_series *series, const char *run_id);

/* All has ended: writes the report and the journal's last record. */
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
		       char text[NEAP_UNITS_ROOM], char words[64]);

/* With options->estimate, estimates each experiment whose need is not known otherwise, and journals it. An estimate
 * that fails is reported; the experiment is as it would be without. Errors: NEAP_ECANCELED; those of
 * neap_series_append. */
enum neap_status neap_series_estimate(struct neap_series *series, struct neap_error *err);

/* series_device.c */

/* Before a series starts: checks that the devices named by experiments exist. Skips experiments with a wait_limit,
 * which wait, and all if there is no driver. Errors: NEAP_ENODEVICE, with a list of the devices. */
enum neap_status neap_series_device_check(const struct neap_spec *spec, struct neap_error *err);

/* A supervisor found no device: waits a while and returns true for another attempt; false when there is no reason to
 * retry, or the time is up. *ret_status: NEAP_ECANCELED when interrupted meanwhile. */
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
