/* The training session: turns what the loop tells into events, log lines, cleanups, and a ladder.
 *
 *   tick tick step   tick tick step   tick OOM            tick tick tick tick step
 *                |                |        |
 *                |                |        recover: cleanup, next rung, the same samples again
 *                STEP event, schedule of cleanups and marks, leak watch
 *
 * Invariants: micro_batch x accumulate x ranks is what it was at the beginning; a cleanup happens at most once per
 * call from the loop; the leak watch warns at most once. */
#include "train/session_internal.h"

#include "base/error.h"
#include "base/log.h"
#include "base/units.h"

#include <math.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#define LEAK_WATCH_STEPS   20
#define FRUITLESS_CLEANUPS 3 /* in a row, until we say that they only cost time */
/* What the bits of cleanup_points may be. */
#define POINTS_KNOWN ((2u << NEAP_CLEANUP_REQUEST) - 1)

void neap_session_cleanup(struct neap_train *train, enum neap_cleanup_reason reason)
{
	struct neap_cleanup done;
	char time[NEAP_UNITS_ROOM];

	if (neap_cleanup_run(train->alloc, train->options.log, reason, &done, NULL) != NEAP_OK)
		return; /* it has logged why */
	train->summary.cleanups++;
	train->summary.cleanup_freed_bytes += done.freed_bytes;
	train->summary.cleanup_ns += done.ns;
	train->fruitless = done.freed_bytes ? 0 : train->fruitless + 1;
	if (train->fruitless == FRUITLESS_CLEANUPS)
		neap_log(train->options.log, NEAP_LOG_WARNING,
			 "%s: the last %d cleanups gave nothing back; they only slow training (this one took %s)",
			 train->name, FRUITLESS_CLEANUPS, neap_duration_format(done.ns, time));
}

static bool wanted(const struct neap_train *train, enum neap_cleanup_reason reason)
{
	return train->options.cleanup_points & (1u << reason);
}

static bool due(uint64_t count, uint64_t every) { return every > 0 && count % every == 0; }

static void emit_settings(struct neap_train *train)
{
	const struct neap_split *split = &train->now.split;
	uint32_t layers = train->options.layers;

	neap_emit(train->alloc, (struct neap_event){.kind = NEAP_EVENT_SPLIT,
						    .address = split->micro_batch,
						    .size = split->accumulate,
						    .block = split->ranks,
						    .stream = train->now.rungs,
						    .flags = (uint16_t)(layers < UINT16_MAX ? layers : UINT16_MAX)});
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

/* The event and the line of a mark. */
void neap_session_mark(struct neap_train *train, enum neap_mark mark, uint64_t value)
{
	const char *name = mark_name(mark);
	struct neap_memory memory;
	char number[24] = "";

	neap_emit(train->alloc, (struct neap_event){.kind = NEAP_EVENT_MARK,
						    .tag = neap_emit_name(train->alloc, name),
						    .address = (uint64_t)mark,
						    .size = value});
	neap_memory_read(train->alloc, &memory);
	if (value)
		snprintf(number, sizeof number, " %llu", (unsigned long long)value);
	neap_log(train->options.log, NEAP_LOG_INFO, "%s: %s%s: GPU memory: %.1f GB allocated, %.1f GB cached",
		 train->name, name, number, (double)memory.allocated_bytes / (double)NEAP_GIB,
		 (double)(memory.reserved_bytes - memory.allocated_bytes) / (double)NEAP_GIB);
	note_peaks(train);
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
	return NEAP_OK;
}

enum neap_status neap_train_begin(struct neap_alloc *alloc, const struct neap_train_options *options,
				  struct neap_train **ret_train, struct neap_error *err)
{
	enum neap_status status = check_options(options, err);
	uint64_t lowest, highest;

	if (status != NEAP_OK)
		return status;
	struct neap_train *train = calloc(1, sizeof *train);
	if (!train)
		return neap_fail(err, NEAP_ENOMEM, "out of host memory for a training session");
	train->alloc = alloc;
	train->options = *options;
	snprintf(train->name, sizeof train->name, "%s", options->name ? options->name : "training");
	train->options.name = train->name;
	train->now = (struct neap_train_settings){options->split, options->rungs_active};
	if (!train->now.split.accumulate)
		train->now.split.accumulate = 1;
	if (!train->now.split.ranks)
		train->now.split.ranks = 1;
	if (!train->options.rungs_offered)
		train->options.rungs_offered = 1u << NEAP_RUNG_SPLIT;
	if (!train->options.leak_watch_every_steps)
		train->options.leak_watch_every_steps = LEAK_WATCH_STEPS;
	emit_settings(train);
	if (options->clear_memory_on_start || wanted(train, NEAP_CLEANUP_START))
		neap_session_cleanup(train, NEAP_CLEANUP_START);
	neap_session_mark(train, NEAP_MARK_START, 0);
	neap_take_extremes(alloc, &lowest, &highest); /* what came before is not step 1's */
	*ret_train = train;
	return NEAP_OK;
}

void neap_train_mark(struct neap_train *train, enum neap_mark mark, uint64_t value)
{
	neap_session_mark(train, mark, value);
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

void neap_train_tick(struct neap_train *train)
{
	train->ticks++;
	train->ticks_in_step++;
	if (due(train->ticks, train->options.cleanup_every_ticks))
		neap_session_cleanup(train, NEAP_CLEANUP_PERIODIC);
}

void neap_train_metric(struct neap_train *train, const char *name, double value)
{
	uint64_t bits;

	memcpy(&bits, &value, sizeof bits);
	neap_emit(train->alloc, (struct neap_event){.kind = NEAP_EVENT_METRIC,
						    .tag = neap_emit_name(train->alloc, name),
						    .address = bits,
						    .size = train->steps});
}

void neap_train_step(struct neap_train *train, double loss)
{
	const struct neap_train_options *options = &train->options;
	uint64_t lowest = 0, highest = 0;

	train->steps++;
	neap_take_extremes(train->alloc, &lowest, &highest);
	neap_emit(train->alloc, (struct neap_event){.kind = NEAP_EVENT_STEP,
						    .address = train->steps,
						    .size = highest,
						    .block = lowest,
						    .stream = (uint32_t)train->ticks_in_step});
	train->ticks_in_step = 0;
	train->low_marks[train->low_count++ % LOW_MARKS] = lowest;
	if (highest > train->recent_peak)
		train->recent_peak = highest;
	note_peaks(train);
	if (!isnan(loss))
		neap_train_metric(train, "loss", loss);
	if (due(train->steps, options->mark_every_steps))
		neap_session_mark(train, NEAP_MARK_EVERY_N, train->steps);
	if (!train->leak_told && due(train->steps, options->leak_watch_every_steps))
		neap_session_watch_leak(train);
	if (wanted(train, NEAP_CLEANUP_EVERY_STEP))
		neap_session_cleanup(train, NEAP_CLEANUP_EVERY_STEP);
	else if (due(train->steps, options->cleanup_every_steps))
		neap_session_cleanup(train, NEAP_CLEANUP_PERIODIC);
}

/* What each tag holds and held at most: from it the parent predicts what other settings would take. */
static void emit_tags(struct neap_train *train)
{
	struct neap_tag_bytes tags[NEAP_TAGS_MAX + 2];
	size_t count = neap_tag_stats(train->alloc, tags, NEAP_TAGS_MAX + 2);

	for (size_t i = 0; i < count && i < NEAP_TAGS_MAX + 2; i++)
		neap_emit(train->alloc, (struct neap_event){.kind = NEAP_EVENT_TAG_BYTES,
							    .tag = neap_emit_name(train->alloc, tags[i].tag),
							    .a = tags[i].live_bytes,
							    .b = tags[i].peak_bytes,
							    .size = tags[i].live_blocks});
}

static void log_summary(struct neap_train *train)
{
	const struct neap_train_summary *summary = &train->summary;
	char allocated[NEAP_UNITS_ROOM], reserved[NEAP_UNITS_ROOM], freed[NEAP_UNITS_ROOM], time[NEAP_UNITS_ROOM];

	neap_log(train->options.log, NEAP_LOG_INFO,
		 "%s: %llu steps, %llu OOMs, %llu rungs (now micro-batch %llu x accumulation %llu), peak %s "
		 "allocated, %s "
		 "reserved, %llu cleanups gave back %s in %s",
		 train->name, (unsigned long long)summary->steps, (unsigned long long)summary->ooms,
		 (unsigned long long)summary->rungs, (unsigned long long)summary->split.micro_batch,
		 (unsigned long long)summary->split.accumulate,
		 neap_size_format(summary->peak_allocated_bytes, allocated),
		 neap_size_format(summary->peak_reserved_bytes, reserved), (unsigned long long)summary->cleanups,
		 neap_size_format(summary->cleanup_freed_bytes, freed),
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
	if (train->failed && wanted(train, NEAP_CLEANUP_FAILURE))
		neap_session_cleanup(train, NEAP_CLEANUP_FAILURE);
	else if (wanted(train, NEAP_CLEANUP_END))
		neap_session_cleanup(train, NEAP_CLEANUP_END);
	train->summary.steps = train->steps;
	train->summary.ticks = train->ticks;
	train->summary.split = train->now.split;
	train->summary.rungs_active = train->now.rungs;
	log_summary(train);
	if (ret_summary)
		*ret_summary = train->summary;
	free(train);
}
