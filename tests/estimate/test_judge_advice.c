/* What the judge says would help a run that does not fit: settings of the allocator, and changes of the training. */
#include "judge_test.h"

#include <string.h>

/* Ten blocks of 30 MiB, each replaced by one of 16 MiB, then one of 140 MiB: as much as the ten gaps together. */
static struct world *make_fragmented(void)
{
	char text[4096] = "";
	for (int i = 0; i < 10; i++)
		snprintf(text + strlen(text), sizeof text - strlen(text), "a %d 31457280 0\nf %d\na %d 16777216 0\n",
			 100 + i, 100 + i, 200 + i);
	strcat(text, "a 300 146800640 0\n");
	return make(text);
}

static uint64_t smallest(const struct world *world, const char *settings)
{
	struct neap_replay_options options = {.policy = NEAP_REPLAY_TORCH, .settings = settings};
	uint64_t bytes = 0;
	assert_int_equal(neap_replay_smallest(world->run.trace, &options, &bytes, NULL), NEAP_OK);
	return bytes;
}

/* Settings of PyTorch's own allocator, as they are offered. */
static bool offers(const struct neap_estimate_verdict *verdict, const char *settings)
{
	for (size_t i = 0; i < verdict->settings.count; i++) {
		const struct neap_whatif *item = &verdict->settings.items[i];
		if (item->tried && item->fits && !item->own && item->settings && !strcmp(item->settings, settings))
			return true;
	}
	return false;
}

static void settings_that_help(void **state)
{
	(void)state;
	static const char expandable[] = "expandable_segments:True";
	struct world *world = make_fragmented();
	uint64_t needed = smallest(world, NULL), less = smallest(world, expandable);
	assert_true(less + 50 * MIB < needed);
	judge(world, BARE + CODE + less);
	assert_int_equal(world->verdict.doubt, NEAP_ESTIMATE_CONTEXT);
	assert_true(offers(&world->verdict, expandable));
	assert_false(offers(&world->verdict, "max_split_size_mb:512"));
	judge(world, BARE + CODE + less - PAGE);
	assert_false(offers(&world->verdict, expandable));
	assert_true(world->verdict.settings.count > 0); /* it was tried */
	judge(world, BARE + CODE + needed);
	assert_int_equal(world->verdict.fits, NEAP_ESTIMATE_YES);
	assert_int_equal(world->verdict.settings.count, 0);
	drop(world);
}

/* A setting has to leave room for the workspace, too: otherwise it is not offered, even if the replay completes. */
static void settings_that_do_not_help(void **state)
{
	(void)state;
	static const char expandable[] = "expandable_segments:True";
	struct world *world = make(plain);
	add_gap(world, "cudnn", "cudnnConvolutionForward", 1, 0, 8 * MIB);
	judge(world, BARE + CODE + REQUESTED);
	assert_int_equal(world->verdict.doubt, NEAP_ESTIMATE_WORKSPACE);
	for (size_t i = 0; i < world->verdict.settings.count; i++)
		assert_false(world->verdict.settings.items[i].fits);
	drop(world);

	world = make_fragmented();
	uint64_t less = smallest(world, expandable);
	add_gap(world, "cudnn", "cudnnConvolutionForward", 1, 0, 8 * MIB);
	judge(world, BARE + CODE + less + 8 * MIB);
	assert_true(offers(&world->verdict, expandable));
	judge(world, BARE + CODE + less + 8 * MIB - PAGE);
	assert_false(offers(&world->verdict, expandable));
	assert_int_equal(world->verdict.settings.memory_bytes, less - PAGE);
	drop(world);
}

static void predicts_what_would_help(void **state)
{
	(void)state;
	struct world *world = make(plain);
	uint64_t(*bytes)[NEAP_HOWS] = world->run.analysis.categories.bytes;
	bytes[NEAP_CATEGORY_ACTIVATIONS][0] = 5 * MIB;
	bytes[NEAP_CATEGORY_ACTIVATIONS][1] = 3 * MIB;
	bytes[NEAP_CATEGORY_TEMPORARIES][0] = 6 * MIB;
	bytes[NEAP_CATEGORY_INPUTS][0] = 2 * MIB;
	bytes[NEAP_CATEGORY_PARAMETERS][0] = 4 * MIB;
	judge(world, BARE + CODE + REQUESTED - 4 * MIB);
	assert_true(world->verdict.samples_share > 0.7499 && world->verdict.samples_share < 0.7501); /* 12 of 16 */
	assert_true(world->verdict.saving_count > 0);
	judge(world, BARE + CODE + REQUESTED - 16 * MIB);
	assert_true(world->verdict.samples_share == 0);
	judge(world, BARE + CODE + REQUESTED);
	assert_int_equal(world->verdict.saving_count, 0);
	drop(world);
}

int main(void)
{
	const struct CMUnitTest tests[] = {
		cmocka_unit_test(settings_that_help),
		cmocka_unit_test(settings_that_do_not_help),
		cmocka_unit_test(predicts_what_would_help),
	};
	return cmocka_run_group_tests(tests, NULL, NULL);
}
