/* run/supervise_facts.c: makes a result from recordings and samples.
 *
 * A start may have several attached processes, each with its recording. The one with the highest peak gives the
 * steps, leak, fluctuation and curve; OOMs are counted over all of them.
 */
#include "run/supervise_internal.h"

#include "analyze/advice_torch.h"
#include "analyze/predict.h"
#include "analyze/run.h"
#include "base/clock.h"
#include "base/error.h"
#include "base/units.h"
#include "run/argv.h"
#include "run/ranks.h"
#include "run/simulated.h"

#include <inttypes.h>
#include <limits.h>
#include <math.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#define RANKS_ADVISED 16 /* a prediction takes a second at most */

/* The recording with the highest peak. */
struct best {
	bool found;
	char path[PATH_MAX];
	struct neap_record record;
	struct neap_run_facts facts;
	uint64_t total_bytes, rungs, ooms;
	struct neap_ranks ranks; /* from all recordings */
};

static void choose(struct neap_supervise *run, const char *path, pid_t pid, void *context)
{
	struct best *best = context;
	struct neap_record record = {0};
	struct neap_run_facts facts;
	(void)run;
	if (neap_facts_read(path, &record, NULL))
		return;
	neap_run_facts(&record, best->total_bytes, &facts);
	neap_ranks_add(&best->ranks, (uint64_t)pid, &facts);
	best->rungs += facts.rungs;
	if (best->found && facts.peak_reserved_bytes <= best->facts.peak_reserved_bytes) {
		neap_record_fini(&record);
		return;
	}
	if (best->found)
		neap_record_fini(&best->record);
	best->found = true;
	snprintf(best->path, sizeof best->path, "%s", path);
	best->record = record;
	best->facts = facts;
}

static const char *const leak_words[] = {
	[NEAP_LEAK_TOO_SHORT] = "too short",
	[NEAP_LEAK_CLEAN] = "clean",
	[NEAP_LEAK_FOUND] = "leak",
};

static const char *const fluctuation_words[] = {
	[NEAP_FLUCTUATION_NONE] = "little change within a step",
	[NEAP_FLUCTUATION_STEP] = "once per step: forward and backward",
	[NEAP_FLUCTUATION_ACCUMULATION] = "per micro-batch: accumulation",
	[NEAP_FLUCTUATION_OTHER] = "no cause found",
};

static void put_number(double *field, double value) { *field = isfinite(value) ? value : 0; }

static void put_rungs(struct neap_buffer *text, uint32_t rungs, const char *how)
{
	for (int rung = NEAP_RUNG_EFFICIENT_ATTENTION; rung < NEAP_RUNG_STOP; rung++)
		if (rungs & (1u << rung))
			neap_buffer_format(text, "%s%s%s", text->length ? ", " : "", how,
					   neap_rung_name((enum neap_rung)rung));
}

/* Puts the steps, leak, fluctuation, cleanups and rungs of the process. */
static enum neap_status put_story(const struct best *best, struct neap_result *result, struct neap_error *err)
{
	const struct neap_run_facts *facts = &best->facts;
	struct neap_buffer text = {0};
	char first[NEAP_UNITS_CAPACITY], second[NEAP_UNITS_CAPACITY];
	enum neap_status status = neap_result_set(&result->leak_verdict,
						  best->found ? leak_words[facts->leak.verdict] : "not watched", err);
	if (!status && best->found) {
		result->steps = facts->steps;
		result->last_loss = facts->last_loss;
		result->memory_ends_step = facts->memory_ends_step;
		result->memory_ends_low_step = facts->memory_ends_low_step;
		result->memory_ends_high_step = facts->memory_ends_high_step;
		result->restarts = (uint32_t)(facts->restarts < UINT32_MAX ? facts->restarts : UINT32_MAX);
		put_number(&result->leak_bytes_per_step, facts->leak.bytes_per_step);
		put_number(&result->leak_confidence, fmin(fmax(facts->leak.confidence, 0), 1));
		neap_buffer_format(&text, "amplitude %s, %s (%.1f per step)",
				   neap_size_format(facts->fluctuation.amplitude_bytes, first),
				   fluctuation_words[facts->fluctuation.cause], facts->fluctuation.teeth_per_step);
		if (facts->steps)
			status = neap_result_set(&result->fluctuation, neap_buffer_string(&text), err);
		if (!status && facts->steps_are)
			status = neap_result_set(&result->steps_are, facts->steps_are, err);
	}
	if (!status && best->found && facts->cleanups) {
		neap_buffer_clear(&text);
		neap_buffer_format(&text, "%llu cleanup%s gave back %s", (unsigned long long)facts->cleanups,
				   facts->cleanups == 1 ? "" : "s",
				   neap_size_format(facts->cleanup_freed_bytes, first));
		if (facts->cleanup_retaken_bytes)
			neap_buffer_format(&text, " (and %s that were allocated again)",
					   neap_size_format(facts->cleanup_retaken_bytes, first));
		neap_buffer_format(&text, " in %s", neap_duration_format(facts->cleanup_ns, second));
		status = neap_result_set(&result->cleanup, neap_buffer_string(&text), err);
	}
	if (!status) {
		neap_buffer_clear(&text);
		neap_buffer_text(&text, result->rung); /* the rung taken on the command's parameters */
		const struct neap_split *from = &facts->first_split, *to = &facts->last_split;
		if (best->found && from->micro_batch && from->micro_batch != to->micro_batch)
			neap_buffer_format(&text, "%smicro_batch %llu -> %llu, accumulate %llu -> %llu",
					   text.length ? ", " : "", (unsigned long long)from->micro_batch,
					   (unsigned long long)to->micro_batch, (unsigned long long)from->accumulate,
					   (unsigned long long)to->accumulate);
		if (best->found) {
			put_rungs(&text, facts->last_rungs & ~facts->first_rungs, "");
			/* Rungs that the user had set */
			put_rungs(&text, facts->last_rungs & facts->first_rungs, "set: ");
		}
		status = neap_result_set(&result->rung, neap_buffer_string(&text), err);
	}
	neap_buffer_fini(&text);
	return status;
}

static void advise(const char *path, const struct neap_record *record, const struct neap_run_facts *facts,
		   struct neap_advice *ret_advice)
{
	struct neap_advice_torch torch;
	bool of_torch = neap_advice_torch_read(path, &torch);
	neap_advice(record, &facts->leak, of_torch ? &torch.way : NULL, ret_advice);
	neap_advice_torch_fini(&torch);
}

struct tightest {
	size_t ranks;
	uint64_t rank, total_bytes;
	struct neap_advice advice;
};

static void advise_rank(struct neap_supervise *run, const char *path, pid_t pid, void *context)
{
	struct tightest *tightest = context;
	struct neap_record record = {0};
	struct neap_run_facts facts;
	struct neap_advice advice;
	(void)run, (void)pid;
	if (tightest->ranks == RANKS_ADVISED || neap_facts_read(path, &record, NULL))
		return;
	neap_run_facts(&record, tightest->total_bytes, &facts);
	if (facts.process.role == NEAP_PROCESS_RANK && facts.steps) {
		advise(path, &record, &facts, &advice);
		if (!tightest->ranks++ || neap_advice_tighter(&advice, &tightest->advice)) {
			tightest->advice = advice;
			tightest->rank = facts.process.rank;
		}
	}
	neap_record_fini(&record);
}

/* Drops a prediction that the run has disproved: memory ran out with a micro-batch that is no larger. */
static void disbelieve(struct neap_advice *advice)
{
	if (!advice->given || advice->guessed || advice->micro_batch < advice->split.micro_batch)
		return;
	advice->given = false;
	snprintf(advice->why, sizeof advice->why,
		 "memory ran out with micro-batch %" PRIu64
		 ", which the steps before do not predict; 'neap explain' says what would fit",
		 advice->split.micro_batch);
}

/* The largest micro-batch predicted to fit: in the recording with the highest peak, or on the tightest rank. */
static enum neap_status put_advice(struct neap_supervise *run, const struct best *best, struct neap_result *result,
				   struct neap_error *err)
{
	struct tightest tightest = {.total_bytes = best->total_bytes};
	struct neap_advice advice;
	char text[512], place[40];
	if (!best->found)
		return NEAP_OK;
	if (best->facts.process.role == NEAP_PROCESS_RANK && best->ranks.count > 1)
		neap_facts_each_recording(run, advise_rank, &tightest);
	if (tightest.ranks > 1) {
		advice = tightest.advice;
		snprintf(place, sizeof place, "rank %" PRIu64, tightest.rank);
		neap_advice_place(&advice, place, tightest.ranks);
	} else {
		advise(best->path, &best->record, &best->facts, &advice);
	}
	if (result->outcome == NEAP_OUTCOME_OOM)
		disbelieve(&advice);
	neap_advice_text(&advice, text, sizeof text);
	result->micro_batch = advice.split.micro_batch;
	result->accumulate = advice.split.accumulate;
	uint64_t batch = neap_split_batch(&advice.split);
	result->batch = batch <= INT64_MAX ? batch : 0;
	if (advice.given) {
		result->advised_micro_batch = advice.micro_batch;
		result->advised_headroom_bytes = advice.headroom_bytes;
		result->advised_uncertainty_bytes = advice.uncertainty_bytes;
		result->kept_micro_batch = advice.kept_micro_batch;
		result->kept_accumulate = advice.kept_accumulate;
		result->kept_headroom_bytes = advice.kept_headroom_bytes;
	}
	return neap_result_set(&result->advice, text, err);
}

/* The bytes that each unused rung would have saved at the peak. */
static enum neap_status put_savings(const struct best *best, struct neap_result *result, struct neap_error *err)
{
	struct neap_saving savings[NEAP_SAVINGS];
	struct neap_demand demand;
	char text[512];
	if (!best->found || !neap_demand_at_peak(&best->record, &demand))
		return NEAP_OK;
	size_t count = neap_predict_savings(&demand, best->facts.last_rungs, best->facts.layers, savings);
	neap_savings_text(savings, count, neap_demand_total(&demand), text, sizeof text);
	return neap_result_set(&result->savings, text, err);
}

static uint64_t highest(uint64_t a, uint64_t b) { return a > b ? a : b; }

/* The supervisor's own observations. */
static void put_observed(struct neap_supervise *run, struct neap_result *result)
{
	const struct neap_observe *observe = &run->observe;
	result->attached = observe->attached_count > 0;
	neap_observe_peaks(observe, &result->peak_allocated_bytes, &result->peak_reserved_bytes);
	result->waited_ns = run->waited_ns;
	result->drain_ns = run->drain_ns;
	result->drained = run->drained;
	result->retries = run->retries;
	result->device_total_bytes = observe->watched < observe->device_count ? observe->now.total_bytes : 0;
}

/* Each peak is the higher of the sampled and the recorded one. If no device is watched, the device's figures stay as
 * they are. */
static void put_peaks(struct neap_supervise *run, const struct best *best, struct neap_result *result)
{
	const struct neap_observe *observe = &run->observe;
	const struct neap_reading *reading = &observe->now;
	if (best->found) {
		result->attached = true;
		result->peak_allocated_bytes =
			highest(result->peak_allocated_bytes, best->facts.peak_allocated_bytes);
		result->peak_reserved_bytes = highest(result->peak_reserved_bytes, best->facts.peak_reserved_bytes);
	}
	if (observe->watched < observe->device_count) {
		result->peak_device_bytes = neap_observe_peak_device(observe, result->peak_reserved_bytes);
		uint64_t taken = highest(observe->highest_used_bytes,
					 highest(result->peak_device_bytes, result->peak_reserved_bytes));
		uint64_t headroom = reading->total_bytes > reading->reserved_bytes
					    ? reading->total_bytes - reading->reserved_bytes
					    : 0;
		result->headroom_bytes = headroom > taken ? headroom - taken : 0;
	}
	result->ooms = (uint32_t)(run->ooms < UINT32_MAX ? run->ooms : UINT32_MAX);
	result->rungs = (uint32_t)(best->rungs + result->retries);
}

/* The command's times, over all its starts and without the drain. */
static void put_times(const struct neap_supervise *run, struct neap_result *result)
{
	result->ended_wall_ns = neap_wall_ns();
	result->started_wall_ns = run->started_once ? run->first_wall_ns : result->ended_wall_ns;
	if (!run->child.ended)
		return;
	result->duration_ns = run->child.ended_ns - run->first_started_ns;
	result->ended_wall_ns = result->started_wall_ns + result->duration_ns;
}

/* Formats the command of the last start as one line. The caller frees the text. */
static enum neap_status command_line(const struct neap_supervise *run, char **ret_text, struct neap_error *err)
{
	struct neap_argv argv = {0};
	enum neap_status status = neap_supervise_argv(run, &argv.items, err);
	if (status)
		return status;
	while (argv.items[argv.count])
		argv.count++;
	char *text = neap_argv_join(&argv);
	neap_supervise_argv_free(argv.items);
	if (!text)
		return neap_fail(err, NEAP_ENOMEM, "out of host memory while writing a result");
	*ret_text = text;
	return NEAP_OK;
}

static enum neap_status put_names(struct neap_supervise *run, struct neap_result *result, struct neap_error *err)
{
	const char *program = strrchr(run->options.command[0], '/');
	const char *name = run->options.name ? run->options.name : program ? program + 1 : run->options.command[0];
	const struct neap_reading *reading = &run->observe.now;
	bool watched = run->observe.watched < run->observe.device_count;
	const char *backend = !run->monitor                                            ? "none"
			      : neap_monitor_backend(run->monitor) == NEAP_BACKEND_SIM ? "sim"
										       : "cuda";
	struct neap_buffer parameters = {0}, rung = {0}, strays = {0}, outsiders = {0}, containment = {0};
	char *command = NULL;
	enum neap_status status = command_line(run, &command, err);
	if (status)
		return status;
	neap_parameters_text(&run->parameters, &parameters);
	neap_parameters_difference(&run->options.parameters, &run->parameters, &rung);
	neap_observe_strays(&run->observe, &strays);
	neap_observe_outsiders(&run->observe, &outsiders);
	if (!outsiders.length && !run->simulated_reported && !run->observe.attached_count)
		neap_buffer_text(&outsiders, run->astray);
	if (run->child.pid && run->group.path[0])
		neap_buffer_format(&containment, "control group %s", run->group.path);
	else if (run->child.pid)
		neap_buffer_format(&containment, "descent and NEAP_RUN_ID alone (%s)", run->group.why);
	const struct {
		char **field;
		const char *text;
	} texts[] = {
		{&result->name, name},
		{&result->command, command},
		{&result->parameters, neap_buffer_string(&parameters)},
		{&result->rung, neap_buffer_string(&rung)},
		{&result->run_id, run->run_id},
		{&result->device_name, watched ? reading->name : ""},
		{&result->device_uuid, watched ? reading->uuid_text : ""},
		{&result->backend, backend},
		{&result->drain_note, run->drain_note},
		{&result->stray_contexts, neap_buffer_string(&strays)},
		{&result->not_attached, neap_buffer_string(&outsiders)},
		{&result->containment, neap_buffer_string(&containment)},
		{&result->folder, run->folder},
		{&result->error_line, run->last.error},
		{&result->last_lines, run->last.lines},
		{&result->last_lines_of, run->last.of},
	};
	for (size_t i = 0; !status && i < sizeof texts / sizeof *texts; i++)
		status = neap_result_set(texts[i].field, texts[i].text, err);
	free(command);
	neap_buffer_fini(&parameters);
	neap_buffer_fini(&rung);
	neap_buffer_fini(&strays);
	neap_buffer_fini(&outsiders);
	neap_buffer_fini(&containment);
	return status;
}

/* Drops the last lines of the output, for a command that succeeded: they are kept only to show why a command failed.
 */
static enum neap_status forget_last(struct neap_result *result, struct neap_error *err)
{
	enum neap_status status = neap_result_set(&result->error_line, "", err);
	if (!status)
		status = neap_result_set(&result->last_lines, "", err);
	return status ? status : neap_result_set(&result->last_lines_of, "", err);
}

/* Puts the verdict, the simulation's gaps and the last OOM card. */
static enum neap_status put_verdict(struct neap_supervise *run, const struct neap_verdict *verdict,
				    struct neap_result *result, struct neap_error *err)
{
	struct neap_buffer simulated = {0};
	struct neap_simulated gaps = {0};
	result->outcome = verdict->outcome;
	result->exit_status = verdict->exit_status;
	neap_simulated_read(run->folder, &gaps);
	neap_simulated_text(&gaps, &simulated);
	enum neap_status status = neap_result_set(&result->evidence, verdict->evidence, err);
	if (!status)
		status = neap_result_set(&result->simulated, neap_buffer_string(&simulated), err);
	if (!status)
		status = neap_result_set(&result->oom_card, neap_buffer_string(&run->last_card), err);
	if (!status && verdict->outcome == NEAP_OUTCOME_OK)
		status = forget_last(result, err);
	neap_buffer_fini(&simulated);
	return status;
}

enum neap_status neap_facts_plain(struct neap_supervise *run, const struct neap_verdict *verdict,
				  struct neap_result *ret_result, struct neap_error *err)
{
	struct neap_result result;
	const struct best none = {0};
	enum neap_status status = neap_result_init(&result, err);
	if (status)
		return status;
	put_times(run, &result);
	put_observed(run, &result);
	put_peaks(run, &none, &result);
	status = put_names(run, &result, err);
	if (!status)
		status = put_verdict(run, verdict, &result, err);
	if (!status)
		status = neap_result_set(&result.leak_verdict, "not watched", err);
	if (status)
		neap_result_fini(&result);
	else
		*ret_result = result;
	return status;
}

enum neap_status neap_facts_complete(struct neap_supervise *run, const struct neap_verdict *verdict,
				     struct neap_result *result, struct neap_error *err)
{
	struct best best = {.total_bytes = result->device_total_bytes};
	neap_facts_each_recording(run, choose, &best);
	put_peaks(run, &best, result);
	enum neap_status status = put_verdict(run, verdict, result, err);
	if (!status)
		status = put_story(&best, result, err);
	if (!status)
		status = neap_ranks_put(&best.ranks, result, err);
	if (!status)
		status = put_advice(run, &best, result, err);
	if (!status)
		status = put_savings(&best, result, err);
	if (!status)
		status = neap_facts_curve(run, best.found ? &best.record : NULL, result, err);
	if (!status && best.found)
		status = neap_facts_marks(run, &best.record, result, err);
	if (best.found)
		neap_record_fini(&best.record);
	return status;
}

enum neap_status neap_facts_result(struct neap_supervise *run, const struct neap_verdict *verdict,
				   struct neap_result *ret_result, struct neap_error *err)
{
	struct neap_result result;
	enum neap_status status = neap_facts_plain(run, verdict, &result, err);
	if (status)
		return status;
	status = neap_facts_complete(run, verdict, &result, err);
	if (status)
		neap_result_fini(&result);
	else
		*ret_result = result;
	return status;
}
