/* The metrics of neap serve: every byte of the text, unknown values, hostile names. */
#include "serve/metrics.h"

#include "support/test.h"

#include <string.h>

static struct neap_metrics_device devices[2];
static struct neap_metrics_process processes[3];
static struct neap_metrics metrics;

static int make(void **state)
{
	(void)state;
	memset(devices, 0, sizeof devices);
	memset(processes, 0, sizeof processes);
	for (size_t i = 0; i < 2; i++) {
		devices[i] = (struct neap_metrics_device){
			.uuid = i ? "GPU-b" : "GPU-a", .name = "NVIDIA H100", .utilization_percent = i ? -1 : 37};
		devices[i].ledger = (struct neap_ledger){2, 10, 30, 5, 40, i ? -3 : 3, 910, 1000};
		devices[i].gone_bytes = i;
	}
	processes[0] =
		(struct neap_metrics_process){0, "alice", "train", "run-1", 2500000000, {7, true, 50, 10, 30, 5, 5}};
	processes[1] =
		(struct neap_metrics_process){0, "alice", "train", "run-1", UINT64_MAX, {8, true, 5, 1, 3, 1, 0}};
	processes[2] = (struct neap_metrics_process){1, "bob", "x", "", 1000000000, {9, false, NEAP_BYTES_UNKNOWN}};
	metrics = (struct neap_metrics){true, "0.1", 1500000, devices, 2, processes, 3};
	return 0;
}

static char *text_of(void)
{
	struct neap_buffer out = {0};
	neap_metrics_write(&out, &metrics);
	assert_int_equal(neap_buffer_status(&out, NULL), NEAP_OK);
	return neap_buffer_detach(&out);
}

static bool has(const char *line)
{
	char *text = text_of(), whole[512];
	snprintf(whole, sizeof whole, "\n%s\n", line);
	bool found = strstr(text, whole) != NULL;
	free(text);
	return found;
}

static void test_values(void **state)
{
	(void)state;
	assert_true(has("neap_up 1"));
	assert_true(has("neap_build_info{version=\"0.1\"} 1"));
	assert_true(has("neap_look_seconds 0.0015"));
	assert_true(has("neap_gpu_info{gpu=\"1\",UUID=\"GPU-b\",model=\"NVIDIA H100\"} 1"));
	assert_true(has("neap_fb_total_bytes{gpu=\"0\",UUID=\"GPU-a\"} 1000"));
	assert_true(has("neap_fb_used_bytes{gpu=\"0\",UUID=\"GPU-a\"} 90"));
	assert_true(has("neap_fb_reserved_bytes{gpu=\"0\",UUID=\"GPU-a\"} 2"));
	assert_true(has("neap_fb_context_bytes{gpu=\"0\",UUID=\"GPU-a\"} 10"));
	assert_true(has("neap_fb_allocated_bytes{gpu=\"0\",UUID=\"GPU-a\"} 30"));
	assert_true(has("neap_fb_cached_bytes{gpu=\"0\",UUID=\"GPU-a\"} 5"));
	assert_true(has("neap_fb_not_attached_bytes{gpu=\"0\",UUID=\"GPU-a\"} 40"));
	assert_true(has("neap_fb_unexplained_bytes{gpu=\"0\",UUID=\"GPU-a\"} 3"));
	assert_true(has("neap_fb_unexplained_bytes{gpu=\"1\",UUID=\"GPU-b\"} -3"));
	assert_true(has("neap_fb_free_bytes{gpu=\"0\",UUID=\"GPU-a\"} 910"));
	assert_true(has("neap_fb_gone_bytes{gpu=\"1\",UUID=\"GPU-b\"} 1"));
	assert_true(has("neap_gpu_utilization_ratio{gpu=\"0\",UUID=\"GPU-a\"} 0.37"));
	assert_true(has("neap_process_used_bytes{gpu=\"0\",UUID=\"GPU-a\",pid=\"7\",user=\"alice\",name=\"train\","
			"run=\"run-1\"} 50"));
	assert_true(has("neap_process_run_seconds{gpu=\"0\",UUID=\"GPU-a\",pid=\"7\",user=\"alice\",name=\"train\","
			"run=\"run-1\"} 2.5"));
	assert_true(has("neap_run_allocated_bytes{gpu=\"0\",UUID=\"GPU-a\",run=\"run-1\"} 33"));
	assert_true(has("neap_run_used_bytes{gpu=\"0\",UUID=\"GPU-a\",run=\"run-1\"} 55"));
	assert_true(has("neap_run_cached_bytes{gpu=\"0\",UUID=\"GPU-a\",run=\"run-1\"} 6"));
	assert_true(has("neap_run_processes{gpu=\"0\",UUID=\"GPU-a\",run=\"run-1\"} 2"));
	processes[2].run = "run-1"; /* a run counts separately on each device */
	assert_true(has("neap_run_processes{gpu=\"0\",UUID=\"GPU-a\",run=\"run-1\"} 2"));
	assert_true(has("neap_run_processes{gpu=\"1\",UUID=\"GPU-b\",run=\"run-1\"} 1"));
	devices[0].ledger.total = 900ull << 40; /* exact to the byte */
	devices[0].ledger.free = 1;
	assert_true(has("neap_fb_used_bytes{gpu=\"0\",UUID=\"GPU-a\"} 989560464998399"));
}

/* Runs stand in the order of their first processes, which other processes may lie between. */
static void test_order_of_runs(void **state)
{
	(void)state;
	processes[0].run = processes[2].run = "run-2";
	processes[2].device = 0;
	assert_true(has("neap_run_processes{gpu=\"0\",UUID=\"GPU-a\",run=\"run-2\"} 2\n"
			"neap_run_processes{gpu=\"0\",UUID=\"GPU-a\",run=\"run-1\"} 1"));
	assert_true(has("neap_run_used_bytes{gpu=\"0\",UUID=\"GPU-a\",run=\"run-2\"} 50"));
}

static size_t count(const char *part)
{
	char *text = text_of();
	size_t found = 0;
	for (const char *at = text; (at = strstr(at, part)); at++)
		found++;
	free(text);
	return found;
}

/* An unknown figure has no sample: neither zero nor 2^64. */
static void test_unknown(void **state)
{
	(void)state;
	assert_int_equal(count("gpu_utilization_ratio{"), 1);
	assert_int_equal(count("neap_process_used_bytes{"), 2);
	assert_int_equal(count("neap_process_allocated_bytes{"), 2); /* the third is not attached */
	assert_int_equal(count("neap_process_run_seconds{"), 2);
	assert_int_equal(count("run=\"\"} "), 1);
	assert_int_equal(count("neap_run_processes{"), 1);
	assert_int_equal(count("18446744073709551615"), 0);
	assert_int_equal(count("nan"), 0);
	metrics.up = false;
	assert_int_equal(count("neap_up 0\n"), 1);
	assert_int_equal(count("gpu="), 0);
}

/* Each metric has its help and type once, right before its samples, and every line ends. */
static void test_form(void **state)
{
	(void)state;
	char *text = text_of(), *rest = NULL, name[64] = "";
	size_t length = strlen(text), heads = 0;
	assert_int_equal(text[length - 1], '\n');
	for (char *line = strtok_r(text, "\n", &rest); line; line = strtok_r(NULL, "\n", &rest)) {
		if (strncmp(line, "# HELP ", 7) == 0) {
			snprintf(name, sizeof name, "%.*s", (int)strcspn(line + 7, " "), line + 7);
			heads++;
			line = strtok_r(NULL, "\n", &rest);
			assert_int_equal(strncmp(line, "# TYPE ", 7), 0);
			assert_int_equal(strncmp(line + 7, name, strlen(name)), 0);
		} else {
			assert_int_equal(strncmp(line, name, strlen(name)), 0);
			assert_true(line[strlen(name)] == '{' || line[strlen(name)] == ' ');
		}
	}
	assert_true(heads > 20);
	free(text);
}

static void test_hostile_names(void **state)
{
	(void)state;
	processes[2].name = "a\"} 1\nneap_up 0\\\033[2J\xff\xe2\x80\xae\xc3\xa9";
	processes[2].account.bytes = 1;
	assert_true(has("neap_process_used_bytes{gpu=\"1\",UUID=\"GPU-b\",pid=\"9\",user=\"bob\","
			"name=\"a\\\"} 1?neap_up 0\\\\?[2J??\xc3\xa9\",run=\"\"} 1"));
	assert_int_equal(count("\nneap_up"), 1);
}

int main(void)
{
	const struct CMUnitTest tests[] = {
		cmocka_unit_test_setup(test_values, make),        cmocka_unit_test_setup(test_order_of_runs, make),
		cmocka_unit_test_setup(test_unknown, make),       cmocka_unit_test_setup(test_form, make),
		cmocka_unit_test_setup(test_hostile_names, make),
	};
	return cmocka_run_group_tests(tests, NULL, NULL);
}
