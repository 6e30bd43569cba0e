/* Series files: good ones and their meaning; bad ones and their exact errors. */
#include "series/spec.h"

#include "base/file.h"
#include "support/test.h"

#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <unistd.h>

static struct neap_spec parse(const char *text)
{
	struct neap_spec spec = {0};
	struct neap_error err = {0};
	if (neap_spec_parse(text, strlen(text), &spec, &err))
		fail_msg("%u:%u: %s", err.line, err.column, err.message);
	return spec;
}

static void check_words(const struct neap_argv *words, const char *joined)
{
	char *line = neap_argv_join(words);
	assert_string_equal(line, joined);
	free(line);
}

static void test_plain(void **state)
{
	(void)state;
	struct neap_spec spec = parse("name: nightly\n"
				      "experiments:\n"
				      "  - name: a\n"
				      "    command: train --out 'two words' \"it's\" a\\ b {lr}\n"
				      "    needs: 20 GiB\n"
				      "    time_limit: 90\n"
				      "    max_steps: 40\n"
				      "    wait_limit: 2h\n"
				      "    drain_limit: 250ms\n"
				      "    clear_memory_on_start: true\n"
				      "    retries: 3\n"
				      "    retry_failed: 2\n"
				      "    max_device: 7GiB\n"
				      "    directory: /data\n"
				      "    device: GPU-12\n"
				      "    on_oom: halve micro_batch, double accumulate\n"
				      "    params: {micro_batch: 64, accumulate: 0x1, lr: 1e-3}\n"
				      "    env: {A: 1, B: \"x y\"}\n"
				      "  - {name: b, command: [sh, -c, 'echo | cat'], needs: device}\n");
	assert_string_equal(spec.name, "nightly");
	assert_int_equal(spec.count, 2);
	const struct neap_experiment *a = &spec.experiments[0], *b = &spec.experiments[1];
	assert_string_equal(a->name, "a");
	check_words(&a->command, "train --out 'two words' 'it'\\''s' 'a b' {lr}");
	assert_string_equal(a->needs, "20 GiB");
	assert_string_equal(a->time_limit, "90");
	assert_string_equal(a->max_steps, "40");
	assert_string_equal(a->wait_limit, "2h");
	assert_string_equal(a->drain_limit, "250ms");
	assert_string_equal(a->clear_memory_on_start, "true");
	assert_string_equal(a->retries, "3");
	assert_string_equal(a->retry_failed, "2");
	assert_string_equal(a->max_device, "7GiB");
	assert_string_equal(a->directory, "/data");
	assert_string_equal(a->device, "GPU-12");
	assert_string_equal(a->on_oom, "halve micro_batch, double accumulate");
	check_words(&a->params, "micro_batch=64 accumulate=0x1 lr=1e-3"); /* as written, not as understood */
	check_words(&a->env, "A=1 'B=x y'");
	assert_int_equal(a->line, 3);
	assert_string_equal(b->name, "b");
	check_words(&b->command, "sh -c 'echo | cat'");
	assert_string_equal(b->needs, "device");
	assert_null(b->time_limit);
	assert_null(b->on_oom);
	assert_int_equal(b->params.count, 0);
	assert_int_equal(b->line, 19);
	neap_spec_fini(&spec);
}

static void test_defaults(void **state)
{
	(void)state;
	/* They apply wherever they are in the file, and are overridden key by key. */
	struct neap_spec spec = parse("experiments:\n"
				      "- name: a\n"
				      "- name: b\n"
				      "  command: other\n"
				      "  needs: 1MiB\n"
				      "  params: {x: 3, z: 4}\n"
				      "defaults:\n"
				      "  command: [train]\n"
				      "  needs: 2MiB\n"
				      "  retries: 0\n"
				      "  params: &p {x: 1, y: 2}\n"
				      "  env: *p\n"
				      "name: n\n");
	check_words(&spec.experiments[0].command, "train");
	check_words(&spec.experiments[0].params, "x=1 y=2");
	check_words(&spec.experiments[0].env, "x=1 y=2");
	assert_string_equal(spec.experiments[0].needs, "2MiB");
	check_words(&spec.experiments[1].command, "other");
	check_words(&spec.experiments[1].params, "x=3 y=2 z=4");
	assert_string_equal(spec.experiments[1].needs, "1MiB");
	assert_string_equal(spec.experiments[1].retries, "0");
	neap_spec_fini(&spec);
}

static void test_grid(void **state)
{
	(void)state;
	struct neap_spec spec = parse("name: n\n"
				      "experiments:\n"
				      "- name: s\n"
				      "  command: train {lr} {data}\n"
				      "  params: {lr: 9, seed: 1}\n"
				      "  grid: {lr: [0.1, 0.01], data: [a/b, c]}\n"
				      "- {name: last, command: x}\n");
	static const char *const names[] = {"s-lr=0.1-data=a_b", "s-lr=0.1-data=c", "s-lr=0.01-data=a_b",
					    "s-lr=0.01-data=c", "last"};
	static const char *const params[] = {"lr=0.1 seed=1 data=a/b", "lr=0.1 seed=1 data=c",
					     "lr=0.01 seed=1 data=a/b", "lr=0.01 seed=1 data=c", ""};
	assert_int_equal(spec.count, 5);
	for (size_t i = 0; i < 5; i++) {
		assert_string_equal(spec.experiments[i].name, names[i]);
		check_words(&spec.experiments[i].params, params[i]);
	}
	neap_spec_fini(&spec);
}

#define HEAD "name: n\nexperiments:\n"

static const struct {
	const char *text;
	const char *complaint; /* LINE:COLUMN: message */
} bad[] = {
#include "bad_specs.h"
};

static void test_bad(void **state)
{
	(void)state;
	for (size_t i = 0; i < sizeof bad / sizeof *bad; i++) {
		struct neap_spec spec = {.count = 77};
		struct neap_error err = {0};
		char complaint[512];
		enum neap_status status = neap_spec_parse(bad[i].text, strlen(bad[i].text), &spec, &err);
		snprintf(complaint, sizeof complaint, "%u:%u: %s", err.line, err.column, err.message);
		if (status != NEAP_EPARSE || strcmp(complaint, bad[i].complaint))
			fail_msg("%zu:\n%s\ngave %s\n     %s\nnot  %s", i, bad[i].text, neap_status_name(status),
				 complaint, bad[i].complaint);
		assert_int_equal(spec.count, 77); /* untouched */
	}
}

static void test_too_many(void **state)
{
	(void)state;
	static const char text[] = HEAD "- name: a\n"
					"  command: x\n"
					"  grid: {a: [1,2,3,4,5,6,7,8,9,0], b: [1,2,3,4,5,6,7,8,9,0],"
					" c: [1,2,3,4,5,6,7,8,9,0], d: [1,2,3,4,5,6,7,8,9,0], e: [1,2]}\n";
	struct neap_spec spec = {0};
	struct neap_error err = {0};
	assert_int_equal(neap_spec_parse(text, sizeof text - 1, &spec, &err), NEAP_EPARSE);
	assert_string_equal(err.message, "experiments: expected at most 10000, grids expanded");
}

static void test_bytes(void **state)
{
	(void)state;
	static const char text[] = "name: n\0m\nexperiments: [{name: a, command: x}]\n";
	struct neap_spec spec = {0};
	struct neap_error err = {0};
	assert_int_equal(neap_spec_parse(text, sizeof text - 1, &spec, &err), NEAP_EPARSE);
	assert_int_equal(neap_spec_parse("name: \"n\\0m\"\n", 13, &spec, &err), NEAP_EPARSE);
	assert_string_equal(err.message, "name: expected a text without zero bytes");
	assert_int_equal(neap_spec_parse(text, 0, &spec, &err), NEAP_EPARSE);
}

static void test_read(void **state)
{
	(void)state;
	char path[] = "/tmp/neap-test-spec-XXXXXX", complaint[256];
	static const char good[] = HEAD "- {name: a, command: x}\n", wrong[] = "name: n\nexperiment: []\n";
	struct neap_spec spec = {0}, again = {0};
	struct neap_error err = {0};
	int fd = mkstemp(path);
	assert_int_not_equal(fd, -1);
	close(fd);
	assert_int_equal(neap_file_write(path, good, sizeof good - 1, NULL), NEAP_OK);
	assert_int_equal(neap_spec_read(path, &spec, &err), NEAP_OK);
	assert_int_equal(spec.hash, neap_spec_hash(good, sizeof good - 1));
	assert_int_not_equal(spec.hash, neap_spec_hash(good, sizeof good - 2));
	neap_spec_fini(&spec);
	assert_int_equal(neap_file_write(path, wrong, sizeof wrong - 1, NULL), NEAP_OK);
	assert_int_equal(neap_spec_read(path, &again, &err), NEAP_EPARSE);
	snprintf(complaint, sizeof complaint,
		 "%s:2:1: series: unknown key 'experiment', expected one of: name, parallel, slurm, defaults, "
		 "experiments",
		 path);
	assert_string_equal(err.message, complaint);
	unlink(path);
	assert_int_equal(neap_spec_read(path, &again, &err), NEAP_ENOENT);
	assert_int_equal(neap_spec_hash("foobar", 6), 0x85944171f73967e8ull); /* the draft's test vector */
}

/* Measurements of one command do not hold for another. */
static void test_key(void **state)
{
	(void)state;
	static const struct {
		const char *experiment;
		bool same;
	} rows[] = {
		{"{name: other, command: train a, params: {x: 1}, env: {E: 2}, needs: 1GiB}", true},
		{"{name: e, command: train b, params: {x: 1}, env: {E: 2}}", false},
		{"{name: e, command: train a b, params: {x: 1}, env: {E: 2}}", false},
		{"{name: e, command: [traina], params: {x: 1}, env: {E: 2}}", false},
		{"{name: e, command: train a, params: {x: 2}, env: {E: 2}}", false},
		{"{name: e, command: train a, params: {x: 1}}", false},
		{"{name: e, command: train a, env: {x: 1, E: 2}}", false},
	};
	char first[NEAP_EXPERIMENT_KEY_CAPACITY] = "", key[NEAP_EXPERIMENT_KEY_CAPACITY], text[256];
	for (size_t i = 0; i <= sizeof rows / sizeof *rows; i++) {
		struct neap_spec spec = {0};
		struct neap_error err = {0};
		snprintf(text, sizeof text, "name: n\nexperiments:\n- %s\n",
			 i ? rows[i - 1].experiment : "{name: e, command: train a, params: {x: 1}, env: {E: 2}}");
		if (neap_spec_parse(text, strlen(text), &spec, &err))
			fail_msg("%s", err.message);
		neap_experiment_key(&spec.experiments[0], i ? key : first);
		if (i && rows[i - 1].same != !strcmp(first, key))
			fail_msg("%s", rows[i - 1].experiment);
		neap_spec_fini(&spec);
	}
	assert_int_equal(strlen(first), NEAP_EXPERIMENT_KEY_CAPACITY - 1);
}

/* Options of --slurm. */
static void test_slurm(void **state)
{
	(void)state;
	static const char text[] = "name: n\nslurm: {partition: 'gpu,long', account: a, qos: q+, gres: 'gpu:a100:1', "
				   "time: 90m, mem: 2GiB, "
				   "cpus: 4, sbatch: [--nice=100, '--comment=a b', --wait-all-nodes=1]}\n"
				   "experiments:\n- {name: a, command: x}\n";
	struct neap_spec spec = {0};
	assert_int_equal(neap_spec_parse(text, sizeof text - 1, &spec, NULL), NEAP_OK);
	assert_string_equal(spec.slurm.partition, "gpu,long");
	assert_string_equal(spec.slurm.account, "a");
	assert_string_equal(spec.slurm.qos, "q+");
	assert_string_equal(spec.slurm.gres, "gpu:a100:1");
	assert_string_equal(spec.slurm.time, "90m");
	assert_string_equal(spec.slurm.mem, "2GiB");
	assert_string_equal(spec.slurm.cpus, "4");
	check_words(&spec.slurm.sbatch, "--nice=100 '--comment=a b' --wait-all-nodes=1");
	assert_false(spec.has_parallel);
	neap_spec_fini(&spec);
}

/* Text that only a shell would expand. */
static void test_expanded(void **state)
{
	(void)state;
	static const char *const rows[][2] = {
		{"x $HOME/a b", "'$HOME/a'"}, {"x \"$DATA\"", "'$DATA'"}, {"x a${B}c", "'${B}c'"},
		{"x $(pwd)", "'$(pwd)'"},     {"x `pwd`", "'`pwd`'"},     {"~", "'~'"},
		{"~/train --x", "'~/train'"}, {"x --out=1 ~me", "'~me'"},
	};
	for (size_t i = 0; i < sizeof rows / sizeof *rows; i++) {
		struct neap_argv words = {0};
		struct neap_error err = {0};
		char expected[256];
		assert_int_equal(neap_argv_split(rows[i][0], &words, &err), NEAP_EPARSE);
		snprintf(expected, sizeof expected,
			 "command: a shell would expand %s, and neap starts commands without one: write out what it "
			 "stands for, write [sh, -c, \"...\"], or put it in '...' to pass it as it is",
			 rows[i][1]);
		assert_string_equal(err.message, expected);
	}
}

static void test_words(void **state)
{
	(void)state;
	static const struct {
		const char *line, *joined;
	} rows[] = {
		{"", ""},
		{"  a\tb\n c ", "a b c"},
		{"a''b \"\" 'x\\y'", "ab '' 'x\\y'"},
		{"\"a\\\"b\\\\c\\n\" \\'", "'a\"b\\c\\n' ''\\'''"},
		{"'|' \"&&\" a|b '$HOME' *", "'|' '&&' 'a|b' '$HOME' '*'"},
		{"\\$HOME \"\\$HOME\" $5 a$ \"~/x\" a~ '`x`' '~'", "'$HOME' '$HOME' '$5' 'a$' '~/x' 'a~' '`x`' '~'"},
	};
	for (size_t i = 0; i < sizeof rows / sizeof *rows; i++) {
		struct neap_argv words = {0}, again = {0};
		struct neap_error err = {0};
		assert_int_equal(neap_argv_split(rows[i].line, &words, &err), NEAP_OK);
		char *line = neap_argv_join(&words);
		assert_string_equal(line, rows[i].joined);
		assert_int_equal(neap_argv_split(line, &again, &err), NEAP_OK); /* joined words read back */
		assert_int_equal(again.count, words.count);
		for (size_t w = 0; w < words.count; w++)
			assert_string_equal(again.items[w], words.items[w]);
		free(line);
		neap_argv_fini(&words);
		neap_argv_fini(&again);
	}
}

int LLVMFuzzerTestOneInput(const uint8_t *data, size_t size);

/* Good and bad files with bytes changed, cut out, doubled: the fuzz target over a generated corpus. */
static void test_fuzz(void **state)
{
	(void)state;
	static const char good[] =
		"name: n\ndefaults: {needs: 2MiB, params: &p {x: 1}, env: *p}\nexperiments:\n"
		"- {name: a, command: [x, \"{x}\", 'y z'], retries: 2, on_oom: double x}\n"
		"- name: b\n  command: \"q 'r s' t\"\n  time_limit: 2h\n  grid: {y: [1, 2], x: [3, 4]}\n";
	const char *given = getenv("NEAP_TEST_SEED");
	unsigned seed = given ? (unsigned)strtoul(given, NULL, 10) : 20261121;
	size_t rows = sizeof bad / sizeof *bad;
	print_message("fuzz seed %u\n", seed);
	for (int i = 0; i < 3000; i++) {
		char text[1024];
		size_t row = (size_t)rand_r(&seed) % (2 * rows);
		const char *from = row < rows ? bad[row].text : good;
		size_t length = strlen(from);
		memcpy(text, from, length);
		for (int change = rand_r(&seed) % 4; change >= 0 && length; change--) {
			size_t at = (size_t)rand_r(&seed) % length, many = 1 + (size_t)rand_r(&seed) % 8;
			if (many > length - at)
				many = length - at;
			switch (rand_r(&seed) % 4) {
			case 0:
				text[at] = (char)rand_r(&seed);
				break;
			case 1:
				text[at] = "\n :{}[]&*-'\"#|>%@~!\t\\"[rand_r(&seed) % 22];
				break;
			case 2:
				memmove(text + at, text + at + many, length - at - many);
				length -= many;
				break;
			default:
				if (length + many < sizeof text) {
					memmove(text + at + many, text + at, length - at);
					length += many;
				}
			}
		}
		LLVMFuzzerTestOneInput((const uint8_t *)text, length);
	}
}

int main(void)
{
	const struct CMUnitTest tests[] = {
		cmocka_unit_test(test_plain), cmocka_unit_test(test_defaults), cmocka_unit_test(test_grid),
		cmocka_unit_test(test_bad),   cmocka_unit_test(test_too_many), cmocka_unit_test(test_bytes),
		cmocka_unit_test(test_read),  cmocka_unit_test(test_slurm),    cmocka_unit_test(test_expanded),
		cmocka_unit_test(test_words), cmocka_unit_test(test_key),      cmocka_unit_test(test_fuzz),
	};
	return cmocka_run_group_tests(tests, NULL, NULL);
}
