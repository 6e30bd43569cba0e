/* train/trial.c: trials list the allocations that a stretch of a program leaves behind.
 *
 *   serial   1 2 3 4 | 5 6 7 8 9 10 | 11 ...        one number for each allocation of the allocator, ever
 *                    ^ begin        ^ end
 *   live     1   3       6     9
 *            baseline    survivors
 *
 * Invariants: listed is ordered by (bytes descending, number ascending), without holes; the sums over tags equal the
 * totals. Walking the blocks takes the allocator's lock and no memory, so a trial that ran out of memory is reported,
 * too. */
#include "neap/trial.h"

#include "base/log.h"
#include "base/units.h"
#include "train/cleanup.h"

#include <stdio.h>
#include <string.h>

#define LISTED_IN_LOG 5

static void copy_text(char *to, size_t capacity, const char *text) { snprintf(to, capacity, "%s", text); }

static void clean(struct neap_alloc *alloc, const struct neap_log_sink *log, struct neap_trial_result *result)
{
	struct neap_cleanup cleanup;

	if (neap_cleanup_run(alloc, log, NEAP_CLEANUP_REQUEST, &cleanup, &result->cleanup) != NEAP_OK)
		return; /* it has logged why */
	result->cleanup = (struct neap_error){0};
	result->cleanup_freed_bytes = cleanup.freed_bytes;
	result->cleanup_ns = cleanup.ns;
}

void neap_trial_begin(struct neap_trial *trial, struct neap_alloc *alloc, const struct neap_log_sink *log,
		      const char *name)
{
	struct neap_trial_result unused;
	struct neap_memory memory;

	copy_text(trial->name, sizeof trial->name, name);
	neap_memory_read(alloc, &memory);
	if (memory.reserved_bytes > memory.allocated_bytes)
		clean(alloc, log, &unused);
	trial->first_serial = neap_alloc_serial(alloc) + 1;
	neap_scope_begin(&trial->scope, alloc, log, trial->name);
}

struct search {
	struct neap_trial_result *result;
	uint64_t first_serial, baseline_left;
};

static void count_tag(struct neap_trial_result *result, const struct neap_block_info *block)
{
	size_t i = 0;

	while (i < result->tag_count && strcmp(result->tags[i].tag, block->tag))
		i++;
	if (i == sizeof result->tags / sizeof *result->tags)
		return; /* an allocator has no more tags than these */
	if (i == result->tag_count) {
		copy_text(result->tags[i].tag, sizeof result->tags[i].tag, block->tag);
		result->tag_count++;
	}
	result->tags[i].bytes += block->bytes;
	result->tags[i].blocks++;
}

static bool comes_before(const struct neap_survivor *a, const struct neap_survivor *b)
{
	return a->bytes != b->bytes ? a->bytes > b->bytes : a->number < b->number;
}

static void list(struct neap_trial_result *result, const struct neap_survivor *survivor)
{
	size_t at = result->listed_count;

	if (at == NEAP_TRIAL_SURVIVORS && !comes_before(survivor, &result->listed[--at]))
		return;
	for (; at > 0 && comes_before(survivor, &result->listed[at - 1]); at--)
		result->listed[at] = result->listed[at - 1];
	result->listed[at] = *survivor;
	if (result->listed_count < NEAP_TRIAL_SURVIVORS)
		result->listed_count++;
}

static void on_block(void *context, const struct neap_block_info *block)
{
	struct search *search = context;
	struct neap_survivor survivor = {.address = block->address,
					 .bytes = block->bytes,
					 .requested_bytes = block->requested_bytes,
					 .stream = block->stream};

	if (block->state != NEAP_BLOCK_LIVE)
		return;
	if (block->serial < search->first_serial) {
		search->baseline_left += block->bytes;
		return;
	}
	survivor.number = block->serial - search->first_serial + 1;
	copy_text(survivor.tag, sizeof survivor.tag, block->tag);
	search->result->survivor_count++;
	search->result->survivor_bytes += block->bytes;
	count_tag(search->result, block);
	list(search->result, &survivor);
}

static void order_tags(struct neap_trial_result *result)
{
	for (size_t i = 1; i < result->tag_count; i++) {
		struct neap_trial_tag tag = result->tags[i];
		size_t at = i;
		for (; at > 0 && result->tags[at - 1].bytes < tag.bytes; at--)
			result->tags[at] = result->tags[at - 1];
		result->tags[at] = tag;
	}
}

static const char *name_of(const char *tag) { return tag[0] ? tag : "untagged"; }

/* "8.00 MiB activations, 4.00 MiB batch"; entries that do not fit into `capacity` are omitted. */
static void describe_tags(const struct neap_trial_result *result, char *text, size_t capacity)
{
	size_t used = 0;
	char size[NEAP_UNITS_CAPACITY];

	text[0] = '\0';
	for (size_t i = 0; i < result->tag_count; i++) {
		int length = snprintf(text + used, capacity - used, "%s%s %s", i ? ", " : "",
				      neap_size_format(result->tags[i].bytes, size), name_of(result->tags[i].tag));
		if (length < 0 || (size_t)length >= capacity - used) {
			text[used] = '\0';
			return;
		}
		used += (size_t)length;
	}
}

static void log_survivors(const struct neap_trial *trial, const struct neap_log_sink *log,
			  const struct neap_trial_result *result)
{
	char size[NEAP_UNITS_CAPACITY], tags[128];

	describe_tags(result, tags, sizeof tags);
	neap_log(log, NEAP_LOG_WARNING, "trial %s: %llu allocation%s survive%s, %s: %s", trial->name,
		 (unsigned long long)result->survivor_count, result->survivor_count == 1 ? "" : "s",
		 result->survivor_count == 1 ? "s" : "", neap_size_format(result->survivor_bytes, size), tags);
	for (size_t i = 0; i < result->listed_count && i < LISTED_IN_LOG; i++) {
		const struct neap_survivor *survivor = &result->listed[i];
		neap_log(log, NEAP_LOG_WARNING, "trial %s:   %s %s at 0x%llx, stream 0x%llx, allocation %llu of %llu",
			 trial->name, neap_size_format(survivor->bytes, size), name_of(survivor->tag),
			 (unsigned long long)survivor->address, (unsigned long long)(uintptr_t)survivor->stream,
			 (unsigned long long)survivor->number, (unsigned long long)result->allocations);
	}
	if (result->survivor_count > LISTED_IN_LOG)
		neap_log(log, NEAP_LOG_WARNING, "trial %s:   and %llu more", trial->name,
			 (unsigned long long)(result->survivor_count - LISTED_IN_LOG));
}

static void log_result(const struct neap_trial *trial, const struct neap_log_sink *log,
		       const struct neap_trial_result *result)
{
	char allocated[NEAP_UNITS_CAPACITY], reserved[NEAP_UNITS_CAPACITY];

	if (result->survivor_count)
		log_survivors(trial, log, result);
	if (result->baseline_freed_bytes)
		neap_log(log, NEAP_LOG_INFO, "trial %s: it freed %s that were there before it", trial->name,
			 neap_size_format(result->baseline_freed_bytes, allocated));
	if (result->back_to_baseline)
		neap_log(log, NEAP_LOG_INFO, "trial %s: back to the baseline: %s allocated, %s reserved", trial->name,
			 neap_size_format(result->allocated_bytes, allocated),
			 neap_size_format(result->reserved_bytes, reserved));
}

void neap_trial_end(struct neap_trial *trial, struct neap_trial_result *ret_result)
{
	struct neap_alloc *alloc = trial->scope.alloc;
	const struct neap_log_sink *log = trial->scope.log;
	struct neap_trial_result result = {0};
	struct search search = {.result = &result, .first_serial = trial->first_serial};
	struct neap_memory memory;

	if (alloc) {
		result.baseline_bytes = (uint64_t)trial->scope.allocated_bytes;
		neap_scope_end(&trial->scope);
		clean(alloc, log, &result);
		neap_each_block(alloc, on_block, &search);
		order_tags(&result);
		result.allocations = neap_alloc_serial(alloc) + 1 - trial->first_serial;
		if (result.baseline_bytes > search.baseline_left)
			result.baseline_freed_bytes = result.baseline_bytes - search.baseline_left;
		neap_memory_read(alloc, &memory);
		result.allocated_bytes = memory.allocated_bytes;
		result.reserved_bytes = memory.reserved_bytes;
		result.back_to_baseline = !result.survivor_count && result.cleanup.status == NEAP_OK;
		log_result(trial, log, &result);
	}
	if (ret_result)
		*ret_result = result;
}
