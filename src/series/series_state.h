/* series/series_state.h: the state of a series, replayed from its journal record by record. Pure.
 *
 *   {"type":"series","schema":1,"name":N,"spec_hash":H,"wall_ns":T}               first, once
 *   {"type":"start","experiment":E,"attempt":A,"run_id":ID,"wall_ns":T,           before its supervisor exists
 *       "needs":TEXT,"device":UUID}                                               the memory it may take, and its
 *                                                                                 device, if it was given one.
 *                                                                                 Earlier versions wrote neither
 *       ... "key":K}                                                              neap_experiment_key of its command
 *   {"type":"edit","spec_hash":H,"again":[E,...],...}                             the file changed, or failed
 *                                                                                 experiments run again. The series
 *                                                                                 is now the file with this hash, and
 *                                                                                 the experiments E count as unbegun
 *   {"type":"needs","experiment":E,"needs":TEXT,"origin":"estimated","low":B,     an estimate before its first start,
 *       "high":B,"gpu":PROFILE,"key":K,...}                                       if neither the file nor the history
 *                                                                                 has its needs
 *   {"type":"array","submission":S,"experiments":[E,...],"needs":[B,...],...}     before sbatch: the experiments that
 *                                                                                 its tasks may run, and their needs
 *   {"type":"submit","submission":S,"job":J,...}                                  sbatch has taken it, as job J
 *   {"type":"unbegun","experiment":E,"attempt":A,...}                             its task ended before it began
 *   {"type":"end","experiment":E,"attempt":A,"outcome":O,"exit_status":S,...}     its result counts: E is done
 *   {"type":"lost","experiment":E,"attempt":A,...}                                no result: another attempt
 *   {"type":"cancel","experiment":E,"attempt":A,...}                              interrupted: another attempt
 *   {"type":"retry","experiment":E,"attempt":A,...}                               failed, and runs again
 *   {"type":"device_lost","experiment":E,"attempt":A,...}                         the same, once the device is back
 *   {"type":"give_up","experiment":E,...}                                         too many lost: E is done
 *   {"type":"finish",...}                                                         the report is written
 *
 * If a task of a job array runs an attempt, the journal gets its start only when it is over, right before its end.
 * While it runs, the claim in its folder shows that (slurm/claim.h).
 *
 * The journal is untrusted: types, names, numbers and the order are checked.
 *
 * Records before the last edit belong to an earlier version of the file: they may name experiments that it no longer
 * has.
 *
 *   invariant: a record is applied only after neap_journal_append has written it to disk
 */
#ifndef NEAP_SERIES_SERIES_STATE_H
#define NEAP_SERIES_SERIES_STATE_H

#include "estimate/ask.h"
#include "series/spec.h"
#include "series/step.h"
#include "store/result.h"

#include <jansson.h>

#define NEAP_SERIES_SCHEMA      1
#define NEAP_SERIES_LOST_LIMIT  3
#define NEAP_SERIES_SUBMISSIONS (1u << 20)

struct neap_series_state {
	struct neap_step_experiment *experiments; /* one per experiment of the spec */
	struct neap_series_end {
		char run_id[64];           /* of the last attempt; "" none */
		enum neap_outcome outcome; /* if the experiment has ended */
		int exit_status;
		uint32_t submission; /* the last one with a task for the next attempt; 0: none */
		uint32_t task;       /* its number in that array */
		char needs[32];      /* of the last attempt, as neap_needs_parse reads it; "" unknown */
		char device[48];     /* likewise: its UUID; "" none in particular */
		char key[NEAP_EXPERIMENT_KEY_CAPACITY];           /* likewise: of its command; "" unknown */
		char estimated[32];                               /* its needs, of a "needs" record; "" none */
		char estimated_key[NEAP_EXPERIMENT_KEY_CAPACITY]; /* of what was estimated */
		bool left_out;                                    /* by --only-failed: not run now; not journaled */
	} * ends;                                                 /* likewise */
	size_t count;
	uint32_t *jobs; /* Slurm's number of each submission's job array, from submission 1 on; 0: none is known */
	uint32_t submissions;
	bool begun, finished;
	bool submitted; /* tasks of an array may run unended experiments */
	bool edited;    /* the file has changed since the journal's first record or last edit */
	bool tolerant;  /* replaying records that belong to an earlier version of the file */
	struct neap_series_gone {
		char name[NEAP_SPEC_NAME_CAPACITY];
		uint32_t attempts;
		bool open;
	} * gone; /* experiments of the journal that are not in the file */
	size_t gone_count;
};

/* Makes an empty state for `spec`. Errors: NEAP_ENOMEM. */
enum neap_status neap_series_state_init(struct neap_series_state *state, const struct neap_spec *spec,
					struct neap_error *err);
void neap_series_state_fini(struct neap_series_state *state);

/* Applies one record. Errors leave the state unchanged: NEAP_EPARSE for a record that no series could have written;
 * NEAP_ESTATE for one that belongs to another version of the series file. */
enum neap_status neap_series_state_apply(struct neap_series_state *state, const struct neap_spec *spec,
					 const json_t *record, struct neap_error *err);

/* Applies all records; an error names the bad one's number. Sets `edited` if the file has changed since. */
enum neap_status neap_series_state_replay(struct neap_series_state *state, const struct neap_spec *spec,
					  const json_t *records, struct neap_error *err);

/* Makers of records; NULL when memory is short. */
json_t *neap_series_record_begin(const struct neap_spec *spec);
/* `device`: a UUID; "" none in particular. */
json_t *neap_series_record_start(const struct neap_experiment *experiment, uint32_t attempt, const char *run_id,
				 const char *needs, const char *device);
/* `again`: for each experiment of the spec, whether it is run again. */
json_t *neap_series_record_edit(const struct neap_spec *spec, const bool *again);
/* `needs`: as neap_needs_parse reads it. */
json_t *neap_series_record_needs(const struct neap_experiment *experiment, const char *needs,
				 const struct neap_estimate_answer *answer);
/* `experiments` (task 1's first) and `needs`: arrays of texts; takes ownership of both. */
json_t *neap_series_record_array(uint32_t submission, json_t *experiments, json_t *needs);
json_t *neap_series_record_submit(uint32_t submission, uint32_t job);
json_t *neap_series_record_end(const char *experiment, uint32_t attempt, enum neap_outcome outcome, int exit_status);
/* "lost", "cancel", "retry", "device_lost", "unbegun", "give_up" */
json_t *neap_series_record_of(const char *type, const char *experiment, uint32_t attempt);
json_t *neap_series_record_finish(void);

#endif
