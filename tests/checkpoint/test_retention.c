/* Real folders: what is found in them, what holds a checkpoint, the trash, and saving with retention. */
#include "retention_test.h"

#include <fcntl.h>
#include <math.h>
#include <signal.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/file.h>
#include <sys/mman.h>
#include <sys/stat.h>
#include <sys/wait.h>
#include <time.h>
#include <unistd.h>

static void test_metrics(void **state)
{
	struct neap_retention_options options = {.keep_best = 1, .older_than_ns = DAY_NS};

	(void)state;
	put("epoch=1-val_loss=0.5-acc=0.9.ckpt", "1", 5);
	put("epoch=2-val_loss=0.4-acc=0.8.ckpt", "2", 4);
	put("epoch=3.ckpt", "3", 3);
	put("epoch=3.json", "{\"val_loss\": 0.25, \"acc\": NaN, \"epoch\": 3}", 3);
	assert_int_equal(mkdir("checkpoint-4", 0755), 0);
	put("checkpoint-4/trainer_state.json", "{\"log_history\":[{\"val_loss\":1},{\"val_loss\":0.75}],\"best\":1}",
	    2);
	put("checkpoint-4/model.bin", "four", 2);
	put("epoch=5.ckpt", "5", 1);
	put("epoch=5.ckpt.yaml", "val_loss: 0.5 # still\n", 1);
	put("epoch=6.ckpt", "6", 6);
	put("epoch=6.json", "{\"val_loss\": 0.1", 6); /* torn: it may be the best */
	struct neap_retention_plan made = plan(&options);
	assert_string_equal(made.metric, "val_loss");
	assert_int_equal(made.mode, NEAP_METRIC_MIN);
	assert_true(made.metric_inferred && made.mode_inferred);
	assert_int_equal(made.count, 6);
	assert_true(entry(&made, "epoch=3.ckpt")->metric == 0.25);
	assert_int_equal(entry(&made, "epoch=3.ckpt")->best_rank, 1);
	assert_int_equal(entry(&made, "epoch=3.ckpt")->step, 3);
	assert_true(entry(&made, "checkpoint-4")->metric == 0.75);
	assert_int_equal(entry(&made, "checkpoint-4")->bytes,
			 4 + strlen("{\"log_history\":[{\"val_loss\":1},{\"val_loss\":0.75}],\"best\":1}"));
	assert_true(entry(&made, "epoch=5.ckpt")->metric == 0.5);
	assert_true(entry(&made, "epoch=6.ckpt")->reasons & NEAP_KEEP_UNREADABLE);
	assert_true(entry(&made, "epoch=1-val_loss=0.5-acc=0.9.ckpt")->drop);
	neap_retention_plan_fini(&made);

	options.metric = "acc";
	made = plan(&options);
	assert_int_equal(made.mode, NEAP_METRIC_MAX);
	assert_false(made.metric_inferred);
	assert_true(isnan(entry(&made, "epoch=3.ckpt")->metric));
	assert_int_equal(entry(&made, "epoch=1-val_loss=0.5-acc=0.9.ckpt")->best_rank, 1);
	neap_retention_plan_fini(&made);
	options.mode = NEAP_METRIC_MIN;
	made = plan(&options);
	assert_int_equal(entry(&made, "epoch=2-val_loss=0.4-acc=0.8.ckpt")->best_rank, 1);
	neap_retention_plan_fini(&made);

	struct neap_error err = {0};
	options = (struct neap_retention_options){.keep_best = 1, .metric = "epoch"};
	assert_int_equal(neap_retention_plan_make(folder, &options, 0, &made, &err), NEAP_EINVAL);
	assert_non_null(strstr(err.message, "say min or max"));
}

/* Twenty old checkpoints; some have a reason to stay, which the comments give. */
static void put_held(const char *outside)
{
	for (int i = 1; i <= 20; i++) {
		char name[32];
		snprintf(name, sizeof name, "step_%d.pt", i);
		put(name, name, 30 - i);
	}
	put("step_1.pt.pin", "", 0);
	assert_int_equal(symlink("step_2.pt", "newest.pt"), 0);
	put(outside, "outside", 99);
	assert_int_equal(symlink(outside, "step_99.pt"), 0);
	put("latest", "step_3.pt\n", 0);
	put("latest_checkpointed_iteration.txt", "4", 0);
	put("checkpoint", "model_checkpoint_path: \"somewhere/step_5.pt\"\n", 0);
	put("last.pt", "last", 50);
	put("resnet50.pt", "weights from elsewhere", 50);
	put("dataset.tar", "data", 50);
	put("step_6-pinned-by-pattern.pt", "6", 40);
	assert_int_equal(mkdir("checkpoint-7", 0755), 0);
	put("checkpoint-7/model.bin", "7", 40);
	put("checkpoint-7/.pin", "", 40);
	put("step_8.pt.tmp-99-0", "half", 3);
	put("step_9.pt.tmp-99-0", "half", 0);
	assert_int_equal(mkfifo("step_98.pt", 0600), 0);
}

static void check_held(const struct neap_retention_plan *made)
{
	static const char *const stay[] = {"step_1.pt",
					   "step_2.pt",
					   "step_3.pt",
					   "step_4.pt",
					   "step_5.pt",
					   "last.pt",
					   "step_6-pinned-by-pattern.pt",
					   "checkpoint-7",
					   "resnet50.pt",
					   "step_9.pt.tmp-99-0",
					   "step_10.pt", /* open */
					   "step_11.pt", /* mapped */
					   "step_12.pt", /* resumed from */
					   "step_20.pt"};

	for (size_t i = 0; i < sizeof stay / sizeof *stay; i++)
		if (entry(made, stay[i])->drop)
			fail_msg("%s goes", stay[i]);
	assert_true(entry(made, "step_8.pt.tmp-99-0")->drop);
	assert_true(entry(made, "step_7.pt")->drop);
	assert_int_equal(made->link_count, 2);
	assert_int_equal(made->drop_count, 11 + 1);
	for (size_t i = 0; i < made->count; i++)
		assert_true(strcmp(made->entries[i].name, "step_99.pt") &&
			    strcmp(made->entries[i].name, "step_98.pt") &&
			    strcmp(made->entries[i].name, "dataset.tar"));
}

/* A process that has opened the file and holds it until it is killed. */
static pid_t start_holder(const char *name)
{
	int ready[2];
	char byte;

	assert_int_equal(pipe(ready), 0);
	pid_t child = fork();
	assert_true(child >= 0);
	if (child == 0) {
		if (open(name, O_RDONLY) < 0 || write(ready[1], "x", 1) != 1)
			_exit(1);
		for (;;)
			pause();
	}
	assert_int_equal(read(ready[0], &byte, 1), 1);
	close(ready[0]);
	close(ready[1]);
	return child;
}

/* Between plan and apply one is opened by another process, one written again, one pinned, one removed. */
static void apply_changed(struct neap_retention_plan *made, const struct neap_retention_options *options)
{
	struct neap_retention_result result;
	struct neap_error err = {0};
	pid_t holder = start_holder("step_13.pt");

	put("step_14.pt", "another", 16);
	put("step_15.pt.pin", "", 0);
	assert_int_equal(unlink("step_16.pt"), 0);
	if (neap_retention_apply(made, options, &result, &err) != NEAP_OK)
		fail_msg("%s", err.message);
	kill(holder, SIGKILL);
	assert_int_equal(waitpid(holder, NULL, 0), holder);
	assert_int_equal(entry(made, "step_13.pt")->done, NEAP_RETENTION_CHANGED);
	assert_int_equal(entry(made, "step_14.pt")->done, NEAP_RETENTION_CHANGED);
	assert_int_equal(entry(made, "step_15.pt")->done, NEAP_RETENTION_CHANGED);
	assert_int_equal(entry(made, "step_16.pt")->done, NEAP_RETENTION_GONE);
	assert_int_equal(result.moved_count, 12 - 4);
	assert_int_equal(result.changed_count, 3);
}

/* Nothing goes that another process needs or that cannot be judged. */
static void test_holds(void **state)
{
	struct neap_retention_options options = all_old;
	const char *pins[] = {"*pinned-by*"};
	char outside[80];

	(void)state;
	options.pins = pins;
	options.pin_count = 1;
	options.resume = "step_12.pt";
	snprintf(outside, sizeof outside, "%s-outside.pt", folder);
	put_held(outside);
	int fd = open("step_10.pt", O_RDONLY);
	int mapped = open("step_11.pt", O_RDONLY);
	void *map = mmap(NULL, 4096, PROT_READ, MAP_PRIVATE, mapped, 0);
	assert_true(fd >= 0 && map != MAP_FAILED);
	close(mapped);

	struct neap_retention_plan made = plan(&options);
	check_held(&made);
	apply_changed(&made, &options);
	assert_int_equal(access("step_14.pt", F_OK), 0);
	assert_int_equal(access(outside, F_OK), 0);
	assert_int_equal(access("step_99.pt", F_OK), 0);
	neap_retention_plan_fini(&made);
	made = plan(&options);
	assert_int_equal(made.trash_count, 8);
	assert_true(made.trash_until_s > (uint64_t)time(NULL) + 86000);
	neap_retention_plan_fini(&made);
	munmap(map, 4096);
	close(fd);
	unlink(outside);
}

/* Writes a file again, keeping the given attributes of the old one. */
static void write_again(const char *name, const char *content, bool same_file, bool same_time)
{
	struct stat was;

	assert_int_equal(stat(name, &was), 0);
	int fd = open(same_file ? name : "fresh", O_WRONLY | O_CREAT | O_TRUNC, 0644);
	assert_true(fd >= 0);
	assert_int_equal(write(fd, content, strlen(content)), strlen(content));
	if (same_time)
		assert_int_equal(futimens(fd, (struct timespec[]){was.st_atim, was.st_mtim}), 0);
	close(fd);
	if (!same_file)
		assert_int_equal(rename("fresh", name), 0);
}

/* A checkpoint that was written again since the plan stays, even if only its size, its time or its inode shows it. */
static void test_written_again(void **state)
{
	struct neap_retention_result result;

	(void)state;
	for (int i = 1; i <= 5; i++) {
		char name[] = "step_0.pt";
		name[5] = (char)('0' + i);
		put(name, "content", i < 5 ? 10 - i : 0);
	}
	struct neap_retention_plan made = plan(&all_old);
	assert_int_equal(made.drop_count, 4);
	write_again("step_1.pt", "as long", true, false);
	write_again("step_2.pt", "longer now", true, true);
	write_again("step_3.pt", "as long", false, true);
	assert_int_equal(neap_retention_apply(&made, &all_old, &result, NULL), NEAP_OK);
	assert_int_equal(entry(&made, "step_1.pt")->done, NEAP_RETENTION_CHANGED);
	assert_int_equal(entry(&made, "step_2.pt")->done, NEAP_RETENTION_CHANGED);
	assert_int_equal(entry(&made, "step_3.pt")->done, NEAP_RETENTION_CHANGED);
	assert_int_equal(entry(&made, "step_4.pt")->done, NEAP_RETENTION_MOVED);
	neap_retention_plan_fini(&made);
}

/* The metric is the one that most files carry, in whatever order they are read: two of three, whichever is the
 * third. */
static void test_inferred(void **state)
{
	const struct neap_retention_options options = {.keep_best = 1, .older_than_ns = DAY_NS};

	(void)state;
	for (int other = 1; other <= 3; other++) {
		struct neap_retention_plan made;
		for (int i = 1; i <= 3; i++) {
			char name[32], text[48];
			snprintf(name, sizeof name, "step_%d.pt", i);
			put(name, "weights", 5);
			snprintf(name, sizeof name, "step_%d.json", i);
			snprintf(text, sizeof text, "{\"%s\": 0.%d}", i == other ? "loss" : "acc", i);
			put(name, text, 5);
		}
		made = plan(&options);
		assert_string_equal(made.metric, "acc");
		for (int i = 1; i <= 3; i++) {
			char name[32];
			snprintf(name, sizeof name, "step_%d.pt", i);
			assert_int_equal(!(entry(&made, name)->facts & NEAP_CHECKPOINT_MEASURED), i == other);
			if (i != other)
				assert_true(entry(&made, name)->metric == i / 10.0);
		}
		neap_retention_plan_fini(&made);
	}
}

static void test_trash(void **state)
{
	struct neap_retention_result result;
	struct neap_error err = {0};
	struct neap_retention_plan made;
	struct stat info;

	(void)state;
	assert_int_equal(neap_retention_restore(folder, "*", &result, &err), NEAP_ENOENT);
	put("step_1.pt", "one", 9);
	put("step_1.json", "{}", 9);
	put("step_2.pt", "two", 8);
	put("step_2.safetensors", "two", 8); /* whose is step_2.json? */
	put("step_2.json", "{}", 8);
	put("step_3.pt", "three", 7);
	made = plan(&all_old);
	assert_int_equal(neap_retention_apply(&made, &all_old, &result, &err), NEAP_OK);
	assert_int_equal(result.moved_count, 3);
	assert_int_equal(access("step_1.json", F_OK), -1);
	assert_int_equal(access("step_2.json", F_OK), 0);
	neap_retention_plan_fini(&made);
	/* a name that is taken stays in the trash */
	put("step_2.pt", "new", 0);
	assert_int_equal(neap_retention_restore(folder, "step_?.pt", &result, &err), NEAP_EEXIST);
	assert_non_null(strstr(err.message, "step_2.pt"));
	assert_int_equal(result.restored_count, 1);
	assert_int_equal(access("step_1.pt", F_OK) | access("step_1.json", F_OK), 0);
	assert_int_equal(stat("step_2.pt", &info), 0);
	assert_int_equal(info.st_size, 3);
	assert_int_equal(neap_retention_restore(folder, "nothing*", &result, &err), NEAP_ENOENT);
	/* not yet, then all */
	assert_int_equal(neap_retention_empty_trash(folder, false, &result, &err), NEAP_OK);
	assert_int_equal(result.deleted_count, 0);
	assert_int_equal(neap_retention_empty_trash(folder, true, &result, &err), NEAP_OK);
	assert_int_equal(result.deleted_count, 2);
	assert_int_equal(access(".neap-trash", F_OK), -1);
	/* a trash that is not ours */
	char elsewhere[80];
	snprintf(elsewhere, sizeof elsewhere, "%s/elsewhere", folder);
	assert_int_equal(mkdir(elsewhere, 0755), 0);
	assert_int_equal(symlink(elsewhere, ".neap-trash"), 0);
	made = plan(&all_old);
	assert_int_equal(made.drop_count, 1);
	assert_int_equal(neap_retention_apply(&made, &all_old, &result, &err), NEAP_EPERM);
	assert_int_equal(result.moved_count, 0);
	assert_int_equal(result.failed_count, 1);
	assert_int_equal(access("step_1.pt", F_OK), 0);
	neap_retention_plan_fini(&made);
	assert_int_equal(neap_retention_plan_make("/nowhere/at/all", &all_old, 0, &made, &err), NEAP_ENOENT);
}

/* A batch that another process still fills, and may take files out of, is not deleted meanwhile, even if its time is
 * over. */
static void test_trash_in_use(void **state)
{
	struct neap_retention_result result;
	struct neap_error err = {0};

	(void)state;
	assert_int_equal(mkdir(".neap-trash", 0755) | mkdir(".neap-trash/until-1000-1-0", 0755), 0);
	put(".neap-trash/until-1000-1-0/step_1.pt", "one", 9);
	/* what is left of an unfinished deletion of a batch of the same name */
	assert_int_equal(mkdir(".neap-trash/gone-until-1000-1-0-0", 0755), 0);
	int fd = open(".neap-trash/until-1000-1-0", O_RDONLY | O_DIRECTORY);
	assert_true(fd >= 0);
	assert_int_equal(flock(fd, LOCK_EX), 0);
	assert_int_equal(neap_retention_empty_trash(folder, false, &result, &err), NEAP_OK);
	assert_int_equal(mkdir(".neap-trash/gone-until-1000-1-0-0", 0755), 0);
	assert_int_equal(neap_retention_empty_trash(folder, true, &result, &err), NEAP_EBUSY);
	assert_int_equal(result.deleted_count, 0);
	assert_int_equal(access(".neap-trash/until-1000-1-0/step_1.pt", F_OK), 0);
	/* nor restored while it is filled or deleted: it might be incomplete */
	assert_int_equal(neap_retention_restore(folder, "step_1.*", &result, &err), NEAP_EBUSY);
	assert_non_null(strstr(err.message, "try again"));
	assert_int_equal(access(".neap-trash/until-1000-1-0/step_1.pt", F_OK), 0);
	/* and an empty one that is about to be filled stays */
	assert_int_equal(rename(".neap-trash/until-1000-1-0/step_1.pt", "step_1.pt"), 0);
	assert_int_equal(neap_retention_restore(folder, "step_1.*", &result, &err), NEAP_ENOENT);
	assert_int_equal(rename("step_1.pt", ".neap-trash/until-1000-1-0/step_1.pt"), 0);
	close(fd);
	assert_int_equal(mkdir(".neap-trash/gone-until-1000-1-0-0", 0755), 0);
	assert_int_equal(neap_retention_empty_trash(folder, true, &result, &err), NEAP_OK);
	assert_int_equal(result.deleted_count, 1);
	assert_int_equal(access(".neap-trash", F_OK), -1);
}

/* Metrics that are written before their checkpoint do not follow an older checkpoint of the same name into the trash.
 * Metrics that a killed apply left behind do. */
static void test_metrics_first(void **state)
{
	struct neap_retention_result result;
	struct neap_error err = {0};

	(void)state;
	put("step_1.pt", "one", 9);
	put("step_2.pt", "two", 8);
	put("step_3.pt", "three", 7);
	struct neap_retention_plan made = plan(&all_old);
	assert_int_equal(neap_retention_apply(&made, &all_old, &result, &err), NEAP_OK);
	assert_int_equal(result.moved_count, 2);
	neap_retention_plan_fini(&made);
	put("step_1.json", "{\"loss\": 1}", -1); /* later than any clock's step */
	put("step_2.json", "{\"loss\": 2}", 8);
	made = plan(&all_old);
	assert_int_equal(neap_retention_apply(&made, &all_old, &result, &err), NEAP_OK);
	neap_retention_plan_fini(&made);
	assert_int_equal(access("step_1.json", F_OK), 0);
	assert_int_equal(access("step_2.json", F_OK), -1);
}

static void make_runs(void)
{
	static const char *const paths[] = {
		"runs",   "runs/a",        "runs/b",     "runs/b/version_0", "runs/.hidden",           "runs/empty",
		"runs/c", "runs/c/step_5", "runs/c/100", "runs/tidied",      "runs/tidied/.neap-trash"};

	for (size_t i = 0; i < sizeof paths / sizeof *paths; i++)
		assert_int_equal(mkdir(paths[i], 0755), 0);
	put("runs/a/step_1.pt", "1", 9);
	put("runs/a/step_2.pt", "2", 9);
	put("runs/b/version_0/epoch=1.ckpt", "1", 9);
	put("runs/.hidden/step_1.pt", "1", 9);
	put("runs/empty/model.pt", "no step", 9);
	put("runs/empty/notes_5.txt", "5", 9);
	put("runs/c/step_5/step_6.pt", "within a checkpoint", 9);
	put("runs/c/100/_CHECKPOINT_METADATA", "{}", 9);
	assert_int_equal(symlink("runs/a", "runs/linked"), 0);
}

static void test_folders(void **state)
{
	static const struct {
		const char *path;
		size_t count;
	} wanted[] = {{"runs/a", 2}, {"runs/b/version_0", 1}, {"runs/c", 2}, {"runs/tidied", 0}};
	const struct neap_retention_options rules = {.delete_rest = true}, pattern = {.pattern = "model*"};
	struct neap_retention_folders found = {0};
	struct neap_retention_plan made = {0};
	struct neap_error err = {0};

	(void)state;
	make_runs();
	assert_int_equal(neap_retention_find_folders("runs", &rules, 0, &found, &err), NEAP_OK);
	assert_int_equal(found.count, 4);
	for (size_t i = 0; i < 4; i++) {
		assert_string_equal(found.at[i].path, wanted[i].path);
		assert_int_equal(found.at[i].count, wanted[i].count);
		assert_int_equal(found.at[i].trash, i == 3);
	}
	assert_false(found.incomplete);
	neap_retention_folders_fini(&found);
	assert_int_equal(neap_retention_find_folders("runs", &pattern, 0, &found, &err), NEAP_OK);
	assert_int_equal(found.count, 2); /* runs/empty, and the trash */
	neap_retention_folders_fini(&found);
	assert_int_equal(neap_retention_find_folders("runs", &rules, 1, &found, &err), NEAP_OK);
	assert_true(found.incomplete);
	neap_retention_folders_fini(&found);
	assert_int_equal(neap_retention_find_folders("nowhere", &rules, 0, &found, &err), NEAP_ENOENT);
	/* a checkpoint is not a folder of checkpoints */
	assert_int_equal(neap_retention_plan_make("runs/c/100", &rules, 0, &made, &err), NEAP_ESTATE);
	put("runs/a/mp_rank_00_model_states.pt", "1", 9);
	assert_int_equal(neap_retention_plan_make("runs/a", &rules, 0, &made, &err), NEAP_ESTATE);
	assert_non_null(strstr(err.message, "runs/a: it is one checkpoint"));
}

/* A time that does not fit 64 bits of nanoseconds is later than all others, and never old enough. */
static void test_far_future(void **state)
{
	const struct neap_retention_options rest = {.delete_rest = true};
	const struct timespec far = {.tv_sec = 18446744074}; /* the year 2554 */
	struct stat info;

	(void)state;
	put("step_1.pt", "one", 9);
	put("step_2.pt", "two", 8);
	put("step_3.pt", "three", 7);
	assert_int_equal(utimensat(AT_FDCWD, "step_2.pt", (struct timespec[]){far, far}, 0), 0);
	assert_int_equal(stat("step_2.pt", &info), 0);
	if (info.st_mtim.tv_sec != far.tv_sec)
		skip(); /* this file system has no such times */
	struct neap_retention_plan made = plan(&rest);
	assert_true(entry(&made, "step_2.pt")->modified_ns == UINT64_MAX);
	assert_false(entry(&made, "step_2.pt")->drop);
	assert_false(entry(&made, "step_3.pt")->drop); /* the newest by its step */
	assert_true(entry(&made, "step_1.pt")->drop);
	neap_retention_plan_fini(&made);
}

/* A training saves into a folder: after each save the folder holds what the rules say. */
static void test_save(void **state)
{
	const struct neap_retention_options rules = {
		.keep_best = 1, .keep_last = 2, .delete_rest = true, .metric = "loss"};
	static const char *const losses[] = {"0.9", "0.2", "0.5", "0.4", "nan", "0.6"};
	struct neap_retention_result result = {0};
	struct neap_error err = {0}, retention = {0};
	struct neap_checkpoint *checkpoint = NULL;
	char path[160];

	(void)state;
	for (int step = 1; step <= 6; step++) {
		snprintf(path, sizeof path, "%s/step=%d-loss=%s.pt", folder, step, losses[step - 1]);
		assert_int_equal(neap_checkpoint_begin(path, &checkpoint, &err), NEAP_OK);
		assert_int_equal(neap_checkpoint_write(checkpoint, "weights", 7, &err), NEAP_OK);
		assert_int_equal(neap_checkpoint_commit_and_retain(checkpoint, &rules, &result, &retention, &err),
				 NEAP_OK);
		if (retention.status)
			fail_msg("%s", retention.message);
		struct neap_retention_plan made = plan(&rules);
		assert_int_equal(made.count, step < 3 ? step : step == 3 ? 2 : 3);
		assert_int_equal(made.trash_count, 0);
		neap_retention_plan_fini(&made);
	}
	assert_int_equal(access("step=2-loss=0.2.pt", F_OK) | access("step=5-loss=nan.pt", F_OK) |
				 access("step=6-loss=0.6.pt", F_OK),
			 0);
	assert_int_equal(access(".neap-trash", F_OK), -1);
	/* if retention is refused, the save still succeeds and nothing is deleted */
	const struct neap_retention_options unknown = {.keep_best = 1, .delete_rest = true, .metric = "beauty"};
	assert_int_equal(neap_checkpoint_begin("step=7.pt", &checkpoint, &err), NEAP_OK); /* in the working folder */
	assert_int_equal(neap_checkpoint_commit_and_retain(checkpoint, &unknown, NULL, &retention, &err), NEAP_OK);
	assert_int_equal(retention.status, NEAP_EINVAL);
	assert_int_equal(access("step=7.pt", F_OK) | access("step=2-loss=0.2.pt", F_OK), 0);
}

/* Several processes save into one folder and tidy it at once: no save fails, a process that tidies too late reports
 * it, and the newest is in place. */
static void test_together(void **state)
{
	enum { PROCESSES = 3, SAVES = 20 };
	const struct neap_retention_options rules = {.keep_last = 2, .delete_rest = true};
	pid_t children[PROCESSES];

	(void)state;
	for (int i = 0; i < PROCESSES; i++) {
		children[i] = fork();
		assert_true(children[i] >= 0);
		if (children[i])
			continue;
		for (int step = 0; step < SAVES; step++) {
			struct neap_error err = {0}, retention = {0};
			struct neap_checkpoint *checkpoint = NULL;
			char path[64];

			snprintf(path, sizeof path, "by%c_step_%d.pt", 'a' + i, step * PROCESSES + i);
			if (neap_checkpoint_begin(path, &checkpoint, &err) ||
			    neap_checkpoint_write(checkpoint, path, strlen(path), &err) ||
			    neap_checkpoint_commit_and_retain(checkpoint, &rules, NULL, &retention, &err) ||
			    (retention.status && retention.status != NEAP_EBUSY)) {
				fprintf(stderr, "%s%s\n", err.message, retention.message);
				_exit(1);
			}
		}
		_exit(0);
	}
	int failed = 0;
	for (int i = 0; i < PROCESSES; i++) {
		int status = -1;
		assert_int_equal(waitpid(children[i], &status, 0), children[i]);
		failed += status != 0;
	}
	assert_int_equal(failed, 0);
	assert_int_equal(access("byc_step_59.pt", F_OK), 0);
	struct neap_retention_plan made = plan(&rules);
	assert_true(made.count >= 2);
	for (size_t i = 0; i < made.count; i++)
		assert_int_equal(made.entries[i].bytes, strlen(made.entries[i].name));
	neap_retention_plan_fini(&made);
}

int main(void)
{
	const struct CMUnitTest tests[] = {
		cmocka_unit_test_setup_teardown(test_metrics, set_up, tear_down),
		cmocka_unit_test_setup_teardown(test_inferred, set_up, tear_down),
		cmocka_unit_test_setup_teardown(test_holds, set_up, tear_down),
		cmocka_unit_test_setup_teardown(test_written_again, set_up, tear_down),
		cmocka_unit_test_setup_teardown(test_trash, set_up, tear_down),
		cmocka_unit_test_setup_teardown(test_trash_in_use, set_up, tear_down),
		cmocka_unit_test_setup_teardown(test_metrics_first, set_up, tear_down),
		cmocka_unit_test_setup_teardown(test_folders, set_up, tear_down),
		cmocka_unit_test_setup_teardown(test_far_future, set_up_in_memory, tear_down),
		cmocka_unit_test_setup_teardown(test_save, set_up, tear_down),
		cmocka_unit_test_setup_teardown(test_together, set_up, tear_down),
	};
	return cmocka_run_group_tests(tests, NULL, NULL);
}
