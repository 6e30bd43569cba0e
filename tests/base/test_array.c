/* An array that grows keeps its items, even after some were removed. */
#include "base/array.h"

#include "support/test.h"

#include <stdint.h>
#include <stdlib.h>

static void test_grows(void **state)
{
	(void)state;
	uint64_t *items = NULL;
	size_t count = 0;
	for (int round = 0; round < 3; round++) {
		while (count < 1000) {
			assert_true(neap_array_grow(&items, count, sizeof *items));
			items[count] = count * 3;
			count++;
		}
		for (size_t i = 0; i < count; i++)
			assert_int_equal(items[i], i * 3);
		count = round ? 5 : 8; /* within the first items, and where the array has to grow */
	}
	free(items);
}

static void test_refused(void **state)
{
	(void)state;
	char *items = NULL;
	assert_false(neap_array_grow(&items, 0, SIZE_MAX / 2));
	assert_null(items);
	assert_true(neap_array_grow(&items, 0, 1));
	items[0] = 7;
	assert_false(neap_array_grow(&items, SIZE_MAX / 2 + 1, 1));
	assert_int_equal(items[0], 7);
	free(items);
}

int main(void)
{
	const struct CMUnitTest tests[] = {
		cmocka_unit_test(test_grows),
		cmocka_unit_test(test_refused),
	};
	return cmocka_run_group_tests_name("array", tests, NULL, NULL);
}
