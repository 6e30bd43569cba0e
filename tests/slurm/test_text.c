/* What Slurm's commands print: good lines, and everything that no such command prints. */
#include "series/slurm_text.h"

#include <setjmp.h>
#include <stdarg.h>
#include <stdint.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#include <cmocka.h>

typedef enum neap_status parse_line(const char *line, size_t length, struct neap_slurm_seen *ret_seen);

/* Parses a copy without anything behind its end, so that a sanitizer sees what reads past it. */
static enum neap_status parse(parse_line *parse_one, const char *line, struct neap_slurm_seen *seen)
{
	size_t length = strlen(line);
	char *copy = malloc(length ? length : 1);
	assert_non_null(copy);
	memcpy(copy, line, length);
	enum neap_status status = parse_one(copy, length, seen);
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
		enum neap_slurm_state state;
		const char *reason, *nodes;
	} rows[] = {
		{"12|3|RUNNING|None|n17", NEAP_OK, 12, 3, NEAP_SLURM_RUNNING, "", "n17"},
		{"12|3|PENDING|JobArrayTaskLimit|", NEAP_OK, 12, 3, NEAP_SLURM_PENDING, "JobArrayTaskLimit", ""},
		{"12|0|COMPLETING|(null)|n[1-2]", NEAP_OK, 12, 0, NEAP_SLURM_RUNNING, "", "n[1-2]"},
		{"1|1|COMPLETED|None|n", NEAP_OK, 1, 1, NEAP_SLURM_COMPLETED, "", "n"},
		{"1|1|FAILED|NonZeroExitCode|n", NEAP_OK, 1, 1, NEAP_SLURM_FAILED, "NonZeroExitCode", "n"},
		{"1|1|TIMEOUT|TimeLimit|n", NEAP_OK, 1, 1, NEAP_SLURM_TIMEOUT, "TimeLimit", "n"},
		{"1|1|DEADLINE||", NEAP_OK, 1, 1, NEAP_SLURM_TIMEOUT, "", ""},
		{"1|1|OUT_OF_MEMORY||", NEAP_OK, 1, 1, NEAP_SLURM_OUT_OF_MEMORY, "", ""},
		{"1|1|CANCELLED||", NEAP_OK, 1, 1, NEAP_SLURM_CANCELLED, "", ""},
		{"1|1|PREEMPTED||", NEAP_OK, 1, 1, NEAP_SLURM_PREEMPTED, "", ""},
		{"1|1|NODE_FAIL||", NEAP_OK, 1, 1, NEAP_SLURM_NODE_FAIL, "", ""},
		{"1|1|BOOT_FAIL||", NEAP_OK, 1, 1, NEAP_SLURM_NODE_FAIL, "", ""},
		{"1|1|REQUEUE_HOLD||", NEAP_OK, 1, 1, NEAP_SLURM_PENDING, "", ""},
		/* a state of a Slurm to come: not over, as far as we know */
		{"1|1|MEDITATING||", NEAP_OK, 1, 1, NEAP_SLURM_RUNNING, "", ""},
		{"4294967295|4294967295|RUNNING||", NEAP_OK, UINT32_MAX, UINT32_MAX, NEAP_SLURM_RUNNING, "", ""},
		{"1|1|PENDING|a\033[31mb\tc|n|m", NEAP_OK, 1, 1, NEAP_SLURM_PENDING, "a?[31mb?c", "n|m"},
		{"12|N/A|RUNNING|None|n", NEAP_ENOENT},
		{"", NEAP_EPARSE},
		{"12|3|RUNNING|None", NEAP_EPARSE},
		{"12|[3-4]|PENDING|None|", NEAP_EPARSE},
		{"12|3-4%2|PENDING|None|", NEAP_EPARSE},
		{"|3|RUNNING|None|n", NEAP_EPARSE},
		{"-1|3|RUNNING|None|n", NEAP_EPARSE},
		{" 12|3|RUNNING|None|n", NEAP_EPARSE},
		{"4294967296|3|RUNNING|None|n", NEAP_EPARSE},
		{"99999999999999999999|3|RUNNING|None|n", NEAP_EPARSE},
		{"12|3x|RUNNING|None|n", NEAP_EPARSE},
		{"12|3||None|n", NEAP_EPARSE},
		{"12|3|running|None|n", NEAP_EPARSE},
		{"12|3|RUNNING!|None|n", NEAP_EPARSE},
		{"slurm_load_jobs error: Unable to contact slurm controller", NEAP_EPARSE},
	};
	for (size_t i = 0; i < sizeof rows / sizeof *rows; i++) {
		struct neap_slurm_seen seen = {.job = 77};
		enum neap_status status = parse(neap_slurm_squeue_line, rows[i].line, &seen);
		if (status != rows[i].status ||
		    (status ? seen.job != 77
			    : seen.job != rows[i].job || seen.task != rows[i].task || seen.state != rows[i].state ||
				      strcmp(seen.reason, rows[i].reason) || strcmp(seen.nodes, rows[i].nodes)))
			fail_msg("'%s' gave %s, %u_%u %s '%s' '%s'", rows[i].line, neap_status_name(status), seen.job,
				 seen.task, neap_slurm_state_name(seen.state), seen.reason, seen.nodes);
	}
}

static void test_long_words(void **state)
{
	(void)state;
	char line[300] = "1|2|RUNNING|";
	struct neap_slurm_seen seen;
	memset(line + strlen(line), 'r', 100);
	strcat(line, "|");
	memset(line + strlen(line), 'n', 100);
	assert_int_equal(parse(neap_slurm_squeue_line, line, &seen), NEAP_OK);
	assert_int_equal(strlen(seen.reason), NEAP_SLURM_WORD_ROOM - 1);
	assert_int_equal(strlen(seen.nodes), NEAP_SLURM_WORD_ROOM - 1);
}

static void test_sacct(void **state)
{
	(void)state;
	static const struct {
		const char *line;
		enum neap_status status;
		enum neap_slurm_state state;
	} rows[] = {
		{"12_3|COMPLETED|n17", NEAP_OK, NEAP_SLURM_COMPLETED},
		{"12_3|CANCELLED by 1000|None assigned", NEAP_OK, NEAP_SLURM_CANCELLED},
		{"12_3|CANCELLED+|n", NEAP_OK, NEAP_SLURM_CANCELLED},
		{"12_3|TIMEOUT|n", NEAP_OK, NEAP_SLURM_TIMEOUT},
		{"12_[4-7]|PENDING|None assigned", NEAP_ENOENT},
		{"12|COMPLETED|n", NEAP_ENOENT},
		{"12_3.batch|COMPLETED|n", NEAP_EPARSE},
		{"12_|COMPLETED|n", NEAP_EPARSE},
		{"_3|COMPLETED|n", NEAP_EPARSE},
		{"x|COMPLETED|n", NEAP_EPARSE},
		{"12_3|COMPLETED", NEAP_EPARSE},
		{"12_3||n", NEAP_EPARSE},
		{"Slurm accounting storage is disabled", NEAP_EPARSE},
	};
	for (size_t i = 0; i < sizeof rows / sizeof *rows; i++) {
		struct neap_slurm_seen seen = {0};
		enum neap_status status = parse(neap_slurm_sacct_line, rows[i].line, &seen);
		if (status != rows[i].status ||
		    (!status && (seen.job != 12 || seen.task != 3 || seen.state != rows[i].state)))
			fail_msg("'%s' gave %s, %s", rows[i].line, neap_status_name(status),
				 neap_slurm_state_name(seen.state));
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
		enum neap_slurm_state state;
	} rows[] = {
		{"", NEAP_SLURM_GONE},
		{"neap series: attempt 1 of e was withdrawn: nothing to do\n", NEAP_SLURM_GONE},
		{STEPD " ***\n", NEAP_SLURM_CANCELLED},
		{STEPD " DUE TO TIME LIMIT ***\n", NEAP_SLURM_TIMEOUT},
		{STEPD " DUE TO PREEMPTION ***\n", NEAP_SLURM_PREEMPTED},
		{STEPD " DUE TO NODE FAILURE, SEE SLURMCTLD LOG FOR DETAILS ***", NEAP_SLURM_NODE_FAIL},
		{"slurmstepd: error: Detected 1 oom-kill event(s) in StepId=5.batch. Some of your processes may have "
		 "been "
		 "killed by the cgroup out-of-memory handler.\n",
		 NEAP_SLURM_OUT_OF_MEMORY},
		/* the last one counts: the task was requeued before */
		{STEPD " DUE TO JOB REQUEUE ***\n" STEPD " DUE TO TIME LIMIT ***\n", NEAP_SLURM_TIMEOUT},
		{"my own DUE TO TIME LIMIT\n", NEAP_SLURM_GONE},
	};
	for (size_t i = 0; i < sizeof rows / sizeof *rows; i++)
		if (neap_slurm_last_words(rows[i].text, strlen(rows[i].text)) != rows[i].state)
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
		struct neap_slurm_seen seen;
		uint32_t number = 1;
		neap_slurm_squeue_line(exact, length, &seen);
		neap_slurm_sacct_line(exact, length, &seen);
		neap_slurm_max_array(exact, length, &number);
		neap_slurm_last_words(exact, length);
		number = 1;
		neap_slurm_sbatch_answer(exact, length, &number, NULL);
		assert_int_not_equal(number, 0);
		free(exact);
	}
}

int main(void)
{
	const struct CMUnitTest tests[] = {
		cmocka_unit_test(test_squeue),    cmocka_unit_test(test_long_words),
		cmocka_unit_test(test_sacct),     cmocka_unit_test(test_sbatch),
		cmocka_unit_test(test_max_array), cmocka_unit_test(test_last_words),
		cmocka_unit_test(test_any_bytes),
	};
	return cmocka_run_group_tests(tests, NULL, NULL);
}
