/* The reactions to little memory, decided over plain numbers: a table for each. */
#include "neap/train.h"

#include "support/test.h"

#define U NEAP_LEFT_UNKNOWN

static const struct neap_levels levels = {.warn_bytes = 400, .degrade_bytes = 200, .stop_bytes = 100};

/* From step 1 on: the bytes that are left, and the expected acts, one letter each (w, d, s; '.' nothing). `rungs`:
 * how many the ladder has. */
static void check(const struct neap_levels *of, const uint64_t *left, const char *acts, int rungs)
{
	static const char letters[] = {[NEAP_THRESHOLD_NOTHING] = '.',
				       [NEAP_THRESHOLD_WARN] = 'w',
				       [NEAP_THRESHOLD_DEGRADE] = 'd',
				       [NEAP_THRESHOLD_STOP] = 's'};
	struct neap_threshold threshold = {0};

	for (uint64_t step = 1; acts[step - 1]; step++) {
		enum neap_threshold_act act = neap_threshold_decide(&threshold, of, left[step - 1], rungs > 0, step);
		rungs -= act == NEAP_THRESHOLD_DEGRADE;
		if (letters[act] != acts[step - 1])
			fail_msg("step %d: '%c', expected '%c'", (int)step, letters[act], acts[step - 1]);
	}
}
#define CHECK(of, acts, rungs, ...) check(of, (const uint64_t[]){__VA_ARGS__}, acts, rungs)

static void test_warns(void **state)
{
	(void)state;
	/* Once; again only after the figure has risen by a quarter. */
	CHECK(&levels, ".w..........w", 1, 400, 399, 300, 399, 401, 399, 499, 399, 300, 500, 450, 400, 399);
	CHECK(&levels, "w", 1, 201);
}

static void test_one_dip_takes_no_rung(void **state)
{
	(void)state;
	CHECK(&levels, ".w..w..", 8, 1000, 150, 1000, 1000, 50, 1000, 1000); /* not even below the stop threshold */
	CHECK(&levels, "w...", 8, 199, 200, 199, 200);
	CHECK(&levels, "w...", 8, 199, U, 199, U); /* unknown: so not in a row */
}

static void test_degrades(void **state)
{
	(void)state;
	/* Two in a row, then a rest of eight steps for its effect, then two in a row again. */
	CHECK(&levels, "wd........d.........", 8, 150, 150, 150, 150, 150, 150, 150, 150, 150, 150, 150, 500, 500,
	      500, 500, 500, 500, 500, 500, 500);
	/* Degrading comes before stopping as long as there is a rung. */
	CHECK(&levels, "wd........d........s", 2, 50, 50, 50, 50, 50, 50, 50, 50, 50, 50, 50, 50, 50, 50, 50, 50, 50,
	      50, 50, 50);
	/* No rung is left: a warning, and the run goes on. */
	CHECK(&levels, "w...", 0, 150, 150, 150, 150);
	const struct neap_levels only = {.degrade_bytes = 200};
	CHECK(&only, "w...", 0, 150, 150, 150, 150);
	CHECK(&only, ".dw.", 1, 150, 150, 150, 150);
}

static void test_stops(void **state)
{
	const struct neap_levels only = {.stop_bytes = 100};

	(void)state;
	CHECK(&only, "..s", 8, 100, 99, 99);
	CHECK(&only, ".....s", 8, 99, 100, 99, U, 0, 0);
	CHECK(&levels, "ws", 0, 99, 99);
}

/* A figure that cannot be read never causes an act, nor does a threshold that was not set. */
static void test_nothing(void **state)
{
	const struct neap_levels none = {0};

	(void)state;
	CHECK(&levels, "....", 1, U, U, U, U);
	CHECK(&none, "....", 1, 0, 0, 0, 0);
}

int main(void)
{
	const struct CMUnitTest tests[] = {
		cmocka_unit_test(test_warns),    cmocka_unit_test(test_one_dip_takes_no_rung),
		cmocka_unit_test(test_degrades), cmocka_unit_test(test_stops),
		cmocka_unit_test(test_nothing),
	};
	return cmocka_run_group_tests(tests, NULL, NULL);
}
