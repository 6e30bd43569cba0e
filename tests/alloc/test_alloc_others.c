/* Two processes on one device. When memory runs out, the other process's memory is a figure of its own; after it is
 * given back, the same request succeeds. */
#include "harness.h"

#include <sys/wait.h>

#define SPEC "mem=256MiB,reserved=4MiB,context=16MiB"

/* The other process: holds 100 MiB until it is asked to empty its cache, then waits until its pipe is closed. */
static void neighbour(int from_parent, int to_parent)
{
	struct world world;
	uint64_t freed = 0;
	char byte = 0;
	world_open(&world, SPEC);
	world_alloc(&world, 0);
	uint64_t address = take(&world, 100 * MIB, NULL);
	if (write(to_parent, &byte, 1) != 1 || read(from_parent, &byte, 1) != 1)
		_exit(1);
	give(&world, address);
	if (neap_empty_cache(world.alloc, &freed, NULL) || freed != 100 * MIB || write(to_parent, &byte, 1) != 1)
		_exit(2);
	_exit(read(from_parent, &byte, 1) == 0 ? 0 : 3);
}

static void test_others(void **state)
{
	int down[2], up[2], how = 0;
	char name[32], byte = 0;
	struct world world;
	struct neap_error err = {0};
	uint64_t address = 0;
	(void)state;
	snprintf(name, sizeof name, "others-%d", (int)getpid());
	setenv("TEST_WORLD", name, 1);
	assert_int_equal(pipe(down), 0);
	assert_int_equal(pipe(up), 0);
	/* Fork before this process opens its driver, which does not survive a fork. */
	pid_t child = fork();
	assert_true(child >= 0);
	if (!child) {
		close(down[1]);
		close(up[0]);
		neighbour(down[0], up[1]);
	}
	close(down[0]);
	close(up[1]);
	assert_int_equal(read(up[0], &byte, 1), 1);
	world_open(&world, SPEC);
	world_alloc(&world, 0);
	assert_int_equal(neap_malloc(world.alloc, 140 * MIB, NULL, &address, &err), NEAP_EOOM);
	/* 252 (all but the driver's own) = 16 context and 100 of the other + 16 context here + 120 free */
	assert_non_null(strstr(err.message, "252 MiB total, 120 MiB free"));
	assert_non_null(strstr(err.message, "16.0 MiB context; others 116 MiB."));
	const struct neap_event *limits = event_find(&world.events, NEAP_EVENT_OOM_LIMITS, 0);
	assert_int_equal(limits->oom_limits.others_bytes, 132 * MIB);
	assert_int_equal(limits[-1].oom.device_free_bytes, 120 * MIB);
	assert_int_equal(write(down[1], &byte, 1), 1);
	assert_int_equal(read(up[0], &byte, 1), 1);
	address = take(&world, 140 * MIB, NULL);
	give(&world, address);
	world_check(&world);
	world_close(&world);
	close(down[1]);
	assert_int_equal(waitpid(child, &how, 0), child);
	assert_true(WIFEXITED(how) && WEXITSTATUS(how) == 0);
}

int main(void)
{
	const struct CMUnitTest tests[] = {cmocka_unit_test(test_others)};
	return cmocka_run_group_tests(tests, NULL, NULL);
}
