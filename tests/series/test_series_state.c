/* The journal's records replayed: records that a series can have written are accepted, anything else is refused and
 * changes nothing.
 */
#include "series/series_state.h"

#include "support/test.h"

#include <stdio.h>
#include <stdlib.h>
#include <string.h>

static struct neap_spec spec;

static int make_spec(void **state)
{
	static const char text[] = "name: n\nexperiments: [{name: a, command: x}, {name: b, command: x}]\n";
	(void)state;
	return (int)neap_spec_parse(text, sizeof text - 1, &spec, NULL);
}

static int free_spec(void **state)
{
	(void)state;
	neap_spec_fini(&spec);
	return 0;
}

#define START(e, n)     "{\"type\":\"start\",\"experiment\":\"" e "\",\"attempt\":" #n ",\"run_id\":\"r\"}"
#define ARRAY(s, names) "{\"type\":\"array\",\"submission\":" #s ",\"experiments\":[" names "]}"
#define SUBMIT(s, j)    "{\"type\":\"submit\",\"submission\":" #s ",\"job\":" #j "}"
#define END(e, n)                                                                                                    \
	"{\"type\":\"end\",\"experiment\":\"" e "\",\"attempt\":" #n ",\"outcome\":\"failed\",\"exit_status\":3}"
#define OF(type, e, n) "{\"type\":\"" type "\",\"experiment\":\"" e "\",\"attempt\":" #n "}"
#define FINISH         "{\"type\":\"finish\"}"

/* Applies a first record and then the texts; all but the last must be accepted. */
static enum neap_status apply(struct neap_series_state *state, const char *const *texts, struct neap_error *err)
{
	json_t *records = json_array();
	json_array_append_new(records, neap_series_record_begin(&spec));
	for (size_t i = 0; texts[i]; i++) {
		json_t *record = json_loads(texts[i], 0, NULL);
		assert_non_null(record);
		json_array_append_new(records, record);
	}
	assert_int_equal(neap_series_state_init(state, &spec, NULL), NEAP_OK);
	enum neap_status status = neap_series_state_replay(state, &spec, records, err);
	json_decref(records);
	return status;
}

static void test_whole(void **unused)
{
	(void)unused;
	struct neap_series_state state;
	struct neap_error err = {0};
	const char *const texts[] = {
		START("a", 1), OF("lost", "a", 1), START("a", 2),      OF("cancel", "a", 2),  START("a", 3),
		END("a", 3),   START("b", 1),      OF("lost", "b", 1), OF("give_up", "b", 1), FINISH,
		NULL};
	if (apply(&state, texts, &err))
		fail_msg("%s", err.message);
	assert_true(state.begun && state.finished);
	assert_int_equal(state.experiments[0].attempts, 3);
	assert_int_equal(state.experiments[0].lost, 1);
	assert_true(state.experiments[0].ended);
	assert_int_equal(state.ends[0].outcome, NEAP_OUTCOME_FAILED);
	assert_int_equal(state.ends[0].exit_status, 3);
	assert_int_equal(state.ends[1].outcome, NEAP_OUTCOME_LOST);
	assert_string_equal(state.ends[0].run_id, "r");
	neap_series_state_fini(&state);
}

/* The state says which Slurm array has an experiment's task. */
static void test_submitted(void **unused)
{
	(void)unused;
	struct neap_series_state state;
	struct neap_error err = {0};
	const char *const texts[] = {ARRAY(1, "\"b\",\"a\""), SUBMIT(1, 17),
				     START("a", 1),           OF("retry", "a", 1),
				     ARRAY(2, "\"a\""),       OF("unbegun", "b", 1),
				     ARRAY(3, "\"b\""),       SUBMIT(3, 4294967295),
				     OF("unbegun", "a", 2),   NULL};
	if (apply(&state, texts, &err))
		fail_msg("%s", err.message);
	assert_int_equal(state.submissions, 3);
	assert_int_equal(state.jobs[0], 17);
	assert_int_equal(state.jobs[1], 0);
	assert_int_equal(state.jobs[2], UINT32_MAX);
	assert_int_equal(state.ends[0].submission, 0); /* its task has ended */
	assert_int_equal(state.experiments[0].lost, 1);
	assert_int_equal(state.experiments[0].attempts, 1);
	assert_int_equal(state.ends[1].submission, 3);
	assert_int_equal(state.ends[1].task, 1);
	assert_int_equal(state.experiments[1].lost, 1);
	assert_int_equal(state.experiments[1].attempts, 0);
	json_t *record = neap_series_record_array(4, json_pack("[s, s]", "b", "a"), json_pack("[s, s]", "none", "1"));
	assert_int_equal(neap_series_state_apply(&state, &spec, record, &err), NEAP_OK);
	assert_int_equal(state.ends[0].task, 2);
	json_decref(record);
	neap_series_state_fini(&state);
}

/* Estimated before the first start. After an edit the experiment's new key shows that the estimates no longer
 * hold. */
static void test_estimated(void **unused)
{
	(void)unused;
	struct neap_series_state state;
	struct neap_error err = {0};
	char key[NEAP_EXPERIMENT_KEY_CAPACITY];
	const struct neap_estimate_answer answer = {.gpu = "l4-24gb", .low_bytes = 1, .high_bytes = 2};
	const char *const texts[] = {"{\"type\":\"needs\",\"experiment\":\"b\",\"needs\":\"3GiB\",\"key\":\"k\"}",
				     START("b", 1), NULL};
	if (apply(&state, texts, &err))
		fail_msg("%s", err.message);
	assert_string_equal(state.ends[0].estimated, "");
	assert_string_equal(state.ends[1].estimated, "3GiB");
	assert_string_equal(state.ends[1].estimated_key, "k");
	json_t *record = neap_series_record_needs(&spec.experiments[0], "device", &answer);
	assert_int_equal(neap_series_state_apply(&state, &spec, record, &err), NEAP_OK);
	json_decref(record);
	neap_experiment_key(&spec.experiments[0], key);
	assert_string_equal(state.ends[0].estimated, "device");
	assert_string_equal(state.ends[0].estimated_key, key);
	neap_series_state_fini(&state);
	const char *const wrong[][2] = {{"{\"type\":\"needs\",\"experiment\":\"b\",\"needs\":\"much\"}", NULL},
					{"{\"type\":\"needs\",\"experiment\":\"c\",\"needs\":\"3GiB\"}", NULL}};
	for (size_t i = 0; i < 2; i++) {
		assert_int_equal(apply(&state, wrong[i], &err), NEAP_EPARSE);
		neap_series_state_fini(&state);
	}
}

#define PLACED(e, n, more)                                                                                           \
	"{\"type\":\"start\",\"experiment\":\"" e "\",\"attempt\":" #n ",\"run_id\":\"r\"," more "}"

/* An attempt's needs and device; earlier versions wrote neither. */
static void test_placed(void **unused)
{
	(void)unused;
	struct neap_series_state state;
	struct neap_error err = {0};
	const char *const texts[] = {PLACED("a", 1, "\"needs\":\"1500MiB\",\"device\":\"GPU-1\""),
				     OF("device_lost", "a", 1), START("a", 2), NULL};
	if (apply(&state, texts, &err))
		fail_msg("%s", err.message);
	assert_string_equal(state.ends[0].needs, "");
	assert_string_equal(state.ends[0].device, "");
	assert_int_equal(state.experiments[0].deviceless, 1);
	assert_int_equal(state.experiments[0].failed, 0);
	json_t *record = neap_series_record_start(&spec.experiments[1], 1, "r", "device", "GPU-2");
	assert_int_equal(neap_series_state_apply(&state, &spec, record, &err), NEAP_OK);
	json_decref(record);
	assert_string_equal(state.ends[1].needs, "device");
	assert_string_equal(state.ends[1].device, "GPU-2");
	neap_series_state_fini(&state);
}

#define HASH              "\"spec_hash\":\"0000000000000001\""
#define EDIT(again, hash) "{\"type\":\"edit\",\"again\":[" again "]," hash "}"

/* The file was edited twice; the last edit is of the file as it is. */
static void test_edited(void **unused)
{
	(void)unused;
	struct neap_series_state state;
	struct neap_error err = {0};
	char last[200];
	snprintf(last, sizeof last, EDIT("\"a\"", "\"spec_hash\":\"%016llx\""), (unsigned long long)spec.hash);
	const char *const texts[] = {START("a", 1), END("a", 1),    START("old", 1),   END("old", 1),
				     FINISH,        EDIT("", HASH), START("older", 1), START("b", 1),
				     END("b", 1),   last,           START("a", 2),     NULL};
	if (apply(&state, texts, &err))
		fail_msg("%s", err.message);
	assert_false(state.edited);
	assert_false(state.finished);
	assert_int_equal(state.experiments[0].attempts, 2);
	assert_true(state.experiments[0].open);
	assert_true(state.experiments[1].ended);
	assert_int_equal(state.gone_count, 2);
	assert_string_equal(state.gone[0].name, "old");
	assert_false(state.gone[0].open);
	assert_true(state.gone[1].open);
	/* From here on records are about the current file. */
	json_t *record = json_loads(START("old", 2), 0, NULL);
	assert_int_equal(neap_series_state_apply(&state, &spec, record, &err), NEAP_EPARSE);
	json_decref(record);
	neap_series_state_fini(&state);

	/* An edit to other contents than the file's: the file has changed since. */
	const char *const others[] = {START("a", 1), END("a", 1), EDIT("\"a\", \"gone\"", HASH), NULL};
	assert_int_equal(apply(&state, others, &err), NEAP_OK);
	assert_true(state.edited);
	assert_false(state.experiments[0].ended);
	bool again[2] = {true, false};
	record = neap_series_record_edit(&spec, again);
	assert_int_equal(neap_series_state_apply(&state, &spec, record, &err), NEAP_OK);
	json_decref(record);
	assert_false(state.edited);
	assert_false(state.experiments[0].ended || state.experiments[0].open);
	assert_int_equal(state.experiments[0].attempts, 1);
	neap_series_state_fini(&state);
}

static void test_refused(void **unused)
{
	(void)unused;
	static const struct {
		const char *texts[5];
		const char *message;
	} rows[] = {
		{{START("a", 2)}, "record 2: a start out of order"},
		{{PLACED("a", 1, "\"needs\":\"much\"")}, "record 2: expected what an attempt needs, and a device"},
		{{START("a", 1), START("b", 1), START("a", 2)}, "record 4: a start out of order"},
		{{START("a", 1), END("a", 1), START("a", 2)}, "record 4: a start out of order"},
		{{START("c", 1)}, "record 2: expected an experiment of the series and an attempt's number"},
		{{START("a", 0)}, "record 2: expected an experiment of the series and an attempt's number"},
		{{END("a", 1)}, "record 2: the end of an attempt that was not going on"},
		{{START("a", 1), END("a", 2)}, "record 3: the end of an attempt that was not going on"},
		{{START("a", 1), END("a", 1), END("a", 1)}, "record 4: the end of an attempt that was not going on"},
		{{START("a", 1), OF("lost", "b", 1)}, "record 3: the end of an attempt that was not going on"},
		{{START("a", 1), OF("end", "a", 1)}, "record 3: expected an outcome and an exit status"},
		{{OF("give_up", "a", 1)}, "record 2: giving up out of order"},
		{{OF("surprise", "a", 1)}, "record 2: unknown type 'surprise'"},
		{{"{}"}, "record 2: expected an experiment of the series and an attempt's number"},
		{{"{\"type\":7,\"experiment\":[]}"},
		 "record 2: expected an experiment of the series and an attempt's number"},
		{{"{\"type\":\"start\",\"experiment\":\"a\",\"attempt\":1}"}, "record 2: expected a run_id"},
		{{EDIT("7", HASH)}, "record 2: expected the names of experiments that are run again"},
		{{"{\"type\":\"edit\"}"}, "record 2: expected the experiments that are run again"},
		{{FINISH}, "record 2: a finish before the last experiment's end"},
		{{ARRAY(2, "\"a\"")}, "record 2: expected the experiments of submission 1"},
		{{ARRAY(1, "")}, "record 2: expected the experiments of submission 1"},
		{{ARRAY(1, "7")}, "record 2: submitted an experiment that may not run: ''"},
		{{ARRAY(1, "\"a\",\"c\"")}, "record 2: submitted an experiment that may not run: 'c'"},
		{{START("a", 1), ARRAY(1, "\"a\"")}, "record 3: submitted an experiment that may not run: 'a'"},
		{{OF("unbegun", "a", 1)}, "record 2: the end of a task that was not submitted"},
		{{ARRAY(1, "\"a\""), OF("unbegun", "a", 2)}, "record 3: the end of a task that was not submitted"},
		{{ARRAY(1, "\"a\""), START("a", 1), OF("unbegun", "a", 2)},
		 "record 4: the end of a task that was not submitted"},
		{{SUBMIT(1, 2)}, "record 2: expected the job of a submission that has none"},
		{{ARRAY(1, "\"a\""), SUBMIT(1, 0)}, "record 3: expected the job of a submission that has none"},
		{{ARRAY(1, "\"a\""), SUBMIT(1, 4294967296)},
		 "record 3: expected the job of a submission that has none"},
		{{ARRAY(1, "\"a\""), SUBMIT(1, 5), SUBMIT(1, 5)},
		 "record 4: expected the job of a submission that has none"},
		{{"{\"type\":\"series\"}"}, "record 2: a second beginning"},
	};
	for (size_t i = 0; i < sizeof rows / sizeof *rows; i++) {
		struct neap_series_state state;
		struct neap_error err = {0};
		enum neap_status status = apply(&state, rows[i].texts, &err);
		if (status != NEAP_EPARSE || strcmp(err.message, rows[i].message))
			fail_msg("row %zu: %s: %s", i, neap_status_name(status), err.message);
		neap_series_state_fini(&state);
	}
}

static void test_changed(void **unused)
{
	(void)unused;
	struct neap_series_state state;
	json_t *record = neap_series_record_begin(&spec);
	json_object_set_new(record, "spec_hash", json_string("0123456789abcdef"));
	assert_int_equal(neap_series_state_init(&state, &spec, NULL), NEAP_OK);
	assert_int_equal(neap_series_state_apply(&state, &spec, record, NULL), NEAP_ESTATE);
	assert_false(state.begun);
	json_object_set_new(record, "schema", json_integer(2));
	assert_int_equal(neap_series_state_apply(&state, &spec, record, NULL), NEAP_EPARSE);
	json_decref(record);
	record = json_loads(FINISH, 0, NULL);
	assert_int_equal(neap_series_state_apply(&state, &spec, record, NULL), NEAP_EPARSE); /* nothing has begun */
	json_decref(record);
	neap_series_state_fini(&state);
}

int main(void)
{
	const struct CMUnitTest tests[] = {cmocka_unit_test(test_whole),  cmocka_unit_test(test_submitted),
					   cmocka_unit_test(test_placed), cmocka_unit_test(test_estimated),
					   cmocka_unit_test(test_edited), cmocka_unit_test(test_refused),
					   cmocka_unit_test(test_changed)};
	return cmocka_run_group_tests(tests, make_spec, free_spec);
}
