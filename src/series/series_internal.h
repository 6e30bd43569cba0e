/* series/series_internal.h: one series being run; shared by series*.c and src/slurm. */
#ifndef NEAP_SERIES_SERIES_INTERNAL_H
#define NEAP_SERIES_SERIES_INTERNAL_H

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
	size_t of;   /* the experiment; count: none, and the rest is of no meaning */
	bool placed; /* what it may take, and where, is known: started by us, or as the journal says */
	struct neap_needs needs;
	size_t device;        /* in `room`; NEAP_PACKING_ANY: none in particular */
	bool told;            /* an adopted one: that it is waited for */
	bool asked;           /* the history, how long it usually takes: */
	uint64_t usual_ns;    /* 0: not known */
	sig_atomic_t cancels; /* how often it was asked to end */
};

struct neap_series {
	const struct neap_spec *spec;
	const struct neap_series_options *options;
	struct neap_series_summary *summary;
	struct neap_journal *journal;
	struct neap_series_state state;
	struct neap_history *history; /* NULL: cannot be opened; the series goes on without */
	bool history_behind;          /* a result did not get in: all are put again at the end */
	struct neap_running running[NEAP_SPEC_PARALLEL];
	struct neap_running *now; /* of them, the one that a step is about */
	struct neap_series_room room;
	bool journal_torn;    /* a record could not be written: none can follow it */
	bool ending;          /* something went wrong: nothing is started any more */
	unsigned unbegun;     /* supervisors of ours, one after another, that ended before they began their command */
	bool device_seen;     /* a run of ours has had one: where there is none now, it is gone */
	uint64_t progress_ns; /* when progress was told */
	size_t device_of;     /* the experiment that waits for a device; count: none */
	uint64_t device_since_ns;
};

/* One line of progress. */
void neap_series_say(const struct neap_series *series, const char *format, ...) NEAP_PRINTF(2, 3);

/* Takes the record over (NULL: memory was short); makes it durable, then true. Errors: of neap_journal_append. */
enum neap_status neap_series_append(struct neap_series *series, json_t *entry, struct neap_error *err);

/* What an experiment needs: said in the file, measured by an earlier run, or else the whole device. `text` is for the
 * supervisor, `words` for people. */
void neap_series_needs(struct neap_series *series, const struct neap_experiment *experiment,
		       char text[NEAP_UNITS_ROOM], char words[64]);

/* The line of an attempt's end. */
void neap_series_say_end(const struct neap_series *series, struct neap_step step, const struct neap_result *result);

/* Whether retry_failed asks for another attempt. Memory that ran out has its ladder, and what was stopped at a limit
 * would be so again. */
bool neap_series_is_to_be_retried(const struct neap_series *series, struct neap_step step,
				  const struct neap_result *result);

/* Whether it lost its device and is to be begun anew for that; one that keeps losing it comes to an end. */
bool neap_series_is_deviceless(const struct neap_series *series, struct neap_step step,
			       const struct neap_result *result);

/* series_edit.c: where the file was edited since, or only what failed is wanted: says what is kept and what is run,
 * and journals it. `look`: says it, and does nothing. Errors: NEAP_EBUSY for what still runs as the file was before;
 * NEAP_ENOENT where nothing has begun and only what failed is wanted. */
enum neap_status neap_series_edit(struct neap_series *series, bool look, struct neap_error *err);

/* Ends what a run left behind whose supervisor was killed, and says so. */
void neap_series_end_leftovers(const struct neap_series *series, const char *run_id);

/* All has ended: the report, and the journal's last record. */
enum neap_status neap_series_finish(struct neap_series *series, struct neap_error *err);

void neap_series_open_history(struct neap_series *series);

/* Fills the summary's `failed` and `left`. */
void neap_series_count_ends(struct neap_series *series);

/* How often the user has asked to stop. */
sig_atomic_t neap_series_interrupts(const struct neap_series *series);

/* series_progress.c: tells options->progress. */
void neap_series_progress_tell(struct neap_series *series);

/* series_device.c */

/* Before a series begins: that the devices which experiments name are there. One that is given a wait_limit is waited
 * for instead, and without a driver nothing can be said. Errors: NEAP_ENODEVICE, with what there is. */
enum neap_status neap_series_device_check(const struct neap_spec *spec, struct neap_error *err);

/* A supervisor found no device: false when it is not, or no longer, worth another attempt; else waits a while.
 * *ret_status: NEAP_ECANCELED when interrupted meanwhile. */
bool neap_series_device_wait(struct neap_series *series, struct neap_step step, enum neap_status *ret_status,
			     struct neap_error *err);

/* An experiment's device was lost: waits until the one with this UUID ("": any) can be read again. Errors:
 * NEAP_ENODEVICE when it does not come back within the experiment's wait_limit; NEAP_ECANCELED. */
enum neap_status neap_series_device_return(struct neap_series *series, struct neap_step step, const char *uuid_text,
					   struct neap_error *err);

/* Puts a result into the history; failing is said, not an error. */
void neap_series_keep(struct neap_series *series, const struct neap_result *result);

/* Fills the summary's comparisons: what the file says is to be compared. Errors: NEAP_ENOMEM. */
enum neap_status neap_series_compare(struct neap_series *series, struct neap_error *err);

/* A result for an experiment that has none: what the journal knows of it, and why there is none. */
enum neap_status neap_series_make_result(struct neap_series *series, size_t at, const char *why,
					 struct neap_result *ret_result, struct neap_error *err);

/* Reads every experiment's result, makes those that are missing from the journal, and writes the page. */
enum neap_status neap_series_report(struct neap_series *series, struct neap_error *err);

#endif
