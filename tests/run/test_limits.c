/* The limits of a run: near, crossed, and the way from SIGTERM to SIGKILL. */
#include "run/limits.h"

#include "support/test.h"

#include <stdio.h>
#include <string.h>

#define NOWHERE NEAP_READING_UNKNOWN

static const struct neap_limits all = {.at = {100, 10 * GIB, 20 * GIB, 9 * GIB}, .grace_ns = 50};

static void test_near_and_crossed(void **state)
{
	(void)state;
	static const struct {
		uint64_t readings[NEAP_LIMITS];
		enum neap_limits_action action;
		enum neap_limit limit;
	} rows[] = {
		{{0, 0, 0, 100 * GIB}, NEAP_LIMITS_NOTHING, 0},
		{{0, NOWHERE, NOWHERE, NOWHERE}, NEAP_LIMITS_NOTHING, 0},
		{{99, 0, 0, NOWHERE}, NEAP_LIMITS_NOTHING, 0}, /* the time limit gives no warning */
		{{100, 0, 0, NOWHERE}, NEAP_LIMITS_ASK, NEAP_LIMIT_TIME},
		{{0, 9 * GIB - 10, 0, NOWHERE}, NEAP_LIMITS_NOTHING, 0},
		{{0, 9 * GIB, 0, NOWHERE}, NEAP_LIMITS_WARN, NEAP_LIMIT_DEVICE},
		{{0, 10 * GIB, 0, NOWHERE}, NEAP_LIMITS_WARN, NEAP_LIMIT_DEVICE},
		{{0, 10 * GIB + 1, 0, NOWHERE}, NEAP_LIMITS_ASK, NEAP_LIMIT_DEVICE},
		{{0, 0, 18 * GIB, NOWHERE}, NEAP_LIMITS_WARN, NEAP_LIMIT_HOST},
		{{0, 0, 20 * GIB + 1, NOWHERE}, NEAP_LIMITS_ASK, NEAP_LIMIT_HOST},
		{{0, 0, 0, 10 * GIB}, NEAP_LIMITS_NOTHING, 0},
		{{0, 0, 0, 10 * GIB - 20}, NEAP_LIMITS_WARN, NEAP_LIMIT_DISK},
		{{0, 0, 0, 9 * GIB}, NEAP_LIMITS_WARN, NEAP_LIMIT_DISK},
		{{0, 0, 0, 9 * GIB - 1}, NEAP_LIMITS_ASK, NEAP_LIMIT_DISK},
		{{0, 0, 0, 0}, NEAP_LIMITS_ASK, NEAP_LIMIT_DISK},
		/* a crossed limit counts before a near one, and the first crossed one wins */
		{{0, 9 * GIB, 21 * GIB, 0}, NEAP_LIMITS_ASK, NEAP_LIMIT_HOST},
	};
	for (size_t i = 0; i < sizeof rows / sizeof *rows; i++) {
		struct neap_limits_state now = {0};
		enum neap_limit limit = 0;
		enum neap_limits_action action = neap_limits_next(&all, &now, rows[i].readings, 1000, &limit);
		if (action != rows[i].action || (action && limit != rows[i].limit))
			fail_msg("row %zu: expected %d of %d, got %d of %d", i, rows[i].action, rows[i].limit, action,
				 limit);
		assert_int_equal(now.asked, action == NEAP_LIMITS_ASK);
	}
}

static void test_no_limit_is_never_crossed(void **state)
{
	(void)state;
	const struct neap_limits none = {.grace_ns = 50};
	const uint64_t worst[NEAP_LIMITS] = {1ull << 62, 1ull << 62, 1ull << 62, 0};
	struct neap_limits_state now = {0};
	enum neap_limit limit;
	assert_int_equal(neap_limits_next(&none, &now, worst, 1000, &limit), NEAP_LIMITS_NOTHING);
	assert_true(neap_limits_due_ns(&none, &now, 1000, 1000) == UINT64_MAX);
}

static void test_each_is_warned_of_once(void **state)
{
	(void)state;
	const uint64_t near[NEAP_LIMITS] = {0, 9 * GIB, 19 * GIB, 9 * GIB};
	struct neap_limits_state now = {0};
	enum neap_limit limit;
	for (enum neap_limit i = NEAP_LIMIT_DEVICE; i < NEAP_LIMITS; i++) {
		assert_int_equal(neap_limits_next(&all, &now, near, 1000, &limit), NEAP_LIMITS_WARN);
		assert_int_equal(limit, i);
	}
	assert_int_equal(neap_limits_next(&all, &now, near, 1000, &limit), NEAP_LIMITS_NOTHING);
}

static void test_asked_then_killed_once(void **state)
{
	(void)state;
	const uint64_t crossed[NEAP_LIMITS] = {0, 11 * GIB, 0, NOWHERE}, fine[NEAP_LIMITS] = {0, 0, 0, NOWHERE};
	struct neap_limits_state now = {0};
	enum neap_limit limit;
	assert_int_equal(neap_limits_due_ns(&all, &now, 40, 1000), 60); /* the time limit */
	assert_int_equal(neap_limits_next(&all, &now, crossed, 1000, &limit), NEAP_LIMITS_ASK);
	assert_int_equal(neap_limits_due_ns(&all, &now, 40, 1020), 30); /* the grace */
	assert_int_equal(neap_limits_next(&all, &now, fine, 1049, &limit), NEAP_LIMITS_NOTHING);
	assert_int_equal(neap_limits_next(&all, &now, fine, 1050, &limit), NEAP_LIMITS_KILL);
	assert_int_equal(neap_limits_next(&all, &now, crossed, 2000, &limit), NEAP_LIMITS_NOTHING);
	assert_true(neap_limits_due_ns(&all, &now, 2000, 2000) == UINT64_MAX);
	assert_int_equal(now.crossed, NEAP_LIMIT_DEVICE);
	assert_true(now.reading == 11 * GIB);
}

static void says(enum neap_limit limit, uint64_t reading, const char *expected)
{
	char text[160];
	neap_limits_text(&all, limit, reading, text, sizeof text);
	assert_string_equal(text, expected);
}

static void test_words(void **state)
{
	(void)state;
	says(NEAP_LIMIT_DEVICE, 10 * GIB + 1, "device memory 10.0 GiB above 10.0 GiB");
	says(NEAP_LIMIT_DEVICE, 9 * GIB, "device memory 9.00 GiB near 10.0 GiB");
	says(NEAP_LIMIT_HOST, 31 * GIB, "host memory 31.0 GiB above 20.0 GiB");
	says(NEAP_LIMIT_DISK, GIB, "disk space 1.00 GiB below 9.00 GiB");
	says(NEAP_LIMIT_TIME, 100, "its time limit of 100 ns passed");
}

int main(void)
{
	const struct CMUnitTest tests[] = {
		cmocka_unit_test(test_near_and_crossed),
		cmocka_unit_test(test_no_limit_is_never_crossed),
		cmocka_unit_test(test_each_is_warned_of_once),
		cmocka_unit_test(test_asked_then_killed_once),
		cmocka_unit_test(test_words),
	};
	return cmocka_run_group_tests(tests, NULL, NULL);
}
