/* The leak test against runs whose truth is known: generated from a seed, with or without a leak. */
#include "base/units.h"
#include "support/test.h"
#include "train/leak.h"

#include <math.h>
#include <stdio.h>
#include <string.h>

#define RUNS      300
#define STEPS_MAX 4000

static uint64_t seed;

static double uniform(void)
{
	seed ^= seed << 13;
	seed ^= seed >> 7;
	seed ^= seed << 17;
	return (double)(seed >> 11) / 9007199254740992.0;
}

/* One kind of run. Each shape adds to a base of 2 GiB; `noise` MiB, uniform, on every step. */
struct kind {
	const char *name;
	size_t steps;
	double leak_mib;                            /* per step */
	double noise_mib;                           /* amplitude */
	double (*shape)(size_t step, size_t steps); /* MiB; NULL: none */
};

/* Drawn again for each run. */
static double phase, level, walk;
static size_t change_at;

static double large_teeth(size_t step, size_t steps)
{
	(void)steps; /* seven steps up, then back: memory that accumulates between two flushes */
	return fmod((double)step + floor(phase * 7), 7) / 7 * 64;
}

static double slow_teeth(size_t step, size_t steps)
{
	double period = (double)steps / 2.5;
	return fmod((double)step + phase * period, period) / period * 64;
}

static double warm_up(size_t step, size_t steps)
{
	(void)steps;
	return step < 1 ? 0 : step < 3 ? 300 : step < 3 + phase * 10 ? 700 : 800;
}

static double cache_that_fills(size_t step, size_t steps)
{
	double full = (double)steps * (0.3 + 0.3 * phase);
	return (double)step < full ? (double)step / full * 200 : 200;
}

static double saturating(size_t step, size_t steps) { return 200 * (1 - exp(-(double)step / ((double)steps / 6))); }

static double changing_shapes(size_t step, size_t steps)
{
	(void)steps; /* a level that holds for a while, then another */
	if (step == 0 || step == change_at) {
		level = uniform() * 256;
		change_at = step + 5 + (size_t)(uniform() * 20);
	}
	return level;
}

static double wandering(size_t step, size_t steps)
{
	(void)steps; /* each step remembers seven tenths of the one before */
	walk = step == 0 ? 0 : 0.7 * walk + (uniform() - 0.5) * 32;
	return 100 + walk;
}

static double evaluation(size_t step, size_t steps)
{
	(void)steps;
	return (step + (size_t)(phase * 10)) % 10 == 0 ? 150 : 0;
}

static double one_late_step(size_t step, size_t steps)
{
	return (double)step > (double)steps * (0.4 + 0.5 * phase) ? 300 : 0;
}

static double falling(size_t step, size_t steps) { return 200 - (double)step / (double)steps * 100; }

static double stairs(size_t step, size_t steps)
{
	(void)steps; /* an epoch of 25 steps leaves 25 MiB behind */
	return (double)((step + (size_t)(phase * 25)) / 25) * 25;
}

/* Of the runs in which the last found_in found a leak, the number whose interval contained the truth. */
static size_t covered;

static size_t found_in(const struct kind *kind, double *ret_worst_slope_error)
{
	static uint64_t low[STEPS_MAX];
	size_t found = 0;

	covered = 0;
	*ret_worst_slope_error = 0;
	for (int run = 0; run < RUNS; run++) {
		struct neap_leak leak;
		phase = uniform();
		for (size_t step = 0; step < kind->steps; step++) {
			double mib = 2048 + kind->leak_mib * (double)step + kind->noise_mib * uniform();
			if (kind->shape)
				mib += kind->shape(step, kind->steps);
			low[step] = (uint64_t)(mib * (double)NEAP_MIB);
		}
		neap_leak_test(low, kind->steps, 10 * NEAP_GIB, &leak);
		if (leak.verdict != NEAP_LEAK_FOUND)
			continue;
		found++;
		double low_mib = leak.low_bytes_per_step / (double)NEAP_MIB;
		covered += low_mib <= kind->leak_mib + 1e-6 &&
			   leak.high_bytes_per_step / (double)NEAP_MIB >= kind->leak_mib - 1e-6;
		assert_true(leak.low_bytes_per_step <= leak.bytes_per_step);
		assert_true(leak.bytes_per_step <= leak.high_bytes_per_step);
		assert_true(leak.low_steps_until_full <= leak.steps_until_full);
		assert_true(leak.steps_until_full <= leak.high_steps_until_full);
		double error = fabs(leak.bytes_per_step / (double)NEAP_MIB - kind->leak_mib);
		if (error > *ret_worst_slope_error)
			*ret_worst_slope_error = error;
	}
	return found;
}

static void test_leaks_are_found(void **state)
{
	static const struct kind kinds[] = {
		{"1 MiB/step, quiet, 60 steps", 60, 1, 0.1, NULL},
		{"1 MiB/step, noise 16 MiB, 60 steps", 60, 1, 16, NULL},
		{"1 MiB/step, teeth of 64 MiB, 60 steps", 60, 1, 1, large_teeth},
		{"1 MiB/step, teeth and noise 8 MiB, 60 steps", 60, 1, 8, large_teeth},
		{"1 MiB/step after warm-up, 60 steps", 60, 1, 4, warm_up},
		{"1 MiB/step, evaluation every 10, 60 steps", 60, 1, 4, evaluation},
		{"1 MiB/step, wandering, 200 steps", 200, 1, 1, wandering},
		{"64 KiB/step, noise 16 MiB, 2000 steps", 2000, 0.0625, 16, NULL},
		{"16 KiB/step, teeth of 64 MiB, 4000 steps", 4000, 0.015625, 1, large_teeth},
	};

	(void)state;
	for (size_t i = 0; i < sizeof kinds / sizeof *kinds; i++) {
		double error;
		size_t found = found_in(&kinds[i], &error);
		print_message("%-46s found in %5.1f %%, slope off by at most %.4f MiB\n", kinds[i].name,
			      100.0 * (double)found / RUNS, error);
		assert_true(found * 100 >= RUNS * 99);
		assert_true(error <= 0.35 * kinds[i].leak_mib);
		print_message("%46s inside the interval %5.1f %%\n", "", 100.0 * (double)covered / (double)found);
		assert_true(covered * 100 >= found * 96);
	}
}

/* A leak that comes once an epoch counts, too. */
static void test_stairs_are_found(void **state)
{
	static const struct kind kind = {"25 MiB every 25 steps, 300 steps", 300, 0, 4, stairs};
	double error;
	size_t found = found_in(&kind, &error);

	(void)state;
	print_message("%-46s found in %5.1f %%\n", kind.name, 100.0 * (double)found / RUNS);
	assert_true(found * 100 >= RUNS * 99);
}

static void test_no_false_alarms(void **state)
{
	static const struct kind kinds[] = {
		{"noise 16 MiB, 60 steps", 60, 0, 16, NULL},
		{"noise 16 MiB, 20 steps", 20, 0, 16, NULL},
		{"noise 16 MiB, 4000 steps", 4000, 0, 16, NULL},
		{"teeth of 64 MiB, 60 steps", 60, 0, 1, large_teeth},
		{"teeth of 64 MiB, 20 steps", 20, 0, 1, large_teeth},
		{"two and a half slow teeth, 60 steps", 60, 0, 1, slow_teeth},
		{"two and a half slow teeth, 600 steps", 600, 0, 4, slow_teeth},
		{"warm-up, then flat, 60 steps", 60, 0, 0, warm_up},
		{"warm-up, then flat, 30 steps", 30, 0, 4, warm_up},
		{"cache that fills, 60 steps", 60, 0, 0, cache_that_fills},
		{"cache that fills, noise, 60 steps", 60, 0, 8, cache_that_fills},
		{"cache that fills, 1000 steps", 1000, 0, 8, cache_that_fills},
		{"saturating cache, 60 steps", 60, 0, 1, saturating},
		{"saturating cache, 400 steps", 400, 0, 4, saturating},
		{"changing shapes, 60 steps", 60, 0, 1, changing_shapes},
		{"changing shapes, 200 steps", 200, 0, 8, changing_shapes},
		{"wandering, 60 steps", 60, 0, 1, wandering},
		{"wandering, 500 steps", 500, 0, 1, wandering},
		{"evaluation every 10, 60 steps", 60, 0, 4, evaluation},
		{"one late step up, 60 steps", 60, 0, 4, one_late_step},
		{"falling, 60 steps", 60, 0, 4, falling},
	};
	size_t total = 0;

	(void)state;
	for (size_t i = 0; i < sizeof kinds / sizeof *kinds; i++) {
		double error;
		size_t found = found_in(&kinds[i], &error);
		print_message("%-46s false alarms %5.1f %%\n", kinds[i].name, 100.0 * (double)found / RUNS);
		assert_true(found * 100 <= RUNS);
		total += found;
	}
	print_message("false alarms over all: %zu of %zu runs\n", total, RUNS * (sizeof kinds / sizeof *kinds));
}

static void test_exact(void **state)
{
	uint64_t low[100];
	struct neap_leak leak;

	(void)state;
	for (size_t i = 0; i < 100; i++)
		low[i] = (1ull << 45) + i * 3 * NEAP_MIB;
	neap_leak_test(low, 100, 300 * NEAP_MIB, &leak);
	assert_int_equal(leak.verdict, NEAP_LEAK_FOUND);
	assert_true(fabs(leak.bytes_per_step - 3 * (double)NEAP_MIB) < 1);
	assert_int_equal(leak.steps_until_full, 100);
	assert_int_equal(leak.low_steps_until_full, 100); /* nothing is uncertain */
	assert_int_equal(leak.high_steps_until_full, 100);
	assert_int_equal(leak.steps, 100);
	assert_int_equal(leak.warm_up_steps, 0);
	assert_true(leak.confidence == 0.9999);

	neap_leak_test(low, 19, 0, &leak);
	assert_int_equal(leak.verdict, NEAP_LEAK_TOO_SHORT);
	neap_leak_test(NULL, 0, 0, &leak);
	assert_int_equal(leak.verdict, NEAP_LEAK_TOO_SHORT);

	/* Six steps without the optimizer's state, then the same leak. */
	for (size_t i = 0; i < 6; i++)
		low[i] -= NEAP_GIB;
	neap_leak_test(low, 100, 0, &leak);
	assert_int_equal(leak.verdict, NEAP_LEAK_FOUND);
	assert_int_equal(leak.warm_up_steps, 6);
	assert_int_equal(leak.steps, 94);
	assert_int_equal(leak.steps_until_full, 0);

	/* All equal: only ties. */
	for (size_t i = 0; i < 100; i++)
		low[i] = UINT64_MAX;
	neap_leak_test(low, 100, 1, &leak);
	assert_int_equal(leak.verdict, NEAP_LEAK_CLEAN);
	assert_true(leak.bytes_per_step == 0 && leak.confidence == 0);
	assert_int_equal(leak.steps_until_full, UINT64_MAX);
	low[50] = 0; /* the largest possible fall and rise */
	neap_leak_test(low, 100, 1, &leak);
	assert_int_equal(leak.verdict, NEAP_LEAK_CLEAN);
}

/* Mann-Kendall with ties, worked by hand: ten 0s and ten 1s, so two groups of ten ties, and a variance of
 * (20*19*45 - 2*10*9*25)/18 = 700. Alternating, S = 55 - 45 = 10, z = 9/sqrt(700) = 0.3402, and the normal
 * distribution there is 0.6331. */
static void test_ties(void **state)
{
	uint64_t low[20];
	struct neap_leak leak;

	(void)state;
	for (size_t i = 0; i < 20; i++)
		low[i] = i % 2;
	neap_leak_test(low, 20, 1, &leak);
	assert_true(fabs(leak.confidence - 0.6331) < 0.0001);
	assert_int_equal(leak.verdict, NEAP_LEAK_CLEAN);

	/* One step up is not a leak, and its halves are not twenty witnesses: z = 99/sqrt(700) would be 0.99991. */
	for (size_t i = 0; i < 20; i++)
		low[i] = (i >= 10) * NEAP_MIB;
	neap_leak_test(low, 20, 1, &leak);
	assert_true(leak.confidence > 0.5 && leak.confidence < 0.999);
	assert_int_equal(leak.verdict, NEAP_LEAK_CLEAN);
}

static int start(void **state)
{
	(void)state;
	seed = 0x9e3779b97f4a7c15;
	print_message("seed 0x%llx\n", (unsigned long long)seed);
	return 0;
}

/* Memory that jumps twice while it warms up: counting begins after the second jump. */
static void test_two_jumps(void **state)
{
	uint64_t low[60];
	struct neap_leak leak;

	(void)state;
	for (uint64_t step = 0; step < 60; step++)
		low[step] = (100 + (step >= 4 ? 200 : 0) + (step >= 9 ? 300 : 0)) * NEAP_MIB + step % 3;
	neap_leak_test(low, 60, 0, &leak);
	assert_int_equal(leak.warm_up_steps, 9);
	assert_int_equal(leak.verdict, NEAP_LEAK_CLEAN);
}

/* A leak is per step, however the steps were recorded: each, one in five, by the clock; and after one long gap. */
static void test_numbered(void **state)
{
	static const struct {
		uint64_t gaps[3];
		size_t known;
		uint64_t jump;
	} ways[] = {{{1, 1, 1}, 60, 0},  {{2, 2, 2}, 62, 0},  {{5, 5, 5}, 300, 0},
		    {{1, 2, 1}, 200, 0}, {{2, 7, 3}, 300, 0}, {{1, 1, 1}, 60, 900}};
	static uint64_t low[STEPS_MAX], numbers[STEPS_MAX];

	(void)state;
	for (size_t way = 0; way < sizeof ways / sizeof *ways; way++) {
		struct neap_leak leak;
		uint64_t step = 1;
		for (size_t i = 0; i < ways[way].known; i++) {
			numbers[i] = step;
			low[i] = NEAP_GIB + step * 32 * NEAP_MIB;
			step += ways[way].gaps[i % 3] + (i == 30 ? ways[way].jump : 0);
		}
		uint64_t span = numbers[ways[way].known - 1];
		neap_leak_test_numbered(low, numbers, ways[way].known, 320 * NEAP_MIB, &leak);
		assert_int_equal(leak.verdict, NEAP_LEAK_FOUND);
		assert_true(fabs(leak.bytes_per_step - 32.0 * NEAP_MIB) < 1);
		assert_true(leak.steps_until_full == 10 || leak.steps_until_full == 9);
		assert_int_equal(leak.steps + leak.warm_up_steps, ways[way].jump ? 31 : span);
	}
	/* Step numbers that do not rise belong to different trainings, as for neap_leak_test. */
	struct neap_leak plain, numbered;
	for (size_t i = 0; i < 60; i++) {
		low[i] = NEAP_GIB + i * NEAP_MIB;
		numbers[i] = UINT64_MAX - i / 2;
	}
	neap_leak_test(low, 60, 0, &plain);
	neap_leak_test_numbered(low, numbers, 60, 0, &numbered);
	assert_memory_equal(&plain, &numbered, sizeof plain);
	numbers[0] = 0;
	numbers[1] = UINT64_MAX;
	neap_leak_test_numbered(low, numbers, 2, 0, &numbered);
	assert_int_equal(numbered.verdict, NEAP_LEAK_TOO_SHORT);
}

int main(void)
{
	const struct CMUnitTest tests[] = {
		cmocka_unit_test(test_two_jumps),
		cmocka_unit_test(test_leaks_are_found),
		cmocka_unit_test(test_stairs_are_found),
		cmocka_unit_test(test_no_false_alarms),
		cmocka_unit_test(test_exact),
		cmocka_unit_test(test_numbered),
		cmocka_unit_test(test_ties),
	};
	return cmocka_run_group_tests(tests, start, NULL);
}
