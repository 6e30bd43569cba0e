/* run/limits.c: see limits.h. */
#include "run/limits.h"

#include "base/units.h"

#include <stdio.h>

static bool is_crossed(enum neap_limit limit, uint64_t at, uint64_t reading)
{
	if (!at || reading == NEAP_READING_UNKNOWN)
		return false;
	switch (limit) {
	case NEAP_LIMIT_TIME:
		return reading >= at;
	case NEAP_LIMIT_DISK:
		return reading < at;
	default:
		return reading > at;
	}
}

static bool is_near(enum neap_limit limit, uint64_t at, uint64_t reading)
{
	if (!at || reading == NEAP_READING_UNKNOWN || limit == NEAP_LIMIT_TIME)
		return false;
	/* divides first: the product overflows only for readings above 9/10 of 2^64 */
	return limit == NEAP_LIMIT_DISK ? reading / 10 * 9 < at && reading >= at : reading / 9 * 10 >= at;
}

enum neap_limits_action neap_limits_next(const struct neap_limits *limits, struct neap_limits_state *state,
					 const uint64_t readings[NEAP_LIMITS], uint64_t now_ns,
					 enum neap_limit *ret_limit)
{
	if (state->asked) {
		*ret_limit = state->crossed;
		if (state->killed || now_ns - state->asked_ns < limits->grace_ns)
			return NEAP_LIMITS_NOTHING;
		state->killed = true;
		return NEAP_LIMITS_KILL;
	}
	for (enum neap_limit i = 0; i < NEAP_LIMITS; i++) {
		if (!is_crossed(i, limits->at[i], readings[i]))
			continue;
		state->asked = true;
		state->crossed = *ret_limit = i;
		state->reading = readings[i];
		state->asked_ns = now_ns;
		return NEAP_LIMITS_ASK;
	}
	for (enum neap_limit i = 0; i < NEAP_LIMITS; i++) {
		if (state->warned[i] || !is_near(i, limits->at[i], readings[i]))
			continue;
		state->warned[i] = true;
		*ret_limit = i;
		return NEAP_LIMITS_WARN;
	}
	return NEAP_LIMITS_NOTHING;
}

uint64_t neap_limits_due_ns(const struct neap_limits *limits, const struct neap_limits_state *state, uint64_t ran_ns,
			    uint64_t now_ns)
{
	uint64_t passed_ns = state->asked ? now_ns - state->asked_ns : ran_ns;
	uint64_t due_ns = state->asked ? limits->grace_ns : limits->at[NEAP_LIMIT_TIME];
	if (state->killed || (!state->asked && !due_ns))
		return UINT64_MAX;
	return due_ns > passed_ns ? due_ns - passed_ns : 0;
}

void neap_limits_text(const struct neap_limits *limits, enum neap_limit limit, uint64_t reading, char *text,
		      size_t capacity)
{
	static const struct {
		const char *what, *beyond, *within;
	} words[NEAP_LIMITS] = {
		[NEAP_LIMIT_DEVICE] = {"device memory", "above", "near"},
		[NEAP_LIMIT_HOST] = {"host memory", "above", "near"},
		[NEAP_LIMIT_DISK] = {"disk space", "below", "near"},
	};
	char read[NEAP_UNITS_CAPACITY], at[NEAP_UNITS_CAPACITY];
	if (limit == NEAP_LIMIT_TIME) {
		snprintf(text, capacity, "its time limit of %s passed", neap_duration_format(limits->at[limit], at));
		return;
	}
	snprintf(text, capacity, "%s %s %s %s", words[limit].what, neap_size_format(reading, read),
		 is_crossed(limit, limits->at[limit], reading) ? words[limit].beyond : words[limit].within,
		 neap_size_format(limits->at[limit], at));
}
