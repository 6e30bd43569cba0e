/* The search for the largest value that fits, against programs whose need is known. */
#include "estimate/fit.h"

#include "support/test.h"

#include <stdlib.h>
#include <string.h>

#define PAGE (2 << 20)

struct program {
	double fixed, each, square; /* bytes */
	uint64_t breaks;            /* the program fails from this value on; 0: never */
	bool convolves;             /* its workspaces have no known bound */
};

static int64_t need(const struct program *program, uint64_t value)
{
	double bytes =
		program->fixed + program->each * (double)value + program->square * (double)value * (double)value;
	return (int64_t)(bytes / PAGE + 1) * PAGE;
}

static void run(const struct program *program, uint64_t headroom, struct neap_estimate_fit *fit, uint64_t value)
{
	struct neap_estimate_point *point = &fit->points[fit->count++];
	*point = (struct neap_estimate_point){.value = value};
	if (program->breaks && value >= program->breaks) {
		point->failed = true;
		return;
	}
	point->headroom[0] = (int64_t)headroom - need(program, value);
	point->fits[0] = point->headroom[0] >= 0 ? NEAP_ESTIMATE_YES : NEAP_ESTIMATE_NO;
	if (program->convolves && point->fits[0] == NEAP_ESTIMATE_YES) {
		point->fits[0] = NEAP_ESTIMATE_UNSURE;
		point->doubt[0] = NEAP_ESTIMATE_UNBOUNDED;
	}
}

/* The result of the search from `start`; *ret_runs: how many runs it took. */
static uint64_t search(const struct program *program, uint64_t headroom, uint64_t start, size_t *ret_runs,
		       bool *ret_open)
{
	struct neap_estimate_plan *plan = calloc(1, sizeof *plan);
	struct neap_estimate_fit fit = {.name = "batch"};
	uint64_t value;
	plan->count = plan->run_count = 1;
	fit.points = calloc(NEAP_ESTIMATE_POINTS, sizeof *fit.points);
	run(program, headroom, &fit, start);
	while ((value = neap_estimate_fit_next(&fit, plan, 0)) && fit.count < NEAP_ESTIMATE_POINTS) {
		for (size_t i = 0; i < fit.count; i++)
			assert_true(fit.points[i].value != value); /* no value is run twice */
		fit.tries[0]++;
		run(program, headroom, &fit, value);
	}
	value = neap_estimate_fit_value(&fit, plan, 0, ret_open);
	*ret_runs = fit.count;
	free(fit.points);
	free(plan);
	return value;
}

static void check(struct program program, uint64_t headroom, uint64_t start, size_t most_runs)
{
	bool open;
	size_t runs;
	uint64_t value = search(&program, headroom, start, &runs, &open);
	uint64_t next = value + 1 + value / NEAP_ESTIMATE_SHARE;
	assert_false(open);
	if (value)
		assert_true(need(&program, value) <= (int64_t)headroom);
	if (!program.breaks || next < program.breaks)
		assert_true(need(&program, next) > (int64_t)headroom);
	if (runs > most_runs)
		fail_msg("%zu runs, at most %zu were expected (value %llu)", runs, most_runs,
			 (unsigned long long)value);
}

static void finds_the_largest(void **state)
{
	(void)state;
	for (uint64_t headroom = 1ull << 33; headroom <= 1ull << 38; headroom *= 2)
		for (uint64_t start = 1; start <= 4096; start *= 8) {
			check((struct program){1e9, 3e5, 0}, headroom, start, 24);
			check((struct program){1e9, 4e7, 0}, headroom, start, 20);
			check((struct program){.fixed = 1e9, .each = 4e7, .convolves = true}, headroom, start, 20);
			check((struct program){2e9, 1e6, 500}, headroom, start, 24);
		}
}

static void says_when_none_fits(void **state)
{
	bool open;
	size_t runs;
	struct program program = {.fixed = 9e9, .each = 1e6};
	(void)state;
	assert_int_equal(search(&program, 1ull << 33, 16, &runs, &open), 0);
	assert_true(runs < 8);
}

static void stops_where_the_program_fails(void **state)
{
	bool open;
	size_t runs;
	struct program program = {.fixed = 1e9, .each = 1e6, .breaks = 777};
	(void)state;
	assert_int_equal(search(&program, 1ull << 36, 10, &runs, &open), 776);
	assert_false(open);
}

static void ends_where_memory_does_not_grow(void **state)
{
	bool open;
	size_t runs;
	struct program program = {.fixed = 1e9};
	(void)state;
	assert_int_equal(search(&program, 1ull << 33, 1, &runs, &open), NEAP_ESTIMATE_MOST);
	assert_true(open);
	assert_true(runs < 30);
}

int main(void)
{
	const struct CMUnitTest tests[] = {
		cmocka_unit_test(finds_the_largest),
		cmocka_unit_test(says_when_none_fits),
		cmocka_unit_test(stops_where_the_program_fails),
		cmocka_unit_test(ends_where_memory_does_not_grow),
	};
	return cmocka_run_group_tests(tests, NULL, NULL);
}
