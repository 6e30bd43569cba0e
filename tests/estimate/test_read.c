/* A run's folder that cannot be read: each failure says what failed, and where. */
#include "estimate/estimate.h"

#include "base/file.h"
#include "support/test.h"

#include <string.h>
#include <sys/stat.h>

static char folder[TEST_FOLDER_CAPACITY];

static int set_up(void **state)
{
	(void)state;
	return make_folder(folder, "read");
}

static int tear_down(void **state)
{
	(void)state;
	return remove_folder(folder);
}

static void put(const char *name, const char *text)
{
	char path[4096];
	assert_int_equal(neap_path_join(path, sizeof path, folder, name), NEAP_OK);
	FILE *file = fopen(path, "w");
	assert_non_null(file);
	fputs(text, file);
	fclose(file);
}

static void put_result(void)
{
	struct neap_result result = {0};
	char path[4096];
	assert_int_equal(neap_path_join(path, sizeof path, folder, "result.json"), NEAP_OK);
	assert_int_equal(neap_result_init(&result, NULL), NEAP_OK);
	assert_int_equal(neap_result_write(path, &result, NULL), NEAP_OK);
	neap_result_fini(&result);
}

/* Checks the message of the failure. */
static void expect(const char *path, enum neap_status expected, const char *words)
{
	static struct neap_estimate_run run;
	struct neap_error err = {0};
	run = (struct neap_estimate_run){0};
	enum neap_status status = neap_estimate_read(path, &run, &err);
	neap_estimate_run_fini(&run);
	if (status != expected || !strstr(err.message, words))
		fail_msg("status %d, '%s', and not %d, '%s'", status, err.message, expected, words);
}

static void a_path_that_is_too_long(void **state)
{
	static char path[5000];
	(void)state;
	memset(path, 'a', sizeof path - 1);
	path[0] = '/';
	expect(path, NEAP_EINVAL, "too long");
}

/* The path of result.json is within the limit, the path of the process's file is not. */
static void a_file_whose_path_is_too_long(void **state)
{
	static char path[4096 + 8];
	size_t length = strlen(folder);
	(void)state;
	put_result();
	put("estimate.18446744073709551615.json", "{}");
	memcpy(path, folder, length);
	while (length < 4096 - strlen("/result.json") - 1) /* "/." names the same folder */
		path[length] = length % 2 == strlen(folder) % 2 ? '/' : '.', length++;
	if (path[length - 1] == '/')
		path[length - 1] = '\0';
	expect(path, NEAP_EINVAL, "too long");
}

static void nothing_is_there(void **state)
{
	(void)state;
	expect("/nowhere", NEAP_ENOENT, "/nowhere");
	expect(folder, NEAP_ENOENT, folder);
	put_result();
	expect(folder, NEAP_ENOENT, "no process of it allocated GPU memory through PyTorch");
}

static void a_file_of_another_form(void **state)
{
	(void)state;
	put_result();
	put("estimate.1.json", "[1, 2]");
	expect(folder, NEAP_EPARSE, "estimate.1.json");
	put("estimate.1.json", "{\"devices\":[{\"reserved_peak\":4096}]}");
	expect(folder, NEAP_ENOENT, "snapshot.1.pickle");
}

int main(void)
{
	const struct CMUnitTest tests[] = {
		cmocka_unit_test_setup_teardown(a_path_that_is_too_long, set_up, tear_down),
		cmocka_unit_test_setup_teardown(a_file_whose_path_is_too_long, set_up, tear_down),
		cmocka_unit_test_setup_teardown(nothing_is_there, set_up, tear_down),
		cmocka_unit_test_setup_teardown(a_file_of_another_form, set_up, tear_down),
	};
	return cmocka_run_group_tests(tests, NULL, NULL);
}
