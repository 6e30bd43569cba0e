/* Finding CUDA's first device without using CUDA in this process, as the command does. */
#include "device/driver.h"
#include "device/monitor.h"
#include "device/visible.h"
#include "support/test.h"

#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/wait.h>
#include <unistd.h>

#define LIMIT_NS 10000000000ull

static char all[2][48]; /* UUIDs, as NVML counts */

static void set_world(const char *more)
{
	char world[128];

	snprintf(world, sizeof world, "mem=1GiB,gpus=2,world=test-visible-%d%s", (int)getpid(), more);
	setenv("NEAP_SIM", world, 1);
	unsetenv("CUDA_VISIBLE_DEVICES");
	unsetenv("CUDA_DEVICE_ORDER");
}

static int setup(void **state)
{
	static struct neap_reading reading;
	struct neap_monitor *monitor = NULL;
	struct neap_error err = {0};

	(void)state;
	set_world("");
	if (neap_monitor_open(NEAP_BACKEND_SIM, &monitor, &err) != NEAP_OK)
		return -1;
	for (size_t i = 0; i < 2; i++) {
		assert_int_equal(neap_monitor_read(monitor, i, &reading, &err), NEAP_OK);
		memcpy(all[i], reading.uuid_text, sizeof all[i]);
	}
	neap_monitor_close(monitor);
	return 0;
}

static void expect_first(const char *list, int device)
{
	char first[48] = "untouched";
	struct neap_error err = {0};

	if (list)
		setenv("CUDA_VISIBLE_DEVICES", list, 1);
	enum neap_status status = neap_visible_first(NEAP_BACKEND_DEFAULT, LIMIT_NS, first, &err);
	if (status != (device < 0 ? NEAP_ENODEVICE : NEAP_OK))
		fail_msg("%s: %s: %s", list ? list : "(none)", neap_status_name(status), err.message);
	assert_string_equal(first, device < 0 ? "untouched" : all[device]);
}

static void lists(void **state)
{
	char prefix[13];

	(void)state;
	set_world("");
	snprintf(prefix, sizeof prefix, "%s", all[1]);
	expect_first(NULL, 0);
	expect_first("0,1", 0);
	expect_first("1,0", 1);
	expect_first("1", 1);
	expect_first(all[1], 1);
	expect_first(prefix, 1);
	expect_first("", -1);
	expect_first("-1", -1);
	expect_first("5,0", -1);
	assert_int_equal(waitpid(-1, NULL, WNOHANG), -1); /* nobody is left */
}

/* An ordinal is CUDA's, and NVML does not have CUDA's order. */
static void orders(void **state)
{
	(void)state;
	set_world(",order=reversed");
	expect_first(NULL, 1);
	expect_first("0", 1);
	expect_first("1", 0);
	expect_first(all[0], 0);
	setenv("CUDA_DEVICE_ORDER", "PCI_BUS_ID", 1);
	expect_first("0", 0);
	set_world("");
}

static void mig(void **state)
{
	char first[48] = "untouched";
	struct neap_error err = {0};

	(void)state;
	set_world("");
	setenv("CUDA_VISIBLE_DEVICES", "0, MIG-8b29d3a1-0000", 1);
	assert_int_equal(neap_visible_first(NEAP_BACKEND_SIM, LIMIT_NS, first, &err), NEAP_ENOTSUP);
	assert_string_equal(err.message,
			    "CUDA_VISIBLE_DEVICES names a MIG instance: neap accounts for whole devices only");
	assert_string_equal(first, "untouched");
	assert_false(neap_driver_names_mig("GPU-MIG-,0"));
	assert_false(neap_driver_names_mig(NULL));
	unsetenv("CUDA_VISIBLE_DEVICES");
}

static void no_time(void **state)
{
	char first[48] = "untouched";
	struct neap_error err = {0};

	(void)state;
	set_world("");
	assert_int_equal(neap_visible_first(NEAP_BACKEND_SIM, 0, first, &err), NEAP_ETIMEDOUT);
	assert_string_equal(first, "untouched");
	assert_int_equal(waitpid(-1, NULL, WNOHANG), -1);
	setenv("NEAP_SIM", "gtx9000", 1); /* the error is the one of neap_driver_open */
	assert_int_equal(neap_visible_first(NEAP_BACKEND_SIM, LIMIT_NS, first, &err), NEAP_EDRIVER);
	assert_non_null(strstr(err.message, "gtx9000"));
}

/* The child that had no time is killed and leaves the world; the last process to leave it removes it. */
static int teardown(void **state)
{
	struct neap_monitor *monitor = NULL;

	(void)state;
	set_world("");
	if (neap_monitor_open(NEAP_BACKEND_SIM, &monitor, NULL) == NEAP_OK)
		neap_monitor_close(monitor);
	return 0;
}

int main(void)
{
	const struct CMUnitTest tests[] = {
		cmocka_unit_test(lists),
		cmocka_unit_test(orders),
		cmocka_unit_test(mig),
		cmocka_unit_test(no_time),
	};

	return cmocka_run_group_tests(tests, setup, teardown);
}
