/* Every system call of an apply fails in turn, and the process is killed before each: what the plan keeps is always
 * there, nothing is half deleted outside the trash, and the next apply finishes the work. */
#include "neap/checkpoint.h"

#include "base/file.h"
#include "base/owner.h"
#include "failing_calls.h"
#include "support/test.h"

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
#include <time.h>
#include <unistd.h>

#define DAY_NS (UINT64_C(86400) * 1000000000)
#define TRASH  ".neap-trash"

static char base[64], folder[128], proc[128];

/* A checkpoint is whole when all its parts hold their own names. */
struct checkpoint {
	const char *name;
	int age_days;
	const char *parts[3]; /* of a folder */
	const char *sidecar;
	bool goes;
	const char *others[2]; /* files that belong to it */
};

static const struct checkpoint checkpoints[] = {
	{"epoch=1-val_loss=0.9.ckpt", 30, {NULL}, NULL, true},
	{"epoch=2-val_loss=0.1.ckpt", 29, {NULL}, NULL, false}, /* best */
	{"epoch=3.ckpt", 28, {NULL}, "epoch=3.json", true},
	{"epoch=4-val_loss=0.8.ckpt", 27, {"a.bin", "b.bin", "deep/c.bin"}, "epoch=4-val_loss=0.8.ckpt.yaml", true},
	{"epoch=5-val_loss=0.7.ckpt", 26, {"a.bin", "b.bin", "deep/c.bin"}, NULL, false}, /* pinned */
	{"epoch=6-val_loss=0.6.ckpt", 25, {NULL}, NULL, true},
	{"epoch=7.ckpt", 24, {NULL}, "epoch=7.json", false}, /* newest */
	{"model_epoch_0.pt", 31, {NULL}, "model_epoch_0.json", true, {"optimizer_epoch_0.pt", "rng_epoch_0.pt"}},
};
enum { CHECKPOINTS = sizeof checkpoints / sizeof *checkpoints };

static void put(const char *path, const char *content, int age_days)
{
	const struct timespec when = {.tv_sec = time(NULL) - (time_t)age_days * 86400};
	int fd = open(path, O_WRONLY | O_CREAT | O_EXCL, 0644);

	assert_true(fd >= 0);
	assert_int_equal(write(fd, content, strlen(content)), strlen(content));
	assert_int_equal(futimens(fd, (struct timespec[]){when, when}), 0);
	close(fd);
}

static void put_in(const char *parent, const char *name, const char *content, int age_days)
{
	char path[512];

	snprintf(path, sizeof path, "%s/%s", parent, name);
	put(path, content, age_days);
}

static void make(const char *parent, const struct checkpoint *checkpoint)
{
	char path[512];

	if (!checkpoint->parts[0]) {
		put_in(parent, checkpoint->name, checkpoint->name, checkpoint->age_days);
	} else {
		snprintf(path, sizeof path, "%s/%s", parent, checkpoint->name);
		assert_int_equal(mkdir(path, 0755), 0);
		for (size_t i = 0; i < 3; i++) {
			if (strchr(checkpoint->parts[i], '/')) {
				snprintf(path, sizeof path, "%s/%s/deep", parent, checkpoint->name);
				assert_int_equal(mkdir(path, 0755), 0);
			}
			snprintf(path, sizeof path, "%s/%s/%s", parent, checkpoint->name, checkpoint->parts[i]);
			put(path, checkpoint->name, checkpoint->age_days);
		}
	}
	for (size_t i = 0; i < 2 && checkpoint->others[i]; i++)
		put_in(parent, checkpoint->others[i], checkpoint->others[i], checkpoint->age_days);
	if (checkpoint->sidecar)
		put_in(parent, checkpoint->sidecar,
		       strstr(checkpoint->sidecar, "json") ? "{\"val_loss\": 0.5}" : "val_loss: 0.8\n",
		       checkpoint->age_days);
}

static int remove_one(const char *path, const struct stat *info, int type, struct FTW *place)
{
	(void)info;
	(void)type;
	return place->level == 0 ? 0 : remove(path);
}

static void remove_all(void) { assert_int_equal(nftw(base, remove_one, 16, FTW_DEPTH | FTW_PHYS), 0); }

static void start_empty(void)
{
	char path[256];

	remove_all();
	snprintf(folder, sizeof folder, "%s/run", base);
	snprintf(proc, sizeof proc, "%s/proc", base);
	assert_int_equal(mkdir(folder, 0755), 0);
	assert_int_equal(mkdir(proc, 0755), 0);
	failing_calls.proc = proc;
	for (size_t i = 0; i < CHECKPOINTS; i++)
		make(folder, &checkpoints[i]);
	put_in(folder, "epoch=5-val_loss=0.7.ckpt.pin", "", 0);
	put_in(folder, "notes.txt", "notes.txt", 100);
	/* what has been in the trash for its time, and what a killed purge has left */
	snprintf(path, sizeof path, "%s/" TRASH, folder);
	assert_int_equal(mkdir(path, 0755), 0);
	snprintf(path, sizeof path, "%s/" TRASH "/until-1000-1-0", folder);
	assert_int_equal(mkdir(path, 0755), 0);
	make(path, &(struct checkpoint){"epoch=0.ckpt", 40, {"a.bin", "b.bin", "deep/c.bin"}, NULL, true});
	snprintf(path, sizeof path, "%s/" TRASH "/gone-until-900-1-0", folder);
	assert_int_equal(mkdir(path, 0755), 0);
	put_in(path, "half.ckpt", "half.ckpt", 40);
}

static const struct neap_retention_options rules = {
	.keep_best = 1, .older_than_ns = 7 * DAY_NS, .trash_ns = DAY_NS, .metric = "val_loss"};

static bool holds(const char *path, const char *content)
{
	char text[256] = "";
	int fd = open(path, O_RDONLY);

	if (fd < 0)
		return false;
	ssize_t length = read(fd, text, sizeof text - 1);
	close(fd);
	return length == (ssize_t)strlen(content) && !strcmp(text, content);
}

static bool exists_in(const char *parent, const char *name)
{
	struct stat info;
	char path[512];

	snprintf(path, sizeof path, "%s/%s", parent, name);
	return lstat(path, &info) == 0;
}

/* Its own name. */
static bool holds_in(const char *parent, const char *name)
{
	char path[512];

	snprintf(path, sizeof path, "%s/%s", parent, name);
	return holds(path, name);
}

static bool is_whole(const char *parent, const struct checkpoint *checkpoint)
{
	char path[512];
	bool whole = true;

	snprintf(path, sizeof path, "%s/%s", parent, checkpoint->name);
	if (!checkpoint->parts[0])
		whole = holds(path, checkpoint->name);
	for (size_t i = 0; i < 2 && checkpoint->others[i]; i++)
		whole = whole && holds_in(parent, checkpoint->others[i]);
	if (!checkpoint->parts[0])
		return whole;
	for (size_t i = 0; i < 3; i++) {
		snprintf(path, sizeof path, "%s/%s/%s", parent, checkpoint->name, checkpoint->parts[i]);
		whole = whole && holds(path, checkpoint->name);
	}
	return whole;
}

/* How many batches that can be restored hold it whole; -1: one holds a part of it. */
static int in_trash(const struct checkpoint *checkpoint, bool *ret_with_sidecar)
{
	struct dirent *entry;
	char path[400];
	int count = 0;

	snprintf(path, sizeof path, "%s/" TRASH, folder);
	DIR *trash = opendir(path);
	*ret_with_sidecar = false;
	while (trash && count >= 0 && (entry = readdir(trash))) {
		if (strncmp(entry->d_name, "until-", 6))
			continue;
		snprintf(path, sizeof path, "%s/" TRASH "/%.200s", folder, entry->d_name);
		if (!exists_in(path, checkpoint->name))
			continue;
		count = is_whole(path, checkpoint) ? count + 1 : -1;
		*ret_with_sidecar = checkpoint->sidecar && exists_in(path, checkpoint->sidecar);
	}
	if (trash)
		closedir(trash);
	return count;
}

/* Where a file is: bit 0: in the folder; bit 1: in a batch that can be restored. */
static unsigned places(const char *name)
{
	const struct checkpoint one = {.name = name};
	bool beside;

	return (unsigned)holds_in(folder, name) | (in_trash(&one, &beside) == 1 ? 2u : 0u);
}

static bool is_in_one_batch(const struct checkpoint *checkpoint)
{
	struct dirent *entry;
	char path[400];
	bool found = false;

	snprintf(path, sizeof path, "%s/" TRASH, folder);
	DIR *trash = opendir(path);
	while (trash && !found && (entry = readdir(trash))) {
		snprintf(path, sizeof path, "%s/" TRASH "/%.200s", folder, entry->d_name);
		found = is_whole(path, checkpoint);
	}
	if (trash)
		closedir(trash);
	return found;
}

/* Of several files: each is in one place; all are in the same one when apply has run to its end since. */
static void check_group(const struct checkpoint *checkpoint, const char *what, unsigned long call, bool with_trash,
			bool finished)
{
	unsigned all = 3, any = 0;

	for (size_t i = 0; i < 3; i++) {
		unsigned place = places(i == 0 ? checkpoint->name : checkpoint->others[i - 1]);

		all &= place;
		any |= place;
		if (place == 3 || (with_trash && place == 0))
			fail_msg("%s %lu: a part of %s is in %s", what, call, checkpoint->name,
				 place ? "two places" : "no place");
		if (place == 0 && exists_in(folder, checkpoint->name))
			fail_msg("%s %lu: a part of %s went for good before the rest", what, call, checkpoint->name);
	}
	if (finished && (all != any || (with_trash && !is_in_one_batch(checkpoint))))
		fail_msg("%s %lu: %s is split", what, call, checkpoint->name);
	if (finished && (any & 1))
		fail_msg("%s %lu: %s was not removed by the next apply", what, call, checkpoint->name);
}

/* After whatever happened. `finished`: apply has run to its end since. */
static void check(const char *what, unsigned long call, bool with_trash, bool finished)
{
	for (size_t i = 0; i < CHECKPOINTS; i++) {
		const struct checkpoint *checkpoint = &checkpoints[i];
		if (checkpoint->others[0]) {
			check_group(checkpoint, what, call, with_trash, finished);
			continue;
		}
		bool beside = false, here = exists_in(folder, checkpoint->name);
		int kept = in_trash(checkpoint, &beside);

		if (here && !is_whole(folder, checkpoint))
			fail_msg("%s %lu: %s is not whole", what, call, checkpoint->name);
		if (kept < 0 || (here && kept > 0) || kept > 1)
			fail_msg("%s %lu: %s is not whole in the trash, or in two places", what, call,
				 checkpoint->name);
		if (!checkpoint->goes && !here)
			fail_msg("%s %lu: %s should have stayed", what, call, checkpoint->name);
		if (here && checkpoint->sidecar && !exists_in(folder, checkpoint->sidecar))
			fail_msg("%s %lu: %s lost what stands beside it", what, call, checkpoint->name);
		if (checkpoint->goes && with_trash && !here && kept != 1)
			fail_msg("%s %lu: %s is lost", what, call, checkpoint->name);
		if (checkpoint->goes && finished && here)
			fail_msg("%s %lu: %s was not removed by the next apply", what, call, checkpoint->name);
		if (checkpoint->goes && finished && with_trash && checkpoint->sidecar && !beside)
			fail_msg("%s %lu: %s was not followed by what stood beside it", what, call, checkpoint->name);
		if (checkpoint->goes && finished && checkpoint->sidecar && exists_in(folder, checkpoint->sidecar))
			fail_msg("%s %lu: %s was left", what, call, checkpoint->sidecar);
	}
	assert_true(exists_in(folder, "notes.txt"));
	assert_false(finished && exists_in(folder, TRASH "/until-1000-1-0"));
	assert_false(finished && exists_in(folder, TRASH "/gone-until-900-1-0"));
	assert_false(finished && exists_in(folder, TRASH "/gone-until-1000-1-0-0"));
	assert_false(finished && !with_trash && exists_in(folder, TRASH));
}

static struct neap_retention_plan plan(void)
{
	struct neap_retention_plan made = {0};
	struct neap_error err = {0};

	if (neap_retention_plan_make(folder, &rules, 0, &made, &err) != NEAP_OK)
		fail_msg("%s", err.message);
	return made;
}

static void save_it_anew(void) { put_in(folder, checkpoints[0].name, "saved anew", 0); }

/* NFS cannot rename and refuse a name that is taken in one step: what is saved under the name of one that comes back,
 * at that very instant, stays; and else it comes back, a file as well as a folder. */
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
	failing_calls.meanwhile = save_it_anew;
	assert_int_equal(neap_retention_restore(folder, checkpoints[0].name, &result, &err), NEAP_EEXIST);
	assert_null(failing_calls.meanwhile);
	snprintf(path, sizeof path, "%s/%s", folder, checkpoints[0].name);
	int fd = open(path, O_RDONLY);
	assert_int_equal(read(fd, text, sizeof text), strlen("saved anew"));
	close(fd);
	assert_string_equal(text, "saved anew");
	assert_int_equal(unlink(path), 0);
	enum neap_status status = neap_retention_restore(folder, "*", &result, &err);
	failing_calls.plain_renames = false;
	assert_int_equal(status, NEAP_OK);
	assert_int_equal(result.restored_count, 5);
	for (size_t i = 0; i < CHECKPOINTS; i++)
		assert_true(is_whole(folder, &checkpoints[i]));
}

/* Where there are no locks an owner's file holds others off: a living one's, and not one whose process is gone. */
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

/* Before anything else is changed the newest is flushed; where that fails, nothing goes. */
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

/* In a child, with the calls armed: the exit status, 0 where apply said that all is well, 1 where not. */
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
		enum neap_status said = neap_retention_apply(&made, options, &result, &err);
		failing_calls.armed = false;
		if (said != NEAP_OK && (said != err.status || !strstr(err.message, folder)))
			_exit(3);
		_exit(said == NEAP_OK ? 0 : 1);
	}
	assert_int_equal(waitpid(child, &status, 0), child);
	neap_retention_plan_fini(&made);
	if (WIFSIGNALED(status))
		return -WTERMSIG(status);
	return WEXITSTATUS(status);
}

/* Twice: what was split comes back whole first, and goes with the next plan. */
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

/* How many calls an undisturbed apply makes: counted here, in this process. */
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

static void try_all(bool with_trash)
{
	static const int errors[] = {EIO, EACCES, ENOSPC, ENOENT};
	struct neap_retention_options options = rules;
	unsigned long failures = 0, kills = 0, said = 0;

	options.trash_ns = with_trash ? DAY_NS : 0;
	unsigned long calls = count_calls(&options);
	assert_true(calls > 50);
	for (unsigned long call = 1; call <= calls; call++) {
		start_empty();
		assert_int_equal(apply_armed(&options, (struct failing_calls){.kill_at = call}), -SIGKILL);
		kills++;
		check("killed before call", call, with_trash, false);
		finish(&options);
		check("after a kill before call", call, with_trash, true);
		start_empty();
		int code = apply_armed(&options, (struct failing_calls){.fail_at = call, .error = errors[call % 4]});
		assert_true(code == 0 || code == 1);
		said += code == 1;
		failures++;
		check("failed call", call, with_trash, false);
		finish(&options);
		check("after the failed call", call, with_trash, true);
	}
	printf("%s: %lu calls of an apply; %lu failed in turn (%lu of them told as failures), killed at %lu "
	       "instants\n",
	       with_trash ? "into the trash" : "for good", calls, failures, said, kills);
	assert_true(said > calls / 3);
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

/* The same for bringing back: whole, here or in the trash, at any instant. */
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
		assert_true(again == NEAP_OK || again == NEAP_ENOENT); /* nothing was left to bring back */
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

/* A save: the old file or the new one, whole, at any instant; a failure is told, and leaves the old one, until the
 * last call (the folder's flush), after which the new one is there already. */
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
			enum neap_status said = save(path, "the new one", &err);
			failing_calls.armed = false;
			if (call)
				_exit(said == NEAP_OK                                                 ? 0
				      : strstr(err.message, "epoch=8") || strstr(err.message, folder) ? 1
												      : 2);
			assert_int_equal(said, NEAP_OK);
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

static int begin(void **state)
{
	(void)state;
	/* in memory where that can be had: hundreds of flushes */
	snprintf(base, sizeof base, "%s/neap-apply-XXXXXX", access("/dev/shm", W_OK) ? "/tmp" : "/dev/shm");
	return mkdtemp(base) ? 0 : -1;
}

static int end(void **state)
{
	(void)state;
	failing_calls.proc = NULL;
	remove_all();
	return rmdir(base);
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
