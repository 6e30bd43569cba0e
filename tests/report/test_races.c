/* tests/report/test_races.c: the files of races that a run's processes leave, good and bad ones. */
#include "report/races.h"

#include "base/file.h"

#include <setjmp.h>
#include <stdarg.h>
#include <stddef.h>
#include <stdint.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/stat.h>
#include <unistd.h>

#include <cmocka.h>

#define RACE(use)                                                                                                    \
	"{\"kind\":\"data\",\"first\":{\"name\":\"a\",\"place\":0,\"use\":\"" use                                    \
	"\",\"stream\":1,\"device\":0},\"second\":{\"name\":\"b\",\"place\":0,\"use\":\"writes\",\"stream\":0,"      \
	"\"device\":0},\"bytes\":4,\"address\":512}\n"

static void put(const char *name, const char *text)
{
	assert_int_equal(neap_file_write(name, text, strlen(text), NULL), NEAP_OK);
}

static int enter(void **ret_folder)
{
	char *folder = strdup("/tmp/neap-races-XXXXXX");
	*ret_folder = folder;
	return !folder || !mkdtemp(folder) || chdir(folder);
}

static int leave(void **folder)
{
	static const char *const names[] = {"races.1", "races.2", "races.3", "places.1", "start-1.races.1"};
	for (size_t i = 0; i < sizeof names / sizeof *names; i++)
		unlink(names[i]);
	int failed = chdir("/") || rmdir(*folder);
	free(*folder);
	return failed;
}

static void test_processes(void **unused)
{
	struct neap_races races = {0};
	(void)unused;
	put("races.1", RACE("reads") RACE("reads"));
	put("races.2", RACE("reads") RACE("reads") RACE("reads"));
	assert_int_equal(neap_races_read(".", &races, NULL), NEAP_OK);
	assert_int_equal(races.count, 1);
	assert_int_equal(races.list[0].processes, 2);
	neap_races_fini(&races);
}

/* An invalid use never reaches a terminal; the number of names is bounded. */
static void test_hostile_lines(void **unused)
{
	struct neap_races races = {0};
	struct neap_buffer text = {0};
	(void)unused;
	neap_buffer_text(&text, RACE("\\u001b[31m"));
	for (int i = 0; i < 300; i++)
		neap_buffer_format(&text, "{\"not_seen\":\"kernel_%d\"}\n", i);
	put("races.1", neap_buffer_string(&text));
	assert_int_equal(neap_races_read(".", &races, NULL), NEAP_OK);
	assert_int_equal(races.count, 0);
	assert_int_equal(races.not_seen.count, 256);
	neap_buffer_fini(&text);
	neap_races_fini(&races);
}

/* The reader knows that something is missing. */
static void test_lost(void **unused)
{
	static const struct {
		const char *text;
		size_t lost, limits;
	} cases[] = {
		{"{\"lost\":0,\"of\":\"\"}\n", 0, 0},
		{"{\"lost\":1,\"of\":\"\"}\n", 1, 0},
		{"{\"lost\":0,\"of\":\"\"}\n{\"kind\":\"da", 1, 0},
		{"{\"lost\":0}\n{\"limit\":\"a\"}\n{\"limit\":\"a\"}\n", 0, 1},
	};
	(void)unused;
	for (size_t i = 0; i < sizeof cases / sizeof *cases; i++) {
		struct neap_races races = {0};
		put("races.1", cases[i].text);
		assert_int_equal(neap_races_read(".", &races, NULL), NEAP_OK);
		assert_int_equal(races.lost, cases[i].lost);
		assert_int_equal(races.limits.count, cases[i].limits);
		assert_int_equal(neap_races_are_partial(&races), cases[i].lost + cases[i].limits > 0);
		neap_races_fini(&races);
	}
}

/* The races of a start before the last one count, too. */
static void test_starts(void **unused)
{
	struct neap_races races = {0};
	(void)unused;
	put("start-1.races.1", RACE("reads"));
	put("races.1", "{\"lost\":0,\"of\":\"\"}\n");
	assert_int_equal(neap_races_read(".", &races, NULL), NEAP_OK);
	assert_int_equal(races.count, 1);
	assert_int_equal(races.processes, 2);
	neap_races_fini(&races);
}

/* Opening a pipe that nobody writes to would never end. */
static void test_pipes(void **unused)
{
	struct neap_races races = {0};
	(void)unused;
	assert_int_equal(mkfifo("races.3", 0600), 0);
	assert_int_equal(neap_races_read(".", &races, NULL), NEAP_OK);
	assert_false(races.watched);
	assert_int_equal(mkfifo("places.1", 0600), 0);
	put("races.1", RACE("uses"));
	assert_int_equal(neap_races_read(".", &races, NULL), NEAP_OK);
	assert_int_equal(races.count, 1);
	neap_races_fini(&races);
}

int main(void)
{
	const struct CMUnitTest tests[] = {
		cmocka_unit_test_setup_teardown(test_processes, enter, leave),
		cmocka_unit_test_setup_teardown(test_hostile_lines, enter, leave),
		cmocka_unit_test_setup_teardown(test_lost, enter, leave),
		cmocka_unit_test_setup_teardown(test_starts, enter, leave),
		cmocka_unit_test_setup_teardown(test_pipes, enter, leave),
	};
	return cmocka_run_group_tests(tests, NULL, NULL);
}
