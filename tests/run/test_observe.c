/* The curve in bounded memory, and the choice of the device. */
#include "run/observe.h"

#include "support/test.h"

#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <unistd.h>

static char runtime[] = "/tmp/neap-test-observe-XXXXXX";

static int setup(void **state)
{
	(void)state;
	char world[128];
	snprintf(world, sizeof world, "mem=1GiB,gpus=3,world=observe-%d", (int)getpid());
	if (!mkdtemp(runtime) || setenv("XDG_RUNTIME_DIR", runtime, 1) || setenv("NEAP_SIM", world, 1))
		return -1;
	return 0;
}

static int teardown(void **state)
{
	(void)state;
	return rmdir(runtime);
}

static void test_samples_keep_the_peak_and_the_order(void **state)
{
	(void)state;
	struct neap_samples *samples = calloc(1, sizeof *samples);
	assert_non_null(samples);
	const uint64_t count = 37 * NEAP_CURVE_POINTS + 11, spike = 12345;
	for (uint64_t i = 0; i < count; i++) {
		struct neap_result_sample sample = {
			.time_ns = i, .reserved_bytes = i % 100, .device_bytes = i == spike ? 1u << 20 : i % 100};
		neap_samples_add(samples, &sample);
		assert_true(samples->count <= NEAP_CURVE_POINTS);
	}
	assert_true(samples->count > NEAP_CURVE_POINTS / 2);
	uint64_t highest = 0;
	for (size_t i = 0; i < samples->count; i++) {
		if (i)
			assert_true(samples->items[i].time_ns > samples->items[i - 1].time_ns);
		if (samples->items[i].device_bytes > highest)
			highest = samples->items[i].device_bytes;
	}
	assert_int_equal(highest, 1u << 20);
	assert_true(samples->items[samples->count - 1].time_ns + samples->each >= count);
	free(samples);
}

static void test_few_samples_are_kept_as_they_are(void **state)
{
	(void)state;
	struct neap_samples *samples = calloc(1, sizeof *samples);
	assert_non_null(samples);
	for (uint64_t i = 0; i < NEAP_CURVE_POINTS; i++)
		neap_samples_add(samples, &(struct neap_result_sample){i, i, i, NEAP_BYTES_UNKNOWN});
	assert_int_equal(samples->count, NEAP_CURVE_POINTS);
	for (uint64_t i = 0; i < NEAP_CURVE_POINTS; i++)
		assert_int_equal(samples->items[i].allocated_bytes, i);
	free(samples);
}

static void choose(const char *device, const char *visible, enum neap_status expected, size_t index)
{
	struct neap_monitor *monitor = NULL;
	struct neap_observe *observe = calloc(1, sizeof *observe);
	struct neap_error err = {0};
	assert_non_null(observe);
	assert_int_equal(neap_monitor_open(NEAP_BACKEND_SIM, &monitor, &err), NEAP_OK);
	enum neap_status status = neap_observe_init(observe, monitor, device, visible, "id", &err);
	if (status != expected || (!status && observe->watched != index))
		fail_msg("device %s visible %s: status %d (%s), watched %zu", device ? device : "-",
			 visible ? visible : "-", status, err.message, observe->watched);
	neap_observe_fini(observe);
	neap_monitor_close(monitor);
	free(observe);
}

static void test_device(void **state)
{
	(void)state;
	struct neap_monitor *monitor = NULL;
	struct neap_reading *reading = calloc(1, sizeof *reading);
	assert_non_null(reading);
	assert_int_equal(neap_monitor_open(NEAP_BACKEND_SIM, &monitor, NULL), NEAP_OK);
	assert_int_equal(neap_monitor_read(monitor, 2, reading, NULL), NEAP_OK);
	char list[64];
	snprintf(list, sizeof list, "%s,0", reading->uuid_text);
	choose(NULL, NULL, NEAP_OK, 0);
	choose("1", NULL, NEAP_OK, 1);
	choose(reading->uuid_text, NULL, NEAP_OK, 2);
	choose("3", NULL, NEAP_ENODEVICE, 0);
	choose("GPU-0000-no", NULL, NEAP_ENODEVICE, 0);
	choose("", NULL, NEAP_ENODEVICE, 0);
	choose(NULL, "1,0", NEAP_OK, 1);
	choose(NULL, list, NEAP_OK, 2);
	choose(NULL, "", NEAP_OK, 3); /* no device is visible: none is watched */
	choose(NULL, "-1", NEAP_OK, 3);
	choose("1", "2", NEAP_OK, 1);
	neap_monitor_close(monitor);
	free(reading);
}

/* Two attached processes; the driver is sampled only now and then. */
static void test_a_peak_between_two_looks(void **state)
{
	(void)state;
	struct neap_observe *observe = calloc(1, sizeof *observe);
	assert_non_null(observe);
	observe->device_count = 1;
	observe->now.total_bytes = 1000;
	observe->peak_device_bytes = 300;
	assert_int_equal(neap_observe_peak_device(observe, 400), 300); /* no process was seen attached */
	observe->attached_count = 2;
	assert_int_equal(neap_observe_peak_device(observe, 0), 300);
	assert_int_equal(neap_observe_peak_device(observe, 400), 400); /* contexts are not known */
	observe->attached[0].context_bytes = 70;
	observe->attached[1].context_bytes = 50;
	assert_int_equal(neap_observe_peak_device(observe, 400), 450); /* at least */
	assert_int_equal(neap_observe_peak_device(observe, 200), 300);
	observe->watched = 1; /* none */
	assert_int_equal(neap_observe_peak_device(observe, 400), 300);
	free(observe);
}

/* A sample saw one process after it attached but before it used its device, and never saw the other. */
static void test_processes_that_no_look_met(void **state)
{
	(void)state;
	struct neap_observe *observe = calloc(1, sizeof *observe);
	struct neap_record *record = calloc(1, sizeof *record);
	struct neap_buffer text = {0};
	struct neap_reading before[2] = {{.total_bytes = 1000, .uuid_text = "GPU-a"},
					 {.total_bytes = 1000, .uuid_text = "GPU-b"}};
	bool touched[2] = {false};
	struct neap_event journal[] = {
		{.kind = NEAP_EVENT_PAGE, .page = {.device_uuid = 1, .context_bytes = 70}},
		{.kind = NEAP_EVENT_STEP, .step = {.name = 1, .number = 1, .peak_bytes = 999, .lowest_bytes = 999}},
		{.kind = NEAP_EVENT_PAGE,
		 .page = {.device_uuid = 1,
			  .context_bytes = 70,
			  .peak_allocated_bytes = 20,
			  .peak_reserved_bytes = 30}},
		{.kind = NEAP_EVENT_PAGE,
		 .page = {.device_uuid = 2,
			  .context_bytes = 80,
			  .peak_allocated_bytes = 40,
			  .peak_reserved_bytes = 50}},
	};
	assert_true(observe && record);
	observe->device_count = 2;
	observe->before = before;
	observe->touched = touched;
	observe->now.total_bytes = 1000;
	observe->attached_count = 1;
	observe->attached[0] = (struct neap_observed){.pid = 11, .start_ticks = 5};
	observe->outsiders[0].pid = 12;
	strcpy(observe->outsiders[0].text, "process 12 (x): no libneap");
	observe->outsider_count = 1;
	record->pid = 12;
	record->start_ticks = 6;
	record->names_used = 3;
	strcpy(record->names[1], "GPU-b");
	strcpy(record->names[2], "GPU-c"); /* an unreadable device */
	record->journal = journal;
	record->journal_count = sizeof journal / sizeof *journal;
	assert_false(neap_observe_met(observe, 11));
	assert_false(neap_observe_met(observe, 12));
	neap_observe_outsiders(observe, &text);
	assert_string_equal(neap_buffer_string(&text), "process 12 (x): no libneap");
	neap_buffer_clear(&text);

	neap_observe_recorded(observe, record, "/run/record.12");
	assert_true(neap_observe_met(observe, 12));
	assert_int_equal(observe->attached_count, 2);
	assert_string_equal(observe->attached[1].record_path, "/run/record.12");
	assert_int_equal(observe->attached[1].context_bytes, 70);
	assert_int_equal(observe->attached[1].peak_allocated_bytes, 20);
	assert_int_equal(observe->attached[1].peak_reserved_bytes, 30);
	assert_int_equal(observe->watched, 1); /* no other was requested */
	assert_true(touched[1] && !touched[0]);
	neap_observe_outsiders(observe, &text);
	assert_int_equal(text.length, 0);

	record->pid = 11;
	record->start_ticks = 5;
	neap_observe_recorded(observe, record, "/run/record.11");
	assert_int_equal(observe->attached_count, 2);
	assert_true(neap_observe_met(observe, 11));
	assert_int_equal(neap_observe_peak_device(observe, 30), 100);
	neap_buffer_fini(&text);
	free(record);
	free(observe);
}

int main(void)
{
	const struct CMUnitTest tests[] = {
		cmocka_unit_test(test_samples_keep_the_peak_and_the_order),
		cmocka_unit_test(test_few_samples_are_kept_as_they_are),
		cmocka_unit_test(test_device),
		cmocka_unit_test(test_a_peak_between_two_looks),
		cmocka_unit_test(test_processes_that_no_look_met),
	};
	return cmocka_run_group_tests_name("observe", tests, setup, teardown);
}
