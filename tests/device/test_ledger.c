/* The ledger adds up for any input; the monitor reads all variants of NVML's answers. */
#include "device/ledger.h"
#include "fake_driver.h"
#include "support/test.h"

#include <string.h>
#include <unistd.h>

static struct neap_ledger_attached attach(pid_t pid, uint64_t context, int64_t reserved, int64_t allocated)
{
	struct neap_ledger_attached attached = {.pid = pid, .published = {.context_bytes = context}};

	attached.published.stats.metric[NEAP_METRIC_RESERVED_BYTES][NEAP_CLASS_ALL].current = reserved;
	attached.published.stats.metric[NEAP_METRIC_ALLOCATED_BYTES][NEAP_CLASS_ALL].current = allocated;
	return attached;
}

struct account {
	struct neap_ledger ledger;
	struct neap_ledger_process processes[8]; /* more than any of these tests has */
	size_t count;
};

/* The account of a reading; its parts add up. */
static struct account account_of(const struct neap_reading *reading, const struct neap_ledger_attached *attached,
				 size_t attached_count)
{
	struct account account = {0};
	const struct neap_ledger *ledger = &account.ledger;

	neap_ledger_compute(reading, attached, attached_count, &account.ledger, account.processes, &account.count);
	assert_true(ledger->driver_reserved + ledger->contexts + ledger->allocated + ledger->cached +
			    ledger->not_attached + (uint64_t)ledger->unexplained + ledger->free ==
		    ledger->total);
	return account;
}

static void ledger_splits_every_byte(void **unused)
{
	struct neap_reading reading = {
		.total_bytes = 10000,
		.reserved_bytes = 300,
		.used_bytes = 5000,
		.free_bytes = 4700,
		.process_count = 3,
		.processes = {{.pid = 1, .bytes = 2100},
			      {.pid = 2, .bytes = 700},
			      {.pid = 3, .bytes = NEAP_BYTES_UNKNOWN}},
	};
	struct neap_ledger_attached attached[] = {attach(1, 400, 1600, 1000), attach(9, 10, 20, 5)};
	struct account account = account_of(&reading, attached, 2);
	const struct neap_ledger_process *processes = account.processes;

	(void)unused;
	assert_int_equal(account.ledger.contexts, 410);
	assert_int_equal(account.ledger.allocated, 1005);
	assert_int_equal(account.ledger.cached, 615);
	assert_int_equal(account.ledger.not_attached, 700);
	assert_int_equal(account.ledger.unexplained, 5000 - 410 - 1005 - 615 - 700);
	assert_int_equal(account.count, 4);
	assert_true(processes[0].attached && processes[0].other == 100 && processes[0].cached == 600);
	assert_true(!processes[1].attached && processes[1].bytes == 700 && processes[1].other == 0);
	assert_true(processes[2].bytes == NEAP_BYTES_UNKNOWN);
	/* NVML does not list it (its PID is of another namespace). */
	assert_true(processes[3].pid == 9 && processes[3].attached && processes[3].bytes == NEAP_BYTES_UNKNOWN &&
		    processes[3].other == 0 && processes[3].allocated == 5);
}

static void unexplained_may_be_negative(void **unused)
{
	struct neap_reading reading = {.total_bytes = 1000, .used_bytes = 100, .free_bytes = 900};
	struct neap_ledger_attached attached[] = {attach(1, 50, 250, 250)};
	struct account account = account_of(&reading, attached, 1);

	(void)unused;
	assert_int_equal(account.ledger.unexplained, -200);
}

/* The host's programs use the same memory: their part is not "unexplained". */
static void unified_memory_counts_the_host(void **unused)
{
	struct neap_reading reading = {.total_bytes = 1000, .used_bytes = 600, .free_bytes = 400, .unified = true};
	struct neap_ledger_attached attached[] = {attach(1, 50, 250, 200)};
	struct account account = account_of(&reading, attached, 1);

	(void)unused;
	assert_int_equal(account.ledger.unexplained, 0);
	assert_int_equal(account.ledger.not_attached, 300);
}

static void one_process_is_one_row(void **unused)
{
	struct neap_reading reading = {
		.total_bytes = 1000,
		.free_bytes = 500,
		.process_count = 2,
		.processes = {{.pid = 1, .bytes = 200}, {.pid = 1, .bytes = 100}},
	};
	/* Two allocators in one process share its context; inconsistent figures never give a negative cache. */
	struct neap_ledger_attached attached[] = {attach(1, 40, 100, 80), attach(1, 50, 60, 70)};
	struct account account = account_of(&reading, attached, 2);
	const struct neap_ledger_process *processes = account.processes;

	(void)unused;
	assert_int_equal(account.count, 1);
	assert_int_equal(processes[0].bytes, 300);
	assert_int_equal(account.ledger.contexts, 50);
	assert_int_equal(account.ledger.allocated, 150);
	assert_int_equal(account.ledger.cached, 20);
}

static void monitor_reads_all_variants(void **unused)
{
	struct neap_nvml nvml;
	struct neap_monitor *monitor = NULL;
	static struct neap_reading reading;
	size_t index = 99;

	(void)unused;
	fake_reset();
	nvml = fake_nvml();
	fake.process_count = 3;
	assert_int_equal(neap_monitor_wrap(&nvml, &monitor, NULL), NEAP_OK);
	assert_int_equal(neap_monitor_device_count(monitor), 2);
	assert_int_equal(neap_monitor_find(monitor, fake_uuid, &index, NULL), NEAP_OK);
	assert_int_equal(index, 1);
	assert_int_equal(neap_monitor_find(monitor, (const unsigned char *)"0123456789abcdef", &index, NULL),
			 NEAP_ENODEVICE);
	assert_int_equal(neap_monitor_read(monitor, 2, &reading, NULL), NEAP_ENODEVICE);

	assert_int_equal(neap_monitor_read(monitor, 1, &reading, NULL), NEAP_OK);
	assert_true(reading.reserved_known && reading.reserved_bytes == 50 && reading.used_bytes == 350);
	assert_true(reading.total_bytes == 1000 && reading.free_bytes == 600 && reading.utilization_percent == -1);
	assert_true(reading.processes_known && reading.process_count == 3 && !reading.processes_truncated);
	assert_true(reading.processes[0].pid == getpid() && reading.processes[2].bytes == 502);
	assert_memory_equal(reading.uuid, fake_uuid, 16);

	fake.has_memory_v2 = false; /* an older driver: "used" folds the reserved bytes in */
	fake.bytes_known = false;   /* a container */
	fake.process_count = 300;   /* more than fit in the first try, and in a reading */
	assert_int_equal(neap_monitor_read(monitor, 1, &reading, NULL), NEAP_OK);
	assert_true(!reading.reserved_known && reading.reserved_bytes == 0 && reading.used_bytes == 400);
	assert_int_equal(reading.process_count, NEAP_READING_PROCESSES);
	assert_true(reading.processes_truncated && reading.processes[255].bytes == NEAP_BYTES_UNKNOWN);
	neap_monitor_close(monitor);
	assert_int_equal(fake.nvml_running, 0);

	nvml.nvmlDeviceGetComputeRunningProcesses = NULL;
	nvml.nvmlDeviceGetMemoryInfo_v2 = NULL;
	assert_int_equal(neap_monitor_wrap(&nvml, &monitor, NULL), NEAP_OK);
	assert_int_equal(neap_monitor_read(monitor, 1, &reading, NULL), NEAP_OK);
	assert_true(!reading.processes_known && reading.process_count == 0 && !reading.reserved_known);
	neap_monitor_close(monitor);
	neap_monitor_close(NULL);
}

static nvmlReturn_t give_temperature(nvmlDevice_t device, unsigned int sensor, unsigned int *celsius)
{
	(void)device;
	*celsius = 64;
	return sensor == NVML_TEMPERATURE_GPU ? NVML_SUCCESS : NVML_ERROR_INVALID_ARGUMENT;
}

static nvmlReturn_t give_milliwatts(nvmlDevice_t device, unsigned int *milliwatts)
{
	(void)device;
	*milliwatts = 310900;
	return NVML_SUCCESS;
}

static nvmlReturn_t give_clock(nvmlDevice_t device, unsigned int clock, unsigned int *mhz)
{
	(void)device;
	*mhz = 1980;
	return clock == NVML_CLOCK_SM ? NVML_SUCCESS : NVML_ERROR_INVALID_ARGUMENT;
}

/* The samples are not in the order of their times. */
static nvmlReturn_t give_samples(nvmlDevice_t device, nvmlProcessUtilizationSample_t *samples, unsigned int *count,
				 unsigned long long since)
{
	static const nvmlProcessUtilizationSample_t taken[] = {{.pid = 7, .timeStamp = 200, .smUtil = 31},
							       {.pid = 8, .timeStamp = 150, .smUtil = 5},
							       {.pid = 7, .timeStamp = 100, .smUtil = 90},
							       {.pid = 8, .timeStamp = 250, .smUtil = 6}};
	(void)device;
	assert_true(*count >= 4 && since == 0);
	memcpy(samples, taken, sizeof taken);
	*count = 4;
	return NVML_SUCCESS;
}

static void monitor_reads_what_a_device_does(void **unused)
{
	struct neap_monitor *monitor = NULL;
	static struct neap_condition condition;
	struct neap_nvml nvml;

	(void)unused;
	fake_reset();
	nvml = fake_nvml();
	assert_int_equal(neap_monitor_wrap(&nvml, &monitor, NULL), NEAP_OK);
	neap_monitor_condition(monitor, 1, &condition);
	assert_true(condition.temperature_celsius == -1 && condition.power_watts == -1 && condition.clock_mhz == -1);
	assert_true(condition.power_limit_watts == -1 && condition.busy_count == 0);
	neap_monitor_close(monitor);

	nvml.nvmlDeviceGetTemperature = give_temperature;
	nvml.nvmlDeviceGetPowerUsage = nvml.nvmlDeviceGetEnforcedPowerLimit = give_milliwatts;
	nvml.nvmlDeviceGetClockInfo = give_clock;
	nvml.nvmlDeviceGetProcessUtilization = give_samples;
	assert_int_equal(neap_monitor_wrap(&nvml, &monitor, NULL), NEAP_OK);
	neap_monitor_condition(monitor, 1, &condition);
	assert_int_equal(condition.temperature_celsius, 64);
	assert_true(condition.power_watts == 310 && condition.power_limit_watts == 310 &&
		    condition.clock_mhz == 1980);
	assert_int_equal(condition.busy_count, 2); /* the newest sample of each process */
	assert_true(condition.busy[0].pid == 7 && condition.busy[0].percent == 31);
	assert_true(condition.busy[1].pid == 8 && condition.busy[1].percent == 6);
	neap_monitor_condition(monitor, 99, &condition);
	assert_int_equal(condition.busy_count, 0);
	neap_monitor_close(monitor);
}

static void monitor_without_a_driver_names_the_simulator(void **unused)
{
	struct neap_nvml nvml;
	struct neap_monitor *monitor = NULL;
	struct neap_error err;

	(void)unused;
	fake_reset();
	nvml = fake_nvml();
	fake.nvml_init = NVML_ERROR_DRIVER_NOT_LOADED;
	assert_int_equal(neap_monitor_wrap(&nvml, &monitor, &err), NEAP_ENODEVICE);
	assert_non_null(strstr(err.message, "NEAP_DEVICE=sim"));
	assert_null(monitor);
}

static void a_context_is_recognised_by_its_size(void **unused)
{
	(void)unused;
	assert_true(neap_ledger_context_sized(500, 500));
	assert_true(neap_ledger_context_sized(999, 500));
	assert_false(neap_ledger_context_sized(1002, 500));
	assert_true(neap_ledger_context_sized(NEAP_BYTES_UNKNOWN, 500));
	assert_true(neap_ledger_context_sized(1ull << 40, 0));
}

int main(void)
{
	const struct CMUnitTest tests[] = {
		cmocka_unit_test(ledger_splits_every_byte),
		cmocka_unit_test(unexplained_may_be_negative),
		cmocka_unit_test(one_process_is_one_row),
		cmocka_unit_test(unified_memory_counts_the_host),
		cmocka_unit_test(a_context_is_recognised_by_its_size),
		cmocka_unit_test(monitor_reads_all_variants),
		cmocka_unit_test(monitor_reads_what_a_device_does),
		cmocka_unit_test(monitor_without_a_driver_names_the_simulator),
	};

	return cmocka_run_group_tests(tests, NULL, NULL);
}
