/* Checkpoints of several files, and torn ones. */
#include "retention_test.h"

#include "checkpoint/whole.h"

#include <fcntl.h>
#include <signal.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/file.h>
#include <sys/mman.h>
#include <sys/stat.h>
#include <sys/wait.h>
#include <unistd.h>

/* Files that make up one checkpoint stay, go and come back together. */
static void test_groups(void **state)
{
	const struct neap_retention_options rules = {.keep_best = 1, .older_than_ns = DAY_NS, .trash_ns = DAY_NS};
	struct neap_retention_result result = {0};
	struct neap_error err = {0};
	char name[64];

	(void)state;
	for (int epoch = 1; epoch <= 4; epoch++) {
		snprintf(name, sizeof name, "model_epoch_%d_loss_0.%d.pt", epoch, epoch == 2 ? 1 : 5);
		put(name, "model", 10 - epoch);
		snprintf(name, sizeof name, "optimizer_epoch_%d.pt", epoch);
		put(name, "optimizer", 10 - epoch);
	}
	put("rng_epoch_1.npy", "rng", 9);
	put("rng_epoch_3.bin", "rng", 7);
	put("s_10-00001-of-00002.safetensors", "x", 9); /* not the numbering that most files have */
	put("s_10.safetensors.index.json", "{\"weight_map\": {}}", 9);
	put("epoch_3.json", "{\"lr\": 1}", 7);
	put("optimizer_epoch_9.pt", "nothing to go with", 9);
	struct neap_retention_plan made = plan(&rules);
	assert_int_equal(made.count, 6);
	assert_int_equal(entry(&made, "model_epoch_3_loss_0.5.pt")->part_count, 4);
	assert_int_equal(entry(&made, "model_epoch_3_loss_0.5.pt")->bytes, 5 + 9 + 3 + 9);
	assert_string_equal(entry(&made, "model_epoch_3_loss_0.5.pt")->parts[1].name, "epoch_3.json");
	assert_true(entry(&made, "model_epoch_3_loss_0.5.pt")->drop);
	assert_int_equal(entry(&made, "model_epoch_2_loss_0.1.pt")->best_rank, 1);
	assert_false(entry(&made, "model_epoch_2_loss_0.1.pt")->drop);
	assert_false(entry(&made, "model_epoch_4_loss_0.5.pt")->drop); /* newest */
	assert_int_equal(entry(&made, "model_epoch_1_loss_0.5.pt")->part_count, 3);
	assert_true(entry(&made, "optimizer_epoch_9.pt")->reasons & NEAP_KEEP_HALF);
	assert_true(entry(&made, "s_10-00001-of-00002.safetensors")->facts & NEAP_CHECKPOINT_TORN);
	assert_int_equal(neap_retention_apply(&made, &rules, &result, &err), NEAP_OK);
	neap_retention_plan_fini(&made);
	assert_int_equal(access("optimizer_epoch_3.pt", F_OK), -1);
	assert_int_equal(access("rng_epoch_3.bin", F_OK), -1);
	assert_int_equal(access("epoch_3.json", F_OK), -1);
	assert_int_equal(access("optimizer_epoch_2.pt", F_OK), 0);
	made = plan(&rules);
	assert_int_equal(made.trash_count, result.moved_count);
	neap_retention_plan_fini(&made);
	/* restored by the name of any part, but not if another part's name is taken */
	put("rng_epoch_3.bin", "saved again", 0);
	assert_int_equal(neap_retention_restore(folder, "optimizer_epoch_3.pt", &result, &err), NEAP_EEXIST);
	assert_int_equal(access("optimizer_epoch_3.pt", F_OK), -1);
	assert_int_equal(unlink("rng_epoch_3.bin"), 0);
	assert_int_equal(neap_retention_restore(folder, "optimizer_epoch_3.pt", &result, &err), NEAP_OK);
	assert_int_equal(result.restored_count, 1);
	assert_int_equal(access("model_epoch_3_loss_0.5.pt", F_OK) | access("optimizer_epoch_3.pt", F_OK) |
				 access("rng_epoch_3.bin", F_OK) | access("epoch_3.json", F_OK),
			 0);
}

/* Whatever holds one part holds all of them; a pattern that names one part means all. */
static void test_group_is_held(void **state)
{
	struct neap_retention_options rest = {.delete_rest = true};
	char name[64];

	(void)state;
	for (int epoch = 1; epoch <= 5; epoch++) {
		snprintf(name, sizeof name, "model_epoch_%d.pt", epoch);
		put(name, "model", 10 - epoch);
		snprintf(name, sizeof name, "optimizer_epoch_%d.pt", epoch);
		put(name, "optimizer", 10 - epoch);
	}
	put("optimizer_epoch_1.pt.pin", "", 0);
	assert_int_equal(symlink("optimizer_epoch_2.pt", "latest"), 0);
	int fd = open("optimizer_epoch_3.pt", O_RDONLY);
	struct neap_retention_plan made = plan(&rest);
	close(fd);
	assert_int_equal(made.count, 5);
	assert_int_equal(made.drop_count, 1);
	assert_true(entry(&made, "model_epoch_4.pt")->drop);
	neap_retention_plan_fini(&made);
	rest.pattern = "model_*";
	made = plan(&rest);
	assert_int_equal(made.count, 5);
	assert_int_equal(entry(&made, "model_epoch_4.pt")->part_count, 2);
	assert_true(entry(&made, "model_epoch_1.pt")->reasons & NEAP_KEEP_PINNED);
	neap_retention_plan_fini(&made);
}

/* A checkpoint that is saved again between plan and apply stays whole. */
static void test_group_changed(void **state)
{
	const struct neap_retention_options rest = {.delete_rest = true, .trash_ns = DAY_NS};
	struct neap_retention_result result = {0};
	struct neap_error err = {0};

	(void)state;
	put("model_epoch_1.pt", "model", 9);
	put("optimizer_epoch_1.pt", "optimizer", 9);
	put("model_epoch_2.pt", "model", 8);
	struct neap_retention_plan made = plan(&rest);
	put("optimizer_epoch_1.pt", "optimizer, saved again", 0);
	assert_int_equal(neap_retention_apply(&made, &rest, &result, &err), NEAP_OK);
	assert_int_equal(entry(&made, "model_epoch_1.pt")->done, NEAP_RETENTION_CHANGED);
	neap_retention_plan_fini(&made);
	assert_int_equal(access("model_epoch_1.pt", F_OK) | access("optimizer_epoch_1.pt", F_OK), 0);
	assert_int_equal(access(".neap-trash", F_OK), -1);
}

/* The newest and the best by name are cut off: the newest and the best whole ones stay. */
static void test_torn(void **state)
{
	const struct neap_retention_options rules = {.keep_best = 1, .older_than_ns = DAY_NS, .trash_ns = DAY_NS};
	char text[128];

	(void)state;
	put("step=1-loss=0.2.pt", "PK\5\6", 9); /* of a format that is not recognised */
	put("step=2-loss=0.5.pt", "two", 8);
	put("step=3-loss=0.6.pt", "three", 7);
	put("step=4-loss=0.1.pt", "PK\3\4 cut off", 0);
	put("step=5-loss=0.1.pt", "PK\3\4 cut off", 6);
	struct neap_retention_plan made = plan(&rules);
	assert_int_equal(entry(&made, "step=1-loss=0.2.pt")->best_rank, 1);
	assert_true(entry(&made, "step=2-loss=0.5.pt")->drop);
	assert_true(entry(&made, "step=3-loss=0.6.pt")->reasons & NEAP_KEEP_NEWEST);
	assert_false(entry(&made, "step=4-loss=0.1.pt")->drop); /* it may still be under way */
	assert_true(entry(&made, "step=5-loss=0.1.pt")->reasons & NEAP_DROP_TORN);
	for (size_t i = 0; i < made.count; i++)
		if (!strcmp(made.entries[i].name, "step=5-loss=0.1.pt"))
			neap_retention_reason_text(&made, &rules, i, text, sizeof text);
	assert_string_equal(text, "torn: its zip archive has no end, loss 0.1");
	neap_retention_plan_fini(&made);
	/* if no checkpoint is whole, they count like any others */
	assert_int_equal(unlink("step=1-loss=0.2.pt") | unlink("step=2-loss=0.5.pt") | unlink("step=3-loss=0.6.pt"),
			 0);
	made = plan(&rules);
	assert_int_equal(made.drop_count, 0);
	assert_true(entry(&made, "step=5-loss=0.1.pt")->reasons & NEAP_KEEP_NEWEST);
	neap_retention_plan_fini(&made);
}

/* Looks at every entry that the plan left out, and decides again: nothing but reasons may change. */
static void compare_with_full_look(struct neap_retention_plan *made, const struct neap_retention_options *rules,
				   size_t *ret_found)
{
	const struct neap_retention_plan before = *made;
	char *dropped = calloc(before.count + 1, 1);
	int fd = open(folder, O_RDONLY | O_DIRECTORY);

	assert_true(dropped && fd >= 0);
	for (size_t i = 0; i < made->count; i++) {
		struct neap_retention_entry *entry = &made->entries[i];

		dropped[i] = entry->drop;
		if (entry->torn || !checkpoint_torn(fd, entry->name, false))
			continue;
		assert_true(entry->drop);
		entry->facts |= NEAP_CHECKPOINT_TORN;
		*ret_found += 1;
	}
	close(fd);
	assert_int_equal(neap_retention_decide(made, rules, before.made_ns, NULL), NEAP_OK);
	for (size_t i = 0; i < made->count; i++)
		assert_int_equal(made->entries[i].drop, dropped[i]); /* the order does not depend on it */
	assert_int_equal(made->keep_bytes, before.keep_bytes);
	assert_int_equal(made->freed_bytes, before.freed_bytes);
	assert_int_equal(made->over_bytes, before.over_bytes);
	assert_int_equal(made->over_count, before.over_count);
	assert_int_equal(made->order_disagrees, before.order_disagrees);
	free(dropped);
}

/* A plan does not look whether what is too old anyway is torn. It is the same plan as if it had. */
static void test_torn_unseen(void **state)
{
	static const char *const contents[] = {
		"whole", "also whole", "PK\3\4 cut off", "whole, too", "whole, and longer than others", ""};
	size_t found = 0;
	char name[64];

	(void)state;
	srand(28);
	for (int round = 0; round < 100; round++) {
		struct neap_retention_options rules = {.keep_best = (uint64_t)(rand() % 4),
						       .keep_last = (uint64_t)(rand() % 3),
						       .newest_for_best = true,
						       .best_yields = rand() % 2,
						       .delete_rest = rand() % 4 == 0,
						       .older_than_ns = (uint64_t)(rand() % 6) * DAY_NS / 2,
						       .max_checkpoints = (uint64_t)(rand() % 6),
						       .max_total_bytes = (uint64_t)(rand() % 3 * 40)};

		for (int i = 0; i < 12; i++) {
			snprintf(name, sizeof name, "step=%d%s.pt", rand() % 40,
				 rand() % 3 ? "-loss=0.5" : "-loss=0.25");
			put(name, contents[rand() % 6], rand() % 10);
		}
		struct neap_retention_plan made = plan(&rules);
		compare_with_full_look(&made, &rules, &found);
		neap_retention_plan_fini(&made);
		for (int step = 0; step < 40; step++)
			for (int i = 0; i < 2; i++) {
				snprintf(name, sizeof name, "step=%d-loss=%s.pt", step, i ? "0.5" : "0.25");
				unlink(name);
			}
	}
	assert_true(found > 20);
}

int main(void)
{
	const struct CMUnitTest tests[] = {
		cmocka_unit_test_setup_teardown(test_groups, set_up, tear_down),
		cmocka_unit_test_setup_teardown(test_group_is_held, set_up, tear_down),
		cmocka_unit_test_setup_teardown(test_group_changed, set_up, tear_down),
		cmocka_unit_test_setup_teardown(test_torn, set_up, tear_down),
		cmocka_unit_test_setup_teardown(test_torn_unseen, set_up_in_memory, tear_down),
	};
	return cmocka_run_group_tests(tests, NULL, NULL);
}
