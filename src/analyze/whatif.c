/* analyze/whatif.c: a table of settings, in order of what adopting them costs: an environment variable that changes
 * nothing else, one that rounds sizes up or keeps large blocks whole, another allocator. */
#include "analyze/whatif.h"

#include <stdio.h>
#include <string.h>

static const struct {
	const char *name, *settings;
	enum neap_replay_policy policy;
} table[] = {
	{"as it was", NULL, NEAP_REPLAY_TORCH},
	{"expandable_segments:True", "expandable_segments:True", NEAP_REPLAY_TORCH},
	{"max_split_size_mb:128", "max_split_size_mb:128", NEAP_REPLAY_TORCH},
	{"max_split_size_mb:512", "max_split_size_mb:512", NEAP_REPLAY_TORCH},
	{"roundup_power2_divisions:8", "roundup_power2_divisions:8", NEAP_REPLAY_TORCH},
	{"neap's allocator", NULL, NEAP_REPLAY_NEAP},
};
#define ROWS (sizeof(table) / sizeof(table[0]))

/* Lower comes first. Without a bound everything fits. */
static uint64_t order(const struct neap_whatif *item, bool bounded, size_t row)
{
	if (item->own)
		return 0;
	if (item->active)
		return UINT64_MAX;
	return item->fits && bounded ? row : 1000 + item->reserved_peak;
}

static void insert(struct neap_whatifs *whatifs, uint64_t orders[NEAP_WHATIFS], const struct neap_whatif *item,
		   uint64_t where)
{
	size_t at = whatifs->count++;
	for (; at > 0 && orders[at - 1] > where; at--) {
		whatifs->items[at] = whatifs->items[at - 1];
		orders[at] = orders[at - 1];
	}
	whatifs->items[at] = *item;
	orders[at] = where;
}

static uint64_t reserved_peak(const struct neap_replay_result *result)
{
	return (uint64_t)result->usage.stats.metric[NEAP_METRIC_RESERVED_BYTES][NEAP_CLASS_ALL].peak;
}

enum neap_status neap_whatifs_find(const struct neap_trace *trace, const struct neap_replay_options *options,
				   struct neap_whatifs *ret_whatifs, struct neap_error *err)
{
	struct neap_whatifs whatifs = {.memory_bytes = options->memory_bytes};
	bool neap = trace->source == NEAP_TRACE_RECORDING; /* its own is neap's allocator */
	struct neap_torch_settings own = {0};
	uint64_t orders[NEAP_WHATIFS], plenty = 0;

	_Static_assert(ROWS <= NEAP_WHATIFS, "room for each");
	for (size_t row = 0; row < ROWS; row++) {
		struct neap_whatif item = {.settings = table[row].settings, .own = row == 0};
		struct neap_replay_options replay = *options;
		struct neap_replay_result result;
		item.policy = row == 0 && neap ? NEAP_REPLAY_NEAP : table[row].policy;
		replay.policy = item.policy;
		replay.settings = item.settings;
		replay.fraction = 0;
		replay.go_on = options->memory_bytes == 0; /* without a bound only what failed when recorded fails */
		/* neap's allocator prepares tables for the whole device: let it not be endless. */
		if (item.policy == NEAP_REPLAY_NEAP && !replay.memory_bytes)
			replay.memory_bytes = plenty;
		snprintf(item.name, sizeof(item.name), "%s", table[row].name);
		enum neap_status status = neap_replay(trace, &replay, &result, err);
		if (status != NEAP_OK)
			return status;
		if (row == 0) {
			own = result.settings;
			plenty = 4 * reserved_peak(&result) + (1ull << 30);
		}
		item.active = row > 0 && (item.policy == NEAP_REPLAY_NEAP
						  ? neap
						  : !neap && memcmp(&own, &result.settings, sizeof(own)) == 0);
		item.first_oom_event = result.first_oom_event;
		item.fits = result.first_oom_event == UINT64_MAX;
		item.reserved_peak = reserved_peak(&result);
		item.driver_calls = neap_policy_driver_calls(&result.usage.calls);
		item.retries = (uint64_t)result.usage.stats.num_alloc_retries;
		insert(&whatifs, orders, &item, order(&item, options->memory_bytes > 0, row));
	}
	*ret_whatifs = whatifs;
	return NEAP_OK;
}
