/* Every system call of an apply fails in turn, and the process is killed before each: the files that the plan keeps
 * always stay, nothing is half deleted outside the trash, and the next apply finishes the work. */
#include "apply_world.h"

#include "base/file.h"
#include "base/owner.h"

#include <dirent.h>
#include <errno.h>
#include <fcntl.h>
#include <ftw.h>
#include <signal.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/stat.h>
#include <sys/wait.h>
#include <unistd.h>

static void save_it_again(void) { put_in(folder, checkpoints[0].name, "saved again", 0); }

/* NFS cannot, in one step, rename and refuse a name that is taken. A file that is saved at that very instant, under
 * the name of one that is being restored, stays. Otherwise the old one comes back, be it a file or a folder. */
static void test_restore_over_nfs(void **state)
{
	(void)state;
	struct neap_retention_options options = rules;
	struct neap_retention_result result;
	struct neap_error err = {0};
	char path[512], text[32] = "";

	start_empty();
	options.trash_ns = DAY_NS;
	struct neap_retention_plan made = plan();
	failing_calls.plain_renames = true;
	assert_int_equal(neap_retention_apply(&made, &options, &result, &err), NEAP_OK);
	neap_retention_plan_fini(&made);
	assert_int_equal(result.moved_count, 5);
	failing_calls.meanwhile = save_it_again;
	assert_int_equal(neap_retention_restore(folder, checkpoints[0].name, &result, &err), NEAP_EEXIST);
	assert_null(failing_calls.meanwhile);
	snprintf(path, sizeof path, "%s/%s", folder, checkpoints[0].name);
	int fd = open(path, O_RDONLY);
	assert_int_equal(read(fd, text, sizeof text), strlen("saved again"));
	close(fd);
	assert_string_equal(text, "saved again");
	assert_int_equal(unlink(path), 0);
	enum neap_status status = neap_retention_restore(folder, "*", &result, &err);
	failing_calls.plain_renames = false;
	assert_int_equal(status, NEAP_OK);
	assert_int_equal(result.restored_count, 5);
	for (size_t i = 0; i < CHECKPOINTS; i++)
		assert_true(is_whole(folder, &checkpoints[i]));
}

/* Without locks an owner's file keeps others out if its process lives, but not if it is gone. */
static void test_without_locks(void **state)
{
	struct neap_retention_result result;
	struct neap_error err = {0};
	char path[512], name[256] = "", byte;
	struct dirent *entry;
	int ready[2];

	(void)state;
	start_empty();
	failing_calls.no_locks = true;
	struct neap_retention_plan made = plan();
	assert_int_equal(neap_retention_apply(&made, &rules, &result, &err), NEAP_OK);
	neap_retention_plan_fini(&made);
	assert_int_equal(result.moved_count, 5);
	snprintf(path, sizeof path, "%s/" TRASH, folder);
	DIR *trash = opendir(path);
	while ((entry = readdir(trash)))
		if (!strncmp(entry->d_name, "until-", 6))
			snprintf(name, sizeof name, "%s", entry->d_name);
	closedir(trash);
	snprintf(path, sizeof path, "%s/" TRASH "/%.200s/.lock", folder, name);
	assert_false(exists_in(path, "owner")); /* left again */
	assert_int_equal(mkdir(path, 0755), 0);
	assert_int_equal(pipe(ready), 0);
	pid_t child = fork();
	assert_true(child >= 0);
	if (child == 0) {
		if (neap_owner_take(path, NULL) != NEAP_OK || write(ready[1], "", 1) != 1)
			_exit(1);
		pause();
	}
	assert_int_equal(read(ready[0], &byte, 1), 1);
	assert_int_equal(neap_retention_restore(folder, "*", &result, &err), NEAP_EBUSY);
	assert_int_equal(result.restored_count, 0);
	assert_int_equal(neap_retention_empty_trash(folder, true, &result, &err), NEAP_EBUSY);
	assert_non_null(strstr(err.message, "if it is gone, remove the folder .lock"));
	assert_int_equal(kill(child, SIGKILL), 0);
	assert_int_equal(waitpid(child, NULL, 0), child);
	if (neap_retention_restore(folder, "*", &result, &err) != NEAP_OK)
		fail_msg("%s", err.message);
	assert_int_equal(result.restored_count, 5);
	for (size_t i = 0; i < CHECKPOINTS; i++)
		assert_true(is_whole(folder, &checkpoints[i]));
	assert_false(exists_in(folder, TRASH));
	failing_calls.no_locks = false;
	close(ready[0]);
	close(ready[1]);
}

/* The newest is flushed before anything else changes; if that fails, nothing goes. */
static void test_newest_first(void **state)
{
	(void)state;
	struct neap_retention_result result;
	struct neap_error err = {0};
	struct stat newest;
	char path[512];

	start_empty();
	struct neap_retention_plan made = plan();
	snprintf(path, sizeof path, "%s/epoch=7.ckpt", folder);
	assert_int_equal(stat(path, &newest), 0);
	failing_calls = (struct failing_calls){.armed = true, .writing_only = true, .proc = proc};
	failing_calls.fail_at = 1;
	failing_calls.error = EIO;
	enum neap_status status = neap_retention_apply(&made, &rules, &result, &err);
	struct failing_calls seen = failing_calls;
	failing_calls = (struct failing_calls){.proc = proc};
	assert_int_equal(seen.flushed_at, 1);
	assert_int_equal(seen.flushed_inode, newest.st_ino);
	assert_int_equal(status, NEAP_EIO);
	assert_int_equal(result.moved_count, 0);
	for (size_t i = 0; i < CHECKPOINTS; i++)
		assert_true(is_whole(folder, &checkpoints[i]));
	neap_retention_plan_fini(&made);
}

/* Runs in a child with the calls armed. Exit status 0: apply reported success; 1: it did not. */
static int apply_armed(const struct neap_retention_options *options, struct failing_calls armed)
{
	struct neap_retention_plan made = plan();
	int status = 0;

	assert_int_equal(made.drop_count, 5);
	pid_t child = fork();
	assert_true(child >= 0);
	if (child == 0) {
		struct neap_retention_result result;
		struct neap_error err = {0};

		failing_calls = armed;
		failing_calls.armed = true;
		failing_calls.proc = proc;
		enum neap_status applied = neap_retention_apply(&made, options, &result, &err);
		failing_calls.armed = false;
		if (applied != NEAP_OK && (applied != err.status || !strstr(err.message, folder)))
			_exit(3);
		_exit(applied == NEAP_OK ? 0 : 1);
	}
	assert_int_equal(waitpid(child, &status, 0), child);
	neap_retention_plan_fini(&made);
	if (WIFSIGNALED(status))
		return -WTERMSIG(status);
	return WEXITSTATUS(status);
}

/* Applies twice: what was split is first restored whole, and goes with the next plan. */
static void finish(const struct neap_retention_options *options)
{
	struct neap_retention_result result;
	struct neap_error err = {0};

	for (int round = 0; round < 2; round++) {
		struct neap_retention_plan made = plan();

		if (neap_retention_apply(&made, options, &result, &err) != NEAP_OK)
			fail_msg("%s", err.message);
		neap_retention_plan_fini(&made);
	}
}

/* How many calls an undisturbed apply makes: this process counts them. */
static unsigned long count_calls(const struct neap_retention_options *options)
{
	struct neap_retention_plan made;
	struct neap_retention_result result;

	start_empty();
	made = plan();
	failing_calls.asked = failing_calls.fail_at = failing_calls.kill_at = 0;
	failing_calls.armed = true;
	assert_int_equal(neap_retention_apply(&made, options, &result, NULL), NEAP_OK);
	failing_calls.armed = false;
	assert_int_equal(result.moved_count, 5);
	assert_int_equal(result.failed_count, 0);
	assert_int_equal(result.deleted_count, options->trash_ns ? 1 : 6);
	neap_retention_plan_fini(&made);
	check("undisturbed", 0, options->trash_ns != 0, true);
	return failing_calls.asked;
}

/* Under a sanitizer a fork takes several times as long: test every third instant. */
#ifdef __SANITIZE_ADDRESS__
#define STEP 3
#else
#define STEP 1
#endif

static void try_all(bool with_trash)
{
	static const int errors[] = {EIO, EACCES, ENOSPC, ENOENT};
	struct neap_retention_options options = rules;
	unsigned long failures = 0, kills = 0, reported = 0;

	options.trash_ns = with_trash ? DAY_NS : 0;
	unsigned long calls = count_calls(&options);
	assert_true(calls > 50);
	for (unsigned long call = 1; call <= calls; call += STEP) {
		start_empty();
		assert_int_equal(apply_armed(&options, (struct failing_calls){.kill_at = call}), -SIGKILL);
		kills++;
		check("killed before call", call, with_trash, false);
		finish(&options);
		check("after a kill before call", call, with_trash, true);
		start_empty();
		int code = apply_armed(&options, (struct failing_calls){.fail_at = call, .error = errors[call % 4]});
		assert_true(code == 0 || code == 1);
		reported += code == 1;
		failures++;
		check("failed call", call, with_trash, false);
		finish(&options);
		check("after the failed call", call, with_trash, true);
	}
	printf("%s: %lu calls of an apply; %lu failed in turn (%lu of them reported as failures), killed at %lu "
	       "instants\n",
	       with_trash ? "into the trash" : "for good", calls, failures, reported, kills);
	assert_true(reported > failures / 3);
}

static void test_into_trash(void **state)
{
	(void)state;
	try_all(true);
}

static void test_for_good(void **state)
{
	(void)state;
	try_all(false);
}

/* The same for restoring: whole, here or in the trash, at any instant. */
static void test_restore(void **state)
{
	struct neap_retention_result result;
	struct neap_error err = {0};
	unsigned long calls = 0;
	bool beside;

	(void)state;
	for (unsigned long call = 0; call <= calls; call++) {
		start_empty();
		finish(&rules);
		pid_t child = call ? fork() : 0;
		if (child == 0) {
			failing_calls.asked = 0;
			failing_calls.kill_at = call;
			failing_calls.armed = true;
			enum neap_status status = neap_retention_restore(folder, "*", &result, &err);
			failing_calls.armed = false;
			if (call)
				_exit(status);
			assert_int_equal(status, NEAP_OK);
			assert_int_equal(result.restored_count, 5);
			calls = failing_calls.asked;
			continue;
		}
		int status = 0;
		assert_int_equal(waitpid(child, &status, 0), child);
		assert_true(WIFSIGNALED(status));
		check("restore killed before call", call, true, false);
		enum neap_status again = neap_retention_restore(folder, "*", &result, &err);
		assert_true(again == NEAP_OK || again == NEAP_ENOENT); /* nothing was left to restore */
		for (size_t i = 0; i < CHECKPOINTS; i++) {
			assert_true(is_whole(folder, &checkpoints[i]));
			assert_true(!checkpoints[i].sidecar || exists_in(folder, checkpoints[i].sidecar));
			assert_int_equal(in_trash(&checkpoints[i], &beside), 0);
		}
	}
	printf("restore: killed at %lu instants\n", calls);
	assert_true(calls > 10);
}

static enum neap_status save(const char *path, const char *content, struct neap_error *err)
{
	struct neap_checkpoint *checkpoint = NULL;
	enum neap_status status = neap_checkpoint_begin(path, &checkpoint, err);

	if (status)
		return status;
	status = neap_checkpoint_write(checkpoint, content, strlen(content), err);
	if (!status)
		return neap_checkpoint_commit(checkpoint, err);
	neap_checkpoint_abort(checkpoint);
	return status;
}

/* A save leaves the old file or the new one, whole, at any instant. A failure is reported and leaves the old one,
 * except in the last call (the flush of the folder), after which the new one is in place. */
static void test_save_calls(void **state)
{
	unsigned long calls = 0;
	char path[160];

	(void)state;
	start_empty();
	snprintf(path, sizeof path, "%s/epoch=8.ckpt", folder);
	for (unsigned long call = 0; call <= 2 * calls; call++) {
		struct neap_error err = {0};
		bool killing = call > calls;
		int status = 0;

		assert_int_equal(save(path, "the old one", NULL), NEAP_OK);
		pid_t child = call ? fork() : 0;
		if (child == 0) {
			failing_calls =
				(struct failing_calls){.armed = true, .error = call % 2 ? ENOSPC : EIO, .proc = proc};
			failing_calls.fail_at = killing ? 0 : call;
			failing_calls.kill_at = killing ? call - calls : 0;
			enum neap_status saved = save(path, "the new one", &err);
			failing_calls.armed = false;
			if (call)
				_exit(saved == NEAP_OK                                                ? 0
				      : strstr(err.message, "epoch=8") || strstr(err.message, folder) ? 1
												      : 2);
			assert_int_equal(saved, NEAP_OK);
			calls = failing_calls.asked;
			continue;
		}
		assert_int_equal(waitpid(child, &status, 0), child);
		assert_true(killing ? WIFSIGNALED(status) : WIFEXITED(status) && WEXITSTATUS(status) == 1);
		if (!holds(path, "the old one") && !holds(path, "the new one"))
			fail_msg("call %lu: neither the old one nor the new one", call);
		if (!killing && call + 2 < calls)
			assert_true(holds(path, "the old one"));
	}
	printf("a save: %lu calls failed in turn, killed at %lu instants\n", calls, calls);
	assert_true(calls >= 6);
}

int main(void)
{
	const struct CMUnitTest tests[] = {
		cmocka_unit_test_setup_teardown(test_newest_first, begin, end),
		cmocka_unit_test_setup_teardown(test_without_locks, begin, end),
		cmocka_unit_test_setup_teardown(test_into_trash, begin, end),
		cmocka_unit_test_setup_teardown(test_for_good, begin, end),
		cmocka_unit_test_setup_teardown(test_restore, begin, end),
		cmocka_unit_test_setup_teardown(test_restore_over_nfs, begin, end),
		cmocka_unit_test_setup_teardown(test_save_calls, begin, end),
	};
	return cmocka_run_group_tests(tests, NULL, NULL);
}
