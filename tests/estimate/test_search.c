/* The search for ways to train that fit, against programs whose need is known. */
#include "estimate/search.h"

#include "support/test.h"

#include <stdlib.h>
#include <string.h>

#define UNIT (1ll << 30)

/* A way needs `fixed`, and `each` for every sample. The second of two GPUs has half the memory. */
struct need {
	int64_t fixed, each;
	uint64_t breaks; /* it fails from this micro-batch on; 0: never */
	uint64_t begins; /* it fails with smaller ones */
};

struct search {
	struct neap_estimate_search search;
	struct neap_estimate_plan *plan;
	const struct need *needs;
	int64_t memory;
};

static void start(struct search *is, uint64_t samples, const struct need *needs, size_t count, int64_t memory)
{
	*is = (struct search){.search = {.name = "batch", .samples = samples, .given = 1, .way_count = count},
			      .plan = calloc(1, sizeof *is->plan),
			      .needs = needs,
			      .memory = memory};
	is->plan->count = 2; /* of one architecture */
	is->plan->run_count = 1;
	assert_int_equal(neap_estimate_search_begin(&is->search, 1, NULL), NEAP_OK);
}

static void end(struct search *is)
{
	neap_estimate_search_fini(&is->search);
	free(is->plan);
}

static int64_t headroom(const struct search *is, size_t way, uint64_t value, size_t gpu)
{
	return is->memory / (int64_t)(gpu + 1) - is->needs[way].fixed - is->needs[way].each * (int64_t)value;
}

static void run(struct search *is)
{
	struct neap_estimate_trial trials[NEAP_ESTIMATE_ROUND];
	size_t count;
	while ((count = neap_estimate_search_next(&is->search, is->plan, trials)))
		for (size_t i = 0; i < count; i++) {
			struct neap_estimate_point *point = &trials[i].point;
			const struct need *need = &is->needs[trials[i].way];
			for (size_t other = 0; other < is->search.count; other++) /* no value is run twice */
				assert_false(is->search.trials[other].way == trials[i].way &&
					     is->search.trials[other].point.value == point->value);
			assert_int_equal(is->search.samples % point->value, 0);
			point->failed = (need->breaks && point->value >= need->breaks) || point->value < need->begins;
			for (size_t gpu = 0; gpu < 2 && !point->failed; gpu++) {
				point->headroom[gpu] = headroom(is, trials[i].way, point->value, gpu);
				point->fits[gpu] = point->headroom[gpu] >= 0 ? NEAP_ESTIMATE_YES : NEAP_ESTIMATE_NO;
			}
			is->search.trials[is->search.count++] = trials[i];
		}
}

/* The largest divisor that fits, by trying all. */
static uint64_t largest(const struct search *is, size_t way, size_t gpu)
{
	uint64_t found = 0;
	for (size_t i = 0; i < is->search.value_count; i++)
		if ((!is->needs[way].breaks || is->search.values[i] < is->needs[way].breaks) &&
		    headroom(is, way, is->search.values[i], gpu) >= 0)
			found = is->search.values[i];
	return found;
}

static void check(struct search *is)
{
	assert_false(is->search.cut_short);
	for (size_t way = 0; way < is->search.way_count; way++)
		for (size_t gpu = 0; gpu < 2; gpu++) {
			const struct neap_estimate_trial *next, *edge;
			bool open;
			uint64_t wanted = largest(is, way, gpu);
			edge = neap_estimate_search_edge(&is->search, is->plan, way, gpu, &next, &open);
			assert_false(open);
			assert_int_equal(edge ? edge->point.value : 0, wanted);
			assert_true(next || wanted == is->search.samples);
			for (size_t i = 0; next && i < is->search.value_count; i++) /* its neighbour */
				assert_false(is->search.values[i] > wanted &&
					     is->search.values[i] < next->point.value);
		}
}

static void finds_each_edge(void **state)
{
	static const struct need needs[] = {
		{20 * UNIT, UNIT, 0}, {20 * UNIT, UNIT / 8, 0}, {35 * UNIT, UNIT / 2, 0}, {70 * UNIT, UNIT, 0},
		{90 * UNIT, UNIT, 0}, {UNIT, UNIT / 1024, 0},   {20 * UNIT, UNIT, 8},
	};
	static const uint64_t samples[] = {1, 2, 60, 64, 97, 256};
	(void)state;
	for (size_t i = 0; i < sizeof samples / sizeof *samples; i++) {
		struct search is;
		start(&is, samples[i], needs, sizeof needs / sizeof *needs, 80 * UNIT);
		run(&is);
		check(&is);
		end(&is);
	}
}

static void orders_by_micro_batch_and_headroom(void **state)
{
	static const struct need needs[] = {{90 * UNIT, UNIT, 0},
					    {70 * UNIT, UNIT, 0},
					    {20 * UNIT, UNIT, 0},
					    {18 * UNIT, UNIT, 0},
					    {85 * UNIT, UNIT, 0}};
	static const size_t wanted[] = {3, 2, 1, 4, 0};
	size_t order[NEAP_ESTIMATE_WAYS];
	struct search is;
	(void)state;
	start(&is, 32, needs, sizeof needs / sizeof *needs, 80 * UNIT);
	run(&is);
	neap_estimate_search_order(&is.search, is.plan, 0, order);
	assert_memory_equal(order, wanted, sizeof wanted);
	end(&is);
}

/* A way that fails with small micro-batches, as BatchNorm does with one sample, and a way that always fails. The
 * second GPU has too little memory for what works on the first. */
static void goes_on_where_small_ones_fail(void **state)
{
	static const struct need needs[] = {
		{8 * UNIT, 8 * UNIT, 0, 2}, {UNIT, UNIT, 1, 0}, {30 * UNIT, 4 * UNIT, 0, 4}};
	const struct neap_estimate_trial *next, *edge;
	struct search is;
	bool open;
	(void)state;
	start(&is, 16, needs, 3, 80 * UNIT);
	is.search.given = 4;
	run(&is);
	assert_true(is.search.count <= 11);
	edge = neap_estimate_search_edge(&is.search, is.plan, 0, 0, &next, &open);
	assert_int_equal(edge->point.value, 8);
	assert_int_equal(next->point.value, 16);
	edge = neap_estimate_search_edge(&is.search, is.plan, 0, 1, &next, &open);
	assert_int_equal(edge->point.value, 4);
	assert_int_equal(next->point.value, 8);
	assert_null(neap_estimate_search_edge(&is.search, is.plan, 1, 0, &next, &open));
	assert_true(next->point.failed && !open);
	assert_null(neap_estimate_search_edge(&is.search, is.plan, 2, 1, &next, &open));
	assert_int_equal(next->point.value, 4);
	assert_true(neap_estimate_search_fits(&is.search, is.plan));
	end(&is);
}

/* More ways than runs. */
static void ends_at_the_most_runs(void **state)
{
	struct need needs[NEAP_ESTIMATE_WAYS];
	const struct neap_estimate_trial *next;
	struct search is;
	bool open = false;
	(void)state;
	for (size_t i = 0; i < NEAP_ESTIMATE_WAYS; i++)
		needs[i] = (struct need){20 * UNIT, UNIT / (int64_t)(i + 1), 0};
	start(&is, 64, needs, NEAP_ESTIMATE_WAYS, 80 * UNIT);
	run(&is);
	assert_int_equal(is.search.count, NEAP_ESTIMATE_TRIALS);
	assert_true(is.search.cut_short);
	neap_estimate_search_edge(&is.search, is.plan, NEAP_ESTIMATE_WAYS - 1, 0, &next, &open);
	assert_true(open);
	assert_null(next);
	end(&is);
}

static void combines_changes(void **state)
{
	char *parameters[] = {"batch=1", "precision=bf16", NULL};
	const char *changes[] = {"checkpointing=1", "precision=bf16", "precision=bf16-true",
				 "checkpointing=1", "precision=fp32", NULL};
	static const char *const wanted[][2] = {{NULL, NULL},
						{"checkpointing=1", NULL},
						{"precision=bf16-true", NULL},
						{"checkpointing=1", "precision=bf16-true"},
						{"precision=fp32", NULL},
						{"checkpointing=1", "precision=fp32"}};
	struct neap_estimate_search search = {0};
	struct neap_error err = {0};
	(void)state;
	assert_int_equal(neap_estimate_search_ways(&search, parameters, changes, NULL), NEAP_OK);
	assert_int_equal(search.way_count, 6);
	for (size_t way = 0; way < 6; way++)
		for (size_t i = 0; i < 2; i++) {
			const char *found = search.ways[way].changes[i];
			assert_true(found ? wanted[way][i] && !strcmp(found, wanted[way][i]) : !wanted[way][i]);
		}
	const char *many[] = {"a=1", "b=1", "c=1", "d=1", "e=1", "f=1", NULL};
	assert_int_equal(neap_estimate_search_ways(&search, parameters, many, &err), NEAP_EINVAL);
}

/* 64 samples on 4 processes: 16 each. */
static void shares_samples(void **state)
{
	struct neap_estimate_search search = {.samples = 64};
	struct neap_error err = {0};
	(void)state;
	assert_int_equal(neap_estimate_search_begin(&search, 4, NULL), NEAP_OK);
	assert_int_equal(search.value_count, 5);
	assert_int_equal(search.values[4], 16);
	assert_int_equal(neap_estimate_search_accumulation(&search, 2), 8);
	assert_int_equal(neap_estimate_search_accumulated(&search, 2), 2);
	assert_int_equal(neap_estimate_search_accumulated(&search, 16), 1);
	neap_estimate_search_fini(&search);
	search.samples = 64;
	assert_int_equal(neap_estimate_search_begin(&search, 3, &err), NEAP_EINVAL);
	assert_string_equal(err.message, "3 processes cannot share 64 samples evenly");
}

int main(void)
{
	const struct CMUnitTest tests[] = {
		cmocka_unit_test(finds_each_edge),
		cmocka_unit_test(orders_by_micro_batch_and_headroom),
		cmocka_unit_test(goes_on_where_small_ones_fail),
		cmocka_unit_test(ends_at_the_most_runs),
		cmocka_unit_test(combines_changes),
		cmocka_unit_test(shares_samples),
	};
	return cmocka_run_group_tests(tests, NULL, NULL);
}
