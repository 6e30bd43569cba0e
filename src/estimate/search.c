/* estimate/search.c: see search.h. */
#include "estimate/search.h"

#include "base/error.h"

#include <inttypes.h>
#include <math.h>
#include <stdlib.h>
#include <string.h>

#define STRAIGHT 8u /* guesses of a way along the line; later ones are the middle */

static bool same_name(const char *a, const char *b)
{
	size_t length = strcspn(a, "=");
	return strcspn(b, "=") == length && strncmp(a, b, length) == 0;
}

/* Whether `change` is one of the texts before `end`; NULL: of them all. */
static bool is_among(const char *const *texts, const char *const *end, const char *change)
{
	for (; texts != end && *texts; texts++)
		if (strcmp(*texts, change) == 0)
			return true;
	return false;
}

/* Adds, for each way that does not set the name of `change`, a way with `change`. */
static enum neap_status add_change(struct neap_estimate_search *search, const char *change, struct neap_error *err)
{
	size_t count = search->way_count;
	for (size_t i = 0; i < count; i++) {
		struct neap_estimate_way way = search->ways[i];
		size_t at = 0;
		while (way.changes[at] && !same_name(way.changes[at], change))
			at++;
		if (way.changes[at])
			continue;
		if (at + 1 == NEAP_ESTIMATE_CHANGES || search->way_count == NEAP_ESTIMATE_WAYS)
			return neap_fail(err, NEAP_EINVAL, "these changes make more than %d ways to train",
					 NEAP_ESTIMATE_WAYS);
		way.changes[at] = change;
		search->ways[search->way_count++] = way;
	}
	return NEAP_OK;
}

enum neap_status neap_estimate_search_ways(struct neap_estimate_search *search, char *const *parameters,
					   const char *const *changes, struct neap_error *err)
{
	enum neap_status status = NEAP_OK;
	search->way_count = 1;
	search->ways[0] = (struct neap_estimate_way){{NULL}};
	for (size_t i = 0; !status && changes[i]; i++)
		if (!is_among((const char *const *)parameters, NULL, changes[i]) &&
		    !is_among(changes, &changes[i], changes[i]))
			status = add_change(search, changes[i], err);
	return status;
}

enum neap_status neap_estimate_search_begin(struct neap_estimate_search *search, uint64_t processes,
					    struct neap_error *err)
{
	uint64_t samples = search->samples / processes;
	size_t count = 0;
	if (search->samples % processes)
		return neap_fail(err, NEAP_EINVAL, "%" PRIu64 " processes cannot share %" PRIu64 " samples evenly",
				 processes, search->samples);
	for (uint64_t i = 1; i <= samples; i++)
		count += samples % i == 0;
	search->processes = processes;
	search->values = calloc(count, sizeof *search->values);
	search->trials = calloc(NEAP_ESTIMATE_TRIALS, sizeof *search->trials);
	if (!search->values || !search->trials)
		return neap_fail(err, NEAP_ENOMEM, "out of memory");
	for (uint64_t i = 1; i <= samples; i++)
		if (samples % i == 0)
			search->values[search->value_count++] = i;
	return NEAP_OK;
}

void neap_estimate_search_fini(struct neap_estimate_search *search)
{
	free(search->values);
	free(search->trials);
	*search = (struct neap_estimate_search){0};
}

uint64_t neap_estimate_search_accumulation(const struct neap_estimate_search *search, uint64_t value)
{
	return search->samples / search->processes / value;
}

uint64_t neap_estimate_search_accumulated(const struct neap_estimate_search *search, uint64_t value)
{
	uint64_t whole = neap_estimate_search_accumulation(search, value);
	return whole < 2 ? whole : 2;
}

/* The trials around a way's edge on a GPU. NULL: none. */
struct bounds {
	const struct neap_estimate_trial *low, *below; /* the largest that fits, and the next smaller one */
	const struct neap_estimate_trial *high;  /* the smallest above `low` that does not, for whatever reason */
	const struct neap_estimate_trial *under; /* the largest below `high` that tells nothing, if no `low` */
	size_t count;
};

/* Whether the trial failed, or the time limit ended it: then it tells nothing about memory. */
static bool tells_nothing(const struct neap_estimate_trial *trial, size_t gpu)
{
	return trial->point.failed ||
	       (!neap_estimate_point_fits(&trial->point, gpu) && trial->point.doubt[gpu] == NEAP_ESTIMATE_CUT_SHORT);
}

static void keep_least(const struct neap_estimate_trial **kept, const struct neap_estimate_trial *trial)
{
	if (!*kept || trial->point.value < (*kept)->point.value)
		*kept = trial;
}

static void keep_most(const struct neap_estimate_trial **kept, const struct neap_estimate_trial *trial)
{
	if (!*kept || trial->point.value > (*kept)->point.value)
		*kept = trial;
}

static struct bounds find_bounds(const struct neap_estimate_search *search, size_t run, size_t way, size_t gpu)
{
	const struct neap_estimate_trial *found[NEAP_ESTIMATE_TRIALS], *no = NULL;
	struct bounds bounds = {0};
	for (size_t i = 0; i < search->count; i++)
		if (search->trials[i].way == way && search->trials[i].point.run == run)
			found[bounds.count++] = &search->trials[i];
	for (size_t i = 0; i < bounds.count; i++)
		if (!tells_nothing(found[i], gpu) && !neap_estimate_point_fits(&found[i]->point, gpu))
			keep_least(&no, found[i]);
	for (size_t i = 0; i < bounds.count; i++)
		if (!tells_nothing(found[i], gpu) && neap_estimate_point_fits(&found[i]->point, gpu) &&
		    (!no || found[i]->point.value < no->point.value))
			keep_most(&bounds.low, found[i]);
	bounds.high = no;
	for (size_t i = 0; i < bounds.count; i++) {
		uint64_t value = found[i]->point.value;
		if (bounds.low && value < bounds.low->point.value && !tells_nothing(found[i], gpu))
			keep_most(&bounds.below, found[i]);
		if (tells_nothing(found[i], gpu) && (bounds.low ? value > bounds.low->point.value : !no))
			keep_least(&bounds.high, found[i]);
		if (tells_nothing(found[i], gpu) && !bounds.low && no && value < no->point.value)
			keep_most(&bounds.under, found[i]);
	}
	return bounds;
}

/* The largest micro-batch that is at most `value`; the smallest if there is none. */
static size_t index_of(const struct neap_estimate_search *search, uint64_t value)
{
	size_t i = 0;
	while (i + 1 < search->value_count && search->values[i + 1] <= value)
		i++;
	return i;
}

/* The micro-batch at which the line through two trials has no headroom left. NAN: there is none. */
static double meets(const struct neap_estimate_trial *a, const struct neap_estimate_trial *b, size_t gpu)
{
	double values = (double)b->point.value - (double)a->point.value;
	double drop = (double)a->point.headroom[gpu] - (double)b->point.headroom[gpu];
	return drop > 0 ? (double)a->point.value + values * (double)a->point.headroom[gpu] / drop : NAN;
}

/* Chooses a micro-batch between the largest that fits and the smallest that does not: the largest below the line
 * through the known trials, which is the edge if memory grows linearly; else the middle. */
static size_t guess(const struct neap_estimate_search *search, const struct bounds *bounds, size_t low, size_t high,
		    size_t gpu)
{
	const struct neap_estimate_trial *above = bounds->high;
	double straight = NAN;
	if (above && !tells_nothing(above, gpu))
		straight = meets(bounds->low, above, gpu);
	else if (bounds->below)
		straight = meets(bounds->below, bounds->low, gpu);
	if (isnan(straight) || bounds->count > STRAIGHT)
		return low + (high - low) / 2;
	size_t index = low + 1;
	while (index + 1 < high && (double)search->values[index + 1] <= straight)
		index++;
	return index;
}

/* The next micro-batch to run. 0: the edge is known, or no trial can find it. */
static uint64_t next_value(const struct neap_estimate_search *search, size_t run, size_t way, size_t gpu)
{
	struct bounds bounds = find_bounds(search, run, way, gpu);
	size_t high = bounds.high ? index_of(search, bounds.high->point.value) : search->value_count;
	if (!bounds.count)
		return search->values[index_of(search, search->given)];
	if (bounds.low) {
		size_t low = index_of(search, bounds.low->point.value);
		return low + 1 >= high ? 0 : search->values[guess(search, &bounds, low, high, gpu)];
	}
	if (tells_nothing(bounds.high, gpu))
		return 0;
	size_t least = bounds.under ? index_of(search, bounds.under->point.value) + 1 : 0;
	return least >= high ? 0 : search->values[least + (high - least - 1) / 2];
}

/* The next micro-batch of a way to run for an architecture: the first that one of its GPUs needs. */
static uint64_t next_of_run(const struct neap_estimate_search *search, const struct neap_estimate_plan *plan,
			    size_t run, size_t way)
{
	uint64_t value = 0;
	for (size_t gpu = 0; !value && gpu < plan->count; gpu++)
		if (plan->gpus[gpu].run == run && !search->unsupported[gpu])
			value = next_value(search, run, way, gpu);
	return value;
}

size_t neap_estimate_search_next(struct neap_estimate_search *search, const struct neap_estimate_plan *plan,
				 struct neap_estimate_trial ret_trials[NEAP_ESTIMATE_ROUND])
{
	size_t count = 0;
	for (size_t run = 0; run < plan->run_count && !count; run++)
		for (size_t way = 0; way < search->way_count && count < NEAP_ESTIMATE_ROUND; way++) {
			uint64_t value = next_of_run(search, plan, run, way);
			if (!value)
				continue;
			search->cut_short = search->count + count == NEAP_ESTIMATE_TRIALS;
			if (search->cut_short)
				return count;
			ret_trials[count++] =
				(struct neap_estimate_trial){.way = way, .point = {.run = run, .value = value}};
		}
	return count;
}

const struct neap_estimate_trial *neap_estimate_search_edge(const struct neap_estimate_search *search,
							    const struct neap_estimate_plan *plan, size_t way,
							    size_t gpu, const struct neap_estimate_trial **ret_next,
							    bool *ret_open)
{
	size_t run = plan->gpus[gpu].run;
	struct bounds bounds = find_bounds(search, run, way, gpu);
	*ret_open = next_value(search, run, way, gpu) != 0;
	*ret_next = *ret_open ? NULL : bounds.high;
	return bounds.low;
}

bool neap_estimate_search_fits(const struct neap_estimate_search *search, const struct neap_estimate_plan *plan)
{
	for (size_t gpu = 0; gpu < plan->count; gpu++)
		for (size_t way = 0; way < search->way_count; way++)
			if (!search->unsupported[gpu] && find_bounds(search, plan->gpus[gpu].run, way, gpu).low)
				return true;
	return false;
}

/* How good a way is on a GPU: more is better. */
struct rank {
	size_t way;
	uint64_t value; /* 0: none fits */
	int64_t headroom;
};

static int by_rank(const void *left, const void *right)
{
	const struct rank *a = left, *b = right;
	if (a->value != b->value)
		return a->value > b->value ? -1 : 1;
	if (a->headroom != b->headroom)
		return a->headroom > b->headroom ? -1 : 1;
	return a->way < b->way ? -1 : a->way > b->way;
}

void neap_estimate_search_order(const struct neap_estimate_search *search, const struct neap_estimate_plan *plan,
				size_t gpu, size_t ret_ways[NEAP_ESTIMATE_WAYS])
{
	struct rank ranks[NEAP_ESTIMATE_WAYS];
	for (size_t way = 0; way < search->way_count; way++) {
		struct bounds bounds = find_bounds(search, plan->gpus[gpu].run, way, gpu);
		const struct neap_estimate_trial *best = bounds.low ? bounds.low : bounds.high;
		bool counts = best && !best->point.failed;
		ranks[way] = (struct rank){.way = way,
					   .value = bounds.low ? bounds.low->point.value : 0,
					   .headroom = counts ? best->point.headroom[gpu] : INT64_MIN};
	}
	qsort(ranks, search->way_count, sizeof *ranks, by_rank);
	for (size_t i = 0; i < search->way_count; i++)
		ret_ways[i] = ranks[i].way;
}
