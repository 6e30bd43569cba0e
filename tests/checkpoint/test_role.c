/* Which names are one checkpoint. */
#include "checkpoint/group.h"

#include "support/test.h"

#include <stdio.h>
#include <stdlib.h>
#include <string.h>

static struct checkpoint_role role(const char *name)
{
	struct checkpoint_role read;

	checkpoint_role_read(name, &read);
	return read;
}

/* The names of one row have one key; those of other rows have others. */
static void test_keys(void **state)
{
	static const char *const rows[][6] = {
		{"model_epoch_5.pt", "optimizer_epoch_5.pt", "lr_scheduler_epoch_5.pt", "grad_scaler-epoch=5.pt",
		 "rng_state_epoch5.pth", "epoch_05.pth.tar"},
		{"model_epoch_6.pt", "epoch=6-optimizer.pt", "ema_epoch_6.pt", "training_state_epoch_6.bin",
		 "random_states_epoch_6.pkl", "model_epoch_6_val_loss_0.5.pt"},
		{"step_7-00001-of-00002.safetensors", "step_7-00002-of-00002.safetensors",
		 "step_7.safetensors.index.json", "step_7.json", "step_7_rank_0.pt", "step_7-shard12.pt"},
		{"runA-model_8.pt", "runA-optimizer_8.pt", NULL},
		{"runB-model_8.pt", "runB-optimizer_8.pt", NULL},
		{"G_1000.pth", "D_1000.pth", "netG_1000.pth", "generator_1000.pth", "unet_1000.pt", NULL},
		{"ema_0.9999_010000.pt", "model010000.pt", "opt010000.pt", NULL},
		{"consolidated.00.pth", "consolidated.01.pth", "model.safetensors", "rng_state.pth", "optimizer.pt",
		 NULL},
		{"lr0.1_epoch_5.pt", NULL},
		{"lr0.01_epoch_5.pt", NULL},
	};
	enum { ROWS = sizeof rows / sizeof *rows };

	(void)state;
	for (size_t i = 0; i < ROWS; i++) {
		for (size_t k = 1; k < 6 && rows[i][k]; k++)
			if (role(rows[i][k]).key != role(rows[i][0]).key)
				fail_msg("%s and %s", rows[i][0], rows[i][k]);
		for (size_t other = 0; other < i; other++)
			if (role(rows[i][0]).key == role(rows[other][0]).key)
				fail_msg("%s and %s", rows[i][0], rows[other][0]);
	}
}

static void test_roles(void **state)
{
	(void)state;
	assert_true(role("optimizer_epoch_5.pt").aux && role("optimizer_epoch_5.pt").part);
	assert_true(role("model_epoch_5.pt").part && !role("model_epoch_5.pt").aux);
	assert_false(role("model_and_optimizer_epoch_5.pt").aux);
	assert_false(role("epoch_5.pt").part || role("epoch_5.pt").aux);
	assert_false(role("epoch=5-ema_loss=0.3.ckpt").aux); /* a metric's name */
	assert_false(role("resnet50.pt").part);
	assert_true(role("x.safetensors.index.json").index && role("x.safetensors.index.json").part);
	assert_false(role("config.json").index);
	assert_int_equal(role("x-00001-of-00003.bin").of, 3);
	assert_true(role("x-00001-of-00003.bin").set == role("x-00003-of-00003.bin").set);
	assert_true(role("x-00001-of-00003.bin").set != role("x-00001-of-00004.bin").set);
	assert_true(role("x-00001-of-00003.bin").set != role("x-00001-of-00003.pt").set);
	assert_true(role("epoch_5.pt").set == 0);
	assert_int_equal(role("model010000.pt").only, 10000);
	assert_true(role("model_5_6.pt").only == UINT64_MAX);
	assert_false(role("consolidated.00.pth").numbered);
}

struct given {
	const char *name;
	size_t group;
};

static void expect(const struct given *given, size_t count)
{
	struct checkpoint_member members[16] = {0};
	size_t groups = 0, most = 0;

	for (size_t i = 0; i < count; i++) {
		checkpoint_role_read(given[i].name, &members[i].role);
		members[i].class = checkpoint_classify(given[i].name, false, NULL);
		if (members[i].class == CHECKPOINT_OTHER)
			members[i].class = CHECKPOINT_EXTRA;
		if (!checkpoint_count_read(given[i].name, &members[i].kind, &members[i].count))
			members[i].kind = CHECKPOINT_COUNTS;
		most = given[i].group > most ? given[i].group : most;
	}
	assert_int_equal(checkpoint_group(members, count, &groups, NULL), NEAP_OK);
	for (size_t i = 0; i < count; i++)
		if (members[i].group != given[i].group)
			fail_msg("%s is in group %zu", given[i].name, members[i].group);
	assert_int_equal(groups, most);
}

static void test_groups(void **state)
{
	static const struct given pairs[] = {{"optimizer_epoch_1.pt", 1}, {"model_epoch_1.pt", 1},
					     {"model_epoch_2.pt", 2},     {"rng_epoch_2.npy", 2},
					     {"epoch_2.json", 2},         {"epoch_3.json", 0}};
	/* the model's role has no word: the counts tell */
	static const struct given counted[] = {{"optimizer_epoch_1.pt", 1}, {"resnet50_epoch_1.pt", 1},
					       {"resnet50_epoch_2.pt", 2},  {"optimizer_epoch_2.pt", 2},
					       {"optimizer_epoch_3.pt", 3}, {"optimizer_step_2.pt", 4}};
	/* either of two models with the same count may belong to it: all three stay together */
	static const struct given either[] = {{"a_epoch_1.pt", 1},
					      {"b_epoch_1.pt", 1},
					      {"optimizer_epoch_1.pt", 1},
					      {"a_epoch_2.pt", 2},
					      {"b_epoch_2.pt", 3}};
	static const struct given shards[] = {{"s_1-00001-of-00002.safetensors", 1},
					      {"s_2-00001-of-00002.safetensors", 2},
					      {"s_1-00002-of-00002.safetensors", 1},
					      {"s_1.safetensors.index.json", 1},
					      {"s_3.safetensors.index.json", 0},
					      {"s_2-00002-of-00002.safetensors", 2},
					      {"s_1.pt.tmp-1-1", 3}};

	(void)state;
	expect(pairs, 6);
	expect(counted, 6);
	expect(either, 5);
	expect(shards, 7);
}

int main(void)
{
	const struct CMUnitTest tests[] = {cmocka_unit_test(test_keys), cmocka_unit_test(test_roles),
					   cmocka_unit_test(test_groups)};

	return cmocka_run_group_tests(tests, NULL, NULL);
}
