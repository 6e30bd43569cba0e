/* A checkpoint becomes visible whole, by commit, or not at all. */
#include "neap/checkpoint.h"

#include "support/test.h"

#include <dirent.h>
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
	if (make_folder(folder, "checkpoint"))
		return -1;
	snprintf(path, sizeof path, "%s/model.bin", folder);
	return 0;
}

static int tear_down(void **state)
{
	(void)state;
	unlink(path);
	return rmdir(folder);
}

static void assert_content(const char *text)
{
	char bytes[256] = "";
	FILE *file = fopen(path, "r");

	assert_non_null(file);
	size_t length = fread(bytes, 1, sizeof bytes - 1, file);
	fclose(file);
	assert_int_equal(length, strlen(text));
	assert_string_equal(bytes, text);
}

/* Counts the files in the folder: a temporary that was left behind would show. */
static size_t files(void)
{
	struct dirent *entry;
	size_t count = 0;
	DIR *open_folder = opendir(folder);

	assert_non_null(open_folder);
	while ((entry = readdir(open_folder)))
		count += entry->d_name[0] != '.';
	closedir(open_folder);
	return count;
}

static void save(const char *first, const char *second)
{
	struct neap_checkpoint *checkpoint = NULL;
	struct neap_error err = {0};

	assert_int_equal(neap_checkpoint_begin(path, &checkpoint, &err), NEAP_OK);
	assert_int_equal(neap_checkpoint_write(checkpoint, first, strlen(first), &err), NEAP_OK);
	assert_int_equal(neap_checkpoint_write(checkpoint, second, strlen(second), &err), NEAP_OK);
	assert_int_equal(neap_checkpoint_commit(checkpoint, &err), NEAP_OK);
}

static void test_commit(void **state)
{
	struct neap_checkpoint *checkpoint = NULL;

	(void)state;
	save("step ", "1");
	assert_content("step 1");
	assert_int_equal(neap_checkpoint_begin(path, &checkpoint, NULL), NEAP_OK);
	assert_int_equal(neap_checkpoint_write(checkpoint, "half of step 2", 14, NULL), NEAP_OK);
	assert_content("step 1"); /* until it is committed */
	neap_checkpoint_abort(checkpoint);
	assert_content("step 1");
	assert_int_equal(files(), 1);
	save("step ", "3");
	assert_content("step 3");
	assert_int_equal(files(), 1);
	neap_checkpoint_abort(NULL);
}

static void test_begin_fails(void **state)
{
	struct neap_checkpoint *checkpoint = (struct neap_checkpoint *)0x1;
	struct neap_error err = {0};

	(void)state;
	assert_int_equal(neap_checkpoint_begin("/nowhere/at/all/model", &checkpoint, &err), NEAP_ENOENT);
	assert_non_null(strstr(err.message, "/nowhere/at/all/model"));
	assert_int_equal(neap_checkpoint_begin("", &checkpoint, &err), NEAP_EINVAL);
	assert_int_equal(neap_checkpoint_begin(NULL, &checkpoint, NULL), NEAP_EINVAL);
	assert_ptr_equal(checkpoint, (struct neap_checkpoint *)0x1);
}

/* A disk that fills (here: the process's file size limit) fails the new checkpoint and keeps the old one. */
static void test_full(void **state)
{
	struct neap_checkpoint *checkpoint = NULL;
	struct neap_error err = {0}, again = {0};
	struct rlimit limit, small;
	static char block[4096];

	(void)state;
	save("the old ", "one");
	signal(SIGXFSZ, SIG_IGN);
	assert_int_equal(getrlimit(RLIMIT_FSIZE, &limit), 0);
	small = (struct rlimit){.rlim_cur = 10000, .rlim_max = limit.rlim_max};
	assert_int_equal(setrlimit(RLIMIT_FSIZE, &small), 0);
	enum neap_status began = neap_checkpoint_begin(path, &checkpoint, &err);
	enum neap_status first = neap_checkpoint_write(checkpoint, block, sizeof block, &err);
	enum neap_status second = neap_checkpoint_write(checkpoint, block, sizeof block, &err);
	enum neap_status third = neap_checkpoint_write(checkpoint, block, sizeof block, &err);
	size_t left = files();
	enum neap_status fourth = neap_checkpoint_write(checkpoint, "x", 1, &again);
	enum neap_status commit = neap_checkpoint_commit(checkpoint, &again);
	assert_int_equal(setrlimit(RLIMIT_FSIZE, &limit), 0);
	signal(SIGXFSZ, SIG_DFL);
	assert_int_equal(began, NEAP_OK);
	assert_int_equal(first, NEAP_OK);
	assert_int_equal(second, NEAP_OK);
	assert_true(third == NEAP_EIO || third == NEAP_ENOSPC);
	assert_int_equal(fourth, third); /* a file with a hole in the middle is never committed */
	assert_int_equal(commit, third);
	assert_non_null(strstr(err.message, path));
	assert_string_equal(err.message, again.message);
	assert_int_equal(left, 1); /* the temporary's space was freed at once */
	assert_int_equal(files(), 1);
	assert_content("the old one");
}

/* Killed in the middle of writing: the old file is whole. */
static void test_killed(void **state)
{
	int ready[2], status = 0;
	char byte, temporary[200];

	(void)state;
	save("the old ", "one");
	assert_int_equal(pipe(ready), 0);
	pid_t child = fork();
	assert_true(child >= 0);
	if (child == 0) {
		struct neap_checkpoint *checkpoint = NULL;
		if (neap_checkpoint_begin(path, &checkpoint, NULL) != NEAP_OK ||
		    neap_checkpoint_write(checkpoint, "new", 3, NULL) != NEAP_OK || write(ready[1], "x", 1) != 1)
			_exit(1);
		for (;;)
			pause();
	}
	close(ready[1]);
	assert_int_equal(read(ready[0], &byte, 1), 1);
	close(ready[0]);
	kill(child, SIGKILL);
	assert_int_equal(waitpid(child, &status, 0), child);
	assert_content("the old one");
	assert_int_equal(files(), 2); /* the name of a temporary that could not be removed says whose it was */
	snprintf(temporary, sizeof temporary, "%s.tmp-%d-0", path, (int)child);
	assert_int_equal(unlink(temporary), 0);
}

int main(void)
{
	const struct CMUnitTest tests[] = {
		cmocka_unit_test_setup_teardown(test_commit, set_up, tear_down),
		cmocka_unit_test_setup_teardown(test_begin_fails, set_up, tear_down),
		cmocka_unit_test_setup_teardown(test_full, set_up, tear_down),
		cmocka_unit_test_setup_teardown(test_killed, set_up, tear_down),
	};
	return cmocka_run_group_tests(tests, NULL, NULL);
}
