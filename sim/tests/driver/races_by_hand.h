/* Uses, orders and blocks by hand, for the tests of sim/driver/races.h: `found` gets what is reported. */
#ifndef NEAP_SIM_TESTS_RACES_H
#define NEAP_SIM_TESTS_RACES_H

#include "sim/driver/races.h"

#include <setjmp.h>
#include <stdarg.h>
#include <stdio.h>
#include <string.h>

#include <cmocka.h>

#define BASE (1ull << 45)

static struct {
	struct neap_sim_race list[64];
	size_t count;
} found;

static inline void report(const struct neap_sim_race *race)
{
	if (found.count < 64)
		found.list[found.count++] = *race;
}

static char limits[256];

static inline void limited(const char *what)
{
	size_t length = strlen(limits);

	snprintf(limits + length, sizeof limits - length, "%s\n", what);
}

static inline struct sim_races *begin(void)
{
	found.count = 0;
	limits[0] = '\0';
	struct sim_races *races = sim_races_create(report, limited);
	assert_non_null(races);
	return races;
}

static inline struct sim_race_stream stream(uint64_t number) { return (struct sim_race_stream){.key = 100 + number}; }

static inline struct neap_sim_uses uses_of(const struct neap_sim_touch *touch, uint32_t stack)
{
	return (struct neap_sim_uses){.name = "work", .stack = stack, .touches = touch, .count = 1};
}

static inline void use(struct sim_races *races, struct sim_race_stream on, uint64_t at, uint64_t bytes, uint32_t how)
{
	static uint32_t stack;
	struct neap_sim_touch touch = {BASE + at, bytes, how};
	struct neap_sim_uses uses = uses_of(&touch, ++stack);

	sim_races_work(races, on, &uses);
}

static inline void host(struct sim_races *races, uint64_t at, uint64_t bytes, uint32_t how)
{
	struct neap_sim_touch touch = {BASE + at, bytes, how};
	struct neap_sim_uses uses = uses_of(&touch, 7);

	sim_races_host(races, &uses);
}

static inline void end(struct sim_races *races, size_t count)
{
	sim_races_destroy(races);
	assert_int_equal(found.count, count);
}

#endif
