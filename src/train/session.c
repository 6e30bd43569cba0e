/* The training session: turns what the loop tells into events, log lines, cleanups, and a ladder.
 *
 *   tick tick step   tick tick step   tick OOM            tick tick tick tick step
 *                |                |        |
 *                |                |        recover: cleanup, next rung, the same samples again
 *                STEP event, schedule of cleanups and marks, leak watch
 *
 * Invariants: micro_batch x accumulate x ranks is what it was at the beginning; a cleanup happens at most once per
 * call from the loop; the leak watch warns at most once. */
#include "analyze/leak.h"
#include "base/error.h"
#include "base/log.h"
#include "base/units.h"
#include "train/cleanup.h"

#include <math.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#define LEAK_WATCH_STEPS   20
#define LOW_MARKS          512 /* of the newest steps; as many as the leak test looks at */
#define FRUITLESS_CLEANUPS 3   /* in a row, until we say that they only cost time */
/* What the bits of cleanup_points may be. */
#define POINTS_KNOWN ((2u << NEAP_CLEANUP_REQUEST) - 1)

struct neap_train {
	struct neap_alloc *alloc;
	struct neap_train_options options; /* pointers in it: name is replaced by ours, log is the host's */
	char name[64];
	struct neap_train_settings now; /* in force */
	uint64_t steps, ticks, ticks_in_step, epochs;
	struct neap_train_summary summary;
	unsigned fruitless; /* cleanups in a row that gave nothing back */
	bool failed;        /* the ladder is at its end */
	/* The leak watch: lowest allocated bytes of the newest steps since the split last changed, as a ring. */
	uint64_t low_marks[LOW_MARKS];
	uint64_t low_count;   /* ever put into the ring */
	uint64_t recent_peak; /* highest allocated bytes of a step since the watch last looked */
	bool leak_suspected;  /* found at the last look */
	bool leak_told;
};

static void cleanup(struct neap_train *train, enum neap_cleanup_reason reason)
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
static void put_mark(struct neap_train *train, enum neap_mark mark, uint64_t value)
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
		cleanup(train, NEAP_CLEANUP_START);
	put_mark(train, NEAP_MARK_START, 0);
	neap_take_extremes(alloc, &lowest, &highest); /* what came before is not step 1's */
	*ret_train = train;
	return NEAP_OK;
}

void neap_train_mark(struct neap_train *train, enum neap_mark mark, uint64_t value)
{
	put_mark(train, mark, value);
	if (mark == NEAP_MARK_EPOCH_END) {
		train->epochs++;
		if (wanted(train, NEAP_CLEANUP_EPOCH))
			cleanup(train, NEAP_CLEANUP_EPOCH);
		else if (due(train->epochs, train->options.cleanup_every_epochs))
			cleanup(train, NEAP_CLEANUP_PERIODIC);
	} else if (mark == NEAP_MARK_SAVED && wanted(train, NEAP_CLEANUP_SAVED)) {
		cleanup(train, NEAP_CLEANUP_SAVED);
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
		cleanup(train, NEAP_CLEANUP_PERIODIC);
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

/* Bytes by which the steps' peak can still grow: the device's free ones and our cache, within the limit. 0 when the
 * driver would not say. */
static uint64_t room_to_grow(struct neap_train *train)
{
	uint64_t free_bytes = 0, total_bytes = 0;
	struct neap_memory memory;

	if (neap_device_memory(neap_alloc_device(train->alloc), &free_bytes, &total_bytes, NULL) != NEAP_OK)
		return 0;
	neap_memory_read(train->alloc, &memory);
	uint64_t most = free_bytes + memory.reserved_bytes;
	double fraction = neap_get_fraction(train->alloc);
	if (fraction > 0 && fraction < 1 && fraction * (double)total_bytes < (double)most)
		most = (uint64_t)(fraction * (double)total_bytes);
	return most > train->recent_peak ? most - train->recent_peak : 0;
}

static void tell_leak(struct neap_train *train, const struct neap_leak *leak)
{
	uint64_t end = leak->steps_until_full, total = train->options.total_steps;
	char size[NEAP_UNITS_ROOM], last[120];

	end = end > UINT64_MAX - train->steps ? UINT64_MAX : train->steps + end;
	if (total && end >= total)
		snprintf(last, sizeof last, "enough memory is left for all %llu steps", (unsigned long long)total);
	else if (total)
		snprintf(last, sizeof last, "memory will end at step %llu of %llu", (unsigned long long)end,
			 (unsigned long long)total);
	else
		snprintf(last, sizeof last, "memory will end at step %llu", (unsigned long long)end);
	/* Cut, not rounded: 99.999 % is no certainty. */
	double percent = floor(leak->confidence * 10000) / 100;
	neap_log(train->options.log, NEAP_LOG_WARNING,
		 "%s: memory grows by %s per step (confidence %.2f %%, over %zu steps up to step %llu): %s",
		 train->name, neap_size_format((uint64_t)leak->bytes_per_step, size), percent, leak->steps,
		 (unsigned long long)train->steps, last);
	neap_emit(train->alloc, (struct neap_event){.kind = NEAP_EVENT_LEAK,
						    .size = (uint64_t)leak->bytes_per_step,
						    .block = (uint64_t)(leak->confidence * 1000)});
	train->summary.leak_bytes_per_step = leak->bytes_per_step;
	train->summary.leak_confidence = leak->confidence;
}

/* Looks for a leak in the newest steps. A cache that fills looks like one for a while: so it must be found at two
 * looks in a row. */
static void watch_leak(struct neap_train *train)
{
	uint64_t in_order[LOW_MARKS];
	struct neap_leak leak;
	size_t count = train->low_count < LOW_MARKS ? (size_t)train->low_count : LOW_MARKS;

	for (size_t i = 0; i < count; i++)
		in_order[i] = train->low_marks[(train->low_count - count + i) % LOW_MARKS];
	neap_leak_test(in_order, count, room_to_grow(train), &leak);
	train->recent_peak = 0;
	bool found = leak.verdict == NEAP_LEAK_FOUND;
	if (found && train->leak_suspected) {
		tell_leak(train, &leak);
		train->leak_told = true;
	}
	train->leak_suspected = found;
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
		put_mark(train, NEAP_MARK_EVERY_N, train->steps);
	if (!train->leak_told && due(train->steps, options->leak_watch_every_steps))
		watch_leak(train);
	if (wanted(train, NEAP_CLEANUP_EVERY_STEP))
		cleanup(train, NEAP_CLEANUP_EVERY_STEP);
	else if (due(train->steps, options->cleanup_every_steps))
		cleanup(train, NEAP_CLEANUP_PERIODIC);
}

static void log_oom(struct neap_train *train)
{
	const struct neap_log_sink *log = train->options.log;
	const struct neap_split *split = &train->now.split;
	struct neap_tag_bytes tags[NEAP_TAGS_MAX + 2];
	char live[NEAP_UNITS_ROOM], peak[NEAP_UNITS_ROOM];
	struct neap_memory memory;

	neap_log(log, NEAP_LOG_ERROR,
		 "%s: out of GPU memory in step %llu, micro-batch %llu of %llu, with micro-batch %llu x accumulation "
		 "%llu x ranks %llu",
		 train->name, (unsigned long long)train->steps + 1, (unsigned long long)train->ticks_in_step + 1,
		 (unsigned long long)split->accumulate, (unsigned long long)split->micro_batch,
		 (unsigned long long)split->accumulate, (unsigned long long)split->ranks);
	neap_memory_read(train->alloc, &memory);
	neap_log(log, NEAP_LOG_ERROR,
		 "%s: at most %s were allocated, %s reserved; by tag, now and at its peak:", train->name,
		 neap_size_format(memory.peak_allocated_bytes, live),
		 neap_size_format(memory.peak_reserved_bytes, peak));
	size_t count = neap_tag_stats(train->alloc, tags, NEAP_TAGS_MAX + 2);
	for (size_t i = 0; i < count && i < NEAP_TAGS_MAX + 2; i++)
		neap_log(log, NEAP_LOG_ERROR, "%s:   %s: %s in %llu blocks, peak %s", train->name,
			 tags[i].tag && tags[i].tag[0] ? tags[i].tag : "untagged",
			 neap_size_format(tags[i].live_bytes, live), (unsigned long long)tags[i].live_blocks,
			 neap_size_format(tags[i].peak_bytes, peak));
}

static void emit_rung(struct neap_train *train, enum neap_rung rung, const struct neap_train_settings *next)
{
	neap_emit(train->alloc, (struct neap_event){.kind = NEAP_EVENT_RUNG,
						    .block = (uint64_t)rung,
						    .address = next->split.micro_batch,
						    .size = next->split.accumulate,
						    .a = train->now.split.micro_batch,
						    .b = train->now.split.accumulate,
						    .stream = next->rungs});
}

/* One rung down the ladder, if there is one: false at its end. Taken on out of memory and at the low-memory
 * threshold, between two steps. */
static bool degrade(struct neap_train *train)
{
	struct neap_train_settings next;
	enum neap_rung rung = neap_ladder_next(&train->now, train->options.rungs_offered, &next);
	const struct neap_split *from = &train->now.split, *to = &next.split;

	emit_rung(train, rung, &next);
	if (rung == NEAP_RUNG_STOP)
		return false;
	if (rung == NEAP_RUNG_SPLIT)
		neap_log(train->options.log, NEAP_LOG_WARNING,
			 "%s: going on with micro-batch %llu -> %llu, accumulation %llu -> %llu (effective batch "
			 "stays %llu)",
			 train->name, (unsigned long long)from->micro_batch, (unsigned long long)to->micro_batch,
			 (unsigned long long)from->accumulate, (unsigned long long)to->accumulate,
			 (unsigned long long)(to->micro_batch * to->accumulate * to->ranks));
	else
		neap_log(train->options.log, NEAP_LOG_WARNING, "%s: going on with %s%s", train->name,
			 neap_rung_name(rung), rung == NEAP_RUNG_MIXED_PRECISION ? ": this changes numerics" : "");
	train->now = next;
	train->summary.rungs++;
	/* Other settings have other low-water marks: the watch begins anew. */
	train->low_count = 0;
	train->recent_peak = 0;
	train->leak_suspected = false;
	return true;
}

/* The names of rungs in a sentence: "A, B". */
static const char *name_rungs(uint32_t rungs, char *text, size_t room)
{
	size_t used = 0;

	text[0] = '\0';
	for (int rung = NEAP_RUNG_SPLIT; rung < NEAP_RUNG_STOP; rung++)
		if (rungs & (1u << rung) && used < room)
			used += (size_t)snprintf(text + used, room - used, "%s%s", used ? ", " : "",
						 neap_rung_name((enum neap_rung)rung));
	return text;
}

static enum neap_status refuse(struct neap_train *train, struct neap_error *err)
{
	unsigned long long step = train->steps + 1;
	uint32_t active = train->now.rungs, missing = NEAP_RUNGS_OFFERABLE & ~active;
	char with[120], not_offered[120];
	struct neap_error last;

	missing &= ~train->options.rungs_offered;
	name_rungs(active, with, sizeof with);
	name_rungs(missing, not_offered, sizeof not_offered);

	train->failed = true;
	if (train->options.no_ladder)
		neap_fail(&last, NEAP_EOOM, "out of GPU memory in step %llu; this session takes no rungs (no_ladder)",
			  step);
	else
		neap_fail(&last, NEAP_EOOM,
			  "out of GPU memory in step %llu even with micro-batch %llu x accumulation %llu%s%s: the "
			  "ladder is at its end%s%s%s. A smaller model or a larger device would help",
			  step, (unsigned long long)train->now.split.micro_batch,
			  (unsigned long long)train->now.split.accumulate, active ? ", " : "", with,
			  missing ? " (not offered: " : "", not_offered, missing ? ")" : "");
	neap_log(train->options.log, NEAP_LOG_ERROR, "%s: giving up: %s", train->name, last.message);
	if (err)
		*err = last;
	return NEAP_EOOM;
}

enum neap_status neap_train_recover(struct neap_train *train, struct neap_error *err)
{
	uint64_t lowest, highest;

	train->summary.ooms++;
	log_oom(train);
	put_mark(train, NEAP_MARK_OOM, train->steps + 1);
	cleanup(train, NEAP_CLEANUP_OOM);
	train->ticks_in_step = 0;
	neap_take_extremes(train->alloc, &lowest, &highest); /* the step begins anew */
	if (train->options.no_ladder || !degrade(train))
		return refuse(train, err);
	return NEAP_OK;
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
	put_mark(train, NEAP_MARK_END, train->steps);
	emit_tags(train);
	if (train->failed && wanted(train, NEAP_CLEANUP_FAILURE))
		cleanup(train, NEAP_CLEANUP_FAILURE);
	else if (wanted(train, NEAP_CLEANUP_END))
		cleanup(train, NEAP_CLEANUP_END);
	train->summary.steps = train->steps;
	train->summary.ticks = train->ticks;
	train->summary.split = train->now.split;
	train->summary.rungs_active = train->now.rungs;
	log_summary(train);
	if (ret_summary)
		*ret_summary = train->summary;
	free(train);
}
