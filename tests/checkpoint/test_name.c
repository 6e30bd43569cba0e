/* What names say: numbers, steps, metrics, what is a checkpoint. */
#include "checkpoint/name.h"

#include "support/test.h"

#include <math.h>
#include <stdio.h>
#include <string.h>

static void test_metric(void **state)
{
	static const struct {
		const char *name, *metric;
		int found;
		double value;
	} table[] = {
		{"epoch=3-val_loss=0.123.ckpt", "val_loss", 1, 0.123},
		{"epoch=3-val_loss=0.123.ckpt", "loss", 0, 0}, /* that is another metric */
		{"step_100_loss0.5.pt", "loss", 1, 0.5},
		{"step_100_loss5.pt", "loss", 1, 5},
		{"epoch=3-val_loss=0.123-v1.ckpt", "val_loss", 1, 0.123},
		{"mymodel_val_loss=0.25.pt", "val_loss", 1, 0.25},
		{"model-val-loss=2.5e-3.pt", "val_loss", 1, 2.5e-3},
		{"model_loss-0.5.pt", "loss", 1, 0.5}, /* the dash separates */
		{"reward=-12.5.pt", "reward", 1, -12.5},
		{"a:loss:1.ckpt", "loss", 1, 1},
		{"epoch=1-val_loss=nan.ckpt", "val_loss", 1, (double)NAN},
		{"val_loss=inf.ckpt", "val_loss", 1, (double)INFINITY},
		{"val_loss=-inf.ckpt", "val_loss", 1, -(double)INFINITY},
		{"loss_banana.pt", "loss", 0, 0},
		{"f1=0.91.pt", "f1", 1, 0.91},
		{"EPOCH=1-Val_Loss=0.5.ckpt", "val_loss", 1, 0.5},
		{"cls_loss=1-box_loss=2.pt", "loss", 2, 0}, /* which one? */
		{"cls_loss=1-loss=2.pt", "loss", 1, 2},
		{"loss=1e999.pt", "loss", 1, (double)INFINITY},
		{"loss=1epoch=3.pt", "loss", 1, 1},
		{"neg_loss=3.pt", "loss", 0, 0},
		{"", "loss", 0, 0},
		{"loss=", "loss", 0, 0},
	};

	(void)state;
	for (size_t i = 0; i < sizeof table / sizeof *table; i++) {
		double value = 7;
		int found = checkpoint_metric_read(table[i].name, table[i].metric, &value);

		if (found != table[i].found)
			fail_msg("%s: %s found %d", table[i].name, table[i].metric, found);
		if (found == 1 && (isnan(table[i].value) ? !isnan(value) : value != table[i].value))
			fail_msg("%s: %s is %g", table[i].name, table[i].metric, value);
		if (found == 0)
			assert_true(value == 7);
	}
}

static void test_count(void **state)
{
	static const struct {
		const char *name;
		int kind; /* -1: none */
		uint64_t count;
	} table[] = {
		{"checkpoint-500", CHECKPOINT_ORDINAL, 500},
		{"global_step500", CHECKPOINT_STEP, 500},
		{"iter_0001000", CHECKPOINT_STEP, 1000},
		{"epoch=3-step=1000.ckpt", CHECKPOINT_STEP, 1000},
		{"epoch=3-val_loss=0.5.ckpt", CHECKPOINT_EPOCH, 3},
		{"ep1-ba100-rank0.pt", CHECKPOINT_STEP, 100},
		{"0500.pt", CHECKPOINT_BARE, 500},
		{"model.h5", -1, 0},
		{"model_12.h5", CHECKPOINT_BARE, 12},
		{"last-v1.ckpt", -1, 0},
		{"val_loss=3.pt", -1, 0},
		{"best.pt", -1, 0},
		{"resnet50.pt", -1, 0},
		{"llama-7b.pt", -1, 0},
		{"mp_rank_00_model_states.pt", -1, 0},
		{"model-seed-3.pt", -1, 0},
		{"model_12.pt", CHECKPOINT_BARE, 12},
		{"step_99999999999999999999999.pt", -1, 0}, /* too large to count */
	};

	(void)state;
	for (size_t i = 0; i < sizeof table / sizeof *table; i++) {
		enum checkpoint_count kind = CHECKPOINT_COUNTS;
		uint64_t count = 7;
		bool found = checkpoint_count_read(table[i].name, &kind, &count);

		if (found != (table[i].kind >= 0))
			fail_msg("%s: %d %llu", table[i].name, (int)kind, (unsigned long long)count);
		if (found && ((int)kind != table[i].kind || count != table[i].count))
			fail_msg("%s: %d %llu", table[i].name, (int)kind, (unsigned long long)count);
	}
}

static void test_known(void **state)
{
	static const struct {
		const char *word, *metric;
		enum neap_metric_mode mode;
	} table[] = {
		{"val_loss", "val_loss", NEAP_METRIC_MIN},
		{"mymodel_val_loss", "val_loss", NEAP_METRIC_MIN},
		{"loss", "loss", NEAP_METRIC_MIN},
		{"eval_accuracy", "eval_accuracy", NEAP_METRIC_MAX},
		{"f1", "f1", NEAP_METRIC_MAX},
		{"neg_loss", NULL, NEAP_METRIC_MODE_UNKNOWN},
		{"score", NULL, NEAP_METRIC_MODE_UNKNOWN},
		{"step", NULL, NEAP_METRIC_MODE_UNKNOWN},
		{"lossy", NULL, NEAP_METRIC_MODE_UNKNOWN},
		{"", NULL, NEAP_METRIC_MODE_UNKNOWN},
	};
	char metric[CHECKPOINT_WORD_CAPACITY];

	(void)state;
	for (size_t i = 0; i < sizeof table / sizeof *table; i++) {
		assert_int_equal(checkpoint_metric_known(table[i].word, metric), table[i].mode);
		if (table[i].metric)
			assert_string_equal(metric, table[i].metric);
	}
}

static void test_classify(void **state)
{
	static const struct {
		const char *name;
		bool folder;
		const char *pattern;
		enum checkpoint_class class;
	} table[] = {
		{"model.ckpt", false, NULL, CHECKPOINT_ONE},
		{"model.PTH", false, NULL, CHECKPOINT_ONE},
		{"model.pth.tar", false, NULL, CHECKPOINT_OTHER}, /* any archive */
		{"model_epoch_3.pth.tar", false, NULL, CHECKPOINT_ONE},
		{"loss=0.5.bin", false, NULL, CHECKPOINT_ONE},
		{"pytorch_model.bin", false, NULL, CHECKPOINT_OTHER},
		{"dataset-00012.tar", false, NULL, CHECKPOINT_OTHER},
		{"model-00001-of-00002.safetensors", false, NULL, CHECKPOINT_PART},
		{"step_5-00001-of-00002.pt", false, NULL, CHECKPOINT_PART},
		{"step_5-00001-of-00002.bin", false, NULL, CHECKPOINT_PART},
		{"train-00000-of-01024.tar", false, NULL, CHECKPOINT_OTHER}, /* data */
		{"1000.orbax-checkpoint-tmp-17", true, NULL, CHECKPOINT_TEMPORARY},
		{"tmp-checkpoint-500", true, NULL, CHECKPOINT_TEMPORARY},
		{"resnet50.pt", false, NULL, CHECKPOINT_ONE},
		{"checkpoint_500", false, NULL, CHECKPOINT_ONE},
		{"checkpoint-500", true, NULL, CHECKPOINT_ONE},
		{"epoch=3.ckpt", true, NULL, CHECKPOINT_ONE},
		{"version_3", true, NULL, CHECKPOINT_OTHER},
		{"2024", true, NULL, CHECKPOINT_OTHER},
		{"logs", true, NULL, CHECKPOINT_OTHER},
		{"train_step_100.log", false, NULL, CHECKPOINT_OTHER},
		{"config.json", false, NULL, CHECKPOINT_OTHER},
		{"model.ckpt.pin", false, NULL, CHECKPOINT_OTHER},
		{".hidden.ckpt", false, NULL, CHECKPOINT_OTHER},
		{".neap-trash", true, "*", CHECKPOINT_OTHER},
		{"model.ckpt.tmp-123-0", false, NULL, CHECKPOINT_TEMPORARY},
		{"model.ckpt.tmp-123-0x", false, NULL, CHECKPOINT_OTHER},
		{"2024", true, "20*", CHECKPOINT_ONE},
		{"model.ckpt", false, "*.pt", CHECKPOINT_OTHER},
		{"model.json", false, "*", CHECKPOINT_OTHER},
	};

	(void)state;
	for (size_t i = 0; i < sizeof table / sizeof *table; i++)
		if (checkpoint_classify(table[i].name, table[i].folder, table[i].pattern) != table[i].class)
			fail_msg("%s", table[i].name);
	assert_true(checkpoint_has_metric("loss=0.1.pt") && checkpoint_has_metric("step=3-val_loss=nan.pt"));
	assert_false(checkpoint_has_metric("model_12.pt") || checkpoint_has_metric("optimizer.pt"));
	assert_true(checkpoint_is_named("last.ckpt"));
	assert_true(checkpoint_is_named("last-v1.ckpt"));
	assert_true(checkpoint_is_named("model_best.pth.tar"));
	assert_false(checkpoint_is_named("best-epoch=3-val_loss=0.1.ckpt"));
	assert_false(checkpoint_is_named("lasting.ckpt"));
}

static void test_sidecar_names(void **state)
{
	char text[64];

	(void)state;
	assert_true(checkpoint_sidecar_name("a.b.pt", 0, text, sizeof text));
	assert_string_equal(text, "a.b.pt.json");
	assert_true(checkpoint_sidecar_name("a.b.pt", CHECKPOINT_SIDECAR_SHORT + 2, text, sizeof text));
	assert_string_equal(text, "a.b.yml");
	assert_false(checkpoint_sidecar_name("a.b.pt", CHECKPOINT_SIDECAR_SHORT + 3, text, sizeof text));
	assert_false(checkpoint_sidecar_name("folder", CHECKPOINT_SIDECAR_SHORT, text, sizeof text));
}

int main(void)
{
	const struct CMUnitTest tests[] = {
		cmocka_unit_test(test_metric),   cmocka_unit_test(test_count),         cmocka_unit_test(test_known),
		cmocka_unit_test(test_classify), cmocka_unit_test(test_sidecar_names),
	};
	return cmocka_run_group_tests(tests, NULL, NULL);
}
