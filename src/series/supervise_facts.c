/* series/supervise_facts.c: from recordings, logs and samples to evidence and result.
 *
 * A start may have several attached processes, each with its recording. The one with the highest peak tells the story
 * (steps, leak, fluctuation, curve); OOMs are counted over all of them.
 */
#include "series/supervise_internal.h"

#include "analyze/advice.h"
#include "analyze/predict.h"
#include "analyze/run.h"
#include "analyze/trace_oom.h"
#include "base/clock.h"
#include "base/error.h"
#include "base/file.h"
#include "base/units.h"
#include "report/report.h"
#include "series/ranks.h"
#include "series/simulated.h"
#include "series/words.h"

#include <dirent.h>
#include <errno.h>
#include <fcntl.h>
#include <inttypes.h>
#include <math.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <unistd.h>

#define CARDS_SHOWN 4u     /* of one start; more repeat the same story */
#define TAIL_BYTES  65536u /* of stderr.log */
#define RECORDINGS  64u
/* For the replays of the cards that are told at once: the run has to be watched meanwhile. */
#define CARD_PATIENCE_NS (3 * NEAP_NS_PER_S)

/* The PID in "record.PID", or after another prefix; 0 when the name is another. */
static pid_t file_pid(const char *name, const char *prefix)
{
	uint64_t pid = 0;
	size_t length = strlen(prefix);
	if (strncmp(name, prefix, length) != 0 || neap_u64_parse(name + length, &pid, NULL) || pid > INT32_MAX)
		return 0;
	return (pid_t)pid;
}

/* Calls `visit` for each file of this start whose name is the prefix and a PID. */
static void each_file(struct neap_supervise *run, const char *prefix,
		      void (*visit)(struct neap_supervise *run, const char *path, pid_t pid, void *context),
		      void *context)
{
	DIR *folder = opendir(run->folder);
	if (!folder)
		return;
	char names[RECORDINGS][32];
	size_t count = 0;
	for (struct dirent *entry; count < RECORDINGS && (entry = readdir(folder));)
		if (file_pid(entry->d_name, prefix) && strlen(entry->d_name) < sizeof names[0])
			strcpy(names[count++], entry->d_name);
	closedir(folder);
	for (size_t i = 0; i < count; i++) {
		char path[4200];
		if (!neap_path_join(path, sizeof path, run->folder, names[i]))
			visit(run, path, file_pid(names[i], prefix), context);
	}
}

static void each_recording(struct neap_supervise *run,
			   void (*visit)(struct neap_supervise *run, const char *path, pid_t pid, void *context),
			   void *context)
{
	each_file(run, "record.", visit, context);
}

static struct neap_observed *find_observed(struct neap_supervise *run, pid_t pid)
{
	for (size_t i = 0; i < run->observe.attached_count; i++)
		if (run->observe.attached[i].pid == pid)
			return &run->observe.attached[i];
	return NULL;
}

/* The card of a recording's OOM, with what replays of it say as long as there is patience; where the trace cannot be
 * had, what the journal says. */
static bool make_card(const char *path, const struct neap_record *record, size_t index, uint64_t deadline_ns,
		      struct neap_oom_card *ret_card)
{
	const struct neap_trace_oom_options options = {.deadline_ns = deadline_ns};
	struct neap_trace *trace = NULL;
	bool made = neap_trace_read(path, &trace, NULL) == NEAP_OK &&
		    neap_trace_oom_recorded(trace, index, &options, ret_card, NULL) == NEAP_OK;

	neap_trace_free(trace);
	return made || neap_oom_card(record, index, ret_card, NULL) == NEAP_OK;
}

/* Cards of the OOMs of a recording from number `first` on: shown, as many as are worth it. Returns how many OOMs it
 * has. */
static size_t tell_ooms(struct neap_supervise *run, const char *path, const struct neap_record *record, size_t first)
{
	uint64_t deadline_ns = neap_clock_now(neap_clock_system()) + CARD_PATIENCE_NS;
	size_t count = neap_oom_count(record);
	for (size_t i = first; i < count; i++, run->cards_shown++) {
		struct neap_oom_card card;
		if (run->cards_shown == CARDS_SHOWN && run->options.show)
			neap_log(run->options.log, NEAP_LOG_WARNING,
				 "Out of device memory again; further OOM cards are not shown");
		if (run->cards_shown >= CARDS_SHOWN || !run->options.show ||
		    !make_card(path, record, i, deadline_ns, &card))
			continue;
		neap_buffer_clear(&run->last_card);
		neap_report_oom_card(&run->last_card, &card);
		run->options.show(run->options.show_context, neap_buffer_string(&run->last_card));
	}
	return count;
}

void neap_facts_show_cards(struct neap_supervise *run)
{
	for (size_t i = 0; i < run->observe.attached_count; i++) {
		struct neap_observed *process = &run->observe.attached[i];
		struct neap_record record = {0};
		if (!process->ooms_rose || neap_record_read(process->record_path, &record, NULL))
			continue;
		process->cards_shown = tell_ooms(run, process->record_path, &record, process->cards_shown);
		neap_record_fini(&record);
	}
}

void neap_facts_show_simulated(struct neap_supervise *run)
{
	const char *name = run->observe.now.name;
	if (run->simulated_told || !run->monitor || neap_monitor_backend(run->monitor) != NEAP_BACKEND_SIM ||
	    !neap_simulated_is_used(run->folder))
		return;
	run->simulated_told = true;
	neap_log(run->options.log, NEAP_LOG_WARNING, "simulated: nothing is computed (%s)",
		 name[0] ? name : "no device is watched");
}

struct evidence_search {
	struct neap_evidence *evidence;
	uint64_t last_oom_ns;
};

/* Why a session asked its program to stop, if one did and that was heard. */
static void gather_wish(const struct neap_record *record, struct neap_evidence *evidence)
{
	const struct neap_event *wish = neap_run_wish(record);
	char below[NEAP_UNITS_ROOM], left[NEAP_UNITS_ROOM];

	if (!wish || wish->block != NEAP_TRAIN_STOP)
		return;
	if (!strcmp(neap_record_name(record, wish->tag), "--max-steps")) /* python/neap/_events.py */
		snprintf(evidence->stop_text, sizeof evidence->stop_text, "the %" PRIu64 " step%s of --max-steps",
			 wish->size, wish->size == 1 ? "" : "s");
	else
		snprintf(evidence->stop_text, sizeof evidence->stop_text, "%s below %s: %s were left",
			 neap_record_name(record, wish->tag), neap_size_format(wish->address, below),
			 neap_size_format(wish->size, left));
}

static void gather(struct neap_supervise *run, const char *path, pid_t pid, void *context)
{
	struct evidence_search *search = context;
	struct neap_evidence *evidence = search->evidence;
	struct neap_record record = {0};
	struct neap_error err = {0};
	enum neap_status status = neap_record_read(path, &record, &err);
	if (status) {
		neap_log(run->options.log, NEAP_LOG_WARNING, "A recording cannot be used: %s", err.message);
		return;
	}
	gather_wish(&record, evidence);
	struct neap_observed *process = find_observed(run, pid);
	struct neap_oom_card card = {0};
	size_t count = tell_ooms(run, path, &record, process ? process->cards_shown : 0);
	if (process)
		process->cards_shown = count;
	/* Again: shown while it ran, it did not yet say which rung was taken. */
	if (count &&
	    make_card(path, &record, count - 1, neap_clock_now(neap_clock_system()) + CARD_PATIENCE_NS, &card)) {
		char asked[NEAP_UNITS_ROOM], free_text[NEAP_UNITS_ROOM];
		uint64_t last_oom_ns = 0;
		bool went_on = false;
		for (size_t i = 0; i < record.journal_count; i++) {
			if (record.journal[i].kind == NEAP_EVENT_OOM) {
				last_oom_ns = record.journal[i].time_ns;
				went_on = false;
			} else if (record.journal[i].kind == NEAP_EVENT_STEP) {
				went_on = true;
			}
		}
		/* every process that ran out must have gone on */
		evidence->recovered = (evidence->ooms == 0 || evidence->recovered) && went_on;
		if (last_oom_ns >= search->last_oom_ns) {
			search->last_oom_ns = last_oom_ns;
			neap_buffer_clear(&run->last_card);
			neap_report_oom_card(&run->last_card, &card);
			snprintf(evidence->oom_text, sizeof evidence->oom_text,
				 "process %d asked for %s%s%s with %s free on the device, at step %llu", pid,
				 neap_size_format(card.requested_bytes, asked), card.tag[0] ? " for " : "", card.tag,
				 neap_size_format(card.device_free_bytes, free_text), (unsigned long long)card.step);
		}
		evidence->ooms += count;
	}
	neap_record_fini(&record);
}

static void scan_log(struct neap_supervise *run, struct neap_evidence *evidence)
{
	char path[4200];
	if (!run->options.log_files || neap_path_join(path, sizeof path, run->folder, "stderr.log"))
		return;
	int fd = open(path, O_RDONLY | O_CLOEXEC);
	if (fd < 0)
		return;
	char *tail = malloc(TAIL_BYTES);
	off_t end = lseek(fd, 0, SEEK_END), from = end - (off_t)TAIL_BYTES;
	if (from < (off_t)run->log_offset) /* only what this start wrote */
		from = (off_t)run->log_offset;
	if (tail && end > from) {
		ssize_t length = pread(fd, tail, (size_t)(end - from), from);
		if (length > 0) {
			neap_outcome_scan(tail, (size_t)length, NEAP_WORDS_OOM, evidence->stderr_line,
					  sizeof evidence->stderr_line);
			neap_outcome_scan(tail, (size_t)length, NEAP_WORDS_LOST, evidence->lost_line,
					  sizeof evidence->lost_line);
		}
	}
	free(tail);
	close(fd);
}

/* "oom.PID": the error that ended a Python program, as its text was (python/neap/hooks.py). Also without --log. */
static void read_last_words(struct neap_supervise *run, const char *path, pid_t pid, void *context)
{
	struct neap_evidence *evidence = context;
	struct neap_buffer text = {0};
	(void)run, (void)pid;
	if (!evidence->stderr_line[0] && neap_file_read(path, TAIL_BYTES, &text, NULL) == NEAP_OK)
		neap_outcome_scan(neap_buffer_string(&text), text.length, NEAP_WORDS_OOM, evidence->stderr_line,
				  sizeof evidence->stderr_line);
	neap_buffer_fini(&text);
}

void neap_facts_evidence(struct neap_supervise *run, struct neap_evidence *evidence)
{
	struct evidence_search search = {.evidence = evidence};
	neap_facts_show_simulated(run); /* of a start that was over before the first look */
	each_recording(run, gather, &search);
	run->ooms += evidence->ooms;
	scan_log(run, evidence);
	each_file(run, "oom.", read_last_words, evidence);
	if (!evidence->ooms && evidence->stderr_line[0])
		run->ooms++; /* it said so itself; nobody counted */
}

static void set_aside(struct neap_supervise *run, const char *path, pid_t pid, void *context)
{
	char target[4200], name[64];
	const char *prefix = context;
	snprintf(name, sizeof name, "start-%u.%s%d", run->retries, prefix, (int)pid);
	if (neap_path_join(target, sizeof target, run->folder, name) || rename(path, target))
		neap_log(run->options.log, NEAP_LOG_WARNING, "A file of this start cannot be kept: renaming %s: %s",
			 path, strerror(errno));
}

void neap_facts_set_aside(struct neap_supervise *run)
{
	static char prefixes[][16] = {"record.", "oom.", "simulated."};
	for (size_t i = 0; i < sizeof prefixes / sizeof *prefixes; i++)
		each_file(run, prefixes[i], set_aside, prefixes[i]);
}

/* The recording with the highest peak. */
struct best {
	bool found;
	struct neap_record record;
	struct neap_run_facts facts;
	uint64_t total_bytes, rungs, ooms;
	struct neap_ranks ranks; /* of every recording */
};

static void choose(struct neap_supervise *run, const char *path, pid_t pid, void *context)
{
	struct best *best = context;
	struct neap_record record = {0};
	struct neap_run_facts facts;
	(void)run;
	if (neap_record_read(path, &record, NULL))
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

/* Steps, leak, fluctuation, cleanups and rungs inside the process. `status` collects the first failure. */
static enum neap_status put_story(const struct best *best, struct neap_result *result, struct neap_error *err)
{
	const struct neap_run_facts *facts = &best->facts;
	struct neap_buffer text = {0};
	char first[NEAP_UNITS_ROOM], second[NEAP_UNITS_ROOM];
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
	}
	if (!status && best->found && facts->cleanups) {
		neap_buffer_clear(&text);
		neap_buffer_format(&text, "%llu cleanup%s gave back %s in %s", (unsigned long long)facts->cleanups,
				   facts->cleanups == 1 ? "" : "s",
				   neap_size_format(facts->cleanup_freed_bytes, first),
				   neap_duration_format(facts->cleanup_ns, second));
		status = neap_result_set(&result->cleanup, neap_buffer_string(&text), err);
	}
	if (!status) {
		neap_buffer_clear(&text);
		neap_buffer_text(&text, result->rung); /* of the command's parameters */
		const struct neap_split *from = &facts->first_split, *to = &facts->last_split;
		if (best->found && from->micro_batch && from->micro_batch != to->micro_batch)
			neap_buffer_format(&text, "%smicro_batch %llu -> %llu, accumulate %llu -> %llu",
					   text.length ? ", " : "", (unsigned long long)from->micro_batch,
					   (unsigned long long)to->micro_batch, (unsigned long long)from->accumulate,
					   (unsigned long long)to->accumulate);
		for (int rung = NEAP_RUNG_EFFICIENT_ATTENTION; best->found && rung < NEAP_RUNG_STOP; rung++)
			if (facts->last_rungs & (1u << rung))
				neap_buffer_format(&text, "%s%s", text.length ? ", " : "",
						   neap_rung_name((enum neap_rung)rung));
		status = neap_result_set(&result->rung, neap_buffer_string(&text), err);
	}
	neap_buffer_fini(&text);
	return status;
}

/* The largest micro-batch that is predicted to fit, from the recording that tells the story. */
static enum neap_status put_advice(const struct best *best, struct neap_result *result, struct neap_error *err)
{
	struct neap_advice advice;
	char text[512];
	if (!best->found)
		return NEAP_OK;
	neap_advice(&best->record, &best->facts.leak, &advice);
	neap_advice_text(&advice, text, sizeof text);
	result->micro_batch = advice.split.micro_batch;
	result->accumulate = advice.split.accumulate;
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

/* What each rung that is not in force would have saved at the peak. */
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

/* What the supervisor saw itself. */
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

/* Peaks are the highest of what was seen and what was recorded. Figures of the device stay as they are where none is
 * watched (any more). */
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
		uint64_t room = reading->total_bytes > reading->reserved_bytes
					? reading->total_bytes - reading->reserved_bytes
					: 0;
		result->headroom_bytes = room > taken ? room - taken : 0;
	}
	result->ooms = (uint32_t)(run->ooms < UINT32_MAX ? run->ooms : UINT32_MAX);
	result->rungs = (uint32_t)(best->rungs + result->retries);
}

/* Of the command, all starts of it; the drain is not the command's. */
static void put_times(const struct neap_supervise *run, struct neap_result *result)
{
	result->ended_wall_ns = neap_wall_ns();
	result->started_wall_ns = run->started_once ? run->first_wall_ns : result->ended_wall_ns;
	if (!run->child.ended)
		return;
	result->duration_ns = run->child.ended_ns - run->first_started_ns;
	result->ended_wall_ns = result->started_wall_ns + result->duration_ns;
}

/* What was run last, on one line. The caller frees the text. */
static enum neap_status command_line(const struct neap_supervise *run, char **ret_text, struct neap_error *err)
{
	struct neap_words words = {0};
	enum neap_status status = neap_supervise_words(run, &words.items, err);
	if (status)
		return status;
	while (words.items[words.count])
		words.count++;
	char *text = neap_words_join(&words);
	neap_supervise_words_free(words.items);
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
	struct neap_buffer parameters = {0}, rung = {0}, strays = {0}, outsiders = {0};
	char *command = NULL;
	enum neap_status status = command_line(run, &command, err);
	if (status)
		return status;
	neap_parameters_text(&run->parameters, &parameters);
	neap_parameters_difference(&run->options.parameters, &run->parameters, &rung);
	neap_observe_strays(&run->observe, &strays);
	neap_observe_outsiders(&run->observe, &outsiders);
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
	};
	for (size_t i = 0; !status && i < sizeof texts / sizeof *texts; i++)
		status = neap_result_set(texts[i].field, texts[i].text, err);
	free(command);
	neap_buffer_fini(&parameters);
	neap_buffer_fini(&rung);
	neap_buffer_fini(&strays);
	neap_buffer_fini(&outsiders);
	return status;
}

/* The verdict, and what the run's folder tells beside recordings. */
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
	each_recording(run, choose, &best);
	put_peaks(run, &best, result);
	enum neap_status status = put_verdict(run, verdict, result, err);
	if (!status)
		status = put_story(&best, result, err);
	if (!status)
		status = neap_ranks_put(&best.ranks, result, err);
	if (!status)
		status = put_advice(&best, result, err);
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
