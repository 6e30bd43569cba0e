/* What is read from the files of trainers: pickles of all protocols, states, and damaged files. */
#include "checkpoint/pickle.h"
#include "checkpoint/writer.h"
#include "support/test.h"

#include <math.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/mman.h>
#include <unistd.h>

int LLVMFuzzerTestOneInput(const uint8_t *data, size_t size); /* fuzz/fuzz_trainer.c */

#define PICKLE(text)                                                                                                 \
	{                                                                                                            \
		text, sizeof text - 1                                                                                \
	}

/* {"a": {"metric_for_best_model": "accuracy", "greater_is_better": True, "n": [-7, 1 << 40, 2.5, None]}, "t": (1,
 * "x")} */
static const struct {
	const char *bytes;
	size_t length;
} protocols[] = {
	PICKLE("(dp0\nVa\np1\n(dp2\nVmetric_for_best_model\np3\nVaccuracy\np4\nsVgreater_is_"
	       "better\np5\nI01\nsVn\np6\n"
	       "(lp7\nI-7\naL1099511627776L\naF2.5\naNassVt\np8\n(I1\nVx\np9\ntp10\ns."),
	PICKLE("}q\000(X\001\000\000\000aq\001}q\002(X\025\000\000\000metric_for_best_"
	       "modelq\003X\010\000\000\000accuracyq"
	       "\004X\021\000\000\000greater_is_betterq\005I01\nX\001\000\000\000nq\006]q\007(J\371\377\377\377"
	       "L1099511627776L\nG@\004\000\000\000\000\000\000NeuX\001\000\000\000tq\010("
	       "K\001X\001\000\000\000xq\011tq"
	       "\012u."),
	PICKLE("\200\002}q\000(X\001\000\000\000aq\001}q\002(X\025\000\000\000metric_for_best_"
	       "modelq\003X\010\000\000\000"
	       "accuracyq\004X\021\000\000\000greater_is_betterq\005\210X\001\000\000\000nq\006]q\007("
	       "J\371\377\377\377"
	       "\212\006\000\000\000\000\000\001G@"
	       "\004\000\000\000\000\000\000NeuX\001\000\000\000tq\010K\001X\001\000\000"
	       "\000xq\011\206q\012u."),
	PICKLE("\200\005\225p\000\000\000\000\000\000\000}\224(\214\001a\224}\224(\214\025metric_for_best_"
	       "model\224\214"
	       "\010accuracy\224\214\021greater_is_better\224\210\214\001n\224]\224("
	       "J\371\377\377\377\212\006\000\000\000\000"
	       "\000\001G@\004\000\000\000\000\000\000Neu\214\001t\224K\001\214\001x\224\206\224u."),
};

struct seen {
	char text[512];
};

static void add(struct seen *seen, const struct neap_pickled *value)
{
	static const char *const names[] = {[NEAP_PICKLE_OTHER] = "other",
					    [NEAP_PICKLE_NONE] = "none",
					    [NEAP_PICKLE_LIST] = "list",
					    [NEAP_PICKLE_DICT] = "dict",
					    [CHECKPOINT_PICKLE_SCALAR] = "scalar"};
	size_t used = strlen(seen->text), capacity = sizeof seen->text - used;

	if (value->type == NEAP_PICKLE_TEXT)
		snprintf(seen->text + used, capacity, "%.*s ", (int)value->length, value->text);
	else if (value->type == NEAP_PICKLE_INT || value->type == NEAP_PICKLE_BOOL)
		snprintf(seen->text + used, capacity, "%lld ", (long long)value->integer);
	else if (value->type == NEAP_PICKLE_FLOAT)
		snprintf(seen->text + used, capacity, "%g ", value->number);
	else
		snprintf(seen->text + used, capacity, "%s ",
			 value->type <= CHECKPOINT_PICKLE_SCALAR ? names[value->type] : "?");
}

static void see(void *context, const struct neap_pickled *name, const struct neap_pickled *items, size_t count)
{
	struct seen *seen = context;

	add(seen, name);
	strcat(seen->text, "( ");
	for (size_t i = 0; i < count; i++)
		add(seen, &items[i]);
	strcat(seen->text, ") ");
}

static enum neap_status scan(const char *bytes, size_t length, struct seen *seen, struct neap_error *err)
{
	const struct checkpoint_pickle_visitor visitor = {.items = see, .context = seen};

	*seen = (struct seen){0};
	return checkpoint_pickle_scan(bytes, length, &visitor, err);
}

static void test_protocols(void **state)
{
	struct neap_error err = {0};
	struct seen seen;

	(void)state;
	for (size_t i = 0; i < sizeof protocols / sizeof *protocols; i++) {
		struct checkpoint_record record = {0};

		if (scan(protocols[i].bytes, protocols[i].length, &seen, &err) != NEAP_OK)
			fail_msg("%zu: %s at %u", i, err.message, (unsigned)err.position);
		if (i == 0) /* the items one after the other */
			assert_string_equal(seen.text,
					    "a ( metric_for_best_model accuracy ) a ( greater_is_better 1 ) "
					    "a ( n list ) other ( a dict ) other ( t other ) ");
		else
			assert_string_equal(seen.text,
					    "a ( metric_for_best_model accuracy greater_is_better 1 n list ) "
					    "other ( a dict t other ) ");
		checkpoint_read_arguments(protocols[i].bytes, protocols[i].length, &record);
		assert_int_equal(record.mode, NEAP_METRIC_MAX);
		assert_string_equal(record.metric, "eval_accuracy");
	}
}

static void test_numbers(void **state)
{
	static const struct {
		const char *bytes, *seen;
		size_t length;
	} table[] = {
		{"}U\1aK\xffs.", "other ( other 255 ) ", 8},
		{"}V1\nM\1\2s.", "other ( 1 513 ) ", 9},
		{"}V1\n\x8a\0s.", "other ( 1 0 ) ", 8},
		{"}V1\n\x8a\1\xffs.", "other ( 1 -1 ) ", 9},
		{"}V1\n\x8a\x9"
		 "123456789s.",
		 "other ( 1 other ) ", 17},
		{"}V1\nF-0.5\ns.", "other ( 1 -0.5 ) ", 13},
		{"}V1\nFx\ns.", "other ( 1 other ) ", 10},
		{"(V1\nNd.", "other ( 1 none ) ", 7},
		{"(V1\nI00\nV2\n)d.", "other ( 1 0 2 ? ) ", 14},
		{"(Vk\nN0"
		 "1}V1\nNs.",
		 "other ( 1 none ) ", 14},
		{"N.", "", 2},
	};
	struct neap_error err = {0};
	struct seen seen;

	(void)state;
	for (size_t i = 0; i < sizeof table / sizeof *table; i++) {
		if (scan(table[i].bytes, table[i].length, &seen, &err) != NEAP_OK)
			fail_msg("%zu: %s at %u", i, err.message, (unsigned)err.position);
		assert_string_equal(seen.text, table[i].seen);
	}
}

/* Each cut file, and each of these, is an error with its place; a call is never more than an empty value. */
static void test_bad(void **state)
{
	static const struct {
		const char *bytes;
		size_t length;
	} table[] = {PICKLE(""),
		     PICKLE("."),
		     PICKLE("K"),
		     PICKLE("\xff."),
		     PICKLE("0."),
		     PICKLE("u."),
		     PICKLE("}(Nu."),
		     PICKLE("(Nu."),
		     PICKLE("h\0."),
		     PICKLE("gx\n."),
		     PICKLE("g-1\n."),
		     PICKLE("Np9999999999\n."),
		     PICKLE("X\377\377\377\377a."),
		     PICKLE("NR."),
		     PICKLE("N(a."),
		     PICKLE("s."),
		     PICKLE("t."),
		     PICKLE("\x85."),
		     PICKLE("Q."),
		     PICKLE("V no end"),
		     PICKLE("cposix\n"),
		     PICKLE("\x8d\377\377\377\377\377\377\377\377"),
		     PICKLE("N(d(.")};
	struct neap_error err = {0};
	struct seen seen;

	(void)state;
	for (size_t i = 0; i < sizeof table / sizeof *table; i++) {
		err = (struct neap_error){0};
		if (scan(table[i].bytes, table[i].length, &seen, &err) != NEAP_EPARSE || !err.message[0])
			fail_msg("%zu", i);
	}
	for (size_t i = 0; i < 4; i++)
		for (size_t cut = 0; cut < protocols[i].length; cut++)
			assert_int_equal(scan(protocols[i].bytes, cut, &seen, &err), NEAP_EPARSE);
	assert_int_equal(scan("}Vk\ncposix\nsystem\n(Vrm -rf /\ntRs.", 35, &seen, &err), NEAP_OK);
	assert_string_equal(seen.text, "other ( k other ) ");
}

/* More than a million values: refused, not assumed to be true. */
static void test_limits(void **state)
{
	size_t length = (1u << 20) + 64;
	char *bytes = malloc(length);
	struct neap_error err = {0};
	struct seen seen;

	(void)state;
	assert_non_null(bytes);
	for (size_t i = 0; i < 2; i++) {
		memset(bytes, i ? '(' : 'N', length);
		bytes[length - 1] = '.';
		assert_int_equal(scan(bytes, length, &seen, &err), NEAP_EPARSE);
		assert_non_null(strstr(err.message, i ? "nested more than" : "more than 1048576 values"));
	}
	free(bytes);
}

static void read_state(const char *text, struct checkpoint_record *record)
{
	*record = (struct checkpoint_record){0};
	assert_int_equal(checkpoint_read_state(text, strlen(text), record), NEAP_OK);
}

static void test_state(void **state)
{
	struct checkpoint_record record;

	(void)state;
	read_state("{\"best_model_checkpoint\": \"out/caf\\u00e9/checkpoint-20\", \"best_metric\": 0.5, "
		   "\"global_step\": 40, "
		   "\"best_global_step\": 20, \"log_history\": [{\"eval_x\": 0.25, \"eval_y\": 0.5}, {\"eval_x\": "
		   "0.5}]}",
		   &record);
	assert_string_equal(record.best, "checkpoint-20");
	assert_int_equal(record.until_step, 40);
	assert_int_equal(record.best_step, 20);
	assert_string_equal(record.metric, ""); /* eval_x, or eval_y */
	read_state("{\"best_model_checkpoint\": \"caf\\u00e9 \\ud83c\\udf0a\\\\c\\n\", \"best_metric\": 0.5, "
		   "\"global_step\": 1, "
		   "\"log_history\": [{\"eval_x\": 0.25}, {\"eval_x\": 0.5}, {\"eval_runtime\": 0.1}]}",
		   &record);
	assert_string_equal(record.best, "c\n"); /* a backslash ends a folder's name on some machines */
	assert_string_equal(record.metric, "eval_x");
	assert_int_equal(record.mode, NEAP_METRIC_MAX);
	read_state("{\"best_model_checkpoint\": \"caf\\u00e9\\ud83c\\udf0a\\ud800\", \"global_step\": 1}", &record);
	assert_string_equal(record.best, "caf\xc3\xa9\xf0\x9f\x8c\x8a\xed\xa0\x80");
	read_state("{\"best_model_checkpoint\": null, \"best_metric\": null, \"global_step\": 1}", &record);
	assert_string_equal(record.best, "");
	assert_int_equal(checkpoint_read_state("{\"loss\": 1}", 11, &record), NEAP_EPARSE);
	assert_int_equal(checkpoint_read_state("{\"global_step\": 1", 17, &record), NEAP_EPARSE);
}

/* A zip with one stored member archive/data.pkl. With `lie` it declares another length than the real one. */
static size_t archive(unsigned char *bytes, const char *pickle, size_t length, uint32_t lie)
{
	static const char name[] = "archive/data.pkl";
	unsigned char local[30] = "PK\3\4", central[46] = "PK\1\2", end[22] = "PK\5\6";
	uint32_t claimed = (uint32_t)length + lie, at = 0, list;

	memcpy(local + 18, &claimed, 4);
	memcpy(local + 22, &claimed, 4);
	local[26] = sizeof name - 1;
	memcpy(central + 20, &claimed, 4);
	memcpy(central + 24, &claimed, 4);
	central[28] = sizeof name - 1;
	memcpy(bytes, local, sizeof local);
	memcpy(bytes + sizeof local, name, sizeof name - 1);
	at = sizeof local + sizeof name - 1;
	memcpy(bytes + at, pickle, length);
	at += (uint32_t)length;
	list = at;
	memcpy(bytes + at, central, sizeof central);
	memcpy(bytes + at + sizeof central, name, sizeof name - 1);
	at += sizeof central + sizeof name - 1;
	uint32_t list_length = at - list;
	memcpy(end + 12, &list_length, 4);
	memcpy(end + 16, &list, 4);
	memcpy(bytes + at, end, sizeof end);
	return at + sizeof end;
}

static const char callback[] =
	"}(V{'mode': 'max'}\n}(Vmonitor\nVval_x\nVbest_model_path\nV/r/a.ckpt\nVbest_k_models\n}(V/r/"
	"a.ckpt\nG@\004\0\0\0\0\0\0V/r/b.ckpt\nK\1uuu.";

static size_t read_records(const void *bytes, size_t length, struct checkpoint_records *records)
{
	int fd = memfd_create("test", MFD_CLOEXEC);

	assert_true(fd >= 0);
	assert_int_equal(write(fd, bytes, length), length);
	assert_true(checkpoint_read_callbacks(fd, records));
	close(fd);
	return records->count;
}

static void test_lightning(void **state)
{
	struct checkpoint_records records = {0};
	unsigned char bytes[512];
	size_t length = archive(bytes, callback, sizeof callback - 1, 0);
	double value = 0;

	(void)state;
	assert_int_equal(read_records(bytes, length, &records), 1);
	assert_string_equal(records.at[0].best, "a.ckpt");
	assert_string_equal(records.at[0].folder, "r");
	assert_string_equal(records.at[0].metric, "val_x");
	assert_int_equal(records.at[0].mode, NEAP_METRIC_MAX);
	assert_true(checkpoint_record_score(&records.at[0], "a.ckpt", &value) && value == 2.5);
	assert_true(checkpoint_record_score(&records.at[0], "b.ckpt", &value) && value == 1);
	assert_false(checkpoint_record_score(&records.at[0], "c.ckpt", &value));
	checkpoint_records_fini(&records);
	/* members that reach beyond the file, or into its list */
	for (uint32_t lie = 1; lie; lie <<= 1) {
		length = archive(bytes, callback, sizeof callback - 1, lie);
		read_records(bytes, length, &records);
		checkpoint_records_fini(&records);
	}
}

static void test_fuzz(void **state)
{
	static const char json[] =
		"{\"best_model_checkpoint\": \"out/\\u00e9/c-20\", \"best_metric\": 0.5, \"global_step\": 4, "
		"\"log_history\": [{\"eval_x\": 0.5}]}";
	static const char codes[] = "(.0123NRabdeghilopqrstu}])Q\x85\x93\x94KJX";
	const char *seed_text = getenv("NEAP_TEST_SEED");
	unsigned seed = seed_text ? (unsigned)strtoul(seed_text, NULL, 10) : 1;
	unsigned char packed[512];
	size_t packed_length = archive(packed, callback, sizeof callback - 1, 0);

	(void)state;
	printf("fuzz seed %u\n", seed);
	srand(seed);
	for (int round = 0; round < 20000; round++) {
		size_t kind = (size_t)rand() % 6;
		const void *from = kind < 4 ? protocols[kind].bytes : kind == 4 ? json : (const char *)packed;
		size_t length = kind < 4 ? protocols[kind].length : kind == 4 ? sizeof json - 1 : packed_length;
		uint8_t bytes[1024];

		memcpy(bytes, from, length);
		for (int edits = rand() % 6; edits > 0 && length > 1; edits--) {
			size_t at = (size_t)rand() % length, span = (size_t)rand() % (length - at) + 1;

			if (rand() % 2) {
				bytes[at] =
					(uint8_t)(rand() % 4 ? codes[(size_t)rand() % (sizeof codes - 1)] : rand());
			} else if (rand() % 2) {
				memmove(bytes + at, bytes + at + span, length - at - span);
				length -= span;
			} else if (length + span <= sizeof bytes) {
				memmove(bytes + at + span, bytes + at, length - at);
				length += span;
			}
		}
		LLVMFuzzerTestOneInput(bytes, length);
	}
}

int main(void)
{
	const struct CMUnitTest tests[] = {
		cmocka_unit_test(test_protocols), cmocka_unit_test(test_numbers), cmocka_unit_test(test_bad),
		cmocka_unit_test(test_limits),    cmocka_unit_test(test_state),   cmocka_unit_test(test_lightning),
		cmocka_unit_test(test_fuzz),
	};
	return cmocka_run_group_tests(tests, NULL, NULL);
}
