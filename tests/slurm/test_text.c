/* Output of Slurm's commands: good lines, and lines that no such command prints. */
#include "slurm/text.h"

#include "support/test.h"

#include <stdio.h>
#include <stdlib.h>
#include <string.h>

/* Parses a copy without anything behind its end, so that a sanitizer sees reads past it. */
static enum neap_status parse(const char *line, uint32_t *job, uint32_t *task)
{
	size_t length = strlen(line);
	char *copy = malloc(length ? length : 1);
	assert_non_null(copy);
	memcpy(copy, line, length);
	enum neap_status status = neap_slurm_squeue_line(copy, length, job, task);
	free(copy);
	return status;
}

static void test_squeue(void **state)
{
	(void)state;
	static const struct {
		const char *line;
		enum neap_status status;
		uint32_t job, task;
	} rows[] = {
		{"12_3", NEAP_OK, 12, 3},
		{"12_0", NEAP_OK, 12, 0},
		{"4294967295_4294967295", NEAP_OK, UINT32_MAX, UINT32_MAX},
		{"12_N/A", NEAP_ENOENT},
		{"", NEAP_EPARSE},
		{"12", NEAP_EPARSE},
		{"12_", NEAP_EPARSE},
		{"12_[3-4]", NEAP_EPARSE},
		{"12_3-4%2", NEAP_EPARSE},
		{"_3", NEAP_EPARSE},
		{"-1_3", NEAP_EPARSE},
		{" 12_3", NEAP_EPARSE},
		{"4294967296_3", NEAP_EPARSE},
		{"99999999999999999999_3", NEAP_EPARSE},
		{"12_3x", NEAP_EPARSE},
		{"12_3_4", NEAP_EPARSE},
		{"12_N/A ", NEAP_EPARSE},
		{"slurm_load_jobs error: Unable to contact slurm controller", NEAP_EPARSE},
	};
	for (size_t i = 0; i < sizeof rows / sizeof *rows; i++) {
		uint32_t job = 77, task = 77;
		enum neap_status status = parse(rows[i].line, &job, &task);
		if (status != rows[i].status || job != (status ? 77 : rows[i].job) ||
		    task != (status ? 77 : rows[i].task))
			fail_msg("'%s' gave %s, %u_%u", rows[i].line, neap_status_name(status), job, task);
	}
}

static void test_sbatch(void **state)
{
	(void)state;
	static const struct {
		const char *text;
		uint32_t job; /* 0: refused */
	} rows[] = {
		{"12\n", 12},
		{"12", 12},
		{"12;cluster\n", 12},
		{"Welcome to the cluster!\n\n4294967295\n", UINT32_MAX},
		{"", 0},
		{"\n", 0},
		{"0\n", 0},
		{"-1\n", 0},
		{"12 13\n", 0},
		{"12_3\n", 0},
		{"4294967296\n", 0},
		{"Submitted batch job 12\n", 0},
		{"12\nBye\n", 0},
		{";12\n", 0},
	};
	for (size_t i = 0; i < sizeof rows / sizeof *rows; i++) {
		struct neap_error err = {0};
		uint32_t job = 0;
		enum neap_status status = neap_slurm_sbatch_answer(rows[i].text, strlen(rows[i].text), &job, &err);
		if (job != rows[i].job || status != (rows[i].job ? NEAP_OK : NEAP_EPROTO))
			fail_msg("'%s' gave %s, %u", rows[i].text, neap_status_name(status), job);
	}
	struct neap_error err = {0};
	uint32_t job;
	neap_slurm_sbatch_answer("\033]0;x", 5, &job, &err);
	assert_string_equal(err.message, "sbatch answered '?]0;x', expected the number of a job");
}

static void test_max_array(void **state)
{
	(void)state;
	static const char good[] =
		"Configuration data as of 2026\nMaxArraySizeX = 5\nMaxArraySize            = 1001\nx\n";
	uint32_t size = 0;
	assert_int_equal(neap_slurm_max_array(good, sizeof good - 1, &size), NEAP_OK);
	assert_int_equal(size, 1001);
	static const char *const bad[] = {"",
					  "MaxArraySize",
					  "MaxArraySize = \n",
					  "MaxArraySize = many\n",
					  "MaxArraySize = -1\n",
					  "xMaxArraySize = 5\n"};
	for (size_t i = 0; i < sizeof bad / sizeof *bad; i++)
		assert_int_equal(neap_slurm_max_array(bad[i], strlen(bad[i]), &size), NEAP_EPARSE);
	assert_int_equal(size, 1001);
}

#define STEPD "slurmstepd-n1: error: *** JOB 5 ON n1 CANCELLED AT 2026-11-21T07:57:38"

static void test_last_words(void **state)
{
	(void)state;
	static const struct {
		const char *text;
		enum neap_slurm_cause cause;
	} rows[] = {
		{"", NEAP_SLURM_UNTOLD},
		{"neap series: task 5_1 runs e in /s/runs/e-1\n", NEAP_SLURM_UNTOLD},
		{STEPD " ***\n", NEAP_SLURM_CANCELLED},
		{STEPD " DUE TO TIME LIMIT ***\n", NEAP_SLURM_TIMEOUT},
		{STEPD " DUE TO PREEMPTION ***\n", NEAP_SLURM_TAKEN_BACK},
		{STEPD " DUE TO NODE FAILURE, SEE SLURMCTLD LOG FOR DETAILS ***", NEAP_SLURM_TAKEN_BACK},
		{"slurmstepd: error: Detected 1 oom-kill event(s) in StepId=5.batch. Some of your processes may have "
		 "been "
		 "killed by the cgroup out-of-memory handler.\n",
		 NEAP_SLURM_OUT_OF_MEMORY},
		/* the last one counts: the task was requeued before */
		{STEPD " DUE TO JOB REQUEUE ***\n" STEPD " DUE TO TIME LIMIT ***\n", NEAP_SLURM_TIMEOUT},
		/* and only after the task began its attempt */
		{STEPD " DUE TO JOB REQUEUE ***\nneap series: task 5_1 runs e in /s/runs/e-2\n", NEAP_SLURM_UNTOLD},
		{"my own DUE TO TIME LIMIT\n", NEAP_SLURM_UNTOLD},
	};
	for (size_t i = 0; i < sizeof rows / sizeof *rows; i++)
		if (neap_slurm_last_cause(rows[i].text, strlen(rows[i].text)) != rows[i].cause)
			fail_msg("row %zu: %s", i, rows[i].text);
}

/* Any bytes at all: no reading past the end, and no job of 0 from sbatch. */
static void test_any_bytes(void **state)
{
	(void)state;
	uint64_t random = 20261121;
	static const char alphabet[] = "0123456789|_;[]-% ANPRU\n=\033\0x";
	for (int round = 0; round < 20000; round++) {
		size_t length = (random >> 33) % 40;
		char *text = malloc(length + 1);
		assert_non_null(text);
		for (size_t i = 0; i < length; i++) {
			random = random * 6364136223846793005ull + 1442695040888963407ull;
			text[i] = alphabet[(random >> 33) % (sizeof alphabet - 1)];
		}
		random = random * 6364136223846793005ull + 1442695040888963407ull;
		char *exact = realloc(text, length ? length : 1);
		uint32_t number = 1, task;
		neap_slurm_squeue_line(exact, length, &number, &task);
		neap_slurm_max_array(exact, length, &number);
		neap_slurm_last_cause(exact, length);
		number = 1;
		neap_slurm_sbatch_answer(exact, length, &number, NULL);
		assert_int_not_equal(number, 0);
		free(exact);
	}
}

int main(void)
{
	const struct CMUnitTest tests[] = {
		cmocka_unit_test(test_squeue),     cmocka_unit_test(test_sbatch),    cmocka_unit_test(test_max_array),
		cmocka_unit_test(test_last_words), cmocka_unit_test(test_any_bytes),
	};
	return cmocka_run_group_tests(tests, NULL, NULL);
}
