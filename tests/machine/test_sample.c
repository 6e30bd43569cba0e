/* A made-up sample: the orders of its processes, and run times as ps shows them. */
#include "machine/sample.h"

#include "support/test.h"

#include <string.h>

#define S 1000000000ull

static struct neap_sample_process processes[3];
static struct neap_sample_device device = {.processes = processes, .process_count = 3};
static struct neap_sample sample = {.devices = &device, .device_count = 1};

static struct neap_sample_process process(pid_t pid, const char *user, uint64_t run_ns, const char *command,
					  uint64_t bytes)
{
	struct neap_sample_process made = {.account = {.pid = pid, .bytes = bytes}, .who = {.run_ns = run_ns}};
	strcpy(made.who.user, user);
	strcpy(made.who.command, command);
	return made;
}

static int make(void **state)
{
	(void)state;
	processes[0] = process(30, "alice", 3 * S, "python train.py --lr 0.1 --name first-of-two-runs", 10 * MIB);
	processes[1] = process(20, "bob", 90061 * S, "serve", 50 * MIB);
	processes[2] = process(10, "a-very-long-name", NEAP_WHO_UNKNOWN, "", NEAP_BYTES_UNKNOWN);
	return 0;
}

static void test_sort(void **state)
{
	(void)state;
	static const struct {
		const char *key;
		pid_t order[3];
	} orders[] = {{"memory", {20, 30, 10}},
		      {"pid", {10, 20, 30}},
		      {"time", {20, 30, 10}},
		      {"user", {10, 30, 20}},
		      {"name", {10, 30, 20}}};
	for (size_t i = 0; i < sizeof orders / sizeof orders[0]; i++) {
		assert_true(neap_sample_sort(&sample, orders[i].key));
		for (size_t p = 0; p < 3; p++)
			assert_int_equal(processes[p].account.pid, orders[i].order[p]);
	}
	assert_false(neap_sample_sort(&sample, "size"));
}

static void test_times(void **state)
{
	(void)state;
	char text[NEAP_WHO_TIME_CAPACITY];
	assert_string_equal(neap_who_time_format(0, text), "00:00");
	assert_string_equal(neap_who_time_format(3599 * S, text), "59:59");
	assert_string_equal(neap_who_time_format(3600 * S, text), "1:00:00");
	assert_string_equal(neap_who_time_format(86399 * S, text), "23:59:59");
	assert_string_equal(neap_who_time_format(86400 * S, text), "1-00:00:00");
	assert_string_equal(neap_who_time_format(NEAP_WHO_UNKNOWN, text), "?");
}

int main(void)
{
	const struct CMUnitTest tests[] = {
		cmocka_unit_test_setup(test_sort, make),
		cmocka_unit_test(test_times),
	};
	return cmocka_run_group_tests(tests, NULL, NULL);
}
