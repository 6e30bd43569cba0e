/* analyze/whatif.c: a table of settings, in order of what adopting them costs: an environment variable that changes
 * nothing else, one that rounds sizes up or keeps large blocks whole, another allocator. */
#include "analyze/whatif.h"

#include "base/clock.h"

#include <stdio.h>
#include <string.h>

static const struct {
	const char *name, *settings;
	enum neap_replay_policy policy;
} table[] = {
	{"as it was", NULL, NEAP_REPLAY_TORCH},
	{"PyTorch with its defaults", NULL,
	 NEAP_REPLAY_TORCH}, /* of recordings; else it is the first, or a setting's */
	{"expandable_segments:True", "expandable_segments:True", NEAP_REPLAY_TORCH},
	{"max_split_size_mb:128", "max_split_size_mb:128", NEAP_REPLAY_TORCH},
	{"max_split_size_mb:512", "max_split_size_mb:512", NEAP_REPLAY_TORCH},
	{"roundup_power2_divisions:8", "roundup_power2_divisions:8", NEAP_REPLAY_TORCH},
	{"neap's allocator", NULL, NEAP_REPLAY_NEAP},
};
#define ROWS         (sizeof(table) / sizeof(table[0]))
#define ROW_DEFAULTS 1

/* Lower comes first. Without a bound everything fits. */
static uint64_t order(const struct neap_whatif *item, bool bounded, size_t row)
{
	if (item->own)
		return 0;
	if (!item->tried)
		return UINT64_MAX - 1;
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

static bool go_on(void *context, uint64_t done, uint64_t total)
{
	struct neap_patience *patience = context;
	const struct neap_replay_options *asked = patience->asked;
	if (patience->deadline_ns && neap_clock_now(neap_clock_system()) >= patience->deadline_ns) {
		patience->over = true;
		return false;
	}
	return !asked->progress || asked->progress(asked->context, done, total);
}

struct neap_replay_options neap_patience_options(struct neap_patience *patience)
{
	struct neap_replay_options options = *patience->asked;
	options.progress = go_on;
	options.context = patience;
	return options;
}

bool neap_patience_ended(const struct neap_patience *patience, enum neap_status status)
{
	return status == NEAP_ECANCELED && patience->over;
}

struct tries {
	const struct neap_trace *trace;
	struct neap_patience patience;
	struct neap_torch_settings own;
	uint64_t plenty; /* for a device without bound: neap's allocator prepares tables for the whole of it */
};

static enum neap_status try(struct tries *tries, size_t row, struct neap_whatif *item, struct neap_error *err)
{
	bool neap = tries->trace->source == NEAP_TRACE_RECORDING; /* its own is neap's allocator */
	struct neap_replay_options replay = neap_patience_options(&tries->patience);
	struct neap_replay_result result;

	snprintf(item->name, sizeof(item->name), "%s%s", neap && table[row].settings ? "PyTorch: " : "",
		 table[row].name);
	item->settings = table[row].settings;
	item->own = row == 0;
	item->policy = row == 0 && neap ? NEAP_REPLAY_NEAP : table[row].policy;
	replay.policy = item->policy;
	replay.settings = item->settings;
	replay.fraction = 0;
	replay.go_on = replay.memory_bytes == 0; /* without a bound only what failed when recorded fails */
	if (item->policy == NEAP_REPLAY_NEAP && !replay.memory_bytes)
		replay.memory_bytes = tries->plenty;
	enum neap_status status =
		tries->patience.over ? NEAP_ECANCELED : neap_replay(tries->trace, &replay, &result, err);
	if (status != NEAP_OK)
		return neap_patience_ended(&tries->patience, status) ? NEAP_OK : status;
	if (row == 0) {
		tries->own = result.settings;
		tries->plenty = 4 * reserved_peak(&result) + (1ull << 30);
	}
	item->tried = true;
	item->active = row > 0 && (item->policy == NEAP_REPLAY_NEAP
					   ? neap
					   : !neap && memcmp(&tries->own, &result.settings, sizeof(tries->own)) == 0);
	item->first_oom_event = result.first_oom_event;
	item->fits = result.first_oom_event == UINT64_MAX;
	item->reserved_peak = reserved_peak(&result);
	item->driver_calls = neap_policy_driver_calls(&result.usage.calls);
	item->retries = (uint64_t)result.usage.stats.num_alloc_retries;
	return NEAP_OK;
}

enum neap_status neap_whatifs_find(const struct neap_trace *trace, const struct neap_replay_options *options,
				   uint64_t deadline_ns, struct neap_whatifs *ret_whatifs, struct neap_error *err)
{
	struct neap_whatifs whatifs = {.memory_bytes = options->memory_bytes};
	struct tries tries = {.trace = trace, .patience = {.deadline_ns = deadline_ns, .asked = options}};
	uint64_t orders[NEAP_WHATIFS];

	_Static_assert(ROWS <= NEAP_WHATIFS, "room for each");
	for (size_t row = 0; row < ROWS; row++) {
		struct neap_whatif item = {0};
		if (row == ROW_DEFAULTS && trace->source != NEAP_TRACE_RECORDING)
			continue;
		enum neap_status status = try(&tries, row, &item, err);
		if (status != NEAP_OK)
			return status;
		insert(&whatifs, orders, &item, order(&item, options->memory_bytes > 0, row));
	}
	*ret_whatifs = whatifs;
	return NEAP_OK;
}
