/* Queries of finished work: what the program's threads, allocators and watchdogs learn, and what that orders. */
#include "sim/tests/driver/races_by_hand.h"

/* A thread of the program learns that work has finished only if it asks again, or has waited for it. */
static void test_asking(void **state)
{
	(void)state;
	struct sim_races *races = begin();
	use(races, stream(0), 0, 10, NEAP_SIM_WRITES);
	assert_true(sim_races_asked(races, 5, 1)); /* never recorded */
	sim_races_record(races, 5, stream(0), false);
	assert_false(sim_races_asked(races, 5, 1));
	assert_true(sim_races_asked(races, 5, 0)); /* a watchdog */
	assert_false(sim_races_asked(races, 5, 1));
	assert_true(sim_races_asked(races, 5, 1));
	sim_races_record(races, 6, stream(0), true);
	assert_true(sim_races_asked(races, 6, 1)); /* an allocator's */
	sim_races_record(races, 7, stream(0), false);
	sim_races_host_stream(races, stream(0));
	assert_true(sim_races_asked(races, 7, 1));
	/* Two threads query in turns: each learns of the end at its second query, as if it were alone. */
	sim_races_record(races, 8, stream(1), false);
	use(races, stream(1), 0, 10, NEAP_SIM_READS);
	sim_races_record(races, 8, stream(1), false);
	for (int i = 0; i < 2; i++) {
		assert_false(sim_races_asked(races, 8, 1));
		assert_false(sim_races_asked(races, 8, 2));
	}
	assert_true(sim_races_asked(races, 8, 1));
	assert_true(sim_races_asked(races, 8, 2));
	end(races, 0);
}

static void collective(struct sim_races *races, struct sim_race_stream on)
{
	struct neap_sim_touch touch = {BASE + 4096, 64, NEAP_SIM_WRITES};
	struct neap_sim_uses uses = uses_of(&touch, 1);

	uses.name = "ncclAllGather";
	sim_races_work(races, on, &uses);
}

/* A watchdog learns of a collective that has finished once something waits for it. Before, PyTorch would leave out
 * the program's wait. */
static void test_watchdog_asks(void **state)
{
	(void)state;
	struct sim_races *races = begin();
	collective(races, stream(0));
	sim_races_record(races, 1, stream(0), false); /* PyTorch's for the watchdog, and for the program's wait */
	sim_races_record(races, 2, stream(0), false);
	assert_false(sim_races_asked(races, 1, 0));
	use(races, stream(0), 0, 1, NEAP_SIM_READS);
	sim_races_record(races, 3, stream(0), false);
	assert_true(sim_races_asked(races, 3, 0)); /* of other work */
	sim_races_wait(races, stream(1), 2);
	assert_true(sim_races_asked(races, 1, 0));
	collective(races, stream(0));
	sim_races_record(races, 1, stream(0), false);
	sim_races_wait(races, stream(0), 1); /* a collective on the program's own stream */
	assert_true(sim_races_asked(races, 1, 0));
	collective(races, stream(0));
	sim_races_record(races, 1, stream(0), false);
	for (int i = 0; i < 50; i++)
		assert_false(sim_races_asked(races, 1, 0));
	assert_true(sim_races_asked(races, 1, 0)); /* nothing waits for it */
	end(races, 0);
}

/* NCCL's watchdog frees what a collective has used, after it has found the collective finished. */
static void test_watchdog_frees(void **state)
{
	(void)state;
	struct sim_races *races = begin();
	for (uint64_t i = 0; i < 2; i++) {
		sim_races_allocated(races, BASE + 64 * i, 64, stream(0), 11, false);
		use(races, stream(1), 64 * i, 64, NEAP_SIM_READS);
		sim_races_record(races, 1, stream(1), false);
		if (i == 0)
			assert_true(sim_races_asked(races, 1, 0));
		sim_races_freed(races, BASE + 64 * i, 12, true);
		sim_races_reusable(races, BASE + 64 * i);
		sim_races_allocated(races, BASE + 64 * i, 64, stream(0), 13, false);
		use(races, stream(0), 64 * i, 64, NEAP_SIM_WRITES);
		assert_int_equal(found.count, i); /* nobody asked about the second one */
	}
	sim_races_host_device(races, 0);
	/* What a watchdog has found does not order a block that a thread of the program frees. */
	sim_races_allocated(races, BASE, 64, stream(0), 11, false);
	use(races, stream(2), 0, 64, NEAP_SIM_READS);
	sim_races_record(races, 1, stream(2), false);
	assert_true(sim_races_asked(races, 1, 0));
	sim_races_freed(races, BASE, 12, false);
	sim_races_reusable(races, BASE);
	sim_races_allocated(races, BASE, 64, stream(0), 13, false);
	use(races, stream(0), 0, 64, NEAP_SIM_WRITES);
	end(races, 2);
}

int main(void)
{
	const struct CMUnitTest tests[] = {
		cmocka_unit_test(test_asking),
		cmocka_unit_test(test_watchdog_frees),
		cmocka_unit_test(test_watchdog_asks),
	};

	return cmocka_run_group_tests(tests, NULL, NULL);
}
