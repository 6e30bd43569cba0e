/* series/series_needs.c: finds what an experiment needs: the first of these that is known.
 *
 *   needs: in the file     measured by an earlier run of the same command     estimated     the whole device
 *
 * Estimates are runs on the simulator before the first start (--estimate); the journal keeps them. */
#include "series/series_internal.h"

#include "base/error.h"
#include "estimate/ask.h"

#include <inttypes.h>
#include <stdio.h>
#include <string.h>

/* --- what is known --- */

/* Finds the needs that an earlier run of the same command measured in this series, else the estimated ones. False:
 * there are neither.
 */
static bool find_needs(struct neap_series *series, const struct neap_experiment *experiment,
		       char text[NEAP_UNITS_CAPACITY], char words[64])
{
	const struct neap_series_end *end = &series->state.ends[experiment - series->spec->experiments];
	char size[NEAP_UNITS_CAPACITY], key[NEAP_EXPERIMENT_KEY_CAPACITY];
	uint64_t bytes;
	neap_experiment_key(experiment, key);
	if (series->history &&
	    !neap_history_peak(series->history, series->spec->name, experiment->name, key, &bytes, NULL)) {
		snprintf(text, NEAP_UNITS_CAPACITY, "%" PRIu64, bytes);
		snprintf(words, 64, "%s, as measured before", neap_size_format(bytes, size));
		return true;
	}
	if (!*end->estimated || strcmp(end->estimated_key, key) != 0)
		return false;
	snprintf(text, NEAP_UNITS_CAPACITY, "%s", end->estimated);
	if (neap_size_parse(text, &bytes, NULL))
		snprintf(words, 64, "the whole device, as estimated");
	else
		snprintf(words, 64, "%s, as estimated", neap_size_format(bytes, size));
	return true;
}

void neap_series_needs(struct neap_series *series, const struct neap_experiment *experiment,
		       char text[NEAP_UNITS_CAPACITY], char words[64])
{
	if (!experiment->needs && find_needs(series, experiment, text, words))
		return;
	snprintf(text, NEAP_UNITS_CAPACITY, "%s", experiment->needs ? experiment->needs : "device");
	snprintf(words, 64, "%s", strcmp(text, "device") ? text : "the whole device");
}

/* --- estimates --- */

/* Whether the experiment must be estimated: it has not started, and its needs are not known otherwise. */
static bool is_asked_for(struct neap_series *series, size_t at)
{
	const struct neap_step_experiment *state = &series->state.experiments[at];
	const struct neap_experiment *experiment = &series->spec->experiments[at];
	char text[NEAP_UNITS_CAPACITY], words[64];
	return !state->ended && !state->open && !series->state.ends[at].left_out && !experiment->needs &&
	       !find_needs(series, experiment, text, words);
}

static bool go_on(void *context) { return neap_series_interrupts(context) == 0; }

/* Returns the device that the file gives the experiment, as CUDA_VISIBLE_DEVICES names it. NULL: any device. */
static const char *device_of(struct neap_series *series, const struct neap_experiment *experiment)
{
	if (!experiment->device)
		return NULL;
	if (!series->headroom.count)
		neap_series_headroom_init(&series->headroom, NULL);
	size_t at = neap_series_headroom_find(&series->headroom, experiment->device);
	return at < series->headroom.count ? series->headroom.uuids[at] : NULL;
}

/* Journals an estimate. A program that fits nowhere gets a whole device: its run will show what happens. */
static enum neap_status keep(struct neap_series *series, size_t at, const struct neap_estimate_answer *answer,
			     uint64_t took_ns, struct neap_error *err)
{
	const struct neap_experiment *experiment = &series->spec->experiments[at];
	char needs[NEAP_UNITS_CAPACITY] = "device", low[NEAP_UNITS_CAPACITY], high[NEAP_UNITS_CAPACITY],
	     took[NEAP_UNITS_CAPACITY];
	bool fits = answer->fits == NEAP_ESTIMATE_YES && answer->high_bytes <= answer->total_bytes;
	if (fits)
		snprintf(needs, sizeof needs, "%" PRIu64, answer->high_bytes);
	neap_series_report_line(series, "[%zu/%zu] %s: estimated in %s: %s to %s on %s%s", at + 1,
				series->spec->count, experiment->name, neap_duration_format(took_ns, took),
				neap_size_format(answer->low_bytes, low), neap_size_format(answer->high_bytes, high),
				answer->gpu, fits ? "" : ", which may not have as much: it gets a whole device");
	return neap_series_append(series, neap_series_record_needs(experiment, needs, answer), err);
}

static enum neap_status estimate(struct neap_series *series, size_t at, struct neap_error *err)
{
	const struct neap_experiment *experiment = &series->spec->experiments[at];
	uint64_t began_ns = neap_series_now(series);
	struct neap_estimate_answer answer;
	struct neap_error own = {0};
	struct neap_estimate_question question = {.program = series->options->program,
						  .gpus = series->options->estimate,
						  .command = experiment->command.items,
						  .parameters = experiment->params.items,
						  .environment = experiment->env.items,
						  .directory = experiment->directory,
						  .in_place = series->options->estimate_in_place,
						  .device = device_of(series, experiment),
						  .go_on = go_on,
						  .context = series};
	neap_series_report_line(series, "[%zu/%zu] %s: estimating what it needs", at + 1, series->spec->count,
				experiment->name);
	enum neap_status status = neap_estimate_ask(&question, &answer, &own);
	if (neap_series_interrupts(series))
		return neap_fail(err, NEAP_ECANCELED, "interrupted");
	if (!status)
		return keep(series, at, &answer, neap_series_now(series) - began_ns, err);
	neap_series_report_line(series, "[%zu/%zu] %s: not estimated: %s", at + 1, series->spec->count,
				experiment->name, own.message);
	return NEAP_OK;
}

enum neap_status neap_series_estimate(struct neap_series *series, struct neap_error *err)
{
	enum neap_status status = NEAP_OK;
	for (size_t at = 0; series->options->estimate && !status && at < series->spec->count; at++)
		if (is_asked_for(series, at))
			status = estimate(series, at, err);
	return status;
}
