/* Which runs are deleted, and that nothing else is: no running run, no foreign file, no target of a link. */
#include "series/prune.h"

#include "base/file.h"
#include "series/journal.h"
#include "support/test.h"

#include <errno.h>
#include <fcntl.h>
#include <jansson.h>
#include <signal.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/file.h>
#include <sys/prctl.h>
#include <sys/stat.h>
#include <sys/wait.h>
#include <time.h>
#include <unistd.h>

#define SECOND 1000000000ull

static char state_folder[64], outside[64];
static const char *architecture; /* ARCHITECTURE.md */

static int setup(void **state)
{
	(void)state;
	strcpy(state_folder, "/tmp/neap-prune-XXXXXX");
	strcpy(outside, "/tmp/neap-outside-XXXXXX");
	return !mkdtemp(state_folder) || !mkdtemp(outside);
}

static int teardown(void **state)
{
	char command[256];
	(void)state;
	snprintf(command, sizeof command, "rm -rf %s %s", state_folder, outside);
	return system(command);
}

static const char *at(const char *below)
{
	static char paths[8][256];
	static unsigned next;
	char *path = paths[next++ % 8];
	snprintf(path, 256, "%s/%s", state_folder, below);
	return path;
}

static bool is_there(const char *below)
{
	struct stat info;
	return !lstat(at(below), &info);
}

/* A file of this many bytes, written `ago` seconds ago. */
static void put(const char *below, size_t bytes, time_t ago)
{
	char *text = calloc(1, bytes + 1);
	const char *path = at(below);
	const struct timespec written[] = {{time(NULL) - ago, 0}, {time(NULL) - ago, 0}};
	assert_int_equal(neap_file_write(path, text, bytes, NULL), NEAP_OK);
	assert_int_equal(utimensat(AT_FDCWD, path, written, 0), 0);
	free(text);
}

/* FOLDER with a lock, the files of its stage and a recording of 64 KiB. */
static void put_run(const char *folder, const char *stage, time_t ago)
{
	char name[300];
	assert_int_equal(neap_make_folder(at(folder), 0755, NULL), NEAP_OK);
	snprintf(name, sizeof name, "%s/lock", folder);
	put(name, 0, ago);
	snprintf(name, sizeof name, "%s/record.17", folder);
	put(name, 65536, ago);
	snprintf(name, sizeof name, "%s/%s", folder, stage);
	if (*stage)
		put(name, 10, ago);
}

static struct neap_prune_done apply(const struct neap_prune_rules *rules)
{
	struct neap_prune prune = {0};
	struct neap_prune_done done;
	assert_int_equal(neap_prune_scan(state_folder, rules->recordings, false, &prune, NULL), NEAP_OK);
	neap_prune_plan(&prune, rules);
	neap_prune_apply(&prune, rules->recordings, &done);
	neap_prune_fini(&prune);
	return done;
}

static const struct neap_prune_rules all = {0}, all_recordings = {.recordings = true};

/* --- deciding --- */

#define RUNS 5

/* Newest first: r4 of 400 s and 5000 bytes, ... r0 of 0 s and 1000; r2 has no recording. */
static void plan(const struct neap_prune_rules *rules, const char *expected)
{
	static char folders[RUNS][4] = {"r4", "r3", "r2", "r1", "r0"}, none[] = "", series[] = "nightly", ok[] = "ok",
		    lost[] = "lost", name[] = "train";
	struct neap_prune_run runs[RUNS];
	char gone[RUNS + 1] = "";
	for (uint64_t i = 0; i < RUNS; i++)
		runs[i] = (struct neap_prune_run){.folder = folders[i],
						  .series = i == 1 ? series : none,
						  .name = i < 3 ? name : none,
						  .outcome = i == 3 ? lost : ok,
						  .ended_wall_ns = (RUNS - 1 - i) * 100 * SECOND,
						  .bytes = (RUNS - i) * 1000,
						  .recording_bytes = i == 2 ? 0 : 500};
	struct neap_prune prune = {.runs = runs, .count = RUNS};
	neap_prune_plan(&prune, rules);
	for (size_t i = 0; i < RUNS; i++)
		gone[i] = runs[i].goes ? 'x' : '.';
	assert_string_equal(gone, expected);
}

#define PLAN(expected, ...) plan(&(struct neap_prune_rules){__VA_ARGS__}, expected)

static void test_plan(void **state)
{
	(void)state;
	PLAN("xxxxx", .max = 0);
	PLAN("...xx", .until_wall_ns = 200 * SECOND); /* before, not at */
	PLAN("xxx..", .since_wall_ns = 200 * SECOND);
	PLAN(".xxxx", .has_max = true, .max = 1);
	PLAN("xxxxx", .has_max = true, .max = 0);
	PLAN(".....", .has_max = true, .max = RUNS);
	PLAN("..xxx", .has_max_bytes = true, .max_bytes = 9000); /* 5000 + 4000 are not more than that */
	PLAN(".xxxx", .has_max_bytes = true, .max_bytes = 8999);
	PLAN("xxxxx", .has_max_bytes = true, .max_bytes = 0);
	PLAN("..xxx", .has_max_bytes = true, .max_bytes = 0, .keep_last = 2);
	PLAN(".xxxx", .keep_last = 1);
	PLAN(".....", .keep_last = RUNS);
	PLAN("...xx", .has_max = true, .max = 3, .has_max_bytes = true, .max_bytes = 15000);
	PLAN("..xxx", .has_max = true, .max = 4, .until_wall_ns = 201 * SECOND);
	/* Filters: runs that do not pass are neither deleted nor counted. */
	PLAN(".x...", .series = "night*");
	PLAN("x.xxx", .series = "");
	PLAN("xxx..", .name = "tr?in");
	PLAN("...x.", .outcome = "lost");
	PLAN("..x..", .name = "train", .has_max = true, .max = 2);
	/* Recordings: skips runs without one. */
	PLAN("xx.xx", .recordings = true);
	PLAN("...xx", .recordings = true, .has_max_bytes = true, .max_bytes = 1000);
	PLAN("....x", .recordings = true, .has_max = true, .max = 3);
}

static void test_names(void **state)
{
	static const char *const ours[] = {
		"lock",         "spec.json",        "result.json",       "result.json.tmp-12-0",
		"record.12",    "record.12.tmp-12", "start-3.record.12", "start-12.oom.9",
		"note.1",       "stdout.log",       "room.a1B2c3",       "owner.a1B2c3",
		"simulated.77", "stacks.12",        "start-1.stacks.12", "kept.12",
		"kept.12.tmp-7"};
	static const char *const others[] = {"record.",         "record.x", "record.12.pt", "start-.record.1",
					     "start-1record.1", "model.pt", "lock2",        "result.json~",
					     "room.a1B2c",      "starts",   ".tmp-1",       "start-1.lock",
					     "results.json",    "note.1x"};
	(void)state;
	for (size_t i = 0; i < sizeof ours / sizeof *ours; i++)
		if (!neap_prune_is_ours(ours[i]))
			fail_msg("%s is neap's", ours[i]);
	for (size_t i = 0; i < sizeof others / sizeof *others; i++)
		if (neap_prune_is_ours(others[i]))
			fail_msg("%s is not neap's", others[i]);
}

/* Each file of a run's folder in ARCHITECTURE.md: a folder with another file is never deleted. */
static void test_documented_names(void **state)
{
	char line[1024], name[64];
	size_t count = 0;
	FILE *file = fopen(architecture, "r");
	(void)state;
	assert_non_null(file);
	while (fgets(line, sizeof line, file)) {
		const char *cell = strchr(line, '|');
		for (const char *at = line;
		     cell == line && (at = strstr(at, "`RUN/")) && at < strchr(line + 1, '|');) {
			at += 5;
			size_t length = strcspn(at, "`"), pid = strcspn(at, "P");
			bool numbered = pid < length && !strncmp(at + pid, "PID", 3);
			snprintf(name, sizeof name, "%.*s%s%.*s", (int)(numbered ? pid : length), at,
				 numbered ? "17" : "", (int)(numbered ? length - pid - 3 : 0),
				 numbered ? at + pid + 3 : "");
			if (!neap_prune_is_ours(name))
				fail_msg("%s (%s) is neap's", name, line);
			count++;
		}
	}
	fclose(file);
	assert_true(count >= 10);
}

/* --- doing --- */

static void test_stages(void **state)
{
	(void)state;
	put_run("runs/over", "result.json", 10);
	put_run("runs/lost", "began", 10);
	put_run("runs/ended", "ended", 7200); /* its result has not been made yet */
	put_run("runs/begins", "", 10);
	put_run("runs/unbegun", "", 7200);
	mkdir(at("runs/empty"), 0755); /* a run makes its folder, and then the lock */
	put("runs/file", 10, 7200);
	struct neap_prune_done done = apply(&all);
	assert_int_equal(done.runs, 3);
	assert_int_equal(done.busy + done.foreign + done.failed, 0);
	assert_true(done.bytes >= 3 * 65536);
	assert_false(is_there("runs/over") || is_there("runs/lost") || is_there("runs/unbegun"));
	assert_true(is_there("runs/ended/record.17") && is_there("runs/begins/record.17"));
	assert_true(is_there("runs/empty") && is_there("runs/file"));
	assert_int_equal(rmdir(at("runs/empty")), 0);
}

static void test_recordings_alone(void **state)
{
	(void)state;
	put_run("runs/some", "result.json", 10);
	put("runs/some/start-1.record.16", 4096, 10);
	put("runs/some/model.pt", 4096, 10);
	put("runs/some/record.best", 4096, 10);
	struct neap_prune_done done = apply(&all_recordings);
	assert_int_equal(done.runs, 1);
	assert_int_equal(done.foreign, 0);
	assert_false(is_there("runs/some/record.17") || is_there("runs/some/start-1.record.16"));
	assert_true(is_there("runs/some/result.json") && is_there("runs/some/lock") &&
		    is_there("runs/some/model.pt") && is_there("runs/some/record.best"));
}

/* A run that has not begun counts as one an hour after its folder was made, by the clock of the scan. */
static void test_unbegun_for_an_hour(void **state)
{
	struct timespec now;
	(void)state;
	put_run("runs/unbegun", "", 0);
	clock_gettime(CLOCK_REALTIME, &now);
	for (uint64_t minutes = 50; minutes <= 70; minutes += 20) {
		struct neap_prune prune = {.now_wall_ns = ((uint64_t)now.tv_sec + minutes * 60) * SECOND};
		assert_int_equal(neap_prune_scan(state_folder, false, false, &prune, NULL), NEAP_OK);
		assert_int_equal(prune.count, minutes > 60);
		neap_prune_fini(&prune);
	}
}

/* One run is under way at the scan, another only at the deletion: neither is deleted. */
static void test_locked(void **state)
{
	struct neap_prune prune = {0};
	struct neap_prune_done done;
	(void)state;
	put_run("runs/going", "result.json", 10);
	put_run("runs/quiet", "result.json", 20);
	int fd = open(at("runs/going/lock"), O_RDWR | O_CLOEXEC);
	assert_int_equal(flock(fd, LOCK_EX), 0);
	assert_int_equal(neap_prune_scan(state_folder, false, false, &prune, NULL), NEAP_OK);
	assert_int_equal(prune.count, 1);
	assert_int_equal(prune.busy, 1);
	assert_string_equal(prune.runs[0].folder, at("runs/quiet"));
	neap_prune_plan(&prune, &all);
	int second = open(at("runs/quiet/lock"), O_RDWR | O_CLOEXEC);
	assert_int_equal(flock(second, LOCK_EX), 0);
	neap_prune_apply(&prune, false, &done);
	assert_int_equal(done.runs, 0);
	assert_int_equal(done.busy, 1);
	close(fd);
	close(second);
	neap_prune_fini(&prune);
	assert_true(is_there("runs/quiet/record.17") && is_there("runs/going/record.17"));
}

static void test_what_is_not_ours(void **state)
{
	char kept[128], link[128];
	(void)state;
	put_run("runs/model", "result.json", 10);
	put("runs/model/model.pt", 10, 10);
	put_run("runs/sub", "result.json", 10);
	mkdir(at("runs/sub/note.1"), 0755); /* a folder under a name of ours */
	put_run("runs/links", "result.json", 10);
	snprintf(kept, sizeof kept, "%s/kept", outside);
	assert_int_equal(neap_file_write(kept, "x", 1, NULL), NEAP_OK);
	assert_int_equal(symlink(kept, at("runs/links/record.99")), 0);
	snprintf(link, sizeof link, "%s/run", outside); /* a run elsewhere, reached by a link */
	assert_int_equal(mkdir(link, 0755), 0);
	snprintf(kept, sizeof kept, "%s/run/lock", outside);
	assert_int_equal(neap_file_write(kept, "", 0, NULL), NEAP_OK);
	snprintf(kept, sizeof kept, "%s/run/result.json", outside);
	assert_int_equal(neap_file_write(kept, "x", 1, NULL), NEAP_OK);
	assert_int_equal(symlink(link, at("runs/elsewhere")), 0);
	struct neap_prune_done done = apply(&all);
	assert_int_equal(done.runs, 1);
	assert_int_equal(done.foreign, 2);
	assert_true(strstr(done.foreign_path, "/runs/model/model.pt") ||
		    strstr(done.foreign_path, "/runs/sub/note.1"));
	assert_true(is_there("runs/model/record.17") && is_there("runs/sub/result.json"));
	assert_false(is_there("runs/links"));
	assert_int_equal(access(kept, F_OK), 0);
	snprintf(kept, sizeof kept, "%s/kept", outside);
	assert_int_equal(access(kept, F_OK), 0);
}

/* A run's folder becomes a link between scan and deletion. */
static void test_replaced_by_a_link(void **state)
{
	struct neap_prune prune = {0};
	struct neap_prune_done done;
	char moved[128], result[160];
	(void)state;
	put_run("runs/moves", "result.json", 10);
	assert_int_equal(neap_prune_scan(state_folder, false, false, &prune, NULL), NEAP_OK);
	assert_int_equal(prune.count, 1);
	neap_prune_plan(&prune, &all);
	snprintf(moved, sizeof moved, "%s/moved", outside);
	assert_int_equal(rename(at("runs/moves"), moved), 0);
	assert_int_equal(symlink(moved, at("runs/moves")), 0);
	neap_prune_apply(&prune, false, &done);
	neap_prune_fini(&prune);
	assert_int_equal(done.runs, 0);
	assert_int_equal(done.failed, 1);
	snprintf(result, sizeof result, "%s/result.json", moved);
	assert_int_equal(access(result, F_OK), 0);
}

static void put_journal(const char *below, const char *last)
{
	struct neap_journal *journal = NULL;
	json_t *record = json_pack("{s:s}", "type", last);
	assert_int_equal(neap_journal_open(at(below), &journal, NULL), NEAP_OK);
	assert_int_equal(neap_journal_append(journal, record, NULL), NEAP_OK);
	json_decref(record);
	neap_journal_close(journal);
}

/* Another process holds the series, as --resume would: an fcntl lock belongs to a process. */
static pid_t resume(const char *below)
{
	int ends[2];
	char byte = 0;
	assert_int_equal(pipe(ends), 0);
	pid_t child = fork();
	if (child == 0) {
		struct neap_journal *journal = NULL;
		prctl(PR_SET_PDEATHSIG, SIGKILL); /* even if the test fails */
		if (neap_journal_open(at(below), &journal, NULL) == NEAP_OK && write(ends[1], "x", 1) == 1)
			pause();
		_exit(1);
	}
	assert_int_equal(read(ends[0], &byte, 1), 1);
	close(ends[0]);
	close(ends[1]);
	return child;
}

static void test_series(void **state)
{
	struct neap_prune prune = {0};
	struct neap_prune_done done;
	(void)state;
	put_run("series/done-0123abcd-2/runs/a-1", "result.json", 10);
	put_journal("series/done-0123abcd-2", "finish");
	put_run("series/open-0123abcd/runs/a-1", "result.json", 10);
	put_journal("series/open-0123abcd", "start");
	put_run("series/none-0123abcd/runs/a-1", "result.json", 10); /* no journal */
	/* Folders of attempts belong to the series. */
	done = apply(&all);
	assert_int_equal(done.runs, 0);
	assert_int_equal(neap_prune_scan(state_folder, true, false, &prune, NULL), NEAP_OK);
	assert_int_equal(prune.count, 1);
	assert_int_equal(prune.busy, 1);
	assert_string_equal(prune.runs[0].series, "done");
	neap_prune_plan(&prune, &all_recordings);
	pid_t child = resume("series/done-0123abcd-2");
	neap_prune_apply(&prune, true, &done);
	assert_int_equal(done.runs, 0);
	assert_int_equal(done.busy, 1);
	assert_true(is_there("series/done-0123abcd-2/runs/a-1/record.17"));
	kill(child, SIGKILL);
	waitpid(child, NULL, 0);
	neap_prune_apply(&prune, true, &done);
	assert_int_equal(done.runs, 1);
	assert_false(is_there("series/done-0123abcd-2/runs/a-1/record.17"));
	assert_true(is_there("series/done-0123abcd-2/runs/a-1/result.json"));
	assert_true(is_there("series/open-0123abcd/runs/a-1/record.17"));
	assert_true(is_there("series/none-0123abcd/runs/a-1/record.17"));
	/* Resumed before its deletion, and ended again. */
	put("series/done-0123abcd-2/runs/a-1/record.18", 10, 10);
	put_journal("series/done-0123abcd-2", "start");
	neap_prune_apply(&prune, true, &done);
	neap_prune_fini(&prune);
	assert_int_equal(done.runs, 0);
	assert_int_equal(done.busy, 1);
	assert_true(is_there("series/done-0123abcd-2/runs/a-1/record.18"));
}

/* With recordings of 64 KiB each, the oldest beyond the limit are deleted. */
static void test_default(void **state)
{
	struct neap_prune_done done;
	struct neap_error err = {0};
	(void)state;
	put_run("runs/old", "result.json", 30);
	put_run("runs/middle", "result.json", 20);
	put_run("runs/new", "result.json", 10);
	assert_int_equal(setenv(NEAP_PRUNE_VARIABLE, "unlimited", 1), 0);
	assert_int_equal(neap_prune_default(state_folder, at("runs/new"), true, &done, &err), NEAP_OK);
	assert_int_equal(done.runs, 0);
	assert_int_equal(setenv(NEAP_PRUNE_VARIABLE, "much", 1), 0);
	assert_int_equal(neap_prune_default(state_folder, at("runs/new"), true, &done, &err), NEAP_EPARSE);
	assert_non_null(strstr(err.message, NEAP_PRUNE_VARIABLE ": expected a size such as 512MiB"));
	assert_int_equal(unsetenv(NEAP_PRUNE_VARIABLE), 0); /* 1 GiB */
	assert_int_equal(neap_prune_default(state_folder, at("runs/new"), true, &done, &err), NEAP_OK);
	assert_int_equal(done.runs, 0);
	assert_true(is_there("runs/old/record.17"));
	assert_int_equal(setenv(NEAP_PRUNE_VARIABLE, "150KiB", 1), 0);
	assert_int_equal(neap_prune_default(state_folder, at("runs/new"), false, &done, &err), NEAP_OK);
	assert_int_equal(done.runs, 0); /* the run that ends has added nothing */
	assert_int_equal(neap_prune_default(state_folder, outside, true, &done, &err), NEAP_OK);
	assert_int_equal(done.runs, 0); /* nor has one in another folder */
	assert_int_equal(neap_prune_default(state_folder, at("runs/new"), true, &done, &err), NEAP_OK);
	assert_int_equal(done.runs, 1);
	assert_false(is_there("runs/old/record.17"));
	assert_true(is_there("runs/old/result.json") && is_there("runs/middle/record.17") &&
		    is_there("runs/new/record.17"));
	unsetenv(NEAP_PRUNE_VARIABLE);
}

int main(int argc, char **argv)
{
	if (argc != 2)
		return 2;
	architecture = argv[1];
	const struct CMUnitTest tests[] = {
		cmocka_unit_test(test_plan),
		cmocka_unit_test(test_names),
		cmocka_unit_test(test_documented_names),
		cmocka_unit_test_setup_teardown(test_stages, setup, teardown),
		cmocka_unit_test_setup_teardown(test_recordings_alone, setup, teardown),
		cmocka_unit_test_setup_teardown(test_unbegun_for_an_hour, setup, teardown),
		cmocka_unit_test_setup_teardown(test_locked, setup, teardown),
		cmocka_unit_test_setup_teardown(test_what_is_not_ours, setup, teardown),
		cmocka_unit_test_setup_teardown(test_replaced_by_a_link, setup, teardown),
		cmocka_unit_test_setup_teardown(test_series, setup, teardown),
		cmocka_unit_test_setup_teardown(test_default, setup, teardown),
	};
	return cmocka_run_group_tests(tests, NULL, NULL);
}
