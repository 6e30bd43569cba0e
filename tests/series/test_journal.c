/* The journal: it survives every cut of the file, does not mistake damage for a cut, and two processes exclude each
 * other. */
#include "series/journal.h"

#include "base/buffer.h"
#include "base/file.h"
#include "support/test.h"

#include <signal.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/resource.h>
#include <sys/wait.h>
#include <unistd.h>

static char folder[TEST_FOLDER_CAPACITY];
static char path[128];

static int set_up(void **state)
{
	(void)state;
	if (make_folder(folder, "journal"))
		return -1;
	snprintf(path, sizeof path, "%s/journal", folder);
	return 0;
}

static int tear_down(void **state)
{
	(void)state;
	return remove_folder(folder);
}

static struct neap_journal *open_journal(void)
{
	struct neap_journal *journal = NULL;
	struct neap_error err = {0};
	if (neap_journal_open(folder, &journal, &err))
		fail_msg("%s", err.message);
	return journal;
}

static void append(struct neap_journal *journal, int number)
{
	struct neap_error err = {0};
	json_t *record = json_pack("{s:i, s:s}", "n", number, "text", "line\nbreak \xc3\xa9");
	if (neap_journal_append(journal, record, &err))
		fail_msg("%s", err.message);
	json_decref(record);
}

static void check(const struct neap_journal *journal, size_t count)
{
	const json_t *records = neap_journal_records(journal);
	assert_int_equal(json_array_size(records), count);
	for (size_t i = 0; i < count; i++)
		assert_int_equal(json_integer_value(json_object_get(json_array_get(records, i), "n")), i);
}

static void test_crc(void **state)
{
	(void)state;
	assert_int_equal(neap_journal_crc("123456789", 9), 0xcbf43926); /* the catalogue's check value */
	assert_int_equal(neap_journal_crc("", 0), 0);
}

static void test_append_and_open(void **state)
{
	(void)state;
	struct neap_journal *journal = open_journal();
	check(journal, 0);
	append(journal, 0);
	append(journal, 1);
	check(journal, 2);
	neap_journal_close(journal);
	journal = open_journal();
	check(journal, 2);
	assert_int_equal(neap_journal_dropped(journal), 0);
	append(journal, 2);
	neap_journal_close(journal);
	journal = open_journal();
	check(journal, 3);
	neap_journal_close(journal);
}

/* Cut at every byte: the whole lines stay, the rest is dropped, and appending continues. */
/* How many records a reader sees; reading changes nothing. */
static size_t count_read(size_t expected_bytes)
{
	json_t *records = NULL;
	struct neap_error err = {0};
	struct neap_buffer whole = {0};
	if (neap_journal_read(folder, &records, &err))
		fail_msg("%s", err.message);
	assert_int_equal(neap_file_read(path, 4096, &whole, NULL), NEAP_OK);
	assert_int_equal(whole.length, expected_bytes);
	neap_buffer_fini(&whole);
	size_t count = json_array_size(records);
	json_decref(records);
	return count;
}

static void test_every_cut(void **state)
{
	(void)state;
	struct neap_buffer whole = {0};
	struct neap_journal *journal = open_journal();
	for (int i = 0; i < 3; i++)
		append(journal, i);
	neap_journal_close(journal);
	assert_int_equal(neap_file_read(path, 4096, &whole, NULL), NEAP_OK);
	for (size_t cut = 0; cut <= whole.length; cut++) {
		size_t lines = 0, end = 0;
		for (size_t i = 0; i < cut; i++)
			if (whole.data[i] == '\n') {
				lines++;
				end = i + 1;
			}
		assert_int_equal(neap_file_write(path, whole.data, cut, NULL), NEAP_OK);
		assert_int_equal(count_read(cut), lines);
		journal = open_journal();
		assert_int_equal(count_read(end), lines); /* also while a writer has it open */
		check(journal, lines);
		assert_int_equal(neap_journal_dropped(journal), cut - end);
		append(journal, (int)lines);
		neap_journal_close(journal);
		journal = open_journal();
		check(journal, lines + 1);
		assert_int_equal(neap_journal_dropped(journal), 0);
		neap_journal_close(journal);
	}
	neap_buffer_fini(&whole);
}

/* One byte changed anywhere: in the last line that is a cut tail, in an earlier line damage, reported with its
 * place. */
static void test_every_damage(void **state)
{
	(void)state;
	struct neap_buffer whole = {0};
	struct neap_journal *journal = open_journal();
	for (int i = 0; i < 3; i++)
		append(journal, i);
	neap_journal_close(journal);
	assert_int_equal(neap_file_read(path, 4096, &whole, NULL), NEAP_OK);
	size_t line = whole.length / 3; /* all are of one length */
	for (size_t at = 0; at < whole.length; at++) {
		struct neap_error err = {0};
		char place[64];
		whole.data[at] ^= 0x01;
		assert_int_equal(neap_file_write(path, whole.data, whole.length, NULL), NEAP_OK);
		json_t *records = NULL;
		enum neap_status read = neap_journal_read(folder, &records, NULL);
		json_decref(records);
		enum neap_status status = neap_journal_open(folder, &journal, &err);
		assert_int_equal(read, status);
		if (at == 2 * line - 1) { /* the newline before the last line: the two become one bad tail */
			assert_int_equal(status, NEAP_OK);
			check(journal, 1);
		} else if (at >= 2 * line) {
			assert_int_equal(status, NEAP_OK);
			check(journal, 2);
		} else {
			assert_int_equal(status, NEAP_EPARSE);
			snprintf(place, sizeof place, "damaged at byte %zu:", at / line * line);
			assert_non_null(strstr(err.message, place));
			assert_non_null(strstr(err.message, path));
			journal = NULL;
		}
		neap_journal_close(journal);
		whole.data[at] ^= 0x01;
	}
	neap_buffer_fini(&whole);
}

static void test_lock(void **state)
{
	(void)state;
	struct neap_journal *journal = open_journal();
	pid_t holder = getpid(), child = fork();
	assert_int_not_equal(child, -1);
	if (!child) {
		struct neap_journal *second = NULL;
		struct neap_error err = {0};
		char expected[128];
		snprintf(expected, sizeof expected, "%s: another series process holds it: %ld", folder, (long)holder);
		int bad = neap_journal_open(folder, &second, &err) != NEAP_EBUSY || strcmp(err.message, expected) ||
			  second;
		_exit(bad);
	}
	int status = -1;
	assert_int_equal(waitpid(child, &status, 0), child);
	assert_int_equal(status, 0);
	neap_journal_close(journal);
	journal = open_journal();
	neap_journal_close(journal);
}

/* The disk is full in the middle of a record: reported, and the next opening continues after the last whole one. */
static void test_disk_ends(void **state)
{
	(void)state;
	struct neap_journal *journal = open_journal();
	append(journal, 0);
	neap_journal_close(journal);
	pid_t child = fork();
	assert_int_not_equal(child, -1);
	if (!child) {
		struct neap_error err = {0};
		struct rlimit limit = {50, 50}; /* seven bytes into the second record */
		signal(SIGXFSZ, SIG_IGN);
		json_t *record = json_pack("{s:i}", "n", 1);
		if (neap_journal_open(folder, &journal, &err) || setrlimit(RLIMIT_FSIZE, &limit))
			_exit(1);
		enum neap_status status = neap_journal_append(journal, record, &err);
		_exit(!status || !strstr(err.message, path) || json_array_size(neap_journal_records(journal)) != 1);
	}
	int status = -1;
	assert_int_equal(waitpid(child, &status, 0), child);
	assert_int_equal(status, 0);
	journal = open_journal();
	check(journal, 1);
	append(journal, 1);
	neap_journal_close(journal);
	journal = open_journal();
	check(journal, 2);
	neap_journal_close(journal);
}

static void test_nowhere(void **state)
{
	(void)state;
	struct neap_journal *journal = NULL;
	struct neap_error err = {0};
	assert_int_not_equal(neap_journal_open("/proc/nowhere", &journal, &err), NEAP_OK);
	assert_non_null(strstr(err.message, "/proc/nowhere"));
	assert_null(journal);
}

int main(void)
{
	const struct CMUnitTest tests[] = {
		cmocka_unit_test(test_crc),
		cmocka_unit_test_setup_teardown(test_append_and_open, set_up, tear_down),
		cmocka_unit_test_setup_teardown(test_every_cut, set_up, tear_down),
		cmocka_unit_test_setup_teardown(test_every_damage, set_up, tear_down),
		cmocka_unit_test_setup_teardown(test_lock, set_up, tear_down),
		cmocka_unit_test_setup_teardown(test_disk_ends, set_up, tear_down),
		cmocka_unit_test(test_nowhere),
	};
	return cmocka_run_group_tests(tests, NULL, NULL);
}
