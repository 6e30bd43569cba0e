/* train/recover.c: reports out of memory, and takes the next rung of the ladder, then or at a low-memory threshold.
 */
#include "train/session_internal.h"

#include "base/error.h"
#include "base/log.h"
#include "base/units.h"

#include <stdio.h>

static void log_oom(struct neap_train *train)
{
	const struct neap_log_sink *log = train->options.log;
	const struct neap_split *split = &train->now.split;
	struct neap_tag_bytes tags[NEAP_TAGS_MAX + 2];
	char live[NEAP_UNITS_CAPACITY], peak[NEAP_UNITS_CAPACITY], unequal[NEAP_SPLIT_ROOM];
	char part[60] = "after its last micro-batch";
	struct neap_memory memory;

	if (train->ticks_in_step < split->accumulate)
		snprintf(part, sizeof part, "micro-batch %llu of %llu", (unsigned long long)train->ticks_in_step + 1,
			 (unsigned long long)split->accumulate);
	neap_log(log, NEAP_LOG_ERROR,
		 "%s: out of GPU memory in step %llu, %s, with micro-batch %llu x accumulation %llu%s x ranks %llu",
		 train->name, (unsigned long long)train->steps + 1, part, (unsigned long long)split->micro_batch,
		 (unsigned long long)split->accumulate, neap_split_unequal(split, " (", ")", unequal),
		 (unsigned long long)split->ranks);
	neap_memory_read(train->alloc, &memory);
	neap_log(log, NEAP_LOG_ERROR,
		 "%s: at most %s were allocated, %s reserved; by tag, now and at its peak:", train->name,
		 neap_size_format(memory.peak_allocated_bytes, live),
		 neap_size_format(memory.peak_reserved_bytes, peak));
	size_t count = neap_tag_stats(train->alloc, tags, NEAP_TAGS_MAX + 2);
	for (size_t i = 0; i < count && i < NEAP_TAGS_MAX + 2; i++)
		neap_log(log, NEAP_LOG_ERROR, "%s:   %s: %s in %llu block%s, peak %s", train->name,
			 tags[i].tag && tags[i].tag[0] ? tags[i].tag : "untagged",
			 neap_size_format(tags[i].live_bytes, live), (unsigned long long)tags[i].live_blocks,
			 tags[i].live_blocks == 1 ? "" : "s", neap_size_format(tags[i].peak_bytes, peak));
}

static void emit_rung(struct neap_train *train, enum neap_rung rung, const struct neap_train_settings *next)
{
	neap_emit_rung(train->alloc, (struct neap_event_rung){.settings = neap_session_event_settings(next),
							      .rung = (uint64_t)rung,
							      .micro_batch_before = train->now.split.micro_batch,
							      .accumulate_before = train->now.split.accumulate});
}

/* Goes one rung down the ladder; false at its end. Called on out of memory and, between two steps, at the low-memory
 * threshold. */
bool neap_session_degrade(struct neap_train *train)
{
	struct neap_train_settings next;
	enum neap_rung rung = neap_ladder_next(&train->now, train->options.rungs_offered, &next);
	const struct neap_split *from = &train->now.split, *to = &next.split;
	char unequal[NEAP_SPLIT_ROOM];

	emit_rung(train, rung, &next);
	if (rung == NEAP_RUNG_STOP)
		return false;
	if (rung == NEAP_RUNG_SPLIT)
		neap_log(train->options.log, NEAP_LOG_WARNING,
			 "%s: going on with micro-batch %llu -> %llu, accumulation %llu -> %llu (effective batch "
			 "stays %llu%s)",
			 train->name, (unsigned long long)from->micro_batch, (unsigned long long)to->micro_batch,
			 (unsigned long long)from->accumulate, (unsigned long long)to->accumulate,
			 (unsigned long long)(neap_split_batch(to) * to->ranks),
			 neap_split_unequal(to, ": ", "", unequal));
	else
		neap_log(train->options.log, NEAP_LOG_WARNING, "%s: going on with %s%s", train->name,
			 neap_rung_name(rung), rung == NEAP_RUNG_MIXED_PRECISION ? ": this changes numerics" : "");
	train->now = next;
	train->summary.rungs++;
	neap_session_forget_leak(train); /* other settings have other low-water marks */
	return true;
}

/* Writes the names of rungs: "A, B". */
static const char *name_rungs(uint32_t rungs, char *text, size_t capacity)
{
	size_t used = 0;

	text[0] = '\0';
	for (int rung = NEAP_RUNG_SPLIT; rung < NEAP_RUNG_STOP; rung++)
		if (rungs & (1u << rung) && used < capacity)
			used += (size_t)snprintf(text + used, capacity - used, "%s%s", used ? ", " : "",
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
	neap_session_mark(train, NEAP_MARK_OOM, train->steps + 1);
	neap_session_cleanup(train, NEAP_CLEANUP_OOM);
	train->ticks_in_step = 0;
	neap_take_extremes(train->alloc, &lowest, &highest); /* the step restarts */
	if (train->options.no_ladder || !neap_session_degrade(train))
		return refuse(train, err);
	return NEAP_OK;
}
