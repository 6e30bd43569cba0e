/* Files of metrics: what is read, and the place of what cannot be read. */
#include "checkpoint/sidecar.h"

#include "support/test.h"

#include <math.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

int LLVMFuzzerTestOneInput(const uint8_t *data, size_t size); /* fuzz/fuzz_sidecar.c */

struct seen {
	char text[256];
};

static void see(void *context, const char *word, unsigned depth, double value)
{
	struct seen *seen = context;
	size_t used = strlen(seen->text);

	snprintf(seen->text + used, sizeof seen->text - used, "%s%s/%u=%g", used ? " " : "", word, depth, value);
}

static enum neap_status scan(bool yaml, const char *text, size_t length, struct seen *seen, struct neap_error *err)
{
	const struct checkpoint_sidecar_visitor visitor = {.number = see, .context = seen};
	char *copy = malloc(length + 1); /* exactly this long, for the address sanitizer */

	assert_non_null(copy);
	memcpy(copy, text, length);
	copy[length] = '\0';
	*seen = (struct seen){0};
	enum neap_status status = (yaml ? checkpoint_yaml_scan : checkpoint_json_scan)(copy, length, &visitor, err);
	free(copy);
	return status;
}

static void test_good(void **state)
{
	static const struct {
		bool yaml;
		const char *text, *seen;
	} table[] = {
		{false, "{\"val_loss\": 0.5, \"step\": 3}", "val_loss/1=0.5 step/1=3"},
		{false, " {\"Val/Loss\":-1.5e-3} \n", "val_loss/1=-0.0015"},
		{false, "{\"a\":NaN,\"b\":Infinity,\"c\":-Infinity}", "a/1=nan b/1=inf c/1=-inf"},
		{false, "{\"m\":{\"loss\":1},\"l\":[{\"loss\":2},3],\"s\":\"4\",\"t\":true,\"n\":null,\"f\":false}",
		 "loss/2=1 loss/3=2"},
		{false, "{\"a\\\"\\u00e9\\\\\":1}", "a\\\"\\u00e9\\\\/1=1"},
		{false, "{\"x\":1e999}", "x/1=inf"},
		{false, "[]", ""},
		{true, "val_loss: 0.5\nstep: 3\n", "val_loss/1=0.5 step/1=3"},
		{true, "# metrics\n---\n\"val_loss\" : .nan # bad\r\nnested:\n  loss: 1\n- loss: 2\nname: x: y\n",
		 "val_loss/1=nan"},
		{true, "a: -1e-3\nb: -.inf\nc:\nd: 'text'\n...\n", "a/1=-0.001 b/1=-inf"},
		{true, "", ""},
	};

	(void)state;
	for (size_t i = 0; i < sizeof table / sizeof *table; i++) {
		struct neap_error err = {0};
		struct seen seen;

		if (scan(table[i].yaml, table[i].text, strlen(table[i].text), &seen, &err) != NEAP_OK)
			fail_msg("%s: %s (%u:%u)", table[i].text, err.message, err.line, err.column);
		assert_string_equal(seen.text, table[i].seen);
	}
}

static void test_bad(void **state)
{
	static const struct {
		bool yaml;
		const char *text;
		uint32_t line, column;
	} table[] = {
		{false, "", 1, 1},
		{false, "{\"a\":1", 1, 7},
		{false, "{\"a\":1,}", 1, 8},
		{false, "{\"a\":\n 01}", 2, 2},
		{false, "{\"a\":1.}", 1, 8},
		{false, "{\"a\":1e}", 1, 8},
		{false, "{\"a\":-}", 1, 7},
		{false, "{\"a\" 1}", 1, 6},
		{false, "{a:1}", 1, 2},
		{false, "{\"a\":1}x", 1, 8},
		{false, "{\"a\":tru}", 1, 6},
		{false, "{\"a\\x\":1}", 1, 5},
		{false, "{\"a\\u12g4\":1}", 1, 7},
		{false, "{\"a", 1, 4},
		{false, "{\"a\\", 1, 5},
		{false, "{\"a\nb\":1}", 1, 4},
		{true, "val_loss: 1\nno colon here\n", 2, 1},
		{true, "a:1\n", 1, 1},
	};

	(void)state;
	for (size_t i = 0; i < sizeof table / sizeof *table; i++) {
		struct neap_error err = {0};
		struct seen seen;

		assert_int_equal(scan(table[i].yaml, table[i].text, strlen(table[i].text), &seen, &err), NEAP_EPARSE);
		if (err.line != table[i].line || err.column != table[i].column)
			fail_msg("%s: %s (%u:%u)", table[i].text, err.message, err.line, err.column);
	}
}

/* Nested without end; zero bytes; every cut of a good file. */
static void test_hostile(void **state)
{
	static const char good[] = "{\"m\": [{\"val_loss\": -12.5e+2, \"x\": \"\\u00e9\"}, true, NaN], \"b\": null}";
	struct neap_error err = {0};
	struct seen seen;
	char deep[4096];

	(void)state;
	memset(deep, '[', sizeof deep);
	assert_int_equal(scan(false, deep, sizeof deep, &seen, &err), NEAP_EPARSE);
	assert_int_equal(err.column, 65);
	assert_int_equal(scan(false, "{\"a\0b\":1}", 9, &seen, &err), NEAP_EPARSE);
	assert_int_equal(scan(true, "a: 1\0: 2", 8, &seen, &err), NEAP_EPARSE);
	assert_int_equal(scan(false, good, sizeof good - 1, &seen, &err), NEAP_OK);
	assert_string_equal(seen.text, "val_loss/3=-1250");
	for (size_t length = 0; length < sizeof good - 1; length++)
		assert_int_equal(scan(false, good, length, &seen, &err), NEAP_EPARSE);
	for (size_t i = 0; i < sizeof good - 1; i++) {
		for (int byte = 0; byte < 256; byte++) {
			char copy[sizeof good];

			memcpy(copy, good, sizeof good);
			copy[i] = (char)byte;
			scan(false, copy, sizeof good - 1, &seen, &err);
			scan(true, copy, sizeof good - 1, &seen, &err);
		}
	}
}

/* The fuzz target over good files and names with bytes changed, cut out and doubled. */
static void test_fuzz(void **state)
{
	static const char *const corpus[] = {
		"{\"val_loss\": 0.5, \"log_history\": [{\"eval_loss\": 1e-3, \"x\": [true, null, \"\\u00e9\"]}], "
		"\"n\": NaN}",
		"# metrics\nval_loss: .nan # late\nnested:\n  a: 1\n'acc' : -1.5e3\r\n---\n",
		"mymodel-epoch=3-step=1000-val_loss=-0.123e-4-f1=0.9-v1.ckpt.tmp-12-0",
		"ep1-ba100_neg_loss_nan.best.pth.tar",
	};
	const char *seed_text = getenv("NEAP_TEST_SEED");
	unsigned seed = seed_text ? (unsigned)strtoul(seed_text, NULL, 10) : 1;

	(void)state;
	printf("fuzz seed %u\n", seed);
	srand(seed);
	for (int round = 0; round < 20000; round++) {
		const char *from = corpus[rand() % 4];
		uint8_t text[512];
		size_t length = strlen(from);

		memcpy(text, from, length);
		for (int edits = rand() % 6; edits >= 0 && length > 1; edits--) {
			size_t at = (size_t)rand() % length, span = (size_t)rand() % (length - at) + 1;

			switch (rand() % 3) {
			case 0:
				text[at] = (uint8_t)(rand() % 4 ? "{}[]:,\"\\ \n-+.e0=_"[rand() % 18] : rand());
				break;
			case 1:
				memmove(text + at, text + at + span, length - at - span);
				length -= span;
				break;
			default:
				if (length + span > sizeof text)
					break;
				memmove(text + at + span, text + at, length - at);
				length += span;
			}
		}
		LLVMFuzzerTestOneInput(text, length);
	}
}

int main(void)
{
	const struct CMUnitTest tests[] = {
		cmocka_unit_test(test_good),
		cmocka_unit_test(test_bad),
		cmocka_unit_test(test_hostile),
		cmocka_unit_test(test_fuzz),
	};
	return cmocka_run_group_tests(tests, NULL, NULL);
}
