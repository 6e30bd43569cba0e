/* The ladder of --on-oom: its grammar, its steps, and its invariants for any numbers. */
#include "run/auto_ladder.h"

#include "base/units.h"
#include "support/test.h"

#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <time.h>
#include <unistd.h>

static struct neap_parameters parameters(const char *const *texts)
{
	struct neap_parameters made = {0};
	for (; *texts; texts++)
		assert_int_equal(neap_parameters_add(&made, *texts, NULL), NEAP_OK);
	return made;
}

static const char *const usual[] = {"micro_batch=32", "accumulate=1", "ckpt=off", "dtype=fp32", NULL};

static void test_walk(void **state)
{
	(void)state;
	struct neap_parameters now = parameters(usual), first = now;
	struct neap_ladder ladder;
	struct neap_error err = {0};
	size_t rung = 0;
	const char *rules = " halve micro_batch ,double accumulate; enable ckpt, set dtype = bf16 ;set micro_batch=1";
	assert_int_equal(neap_ladder_parse(rules, &now, &ladder, &err), NEAP_OK);
	assert_int_equal(ladder.count, 3);
	const char *expected[] = {
		"micro_batch=16 accumulate=2 ckpt=off dtype=fp32", "micro_batch=8 accumulate=4 ckpt=off dtype=fp32",
		"micro_batch=4 accumulate=8 ckpt=off dtype=fp32",  "micro_batch=2 accumulate=16 ckpt=off dtype=fp32",
		"micro_batch=1 accumulate=32 ckpt=off dtype=fp32", "micro_batch=1 accumulate=32 ckpt=on dtype=bf16",
	};
	for (size_t i = 0; i < sizeof expected / sizeof *expected; i++) {
		struct neap_buffer text = {0};
		assert_true(neap_ladder_descend(&ladder, &now, &rung));
		neap_parameters_text(&now, &text);
		assert_string_equal(neap_buffer_string(&text), expected[i]);
		neap_buffer_fini(&text);
	}
	assert_false(neap_ladder_descend(&ladder, &now, &rung)); /* micro_batch is 1 already */
	struct neap_buffer text = {0};
	neap_parameters_difference(&first, &now, &text);
	assert_string_equal(neap_buffer_string(&text),
			    "micro_batch 32 -> 1, accumulate 1 -> 32, ckpt off -> on, dtype fp32 -> bf16");
	neap_buffer_fini(&text);
}

static void test_odd_is_skipped(void **state)
{
	(void)state;
	struct neap_parameters now = parameters((const char *const[]){"b=6", "a=1", "n=0", NULL});
	struct neap_ladder ladder;
	size_t rung = 0;
	assert_int_equal(neap_ladder_parse("halve b, double a; enable n", &now, &ladder, NULL), NEAP_OK);
	assert_true(neap_ladder_descend(&ladder, &now, &rung));
	assert_string_equal(neap_parameters_get(&now, "b"), "3");
	assert_true(neap_ladder_descend(&ladder, &now, &rung)); /* 3 is odd: the whole rung is skipped */
	assert_string_equal(neap_parameters_get(&now, "b"), "3");
	assert_string_equal(neap_parameters_get(&now, "a"), "2");
	assert_string_equal(neap_parameters_get(&now, "n"), "1");
	assert_false(neap_ladder_descend(&ladder, &now, &rung));
}

static void test_bad_rules(void **state)
{
	(void)state;
	static const struct {
		const char *rules;
		unsigned column;
		const char *says;
	} cases[] = {
		{"", 1, "expected a verb (halve, double, set or enable), found the end"},
		{"half micro_batch", 1, "found 'half'"},
		{"halve", 6, "expected the name of a parameter, found the end"},
		{"halve micro_batch,", 19, "expected a verb"},
		{"halve micro_batch;", 19, "expected a verb"},
		{"halve micro_batch double accumulate", 19, "expected ',', ';' or the end, found 'double'"},
		{"halve batch", 7, "there is no parameter 'batch'"},
		{"halve dtype", 7, "must be a whole number from 1, not 'fp32'"},
		{"enable dtype", 8, "must be 0, false, off or no, not 'fp32'"},
		{"set dtype", 10, "expected '=' and a value, found the end"},
		{"set dtype=", 11, "expected a value"},
		{"halve micro_batch, halve micro_batch", 37, "changed twice"},
		{"halve 9", 7, "expected the name of a parameter, found '9'"},
		{"set dtype=a b", 13, "expected ',', ';' or the end, found 'b'"},
	};
	struct neap_parameters now = parameters(usual);
	for (size_t i = 0; i < sizeof cases / sizeof *cases; i++) {
		struct neap_ladder ladder = {.count = 77};
		struct neap_error err = {0};
		assert_int_equal(neap_ladder_parse(cases[i].rules, &now, &ladder, &err), NEAP_EPARSE);
		if (err.column != cases[i].column || !strstr(err.message, cases[i].says))
			fail_msg("'%s': column %u, %s", cases[i].rules, err.column, err.message);
		assert_int_equal(ladder.count, 77);
	}
	struct neap_buffer many = {0};
	for (int i = 0; i < NEAP_LADDER_RUNGS + 1; i++)
		neap_buffer_format(&many, "%sset dtype=%d", i ? ";" : "", i);
	struct neap_ladder ladder;
	assert_int_equal(neap_ladder_parse(neap_buffer_string(&many), &now, &ladder, NULL), NEAP_EPARSE);
	neap_buffer_fini(&many);
}

static void test_bad_parameters(void **state)
{
	(void)state;
	struct neap_parameters made = {0};
	assert_int_equal(neap_parameters_add(&made, "a=1", NULL), NEAP_OK);
	assert_int_equal(neap_parameters_add(&made, "a=2", NULL), NEAP_EEXIST);
	assert_int_equal(neap_parameters_add(&made, "=2", NULL), NEAP_EPARSE);
	assert_int_equal(neap_parameters_add(&made, "b", NULL), NEAP_EPARSE);
	assert_int_equal(neap_parameters_add(&made, "b c=1", NULL), NEAP_EPARSE);
	assert_int_equal(neap_parameters_add(&made, "9=1", NULL), NEAP_EPARSE);
	assert_int_equal(neap_parameters_add(&made, "b=", NULL), NEAP_OK);
	assert_int_equal(made.count, 2);
	char name[16];
	for (int i = 2; i < NEAP_PARAMETERS; i++) {
		snprintf(name, sizeof name, "p%d=x", i);
		assert_int_equal(neap_parameters_add(&made, name, NULL), NEAP_OK);
	}
	assert_int_equal(neap_parameters_add(&made, "more=x", NULL), NEAP_EINVAL);
}

static void expand(const char *word, const char *expected)
{
	struct neap_parameters made = parameters((const char *const[]){"a=1", "long-name.x=two words", "e=", NULL});
	struct neap_buffer out = {0};
	struct neap_error err = {0};
	enum neap_status status = neap_parameters_expand(&made, word, &out, &err);
	if (!expected)
		assert_int_equal(status, NEAP_EINVAL);
	else if (status || strcmp(neap_buffer_string(&out), expected))
		fail_msg("%s -> %s (%s)", word, neap_buffer_string(&out), err.message);
	neap_buffer_fini(&out);
}

static void test_expand(void **state)
{
	(void)state;
	expand("--a={a}{a}", "--a=11");
	expand("{long-name.x}", "two words");
	expand("[{e}]", "[]");
	expand("", "");
	expand("{}", "{}");
	expand("{ a }", "{ a }");
	expand("{\"a\":1}", "{\"a\":1}");
	expand("{a", "{a");
	expand("{{a}}", "{a}");
	expand("{{a}", "{1");
	expand("${a} ${HOME}", "${a} ${HOME}");
	expand("{{{a}}}", "{{a}}");
	expand("{b}", NULL);
	expand("{A}", NULL);
}

/* From any start: the product never changes, the micro-batch only falls, and the ladder ends soon. */
static void test_effective_batch_is_kept(void **state)
{
	(void)state;
	unsigned seed = (unsigned)time(NULL);
	print_message("seed %u\n", seed);
	srand(seed);
	for (int round = 0; round < 2000; round++) {
		char micro[48], accumulate[48];
		uint64_t m = 1 + (uint64_t)rand() % 5000, a = 1 + (uint64_t)rand() % 64, last = m;
		snprintf(micro, sizeof micro, "m=%llu", (unsigned long long)m);
		snprintf(accumulate, sizeof accumulate, "a=%llu", (unsigned long long)a);
		struct neap_parameters now = parameters((const char *const[]){micro, accumulate, NULL});
		struct neap_ladder ladder;
		size_t rung = 0;
		int steps = 0;
		assert_int_equal(neap_ladder_parse("halve m, double a", &now, &ladder, NULL), NEAP_OK);
		while (neap_ladder_descend(&ladder, &now, &rung)) {
			uint64_t got_m = 0, got_a = 0;
			assert_int_equal(neap_u64_parse(neap_parameters_get(&now, "m"), &got_m, NULL), NEAP_OK);
			assert_int_equal(neap_u64_parse(neap_parameters_get(&now, "a"), &got_a, NULL), NEAP_OK);
			assert_true(got_m * got_a == m * a);
			assert_true(got_m >= 1 && got_m < last);
			last = got_m;
			assert_true(++steps < 14);
		}
		assert_true(last % 2 == 1);
	}
}

static void test_double_has_an_end(void **state)
{
	(void)state;
	struct neap_parameters now = parameters((const char *const[]){"a=1", NULL});
	struct neap_ladder ladder;
	size_t rung = 0, steps = 0;
	assert_int_equal(neap_ladder_parse("double a", &now, &ladder, NULL), NEAP_OK);
	while (neap_ladder_descend(&ladder, &now, &rung))
		assert_true(++steps < 64);
	assert_string_equal(neap_parameters_get(&now, "a"), "4611686018427387904");
}

/* The command that --on-oom auto makes, as one line, or its failure. */
static void check_auto(char *const *command, const char *made, const char *values)
{
	struct neap_parameters now = {0};
	struct neap_ladder ladder = {0};
	struct neap_argv words = {0};
	struct neap_error err = {0};
	struct neap_buffer line = {0}, expanded = {0};

	enum neap_status status = neap_ladder_auto(command, &now, &ladder, &words, &err);
	if (!values) {
		assert_int_not_equal(status, NEAP_OK);
		assert_non_null(strstr(err.message, made));
		assert_int_equal(now.count, 0);
		return;
	}
	assert_int_equal(status, NEAP_OK);
	for (size_t i = 0; i < words.count; i++) {
		neap_buffer_format(&line, "%s%s", i ? " " : "", words.items[i]);
		neap_buffer_clear(&expanded);
		assert_int_equal(neap_parameters_expand(&now, words.items[i], &expanded, NULL), NEAP_OK);
		if (command[i]) /* at first the command is unchanged */
			assert_string_equal(neap_buffer_string(&expanded), command[i]);
	}
	assert_string_equal(neap_buffer_string(&line), made);
	size_t rung = 0;
	assert_true(neap_ladder_descend(&ladder, &now, &rung));
	neap_buffer_clear(&line);
	neap_parameters_text(&now, &line);
	assert_string_equal(neap_buffer_string(&line), values);
	neap_buffer_fini(&line);
	neap_buffer_fini(&expanded);
	neap_argv_fini(&words);
}

#define COMMAND(...)                                                                                                 \
	(char *[]) { __VA_ARGS__, NULL }

static void test_auto(void **state)
{
	(void)state;
	check_auto(COMMAND("python", "run_clm.py", "--per_device_train_batch_size", "32", "--x={a} {{b}} ${c} {d"),
		   "python run_clm.py --per_device_train_batch_size {per_device_train_batch_size} --x={{a}} {{{b}}} "
		   "${c} "
		   "{d --gradient_accumulation_steps={gradient_accumulation_steps}",
		   "per_device_train_batch_size=16 gradient_accumulation_steps=2");
	check_auto(COMMAND("t", "--gradient-accumulation-steps=3", "--per-device-train-batch-size=8", "-v"),
		   "t --gradient-accumulation-steps={gradient_accumulation_steps} "
		   "--per-device-train-batch-size={per_device_train_batch_size} -v",
		   "per_device_train_batch_size=4 gradient_accumulation_steps=6");
	check_auto(COMMAND("main.py", "fit", "--data.batch_size", "64", "--trainer.accumulate_grad_batches", "1"),
		   "main.py fit --data.batch_size {data.batch_size} --trainer.accumulate_grad_batches "
		   "{trainer.accumulate_grad_batches}",
		   "data.batch_size=32 trainer.accumulate_grad_batches=2");
	check_auto(COMMAND("python", "train.py", "--batch", "32"), "names no batch that neap knows", NULL);
	check_auto(COMMAND("python", "train.py", "--per_device_train_batch_size"), "names no batch that neap knows",
		   NULL);
	check_auto(COMMAND("t", "--data.batch_size=many"), "must be a whole number from 1, not 'many'", NULL);
}

/* Whether a file with this text reports a batch, and by how much it is divided. */
static uint64_t told_parts(const char *text)
{
	char path[] = "/tmp/neap-told-XXXXXX";
	struct neap_parameters asked, now;
	struct neap_ladder ladder;
	struct neap_error err;
	size_t rung = 0;
	int fd = mkstemp(path);

	assert_true(fd >= 0);
	assert_int_equal(write(fd, text, strlen(text)), strlen(text));
	close(fd);
	enum neap_status status = neap_ladder_read_batch(path, &asked, &now, &ladder, &err);
	unlink(path);
	if (status)
		return UINT64_MAX;
	uint64_t parts = neap_ladder_parts(&asked, &now);
	struct neap_buffer line = {0};
	assert_true(neap_ladder_descend(&ladder, &now, &rung));
	neap_parameters_difference(&asked, &now, &line);
	assert_string_equal(neap_buffer_string(&line), "b 32 -> 8, a 1 -> 4");
	neap_buffer_fini(&line);
	return parts;
}

static void test_reads_a_batch(void **state)
{
	(void)state;
	assert_int_equal(told_parts("b=32\na=1\nb=16\na=2\n"), 2);
	assert_int_equal(told_parts(""), UINT64_MAX);
	assert_int_equal(told_parts("b=32\na=1\nb=16\n"), UINT64_MAX);
	assert_int_equal(told_parts("b=32\na=1\nb=16\na=2\nc=1\n"), UINT64_MAX);
	assert_int_equal(told_parts("b=32\na=1\nb=none\na=2\n"), UINT64_MAX);
	assert_int_equal(told_parts("b=32\nb=32\nb=16\na=2\n"), UINT64_MAX);
}

int main(void)
{
	const struct CMUnitTest tests[] = {
		cmocka_unit_test(test_walk),
		cmocka_unit_test(test_odd_is_skipped),
		cmocka_unit_test(test_bad_rules),
		cmocka_unit_test(test_bad_parameters),
		cmocka_unit_test(test_expand),
		cmocka_unit_test(test_effective_batch_is_kept),
		cmocka_unit_test(test_double_has_an_end),
		cmocka_unit_test(test_auto),
		cmocka_unit_test(test_reads_a_batch),
	};
	return cmocka_run_group_tests_name("degrade", tests, NULL, NULL);
}
