/* train/session.c: the training session. Turns the loop's calls into events, log lines, cleanups and rungs.
 *
 *   tick tick step   tick tick step   tick OOM            tick tick tick tick step
 *                |                |        |
 *                |                |        recover: cleanup, next rung, the same samples again
 *                STEP event, schedule of cleanups and marks, leak watch, thresholds: perhaps a request
 *
 * Invariants: the effective batch is what it was at the beginning; a scheduled cleanup happens at most
 * once per call from the loop; a request stays once made. */
#include "train/session_internal.h"

#include "base/clock.h"
#include "base/error.h"
#include "base/log.h"
#include "base/units.h"
#include "train/headroom.h"

#include <math.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#define LEAK_WATCH_STEPS   20
#define FRUITLESS_CLEANUPS 3 /* in a row, until a warning that they only cost time */
#define FUTILE_SHARE       8 /* a cleanup is futile if all but this share of its bytes was allocated again */
/* The valid bits of cleanup_points. */
#define POINTS_KNOWN ((2u << NEAP_CLEANUP_LEAK) - 1)

/* The option of struct neap_train_options that requests cleanups for this reason; NULL: they cannot be omitted. */
static const char *option_of(const struct neap_train *train, enum neap_cleanup_reason reason)
{
	const struct neap_train_options *options = &train->options;

	switch (reason) {
	case NEAP_CLEANUP_SAVED:
		return "cleanup_points SAVED";
	case NEAP_CLEANUP_EPOCH:
		return "cleanup_points EPOCH";
	case NEAP_CLEANUP_EVERY_STEP:
		return "cleanup_points EVERY_STEP";
	case NEAP_CLEANUP_PERIODIC:
		return options->cleanup_every_ticks   ? "cleanup_every_ticks"
		       : options->cleanup_every_steps ? "cleanup_every_steps"
						      : "cleanup_every_epochs";
	default:
		return NULL;
	}
}

/* Warns that cleanups only cost time, once for each row of FRUITLESS_CLEANUPS. */
static void warn_of_cleanups(struct neap_train *train, enum neap_cleanup_reason reason, const char *why)
{
	uint64_t trained_ns = neap_clock_now(neap_clock_system()) - train->began_ns;
	char time[NEAP_UNITS_CAPACITY];

	neap_log(train->options.log, NEAP_LOG_WARNING,
		 "%s: the last %d cleanups %s; they only slow training: %s so far, %.2g %% of the time. Leave out %s",
		 train->name, FRUITLESS_CLEANUPS, why, neap_duration_format(train->summary.cleanup_ns, time),
		 100 * (double)train->summary.cleanup_ns / (double)(trained_ns ? trained_ns : 1),
		 option_of(train, reason));
}

static void count_fruitless(struct neap_train *train, enum neap_cleanup_reason reason, uint64_t freed_bytes)
{
	train->fruitless[reason] = freed_bytes ? 0 : train->fruitless[reason] + 1;
	if (train->fruitless[reason] == FRUITLESS_CLEANUPS && option_of(train, reason))
		warn_of_cleanups(train, reason, "gave nothing back");
}

/* How many of the bytes that the last cleanup gave back the process has reserved again. */
static uint64_t taken_again(const struct neap_train *train)
{
	uint64_t freed = train->last_cleanup.freed_bytes, left = train->last_cleanup.reserved_bytes;
	struct neap_memory memory;

	neap_memory_read(train->alloc, &memory);
	uint64_t again = memory.reserved_bytes > left ? memory.reserved_bytes - left : 0;
	return again < freed ? again : freed;
}

void neap_session_judge_cleanup(struct neap_train *train)
{
	enum neap_cleanup_reason reason = train->last_cleanup.reason;
	uint64_t freed = train->last_cleanup.freed_bytes, again = taken_again(train);
	char size[NEAP_UNITS_CAPACITY], why[96];

	if (train->last_cleanup.judged || !freed)
		return;
	train->last_cleanup.judged = true;
	bool futile = again >= freed - freed / FUTILE_SHARE;
	train->futile[reason] = futile ? train->futile[reason] + 1 : 0;
	if (train->futile[reason] != FRUITLESS_CLEANUPS || !option_of(train, reason))
		return;
	snprintf(why, sizeof why, "gave back memory, %s the last time, that was allocated again at once",
		 neap_size_format(freed, size));
	warn_of_cleanups(train, reason, why);
}

/* Memory that was freed and allocated again does not count as freed. */
static void count_retaken(struct neap_train *train)
{
	uint64_t again = taken_again(train);

	train->retaken_bytes += again;
	train->summary.cleanup_freed_bytes -= again;
	train->last_cleanup.freed_bytes = 0;
}

void neap_session_cleanup(struct neap_train *train, enum neap_cleanup_reason reason)
{
	struct neap_cleanup done;
	struct neap_memory memory;

	neap_session_judge_cleanup(train);
	count_retaken(train);
	if (neap_cleanup_run(train->alloc, train->options.log, reason, &done, NULL) != NEAP_OK)
		return; /* it has logged why */
	neap_memory_read(train->alloc, &memory);
	train->last_cleanup.reason = reason;
	train->last_cleanup.freed_bytes = done.freed_bytes;
	train->last_cleanup.reserved_bytes = memory.reserved_bytes;
	train->last_cleanup.judged = false;
	train->summary.cleanups++;
	train->summary.cleanup_freed_bytes += done.freed_bytes;
	train->summary.cleanup_ns += done.ns;
	count_fruitless(train, reason, done.freed_bytes);
}

void neap_session_request(struct neap_train *train, const char *name, const char *reason,
			  struct neap_event_request event)
{
	if (train->request != NEAP_TRAIN_GO_ON)
		return;
	train->request = (enum neap_train_request)event.request;
	snprintf(train->reason, sizeof train->reason, "%s", reason);
	event.name = neap_emit_name(train->alloc, name);
	neap_emit_request(train->alloc, event);
	neap_log(train->options.log, NEAP_LOG_WARNING, "%s: %s: asking the loop to save a checkpoint and %s",
		 train->name, reason, event.request == NEAP_TRAIN_STOP ? "end" : "restart");
}

enum neap_train_request neap_train_request(const struct neap_train *train, const char **ret_reason)
{
	if (ret_reason)
		*ret_reason = train->reason;
	return train->request;
}

static bool wanted(const struct neap_train *train, enum neap_cleanup_reason reason)
{
	return train->options.cleanup_points & (1u << reason);
}

static bool due(uint64_t count, uint64_t every) { return every > 0 && count % every == 0; }

/* How many of the parts have one sample less than the others. */
static uint64_t smaller_parts(const struct neap_split *split)
{
	uint64_t batch = neap_split_batch(split), parts = neap_split_parts(split, batch);

	return parts && batch % parts ? parts - batch % parts : 0;
}

struct neap_event_settings neap_session_event_settings(const struct neap_train_settings *settings)
{
	uint64_t smaller = smaller_parts(&settings->split);

	return (struct neap_event_settings){.rungs = settings->rungs,
					    .smaller_parts = smaller <= UINT32_MAX ? (uint32_t)smaller : 0,
					    .micro_batch = settings->split.micro_batch,
					    .accumulate = settings->split.accumulate};
}

static void emit_settings(struct neap_train *train)
{
	uint64_t ranks = train->now.split.ranks;

	neap_emit_split(train->alloc,
			(struct neap_event_split){.settings = neap_session_event_settings(&train->now),
						  .ranks = ranks < UINT32_MAX ? (uint32_t)ranks : UINT32_MAX,
						  .layers = train->options.layers});
}

static const char *mark_name(enum neap_mark mark)
{
	switch (mark) {
	case NEAP_MARK_START:
		return "start";
	case NEAP_MARK_MODEL_READY:
		return "model on device";
	case NEAP_MARK_OPTIMIZER_READY:
		return "optimizer created";
	case NEAP_MARK_EPOCH_END:
		return "epoch end";
	case NEAP_MARK_EVERY_N:
		return "step";
	case NEAP_MARK_SAVED:
		return "saved";
	case NEAP_MARK_OOM:
		return "out of memory";
	case NEAP_MARK_END:
		return "end";
	case NEAP_MARK_EVALUATION:
		return "evaluation";
	case NEAP_MARK_FAILED:
		return "failed";
	default:
		return "user mark";
	}
}

static void note_peaks(struct neap_train *train)
{
	struct neap_memory memory;
	struct neap_train_summary *summary = &train->summary;

	neap_memory_read(train->alloc, &memory);
	if (memory.peak_allocated_bytes > summary->peak_allocated_bytes)
		summary->peak_allocated_bytes = memory.peak_allocated_bytes;
	if (memory.peak_reserved_bytes > summary->peak_reserved_bytes)
		summary->peak_reserved_bytes = memory.peak_reserved_bytes;
}

/* Emits the event of a mark and logs its line. */
void neap_session_mark(struct neap_train *train, enum neap_mark mark, uint64_t value)
{
	const char *name = mark_name(mark);
	struct neap_memory memory;
	char number[24] = "";

	neap_emit_mark(train->alloc, (struct neap_event_mark){.name = neap_emit_name(train->alloc, name),
							      .mark = (uint32_t)mark,
							      .value = value});
	neap_memory_read(train->alloc, &memory);
	if (value)
		snprintf(number, sizeof number, " %llu", (unsigned long long)value);
	int64_t allocated = (int64_t)memory.allocated_bytes, cached = (int64_t)memory.reserved_bytes - allocated;
	int64_t host = (int64_t)neap_host_resident();
	if (!train->last_mark.there) {
		train->last_mark.allocated = allocated;
		train->last_mark.cached = cached;
		train->last_mark.host = host;
	}
	neap_log(train->options.log, NEAP_LOG_INFO,
		 "%s: %s%s: GPU memory: %.1f GB allocated, %.1f GB cached (\u0394%+.1f GB, \u0394%+.1f GB); "
		 "host memory: %.1f GB (\u0394%+.1f GB)",
		 train->name, name, number, neap_gb(allocated), neap_gb(cached),
		 neap_gb(allocated - train->last_mark.allocated), neap_gb(cached - train->last_mark.cached),
		 neap_gb(host), neap_gb(host - train->last_mark.host));
	train->last_mark.allocated = allocated;
	train->last_mark.cached = cached;
	train->last_mark.host = host;
	train->last_mark.there = true;
	note_peaks(train);
}

static bool in_order(const struct neap_levels *levels)
{
	return (!levels->stop_bytes || !levels->degrade_bytes || levels->stop_bytes <= levels->degrade_bytes) &&
	       (!levels->degrade_bytes || !levels->warn_bytes || levels->degrade_bytes <= levels->warn_bytes) &&
	       (!levels->stop_bytes || !levels->warn_bytes || levels->stop_bytes <= levels->warn_bytes);
}

static enum neap_status check_options(const struct neap_train_options *options, struct neap_error *err)
{
	if (!options || options->split.micro_batch == 0)
		return neap_fail(err, NEAP_EINVAL, "a training session needs the micro-batch size, at least 1");
	if (options->cleanup_points & ~POINTS_KNOWN)
		return neap_fail(err, NEAP_EINVAL, "cleanup_points 0x%x has bits of no neap_cleanup_reason",
				 options->cleanup_points);
	if (options->cleanup_points & (1u << NEAP_CLEANUP_PERIODIC) && !options->cleanup_every_steps &&
	    !options->cleanup_every_epochs && !options->cleanup_every_ticks)
		return neap_fail(err, NEAP_EINVAL,
				 "periodic cleanup was asked for without a period in steps, epochs or "
				 "ticks");
	if (options->rungs_offered & ~NEAP_RUNGS_OFFERABLE || options->rungs_active & ~NEAP_RUNGS_SWITCHED)
		return neap_fail(err, NEAP_EINVAL,
				 "rungs_offered 0x%x or rungs_active 0x%x has bits of no rung that can be offered or "
				 "active",
				 options->rungs_offered, options->rungs_active);
	if (!in_order(&options->device) || !in_order(&options->host))
		return neap_fail(
			err, NEAP_EINVAL,
			"thresholds of memory that is left: to warn at least as much as to degrade, and that "
			"at least as much as to stop");
	if ((unsigned)options->on_leak > NEAP_ON_LEAK_RESTART)
		return neap_fail(err, NEAP_EINVAL, "on_leak %d is not in enum neap_on_leak", (int)options->on_leak);
	return NEAP_OK;
}

static bool same_batch(const struct neap_split *a, const struct neap_split *b)
{
	uint64_t batch = neap_split_batch(a);

	return batch != UINT64_MAX && batch == neap_split_batch(b) && a->ranks == b->ranks;
}

/* After a restart in place, takes over the settings of the image before it, so that settings that failed are not
 * tried again. Accepts only settings that the ladder could have made of the requested ones. */
static void take_over_settings(struct neap_train *train)
{
	struct neap_train_settings before, *now = &train->now;
	uint32_t offered = train->options.rungs_offered;

	if (!neap_session_settings_left(&before) || before.split.micro_batch == 0)
		return;
	neap_split_settle(&before.split);
	if (!same_batch(&before.split, &now->split) || now->rungs & ~before.rungs ||
	    before.rungs & ~(now->rungs | offered))
		return;
	bool smaller = before.split.micro_batch < now->split.micro_batch && offered & 1u << NEAP_RUNG_SPLIT;
	if (!smaller && before.split.micro_batch != now->split.micro_batch)
		return;
	if (smaller || before.rungs != now->rungs)
		neap_log(train->options.log, NEAP_LOG_INFO,
			 "%s: going on with what was in force before the restart: micro-batch %llu x accumulation "
			 "%llu%s",
			 train->name, (unsigned long long)before.split.micro_batch,
			 (unsigned long long)before.split.accumulate,
			 before.rungs != now->rungs ? ", and the rungs that were taken" : "");
	*now = before;
}

enum neap_status neap_train_begin(struct neap_alloc *alloc, const struct neap_train_options *options,
				  struct neap_train **ret_train, struct neap_error *err)
{
	enum neap_status status = check_options(options, err);
	uint64_t lowest, highest;

	if (status)
		return status;
	struct neap_train *train = calloc(1, sizeof *train);
	if (!train)
		return neap_fail(err, NEAP_ENOMEM, "out of host memory for a training session");
	train->alloc = alloc;
	train->options = *options;
	snprintf(train->name, sizeof train->name, "%s", options->name ? options->name : "training");
	train->options.name = train->name;
	train->now = (struct neap_train_settings){options->split, options->rungs_active};
	neap_split_settle(&train->now.split);
	if (!train->options.rungs_offered)
		train->options.rungs_offered = 1u << NEAP_RUNG_SPLIT;
	if (!train->options.leak_watch_every_steps)
		train->options.leak_watch_every_steps = LEAK_WATCH_STEPS;
	if (!train->options.leak_margin_steps)
		train->options.leak_margin_steps = (train->options.leak_watch_every_steps + 1) / 2;
	train->began_ns = neap_clock_now(neap_clock_system());
	take_over_settings(train);
	if (neap_restarts())
		neap_emit_restart(alloc, (struct neap_event_restart){.count = neap_restarts()});
	emit_settings(train);
	neap_headroom_emit(alloc);
	if (options->clear_memory_on_start)
		neap_session_clear_leftovers(train);
	if (options->clear_memory_on_start || wanted(train, NEAP_CLEANUP_START))
		neap_session_cleanup(train, NEAP_CLEANUP_START);
	neap_session_mark(train, NEAP_MARK_START, 0);
	neap_take_extremes(alloc, &lowest, &highest); /* step 1's extremes begin here */
	*ret_train = train;
	return NEAP_OK;
}

void neap_train_mark(struct neap_train *train, enum neap_mark mark, uint64_t value)
{
	neap_session_mark(train, mark, value);
	train->failed |= mark == NEAP_MARK_FAILED;
	if (mark == NEAP_MARK_EPOCH_END) {
		train->epochs++;
		if (wanted(train, NEAP_CLEANUP_EPOCH))
			neap_session_cleanup(train, NEAP_CLEANUP_EPOCH);
		else if (due(train->epochs, train->options.cleanup_every_epochs))
			neap_session_cleanup(train, NEAP_CLEANUP_PERIODIC);
	} else if (mark == NEAP_MARK_SAVED && wanted(train, NEAP_CLEANUP_SAVED)) {
		neap_session_cleanup(train, NEAP_CLEANUP_SAVED);
	}
}

void neap_train_settings(const struct neap_train *train, struct neap_train_settings *ret_settings)
{
	*ret_settings = train->now;
}

void neap_train_resumed(struct neap_train *train, uint64_t step) { train->steps = train->first_step = step; }

void neap_train_tick(struct neap_train *train)
{
	train->ticks++;
	train->ticks_in_step++;
	uint64_t smaller = smaller_parts(&train->now.split);
	if (smaller && train->ticks_in_step == train->now.split.accumulate - smaller)
		neap_emit_smaller_parts(train->alloc, (struct neap_event_smaller_parts){.count = smaller});
	if (due(train->ticks, train->options.cleanup_every_ticks))
		neap_session_cleanup(train, NEAP_CLEANUP_PERIODIC);
}

void neap_train_metric(struct neap_train *train, const char *name, double value)
{
	neap_emit_metric(train->alloc, (struct neap_event_metric){.name = neap_emit_name(train->alloc, name),
								  .value = value,
								  .step = train->steps});
}

void neap_train_step(struct neap_train *train, double loss)
{
	const struct neap_train_options *options = &train->options;
	uint64_t lowest = 0, highest = 0;

	train->steps++;
	neap_session_judge_cleanup(train);
	neap_take_extremes(train->alloc, &lowest, &highest);
	neap_emit_step(train->alloc, (struct neap_event_step){.micro_batches = (uint32_t)train->ticks_in_step,
							      .number = train->steps,
							      .peak_bytes = highest,
							      .lowest_bytes = lowest});
	train->ticks_in_step = 0;
	train->low_marks[train->low_count % LOW_MARKS] = lowest;
	train->teeth[train->low_count++ % LOW_MARKS] = highest > lowest ? highest - lowest : 0;
	note_peaks(train);
	if (!isnan(loss))
		neap_train_metric(train, "loss", loss);
	if (due(train->steps, options->mark_every_steps))
		neap_session_mark(train, NEAP_MARK_EVERY_N, train->steps);
	neap_session_watch_leak(train);
	neap_session_watch_levels(train, highest);
	if (wanted(train, NEAP_CLEANUP_EVERY_STEP))
		neap_session_cleanup(train, NEAP_CLEANUP_EVERY_STEP);
	else if (due(train->steps, options->cleanup_every_steps))
		neap_session_cleanup(train, NEAP_CLEANUP_PERIODIC);
}

/* Emits the live and peak bytes of each tag, from which the parent predicts how much other settings would take. */
static void emit_tags(struct neap_train *train)
{
	struct neap_tag_bytes tags[NEAP_TAGS_MAX + 2];
	size_t count = neap_tag_stats(train->alloc, tags, NEAP_TAGS_MAX + 2);

	for (size_t i = 0; i < count && i < NEAP_TAGS_MAX + 2; i++)
		neap_emit_tag_bytes(train->alloc,
				    (struct neap_event_tag_bytes){.tag = neap_emit_name(train->alloc, tags[i].tag),
								  .live_blocks = tags[i].live_blocks,
								  .live_bytes = tags[i].live_bytes,
								  .peak_bytes = tags[i].peak_bytes});
}

static void log_summary(struct neap_train *train)
{
	const struct neap_train_summary *summary = &train->summary;
	char allocated[NEAP_UNITS_CAPACITY], reserved[NEAP_UNITS_CAPACITY], freed[NEAP_UNITS_CAPACITY],
		time[NEAP_UNITS_CAPACITY];
	char again[NEAP_UNITS_CAPACITY], retaken[80] = "";

	if (train->retaken_bytes)
		snprintf(retaken, sizeof retaken, " (and %s that were allocated again)",
			 neap_size_format(train->retaken_bytes, again));

	neap_log(train->options.log, NEAP_LOG_INFO,
		 "%s: %llu step%s, %llu OOM%s, %llu rung%s (now micro-batch %llu x accumulation %llu), peak %s "
		 "allocated, %s reserved, %llu cleanup%s gave back %s%s in %s",
		 train->name, (unsigned long long)summary->steps, summary->steps == 1 ? "" : "s",
		 (unsigned long long)summary->ooms, summary->ooms == 1 ? "" : "s", (unsigned long long)summary->rungs,
		 summary->rungs == 1 ? "" : "s", (unsigned long long)summary->split.micro_batch,
		 (unsigned long long)summary->split.accumulate,
		 neap_size_format(summary->peak_allocated_bytes, allocated),
		 neap_size_format(summary->peak_reserved_bytes, reserved), (unsigned long long)summary->cleanups,
		 summary->cleanups == 1 ? "" : "s", neap_size_format(summary->cleanup_freed_bytes, freed), retaken,
		 neap_duration_format(summary->cleanup_ns, time));
}

void neap_train_end(struct neap_train *train, struct neap_train_summary *ret_summary)
{
	if (!train) {
		if (ret_summary)
			*ret_summary = (struct neap_train_summary){0};
		return;
	}
	neap_session_mark(train, NEAP_MARK_END, train->steps);
	emit_tags(train);
	neap_headroom_emit(train->alloc);
	if (train->failed && wanted(train, NEAP_CLEANUP_FAILURE))
		neap_session_cleanup(train, NEAP_CLEANUP_FAILURE);
	else if (wanted(train, NEAP_CLEANUP_END))
		neap_session_cleanup(train, NEAP_CLEANUP_END);
	count_retaken(train);
	train->summary.steps = train->steps - train->first_step;
	train->summary.request = train->request;
	train->summary.ticks = train->ticks;
	train->summary.split = train->now.split;
	train->summary.rungs_active = train->now.rungs;
	log_summary(train);
	if (ret_summary)
		*ret_summary = train->summary;
	free(train);
}
