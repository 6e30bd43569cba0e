/* bench/leak.c: how often the leak test is right, on generated runs whose truth is known.
 *
 *     bench/leak [SERIES PER KIND] [SEED]
 *
 * A run is what the session sees: the lowest allocated bytes of each step, while within a step memory rises and falls
 * by 10 GiB. A leaking run is tested after 60 steps. A run without a leak is tested as often as the session's watch
 * does: every 5 steps up to 60, then every 20 up to 200; two tests in a row that find a leak are a false alarm. Exits
 * 1 if fewer than 99 % are found, or more than 1 % are false.
 */
#include "train/leak.h"

#include <inttypes.h>
#include <math.h>
#include <stdio.h>
#include <stdlib.h>

#define MIB         1048576.0
#define SAWTOOTH    (10240 * MIB)
#define LEAK_STEPS  60
#define CLEAN_STEPS 200
#define EARLY_STEPS 60 /* these three as in src/train/leaks.c */
#define EARLY_EVERY 5
#define WATCH_EVERY 20
#define FREE_BYTES  (40ull << 30)

static uint64_t state;

/* xorshift64* (Vigna 2016, doi:10.1145/2845077), to [0, 1). */
static double uniform(void)
{
	state ^= state >> 12;
	state ^= state << 25;
	state ^= state >> 27;
	return (double)((state * 2685821657736338717ull) >> 11) / 9007199254740992.0;
}

/* How a run's low-water marks move apart from leaking: the bytes over the base at `step`. `x`, `y`, `z`: the run's
 * own numbers in [0, 1); `*level`: carried from step to step. */
typedef double shape_fn(size_t step, double x, double y, double z, double *level);

static double steady(size_t step, double x, double y, double z, double *level)
{
	(void)step, (void)x, (void)y, (void)z, (void)level;
	return 0;
}

/* Small buffers come and go: up to 4 MiB. */
static double jitter(size_t step, double x, double y, double z, double *level)
{
	(void)step, (void)x, (void)y, (void)z, (void)level;
	return 4 * MIB * uniform();
}

/* In some steps no sample falls into the trough: the mark is anywhere on the tooth. */
static double missed_troughs(size_t step, double x, double y, double z, double *level)
{
	(void)step, (void)y, (void)z, (void)level;
	return uniform() < 0.1 * x ? SAWTOOTH * uniform() : 0.5 * MIB * uniform();
}

/* An evaluation every few steps, with its outputs kept during it. */
static double evaluation(size_t step, double x, double y, double z, double *level)
{
	(void)z, (void)level;
	size_t period = 5 + (size_t)(20 * x);
	return step % period == period - 1 ? (50 + 450 * y) * MIB : MIB * uniform();
}

/* The first steps make blocks that then stay. */
static double warm_up(size_t step, double x, double y, double z, double *level)
{
	(void)z, (void)level;
	double steps = 2 + 12 * x, full = (100 + 2000 * y) * MIB;
	return ((double)step < steps ? full * (double)step / steps : full) + MIB * uniform();
}

/* The next batch is loaded already; its length varies. */
static double variable_length(size_t step, double x, double y, double z, double *level)
{
	(void)step, (void)y, (void)z, (void)level;
	return (64 + 448 * x) * MIB * uniform();
}

/* A cache that fills ever more slowly. */
static double filling_cache(size_t step, double x, double y, double z, double *level)
{
	(void)z, (void)level;
	return (100 + 1000 * y) * MIB * (1 - exp(-(double)step / (3 + 7 * x))) + 0.5 * MIB * uniform();
}

/* From some step on, another shape of batch. */
static double new_shape(size_t step, double x, double y, double z, double *level)
{
	(void)z, (void)level;
	return ((double)step > 10 + 150 * x ? (20 + 500 * y) * MIB : 0) + MIB * uniform();
}

/* Neighbouring steps resemble each other, the level stays. */
static double wandering(size_t step, double x, double y, double z, double *level)
{
	(void)step, (void)y, (void)z;
	*level = (0.5 + 0.4 * x) * *level + 4 * MIB * (uniform() - 0.5);
	return 64 * MIB + *level;
}

static const struct {
	const char *name;
	shape_fn *shape;
	bool leaks_too; /* leaks are hidden in this kind too, unless 60 MiB in 60 steps would drown in it */
} kinds[] = {
	{"steady", steady, true},
	{"small buffers come and go", jitter, true},
	{"troughs missed in some steps", missed_troughs, true},
	{"evaluation every few steps", evaluation, true},
	{"warm-up", warm_up, true},
	{"wandering level", wandering, true},
	{"batches of variable length", variable_length, false},
	{"a cache that fills", filling_cache, false},
	{"another shape from some step on", new_shape, false},
};

static void make_run(shape_fn *shape, double leak_bytes, size_t steps, uint64_t *ret_lows)
{
	double x = uniform(), y = uniform(), z = uniform(), level = 0;
	double base = (1 + 20 * uniform()) * 1024 * MIB;
	for (size_t step = 0; step < steps; step++)
		ret_lows[step] = (uint64_t)(base + leak_bytes * (double)step + shape(step, x, y, z, &level));
}

static bool found_at(const uint64_t *lows, size_t steps)
{
	struct neap_leak leak;
	neap_leak_test(lows, steps, FREE_BYTES, &leak);
	return leak.verdict == NEAP_LEAK_FOUND;
}

static bool watch_warns(const uint64_t *lows)
{
	size_t steps = EARLY_EVERY;
	bool suspected = false;

	while (steps <= CLEAN_STEPS) {
		bool found = found_at(lows, steps);
		if (found && suspected)
			return true;
		suspected = found;
		steps += steps < EARLY_STEPS ? EARLY_EVERY : WATCH_EVERY;
	}
	return false;
}

/* How many of `series` runs of a kind have a leak reported. */
static unsigned count_found(shape_fn *shape, double leak_bytes, unsigned series)
{
	uint64_t lows[CLEAN_STEPS];
	unsigned count = 0;
	for (unsigned i = 0; i < series; i++) {
		bool found = false;
		if (leak_bytes > 0) {
			make_run(shape, leak_bytes, LEAK_STEPS, lows);
			found = found_at(lows, LEAK_STEPS);
		} else {
			make_run(shape, 0, CLEAN_STEPS, lows);
			found = watch_warns(lows);
		}
		count += found;
	}
	return count;
}

int main(int argc, char **argv)
{
	unsigned series = argc > 1 ? (unsigned)strtoul(argv[1], NULL, 10) : 1000;
	uint64_t seed = argc > 2 ? strtoull(argv[2], NULL, 10) : 1;
	unsigned found = 0, leaking = 0, alarms = 0, clean = 0;

	if (series == 0 || series > 10000000 || argc > 3) {
		fputs("Usage: leak [SERIES PER KIND] [SEED]\n", stderr);
		return 64;
	}
	state = seed * 0x9e3779b97f4a7c15ull + 1;
	printf("seed %" PRIu64
	       ", %u runs of each kind; leaks of 1 MiB per step, asked after %d steps; runs without one asked "
	       "every %d steps up to %d, then every %d up to %d\n\n",
	       seed, series, LEAK_STEPS, EARLY_EVERY, EARLY_STEPS, WATCH_EVERY, CLEAN_STEPS);
	printf("%-34s %12s %14s\n", "low-water marks", "leaks found", "false alarms");
	for (size_t i = 0; i < sizeof kinds / sizeof kinds[0]; i++) {
		unsigned false_ones = count_found(kinds[i].shape, 0, series), hits = 0;
		char text[16] = "-";
		if (kinds[i].leaks_too) {
			hits = count_found(kinds[i].shape, MIB, series);
			snprintf(text, sizeof text, "%.2f %%", 100.0 * hits / series);
			leaking += series;
		}
		printf("%-34s %12s %12.2f %%\n", kinds[i].name, text, 100.0 * false_ones / series);
		found += hits;
		alarms += false_ones;
		clean += series;
	}
	double recall = (double)found / leaking, false_rate = (double)alarms / clean;
	printf("%-34s %10.2f %% %12.2f %%\n", "all", 100 * recall, 100 * false_rate);
	return recall >= 0.99 && false_rate <= 0.01 ? 0 : 1;
}
