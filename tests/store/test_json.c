/* Objects by rows: what each kind of row writes, when it writes null, and what remains when host memory runs out. */
#include "store/json_rows.h"

#include <math.h>
#include <setjmp.h>
#include <stdarg.h>
#include <stdlib.h>
#include <string.h>

#include <cmocka.h>

static void assert_json(json_t *value, const char *expected)
{
	uint64_t failures = neap_json_failures();
	char *text = neap_json_dump(value, JSON_COMPACT);
	assert_non_null(text);
	assert_string_equal(text, expected);
	assert_int_equal(neap_json_failures(), failures);
	free(text);
	json_decref(value);
}

static void test_rows_stand_in_their_order(void **state)
{
	(void)state;
	assert_json(JSON(NUMBER("z", UINT64_MAX), INTEGER("a", -1), REAL("r", 0.5), BOOL("b", 2), TEXT("t", "x\xff"),
			 TEXT("none", NULL), VALUE("v", json_array())),
		    "{\"z\":9223372036854775807,\"a\":-1,\"r\":0.5,\"b\":true,\"t\":\"x?\",\"none\":\"\",\"v\":[]}");
	assert_json(JSON_PUT(JSON(NUMBER("a", 1), NUMBER("b", 2)), NUMBER("c", 3), NUMBER("a", 4)),
		    "{\"a\":4,\"b\":2,\"c\":3}");
}

static void test_what_is_not_known_is_null(void **state)
{
	const uint64_t bytes = 7;
	(void)state;
	assert_json(JSON(KNOWN("max", UINT64_MAX), KNOWN("bytes", bytes), KNOWN("zero", (uint64_t)0),
			 KNOWN("percent", -1), KNOWN("none", 0), KNOWN("nan", (double)NAN), KNOWN("real", 1.5)),
		    "{\"max\":null,\"bytes\":7,\"zero\":0,\"percent\":null,\"none\":0,\"nan\":null,\"real\":1.5}");
}

static void test_what_is_not_given_is_null(void **state)
{
	const char *absent = NULL;
	char empty[8] = "", name[8] = "name";
	uint64_t zero = 0, one = 1;
	(void)state;
	assert_json(JSON(GIVEN("absent", absent), GIVEN("empty", empty), GIVEN("name", name), GIVEN("zero", zero),
			 GIVEN("one", one), GIVEN("real", 0.0), GIVEN("below", -0.5)),
		    "{\"absent\":null,\"empty\":null,\"name\":\"name\",\"zero\":null,\"one\":1,\"real\":null,"
		    "\"below\":-0.5}");
	assert_json(JSON(ONLY(true, NUMBER("yes", 1)), ONLY(false, NUMBER("no", 1)), ONLY(one, TEXT("one", name)),
			 ONLY(false, VALUE("list", json_array()))),
		    "{\"yes\":1,\"no\":null,\"one\":\"name\",\"list\":null}");
}

static void test_a_value_that_is_missing_counts_as_a_failure(void **state)
{
	uint64_t failures = neap_json_failures();
	(void)state;
	json_t *object = JSON(NUMBER("a", 1), VALUE("b", NULL), NUMBER("c", 3));
	assert_int_equal(json_object_size(object), 2);
	assert_true(neap_json_failures() > failures);
	json_decref(object);
}

int main(void)
{
	const struct CMUnitTest tests[] = {
		cmocka_unit_test(test_rows_stand_in_their_order),
		cmocka_unit_test(test_what_is_not_known_is_null),
		cmocka_unit_test(test_what_is_not_given_is_null),
		cmocka_unit_test(test_a_value_that_is_missing_counts_as_a_failure),
	};
	return cmocka_run_group_tests(tests, NULL, NULL);
}
