/* result.json: a written result is read back; a damaged one is refused with its place, and changes nothing. */
#include "store/result.h"

#include "base/clock.h"
#include "base/file.h"
#include "support/test.h"

#include <math.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <unistd.h>

int LLVMFuzzerTestOneInput(const uint8_t *data, size_t size);

static char folder[TEST_FOLDER_CAPACITY];
static char path[128];

static int set_up(void **state)
{
	(void)state;
	if (make_folder(folder, "result"))
		return -1;
	snprintf(path, sizeof path, "%s/result.json", folder);
	return 0;
}

static int tear_down(void **state)
{
	(void)state;
	unlink(path);
	return rmdir(folder);
}

static void fill(struct neap_result *result)
{
	assert_int_equal(neap_result_init(result, NULL), NEAP_OK);
	assert_int_equal(neap_result_set(&result->name, "b \"quoted\" \xc3\xa9", NULL), NEAP_OK);
	assert_int_equal(neap_result_set(&result->command, "train --x=1\n\ttab", NULL), NEAP_OK);
	assert_int_equal(neap_result_set(&result->oom_card, "line one\nline two\n", NULL), NEAP_OK);
	assert_int_equal(neap_result_set(&result->advice, "micro-batch 9 is the largest", NULL), NEAP_OK);
	assert_int_equal(neap_result_set(&result->not_attached, "process 7", NULL), NEAP_OK);
	assert_int_equal(neap_result_set(&result->simulated, "no kernel ran", NULL), NEAP_OK);
	assert_int_equal(neap_result_set(&result->savings, "mixed precision 1 GiB", NULL), NEAP_OK);
	result->advised_micro_batch = 9;
	result->kept_accumulate = 4;
	result->batch = 35;
	result->outcome = NEAP_OUTCOME_HOST_OOM;
	result->exit_status = 137;
	result->started_wall_ns = 1795000000123456789ull;
	result->peak_device_bytes = INT64_MAX;
	result->attached = true;
	result->retries = UINT32_MAX;
	result->last_loss = 1.0 / 3.0;
	result->leak_bytes_per_step = -2.5e6;
	result->leak_confidence = 0.999;
	result->sample_count = 2;
	result->samples = calloc(2, sizeof *result->samples);
	assert_non_null(result->samples);
	result->samples[0] = (struct neap_result_sample){1, 2, 3, 4};
	result->samples[1] = (struct neap_result_sample){10, 20, 30, UINT64_MAX};
	result->marks = calloc(2, sizeof *result->marks);
	assert_non_null(result->marks);
	result->marks[0] = (struct neap_result_mark){5, 0, "start"};
	result->marks[1] = (struct neap_result_mark){6, 40, "saved \"it\""};
	result->mark_count = 2;
	result->ranks = calloc(2, sizeof *result->ranks);
	assert_non_null(result->ranks);
	result->ranks[0] = (struct neap_result_rank){NEAP_ROLE_RANK, 0, 3, 77, "GPU-x", 5, 6, 7, 8};
	result->ranks[1] = (struct neap_result_rank){NEAP_ROLE_WORKER, UINT64_MAX, UINT64_MAX, 78, "", 0, 0, 0, 0};
	result->rank_count = 2;
}

static void test_round_trip(void **state)
{
	(void)state;
	struct neap_result written, got = {0};
	struct neap_error err = {0};
	fill(&written);
	assert_int_equal(neap_result_write(path, &written, &err), NEAP_OK);
	assert_int_equal(neap_result_read(path, &got, &err), NEAP_OK);
	assert_string_equal(got.name, written.name);
	assert_string_equal(got.command, written.command);
	assert_string_equal(got.oom_card, written.oom_card);
	assert_string_equal(got.advice, written.advice);
	assert_string_equal(got.savings, written.savings);
	assert_string_equal(got.not_attached, "process 7");
	assert_string_equal(got.simulated, "no kernel ran");
	assert_int_equal(got.advised_micro_batch, 9);
	assert_int_equal(got.kept_accumulate, 4);
	assert_int_equal(got.batch, 35);
	assert_string_equal(got.evidence, "");
	assert_int_equal(got.outcome, NEAP_OUTCOME_HOST_OOM);
	assert_int_equal(got.exit_status, 137);
	assert_true(got.started_wall_ns == written.started_wall_ns);
	assert_true(got.peak_device_bytes == INT64_MAX);
	assert_true(got.attached);
	assert_false(got.drained);
	assert_true(got.retries == UINT32_MAX);
	assert_true(got.last_loss == written.last_loss);
	assert_true(got.leak_bytes_per_step == -2.5e6);
	assert_true(got.leak_confidence == 0.999);
	assert_int_equal(got.sample_count, 2);
	assert_memory_equal(got.samples, written.samples, 2 * sizeof *got.samples);
	assert_int_equal(got.mark_count, 2);
	assert_memory_equal(got.marks, written.marks, 2 * sizeof *got.marks);
	assert_int_equal(got.rank_count, 2);
	assert_memory_equal(got.ranks, written.ranks, 2 * sizeof *got.ranks);
	/* A list of runs reads the fields only, and reuses one result for all. */
	struct neap_buffer text = {0};
	written.advised_micro_batch = 10;
	assert_int_equal(neap_result_set(&written.advice, "", NULL), NEAP_OK);
	assert_int_equal(neap_result_format("", &written, &text, NULL), NEAP_OK);
	assert_true(neap_result_read_lines(text.data, &got));
	assert_string_equal(got.command, written.command);
	assert_string_equal(got.name, written.name);
	assert_string_equal(got.advice, "");
	assert_int_equal(got.advised_micro_batch, 10);
	assert_true(got.last_loss == written.last_loss);
	neap_buffer_fini(&text);
	neap_result_fini(&got);
	neap_result_fini(&written);
}

static void test_unknown_loss_and_bad_bytes(void **state)
{
	(void)state;
	struct neap_result written, got = {0};
	assert_int_equal(neap_result_init(&written, NULL), NEAP_OK);
	/* a lone continuation byte, an overlong slash, a surrogate, a cut character */
	assert_int_equal(neap_result_set(&written.command, "a\x80 b\xc0\xaf c\xed\xa0\x80 d\xe2\x82", NULL), NEAP_OK);
	assert_int_equal(neap_result_write(path, &written, NULL), NEAP_OK);
	assert_int_equal(neap_result_read(path, &got, NULL), NEAP_OK);
	assert_true(isnan(got.last_loss));
	assert_string_equal(got.command, "a? b?? c??? d??");
	assert_int_equal(got.sample_count, 0);
	neap_result_fini(&got);
	neap_result_fini(&written);
}

static void test_every_outcome(void **state)
{
	(void)state;
	for (int outcome = 0; outcome < NEAP_OUTCOME_COUNT; outcome++) {
		struct neap_result written, got = {0};
		assert_int_equal(neap_result_init(&written, NULL), NEAP_OK);
		written.outcome = (enum neap_outcome)outcome;
		assert_int_equal(neap_result_write(path, &written, NULL), NEAP_OK);
		assert_int_equal(neap_result_read(path, &got, NULL), NEAP_OK);
		assert_int_equal(got.outcome, outcome);
		neap_result_fini(&got);
		neap_result_fini(&written);
	}
	assert_string_equal(neap_outcome_name((enum neap_outcome)99), "unknown");
}

static void test_figures_beyond_json(void **state)
{
	(void)state;
	struct neap_result written, got = {0};
	fill(&written);
	written.drain_ns = UINT64_MAX;
	written.leak_bytes_per_step = INFINITY;
	written.last_loss = -INFINITY;
	assert_int_equal(neap_result_write(path, &written, NULL), NEAP_OK);
	assert_int_equal(neap_result_read(path, &got, NULL), NEAP_OK);
	assert_true(got.drain_ns == INT64_MAX);
	assert_true(got.leak_bytes_per_step == 0);
	assert_true(isnan(got.last_loss));
	neap_result_fini(&got);
	neap_result_fini(&written);
}

static void test_missing_file(void **state)
{
	(void)state;
	struct neap_result got = {.exit_status = 42};
	struct neap_error err = {0};
	unlink(path);
	assert_int_equal(neap_result_read(path, &got, &err), NEAP_ENOENT);
	assert_int_equal(got.exit_status, 42);
}

/* A good file with one text replaced by another. */
static struct neap_buffer exchange(const char *good, const char *from, const char *to)
{
	const char *place = strstr(good, from);
	if (!place)
		fail_msg("the good file has no %s", from);
	struct neap_buffer text = {0};
	neap_buffer_append(&text, good, (size_t)(place - good));
	neap_buffer_text(&text, to);
	neap_buffer_text(&text, place + strlen(from));
	return text;
}

/* Such a file is refused with an error that names `key` and its line. */
static void refuse(const char *good, const char *from, const char *to, const char *key)
{
	struct neap_buffer bad = exchange(good, from, to);
	assert_int_equal(neap_file_write(path, bad.data, bad.length, NULL), NEAP_OK);
	struct neap_result got = {.exit_status = 42};
	struct neap_error err = {0};
	enum neap_status status = neap_result_read(path, &got, &err);
	if (status != NEAP_EPARSE || got.exit_status != 42 || !err.line || !err.column || !strstr(err.message, key))
		fail_msg("%s -> %s: status %d, line %u, %s", from, to, status, err.line, err.message);
	neap_buffer_fini(&bad);
}

static void test_hostile(void **state)
{
	(void)state;
	struct neap_result result;
	struct neap_buffer good = {0};
	fill(&result);
	assert_int_equal(neap_result_write(path, &result, NULL), NEAP_OK);
	assert_int_equal(neap_file_read(path, 1 << 20, &good, NULL), NEAP_OK);
	neap_result_fini(&result);
	static const char *const cases[][3] = {
		{"\"schema\": 1", "\"schema\": 2", "schema"},
		{"\"schema\": 1", "\"schema\": \"1\"", "schema"},
		{"\"exit_status\": 137", "\"exit_status\": 256", "exit_status"},
		{"\"exit_status\": 137", "\"exit_status\": -1", "exit_status"},
		{"\"exit_status\": 137", "\"exit_status\": 1.5", "exit_status"},
		{"\"retries\": 4294967295", "\"retries\": 4294967296", "retries"},
		{"\"drain_ns\": 0", "\"drain_ns\": -1", "drain_ns"},
		{"\"drain_ns\": 0", "\"drain_ns\": null", "drain_ns"},
		{"\"outcome\": ", "\"outcame\": ", "outcome"},
		{"\"drain_ns\": 0", "\"drain_ns\": 99999999999999999999", "result.json"},
		{"\"drain_ns\": 0", "\"retries\": 0", "result.json"}, /* twice */
		{"\"attached\": true", "\"attached\": 1", "attached"},
		{"\"host oom\"", "\"host\"", "outcome"},
		{"\"host oom\"", "3", "outcome"},
		{"\"leak_confidence\": 0.999", "\"leak_confidence\": 1.001", "leak_confidence"},
		{"\"leak_confidence\": 0.999", "\"leak_confidence\": NaN", "result.json"},
		{"\"leak_bytes_per_step\": -2", "\"leak_bytes_per_step\": \"\", \"x\": -2", "leak_bytes_per_step"},
		{"\"evidence\": \"\"", "\"evidence\": null", "evidence"},
		{"\"evidence\": \"\"", "\"evidence\": \"a\\u0000b\"", "result.json"},
		{"\"evidence\": \"\"", "\"evidence\": \"\xff\"", "result.json"},
		{"[1, 2, 3, 4]", "[1, 2, 3]", "samples"},
		{"[1, 2, 3, 4]", "[1, 2, -3, 4]", "samples"},
		{"[1, 2, 3, 4]", "[1, null, 3, 4]", "samples"},
		{"[1, 2, 3, 4]", "[11, 2, 3, 4]", "samples"},
		{"[[1, 2, 3, 4]", "[7", "samples"},
		{"[5, \"start\", 0]", "[5, \"start\"]", "marks"},
		{"[5, \"start\", 0]", "[5, 7, 0]", "marks"},
		{"[5, \"start\", 0]", "[-5, \"start\", 0]", "marks"},
		{"\"role\": \"rank\"", "\"role\": \"king\"", "ranks"},
		{"\"role\": \"rank\"", "\"role\": 1", "ranks"},
		{"\"pid\": 77", "\"pid\": null", "ranks"},
		{"\"pid\": 77", "\"pip\": 77", "ranks"},
		{"\"local_rank\": 3", "\"local_rank\": -3", "ranks"},
		{"\"GPU-x\"", "7", "ranks"},
		{"\"GPU-x\"",
		 "\"0123456789-"
		 "012345678901234567890123456789012345678901234567890123456789012345678901234567890123456789"
		 "012345678901234567890123456789012345678901234567890123456789012345678901234567890123456789012345678"
		 "9\"",
		 "ranks"},
		{"\"ranks\": [", "\"ranks\": [0, ", "ranks"},
		{"\"ranks\": [", "\"ranks\": 0, \"x\": [", "ranks"},
		{"{", "[{", "result.json"},
	};
	for (size_t i = 0; i < sizeof cases / sizeof *cases; i++)
		refuse(neap_buffer_string(&good), cases[i][0], cases[i][1], cases[i][2]);
	/* cut anywhere: never accepted, never a crash */
	for (size_t length = 0; length + 2 < good.length; length += 7) {
		struct neap_result got = {0};
		struct neap_error err = {0};
		assert_int_equal(neap_file_write(path, good.data, length, NULL), NEAP_OK);
		assert_int_equal(neap_result_read(path, &got, &err), NEAP_EPARSE);
	}
	neap_buffer_fini(&good);
}

/* The reader of lines leaves everything to the parser that neap does not write itself, or that is not simple. */
static void test_lines_refused(void **state)
{
	(void)state;
	struct neap_result result, got;
	struct neap_buffer good = {0};
	fill(&result);
	assert_int_equal(neap_result_init(&got, NULL), NEAP_OK);
	assert_int_equal(neap_result_format("", &result, &good, NULL), NEAP_OK);
	static const char *const cases[][2] = {
		{"\"evidence\": \"\"", "\"evidence\": \"\\u0001\""},
		{"\"evidence\": \"\"", "\"evidence\": \"\\b\""},
		{"\"evidence\": \"\"", "\"evidence\": \"\x01\""},
		{"\"evidence\": \"\"", "\"evidence\": \"\xc3\""},
		{"\"evidence\": \"\"", "\"evidence\": null"},
		{"\"evidence\": \"\",\n \"exit_status\": 137",
		 "\"exit_status\": 137,\n \"evidence\": \"\""}, /* order */
		{",\n \"exit_status\": 137", ""},
		{",\n \"exit_status\"", ", \"exit_status\""},
		{"\"exit_status\": 137", "\"exit_status\": 256"},
		{"\"exit_status\": 137", "\"exit_status\": 0137"},
		{"\"exit_status\": 137", "\"exit_status\": "},
		{"\"retries\": 4294967295", "\"retries\": 4294967296"},
		{"\"drain_ns\": 0", "\"drain_ns\": -1"},
		{"\"drain_ns\": 0", "\"drain_ns\": 0.0"},
		{"\"drain_ns\": 0", "\"drain_ns\": 9223372036854775808"},  /* 2^63 */
		{"\"drain_ns\": 0", "\"drain_ns\": 18446744073709551617"}, /* 2^64 + 1, of 20 digits */
		{"\"leak_confidence\": 0.999", "\"leak_confidence\": 1.5"},
		{"\"leak_confidence\": 0.999", "\"leak_confidence\": -0.5"},
		{"\"leak_confidence\": 0.999", "\"leak_confidence\": null"},
		{"\"leak_confidence\": 0.999", "\"leak_confidence\": 1e999"},
		{"\"attached\": true", "\"attached\": 1"},
		{"\"host oom\"", "\"host\""},
		{"\"schema\": 1", "\"schema\": 2"},
		{"\"samples\": [", "\"samples\": 0, \"x\": ["},
	};
	assert_true(neap_result_read_lines(neap_buffer_string(&good), &got));
	for (size_t i = 0; i < sizeof cases / sizeof *cases; i++) {
		struct neap_buffer bad = exchange(neap_buffer_string(&good), cases[i][0], cases[i][1]);
		if (neap_result_read_lines(neap_buffer_string(&bad), &got))
			fail_msg("%s -> %s was read", cases[i][0], cases[i][1]);
		neap_buffer_fini(&bad);
	}
	neap_buffer_fini(&good);
	neap_result_fini(&got);
	neap_result_fini(&result);
}

/* Fields that another version did not write are zero or empty. */
static void test_missing_keys(void **state)
{
	static const char text[] = "{\"schema\": 1, \"outcome\": \"oom\", \"of another version\": 7}";
	(void)state;
	struct neap_result got = {0};
	assert_int_equal(neap_file_write(path, text, strlen(text), NULL), NEAP_OK);
	assert_int_equal(neap_result_read(path, &got, NULL), NEAP_OK);
	assert_int_equal(got.outcome, NEAP_OUTCOME_OOM);
	assert_string_equal(got.advice, "");
	assert_int_equal(got.micro_batch, 0);
	assert_true(isnan(got.last_loss));
	assert_int_equal(got.sample_count + got.mark_count + got.rank_count, 0);
	neap_result_fini(&got);
}

/* The fuzz target over a good file with bytes changed, cut out, and replaced by values that JSON readers stumble
 * over. */
static void test_fuzz(void **state)
{
	static const char *const tokens[] = {
		"null", "-1",    "1e999", "\\u0000", "\"",      "[[[[", "}",  "9223372036854775808",
		"0.5",  "false", "{}",    "\xff",    "\\ud800", "256",  "\n", ",,"};
	(void)state;
	struct neap_result result;
	struct neap_buffer good = {0};
	uint64_t seed = test_seed();
	fill(&result);
	assert_int_equal(neap_result_write(path, &result, NULL), NEAP_OK);
	neap_result_fini(&result);
	assert_int_equal(neap_file_read(path, 1 << 20, &good, NULL), NEAP_OK);
	LLVMFuzzerTestOneInput((const uint8_t *)good.data, good.length);
	for (int round = 0; round < 2000; round++) {
		char *copy = malloc(good.length + 64);
		assert_non_null(copy);
		memcpy(copy, good.data, good.length);
		size_t length = round % 16 ? good.length : next_random(&seed) % good.length;
		for (uint64_t changes = 1 + next_random(&seed) % 3; changes > 0 && length > 64; changes--) {
			size_t at = next_random(&seed) % (length - 32);
			const char *token = tokens[next_random(&seed) % (sizeof tokens / sizeof *tokens)];
			switch (next_random(&seed) % 3) {
			case 0:
				copy[at] ^= (char)(1u << next_random(&seed) % 8);
				break;
			case 1: /* where a value begins */
				while (at < length - 32 && copy[at] != ':')
					at++;
				memcpy(copy + at + 1, token, strlen(token));
				break;
			default:
				memmove(copy + at, copy + at + 8, length - at - 8);
				length -= 8;
			}
		}
		/* A copy of the exact size, so that a sanitizer sees a read beyond it. */
		copy = realloc(copy, length + 1);
		assert_non_null(copy);
		LLVMFuzzerTestOneInput((const uint8_t *)copy, length);
		free(copy);
	}
	neap_buffer_fini(&good);
}

int main(void)
{
	const struct CMUnitTest tests[] = {
		cmocka_unit_test(test_round_trip),    cmocka_unit_test(test_unknown_loss_and_bad_bytes),
		cmocka_unit_test(test_every_outcome), cmocka_unit_test(test_figures_beyond_json),
		cmocka_unit_test(test_missing_file),  cmocka_unit_test(test_hostile),
		cmocka_unit_test(test_fuzz),          cmocka_unit_test(test_missing_keys),
		cmocka_unit_test(test_lines_refused),
	};
	return cmocka_run_group_tests_name("result", tests, set_up, tear_down);
}
