/* A recording of PyTorch's own allocator is analysed as a snapshot is: lines, purposes, replays under its own settings;
 * the card of its failure has both the events and the journal's figures of the device. */
#include "analyze/analysis.h"
#include "base/units.h"
#include "support/watched.h"

#include <stdlib.h>

static char folder[TEST_FOLDER_ROOM];

static int set_up(void **state)
{
	(void)state;
	return make_folder(folder, "watched");
}

static int tear_down(void **state)
{
	(void)state;
	return remove_folder(folder);
}

static void analyze(const struct watched *watched, struct neap_trace **ret_trace, struct neap_analysis *ret_analysis)
{
	const struct neap_analysis_options options = {.device = SIZE_MAX};
	struct neap_error err = {0};

	if (neap_trace_read(watched->path, ret_trace, &err) || neap_analyze(*ret_trace, &options, ret_analysis, &err))
		fail_msg("%s", err.message);
}

static uint64_t of(const struct neap_analysis *analysis, enum neap_category category)
{
	uint64_t sum = 0;

	for (int how = 0; how < NEAP_HOWS; how++)
		sum += analysis->categories.bytes[category][how];
	return sum;
}

static void test_as_a_snapshot(void **state)
{
	static const char *const settings[] = {"", "expandable_segments:True", "max_split_size_mb:32"};

	(void)state;
	for (size_t i = 0; i < sizeof settings / sizeof settings[0]; i++) {
		struct neap_analysis analysis = {0};
		struct neap_trace *trace = NULL;
		struct watched watched;
		watched_begin(&watched, folder, settings[i], 0, 0);
		for (int step = 0; step < 6; step++)
			assert_true(watched_step(&watched, 30));
		watched_end(&watched);
		analyze(&watched, &trace, &analysis);
		/* PyTorch's model chooses every block and segment as recorded: its release and settings are known. */
		assert_int_equal(analysis.replay.version.to, 15);
		assert_true(neap_analysis_exact(&analysis));
		assert_int_equal(analysis.replay.settings.expandable_segments, i == 1);
		assert_int_equal(analysis.steps.count, 6);
		/* At the peak: the activations of all layers, the state, and a gradient. */
		assert_int_equal(of(&analysis, NEAP_CATEGORY_PARAMETERS), WATCHED_LAYERS * 4 * WATCHED_MIB);
		assert_int_equal(of(&analysis, NEAP_CATEGORY_OPTIMIZER), WATCHED_LAYERS * 8 * WATCHED_MIB);
		assert_true(of(&analysis, NEAP_CATEGORY_GRADIENTS) > 0);
		/* That of the last layer is freed at once: it counts as a temporary. */
		assert_int_equal(of(&analysis, NEAP_CATEGORY_ACTIVATIONS), (WATCHED_LAYERS - 1) * 30 * WATCHED_MIB);
		char text[320];
		neap_holder_text(trace, &analysis.holders[0], text, sizeof text);
		assert_string_equal(text, "me/gpt.py:42 forward");
		neap_analysis_fini(&analysis);
		neap_trace_free(trace);
	}
}

int main(void)
{
	const struct CMUnitTest tests[] = {
		cmocka_unit_test(test_as_a_snapshot),
	};

	return cmocka_run_group_tests(tests, set_up, tear_down);
}
