/* analyze/whatif.c: a table of settings, in order of what adopting them costs: an environment variable that changes
 * nothing else, one that rounds sizes up or keeps large blocks whole, another allocator. */
#include "analyze/whatif.h"

#include <pthread.h>
#include <sched.h>
#include <stdatomic.h>
#include <stdio.h>
#include <string.h>

#define SPLIT_LOWER  (128ull << 20)
#define SPLIT_HIGHER (512ull << 20)

enum { SPLIT_128 = 4, SPLIT_512, NEAP = 7 };

static const struct {
	const char *name, *settings;
	bool alone;
	enum neap_replay_policy policy;
} table[] = {
	{"as it was", NULL, false, NEAP_REPLAY_TORCH},
	{"PyTorch with its defaults", "", true, NEAP_REPLAY_TORCH},
	{"expandable_segments:True", "expandable_segments:True", true, NEAP_REPLAY_TORCH},
	{"expandable_segments:True", "expandable_segments:True", false, NEAP_REPLAY_TORCH},
	[SPLIT_128] = {"max_split_size_mb:128", "max_split_size_mb:128", false, NEAP_REPLAY_TORCH},
	[SPLIT_512] = {"max_split_size_mb:512", "max_split_size_mb:512", false, NEAP_REPLAY_TORCH},
	{"roundup_power2_divisions:8", "roundup_power2_divisions:8", false, NEAP_REPLAY_TORCH},
	[NEAP] = {"neap's allocator", NULL, false, NEAP_REPLAY_NEAP},
};
#define ROWS (sizeof table / sizeof table[0])
/* With several workers the longest replays come first. The one that another replay may make needless comes last. */
static const uint8_t turns[ROWS] = {0, NEAP, SPLIT_128, 3, 1, 2, 6, SPLIT_512};

/* Returns the rank of a row: a lower one comes first. Without a bound everything fits. */
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
	if (neap_deadline_over(&patience->deadline)) {
		patience->over = true;
		return false;
	}
	if (!asked->progress)
		return true;
	if (patience->lock)
		pthread_mutex_lock(patience->lock);
	bool continues = asked->progress(asked->context, done, total);
	if (patience->lock)
		pthread_mutex_unlock(patience->lock);
	return continues;
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
	const struct neap_replay_result *known; /* the result of the first row, or NULL */
	struct neap_torch_settings own;
	bool own_set;    /* the trace has settings, which other rows add to or omit */
	uint64_t plenty; /* the size of a device without a bound: neap's allocator makes tables for all of it */
	struct neap_whatif items[ROWS];
	/* Of the workers. */
	atomic_size_t next;      /* the next index in `turns` */
	atomic_bool split_known; /* `split` is set: the replay with SPLIT_128's settings */
	struct neap_replay_result split;
	atomic_bool failed;
	pthread_mutex_t lock; /* guards the fields below; also held while progress is reported */
	enum neap_status status;
	struct neap_error err;
};

static bool records_neap(const struct tries *tries) { return neap_trace_of_neap(tries->trace); }

/* Names a row. If the trace has settings of its own, "with" or "only" shows whether they stay. */
static void name_row(const struct tries *tries, size_t row, struct neap_whatif *item)
{
	const char *how = "";

	if (table[row].settings && *table[row].settings && !item->active) {
		if (records_neap(tries))
			how = "PyTorch: ";
		else if (tries->own_set)
			how = table[row].alone ? "only " : "with ";
	}
	snprintf(item->name, sizeof item->name, "%s%s", how, table[row].name);
}

/* Keeps the settings of the first replay, which name the other rows and are compared with them. */
static void take_own(struct tries *tries, const struct neap_replay_result *result)
{
	struct neap_torch_settings defaults;
	neap_torch_settings_default(&defaults);
	defaults.fraction = result->settings.fraction;
	tries->own = result->settings;
	tries->own_set = !records_neap(tries) && memcmp(&tries->own, &defaults, sizeof defaults) != 0;
	tries->plenty = 4 * reserved_peak(result) + (1ull << 30);
}

static void take_result(const struct tries *tries, size_t row, const struct neap_replay_result *result,
			struct neap_whatif *item)
{
	bool neap = records_neap(tries);
	item->tried = true;
	item->active = row > 0 && (item->policy == NEAP_REPLAY_NEAP
					   ? neap
					   : !neap && memcmp(&tries->own, &result->settings, sizeof tries->own) == 0);
	name_row(tries, row, item);
	item->first_oom_event = result->first_oom_event;
	item->fits = result->first_oom_event == UINT64_MAX;
	item->reserved_peak = reserved_peak(result);
	item->driver_calls = neap_policy_driver_calls(&result->usage.calls);
	item->retries = (uint64_t)result->usage.stats.num_alloc_retries;
}

/* Whether the higher of two limits gives the same result: if no block is as large as the lower limit, neither changes
 * anything. But a replay that is compared with its recording follows the recording. */
static bool is_split_alike(const struct tries *tries)
{
	return tries->split.largest_bytes < SPLIT_LOWER && !tries->split.match.compared &&
	       tries->own.max_split_bytes != SPLIT_HIGHER;
}

static enum neap_status replay_row(struct tries *tries, size_t row, const struct neap_whatif *item,
				   struct neap_replay_result *ret_result, struct neap_error *err)
{
	struct neap_replay_options replay = neap_patience_options(&tries->patience);

	if (item->own && tries->known) {
		*ret_result = *tries->known;
		return NEAP_OK;
	}
	if (row == SPLIT_512 && atomic_load(&tries->split_known) && is_split_alike(tries)) {
		*ret_result = tries->split;
		ret_result->settings.max_split_bytes = SPLIT_HIGHER;
		return NEAP_OK;
	}
	replay.policy = item->policy;
	replay.settings = item->settings;
	replay.alone = item->alone;
	/* Without a bound, only requests that failed in the recording fail. */
	replay.go_on = replay.memory_bytes == 0;
	if (item->policy == NEAP_REPLAY_NEAP && !replay.memory_bytes)
		replay.memory_bytes = tries->plenty;
	return tries->patience.over ? NEAP_ECANCELED : neap_replay(tries->trace, &replay, ret_result, err);
}

static enum neap_status try(struct tries *tries, size_t row, struct neap_error *err)
{
	struct neap_whatif *item = &tries->items[row];
	struct neap_replay_result result;

	name_row(tries, row, item);
	item->settings = table[row].settings;
	item->alone = table[row].alone;
	item->own = row == 0;
	item->policy = row == 0 && records_neap(tries) ? NEAP_REPLAY_NEAP : table[row].policy;
	enum neap_status status = replay_row(tries, row, item, &result, err);
	if (status)
		return neap_patience_ended(&tries->patience, status) ? NEAP_OK : status;
	if (row == 0)
		take_own(tries, &result);
	if (row == SPLIT_128) {
		tries->split = result;
		atomic_store(&tries->split_known, true);
	}
	take_result(tries, row, &result, item);
	return NEAP_OK;
}

/* Whether a row without the trace's own settings differs from the one with them. A recording has no settings of
 * PyTorch's, so only PyTorch's defaults differ. */
static bool is_news(const struct tries *tries, size_t row)
{
	return records_neap(tries) ? !*table[row].settings : tries->own_set;
}

static bool is_row(const struct tries *tries, size_t row) { return !table[row].alone || is_news(tries, row); }

/* A worker: tries the next row that no worker has begun, until there is none or one has failed. */
static void *try_rows(void *context)
{
	struct tries *tries = context;
	for (size_t turn; (turn = atomic_fetch_add(&tries->next, 1)) < ROWS && !atomic_load(&tries->failed);) {
		struct neap_error err = {0};
		size_t row = tries->patience.deadline.clock ? turn : turns[turn];
		enum neap_status status = is_row(tries, row) ? try(tries, row, &err) : NEAP_OK;
		if (!status)
			continue;
		pthread_mutex_lock(&tries->lock);
		if (!atomic_exchange(&tries->failed, true)) {
			tries->status = status;
			tries->err = err;
		}
		pthread_mutex_unlock(&tries->lock);
	}
	return NULL;
}

/* Tries all but the first row, with a worker for each processor. With a deadline it tries one row after another, so
 * that time runs out only for the last rows. */
static enum neap_status try_others(struct tries *tries, struct neap_error *err)
{
	pthread_t workers[ROWS];
	size_t count = 0;
	cpu_set_t processors;
	size_t most = tries->patience.deadline.clock || sched_getaffinity(0, sizeof processors, &processors) != 0
			      ? 1
			      : (size_t)CPU_COUNT(&processors);

	atomic_store(&tries->next, 1);
	while (count + 1 < most && count + 1 < ROWS &&
	       /* Else this thread does more of the work. */
	       pthread_create(&workers[count], NULL, try_rows, tries) == 0)
		count++;
	try_rows(tries);
	while (count > 0)
		pthread_join(workers[--count], NULL);
	if (tries->status && err)
		*err = tries->err;
	return tries->status;
}

enum neap_status neap_whatifs_find(const struct neap_trace *trace, const struct neap_replay_options *options,
				   const struct neap_replay_result *own, struct neap_deadline deadline,
				   struct neap_whatifs *ret_whatifs, struct neap_error *err)
{
	struct neap_whatifs whatifs = {.memory_bytes = options->memory_bytes};
	struct tries tries = {.trace = trace,
			      .patience = {.deadline = deadline, .asked = options},
			      .known = own,
			      .lock = PTHREAD_MUTEX_INITIALIZER};
	uint64_t orders[NEAP_WHATIFS];

	_Static_assert(ROWS <= NEAP_WHATIFS, "room for each");
	tries.patience.lock = &tries.lock;
	enum neap_status status = try(&tries, 0, err);
	if (!status)
		status = try_others(&tries, err);
	for (size_t row = 0; !status && row < ROWS; row++) {
		const struct neap_whatif *item = &tries.items[row];
		if ((row > 0 && !is_row(&tries, row)) || (item->active && item->alone))
			continue;
		insert(&whatifs, orders, item, order(item, options->memory_bytes > 0, row));
	}
	pthread_mutex_destroy(&tries.lock);
	if (status)
		return status;
	whatifs.own_set = tries.own_set;
	*ret_whatifs = whatifs;
	return NEAP_OK;
}
