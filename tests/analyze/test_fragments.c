/* Why memory ran out, what would have helped, and the state at an instant, on traces small enough to work out by
 * hand. */
#include "analysis_test.h"

#include <stdio.h>
#include <stdlib.h>
#include <string.h>

static const struct neap_whatif *whatif(const struct neap_whatifs *whatifs, const char *name)
{
	for (size_t i = 0; i < whatifs->count; i++)
		if (strcmp(whatifs->items[i].name, name) == 0)
			return &whatifs->items[i];
	fail_msg("no row '%s'", name);
	return NULL;
}

/* With max_split_size_mb:32 a cached block of 64 MiB cannot serve 40 MiB, which takes a segment of its own; without
 * the setting 64 MiB would have been enough. The same holds with expandable segments. */
static void settings_that_are_better_left_out(void **state)
{
	(void)state;
	struct maker maker;
	struct neap_analysis analysis = {0};
	begin(&maker);
	uint32_t where = stack(&maker, "/home/me/job/model.py", "forward", 20);
	event(&maker, NEAP_TRACE_SEGMENT_ALLOC, 0x40000000, 64 * MIB, where);
	event(&maker, NEAP_TRACE_ALLOC, 0x40000000, 64 * MIB, where);
	release(&maker, 0x40000000, 64 * MIB, where);
	event(&maker, NEAP_TRACE_SEGMENT_ALLOC, 0x80000000, 40 * MIB, where);
	event(&maker, NEAP_TRACE_ALLOC, 0x80000000, 40 * MIB, where);
	maker.build.trace->settings =
		(struct neap_trace_settings){.known = true, .max_split_size = (int64_t)(32 * MIB)};
	struct neap_trace *trace = finish(&maker);
	analyze(trace, (struct neap_instant){0}, (struct neap_instant){0}, &analysis);
	const struct neap_whatifs *whatifs = &analysis.whatifs;
	assert_true(whatifs->own_set);
	assert_true(whatifs->items[0].own);
	assert_int_equal(whatifs->items[0].reserved_peak, 104 * MIB);
	const struct neap_whatif *defaults = whatif(whatifs, "PyTorch with its defaults");
	assert_true(defaults->alone && defaults->tried && !defaults->active);
	assert_string_equal(defaults->settings, "");
	assert_int_equal(defaults->reserved_peak, 64 * MIB);
	assert_int_equal(whatif(whatifs, "only expandable_segments:True")->reserved_peak, 80 * MIB);
	assert_int_equal(whatif(whatifs, "with roundup_power2_divisions:8")->reserved_peak, 104 * MIB);
	neap_analysis_fini(&analysis);

	/* A setting that was in force is not tried. A setting that would change nothing has no row. */
	trace->settings =
		(struct neap_trace_settings){.known = true, .max_split_size = -1, .expandable_segments = true};
	analyze(trace, (struct neap_instant){0}, (struct neap_instant){0}, &analysis);
	assert_true(whatif(&analysis.whatifs, "expandable_segments:True")->active);
	assert_int_equal(whatif(&analysis.whatifs, "PyTorch with its defaults")->reserved_peak, 64 * MIB);
	for (size_t i = 0; i < analysis.whatifs.count; i++)
		assert_string_not_equal(analysis.whatifs.items[i].name, "only expandable_segments:True");
	neap_analysis_fini(&analysis);
	neap_trace_free(trace);
}

/* A segment of 20 MiB with one live block of 9 MiB, or with two, and the rest free. */
static void add_segment(struct maker *maker, uint64_t address, bool two, uint32_t where)
{
	struct neap_trace_segment segment = {.address = address,
					     .size = 20 * MIB,
					     .large = true,
					     .first_block = (size_t)maker->build.trace->block_count,
					     .block_count = two ? 3 : 2};
	struct neap_trace_block live = {.address = address,
					.size = 9 * MIB,
					.requested = 9 * MIB,
					.stack = where,
					.state = NEAP_TRACE_BLOCK_LIVE};
	struct neap_trace_block rest = {.address = address + (two ? 18 : 9) * MIB,
					.size = (two ? 2 : 11) * MIB,
					.state = NEAP_TRACE_BLOCK_FREE};
	event(maker, NEAP_TRACE_SEGMENT_ALLOC, address, 20 * MIB, where);
	event(maker, NEAP_TRACE_ALLOC, address, 9 * MIB, where);
	if (two)
		event(maker, NEAP_TRACE_ALLOC, address + 9 * MIB, 9 * MIB, where);
	neap_build_segment(&maker->build, &segment);
	neap_build_block(&maker->build, &live);
	live.address += 9 * MIB;
	if (two)
		neap_build_block(&maker->build, &live);
	neap_build_block(&maker->build, &rest);
}

/* A cached block of 200 MiB must not serve 40 MiB under a limit of 128 MiB, but may under a limit of 512 MiB. */
static void limits_that_differ(void **state)
{
	(void)state;
	struct maker maker;
	struct neap_analysis analysis = {0};
	begin(&maker);
	event(&maker, NEAP_TRACE_SEGMENT_ALLOC, 0x40000000, 200 * MIB, 0);
	event(&maker, NEAP_TRACE_ALLOC, 0x40000000, 200 * MIB, 0);
	release(&maker, 0x40000000, 200 * MIB, 0);
	event(&maker, NEAP_TRACE_ALLOC, 0x40000000, 40 * MIB, 0);
	event(&maker, NEAP_TRACE_SEGMENT_ALLOC, 0x80000000, 180 * MIB, 0);
	event(&maker, NEAP_TRACE_ALLOC, 0x80000000, 180 * MIB, 0);
	struct neap_trace *trace = finish(&maker);
	analyze(trace, (struct neap_instant){0}, (struct neap_instant){0}, &analysis);
	assert_int_equal(whatif(&analysis.whatifs, "max_split_size_mb:128")->reserved_peak, 420 * MIB);
	assert_int_equal(whatif(&analysis.whatifs, "max_split_size_mb:512")->reserved_peak, 380 * MIB);
	neap_analysis_fini(&analysis);
	neap_trace_free(trace);
}

/* A device of 101 MiB, 100 of them reserved: 72 are live, and live blocks separate the 28 free ones. 24 are
 * requested. */
static void a_failure_by_fragmentation(void **state)
{
	(void)state;
	struct maker maker;
	struct neap_analysis analysis = {0};
	begin(&maker);
	uint32_t where = stack(&maker, "/home/me/job/model.py", "forward", 20);
	for (uint64_t i = 0; i < 5; i++)
		add_segment(&maker, 0x40000000 + i * 20 * MIB, i < 3, where);
	event(&maker, NEAP_TRACE_OOM, MIB, 24 * MIB, where); /* address: 1 MiB free on the device */
	maker.build.trace->devices[0].segment_count = 5;
	struct neap_trace *trace = finish(&maker);
	analyze(trace, (struct neap_instant){0}, (struct neap_instant){0}, &analysis);

	const struct neap_fragments *fragments = &analysis.fragments;
	assert_int_equal(fragments->reserved, 100 * MIB);
	assert_int_equal(fragments->live, 72 * MIB);
	assert_int_equal(fragments->pinned, 28 * MIB);
	assert_int_equal(fragments->releasable, 0);
	assert_int_equal(fragments->largest_free, 11 * MIB);
	assert_int_equal(fragments->worst[0].pinned, 11 * MIB);
	assert_int_equal(fragments->worst[0].pins[0].bytes, 9 * MIB);

	const struct neap_oom_card *oom = &analysis.oom;
	assert_true(analysis.has_oom);
	assert_int_equal(oom->source, NEAP_TRACE_SNAPSHOT);
	assert_int_equal(oom->cause, NEAP_OOM_FRAGMENTATION);
	assert_int_equal(oom->block_bytes, 24 * MIB);
	assert_int_equal(oom->largest_free_bytes, 11 * MIB);
	assert_int_equal(oom->fragments.pinned, 28 * MIB);
	assert_string_equal(oom->pins[0], "job/model.py:20 forward");
	assert_int_equal(oom->shortfall_bytes, 13 * MIB);
	assert_int_equal(oom->replays.memory_bytes, 101 * MIB);
	const struct neap_whatifs *whatifs = &oom->replays.whatifs;
	assert_true(whatifs->items[0].own);
	assert_false(whatifs->items[0].fits);
	assert_true(whatifs->items[1].fits);
	assert_string_equal(whatifs->items[1].name, "expandable_segments:True");
	/* PyTorch puts two blocks of 9 MiB into each segment of 20 MiB: four of them, and 24 MiB. */
	assert_int_equal(oom->replays.smallest_bytes, 104 * MIB);
	assert_int_equal(oom->fixes[0].kind, NEAP_FIX_SETTING);
	assert_true(oom->fixes[0].replayed && oom->fixes[0].sufficient);
	assert_string_equal(oom->fixes[0].text, "PYTORCH_CUDA_ALLOC_CONF=expandable_segments:True");
	/* The purpose of most memory is unknown: no change of the training is predicted. */
	assert_int_equal(oom->unknown_bytes, 72 * MIB);
	for (size_t i = 0; i < oom->fix_count; i++)
		assert_int_equal(oom->fixes[i].kind, NEAP_FIX_SETTING);
	neap_analysis_fini(&analysis);
	neap_trace_free(trace);
}

/* Recorded on a large device: 20 MiB live in a segment of 40, then a segment for 30 MiB; 60 MiB are too few for both.
 * The card shows what the replay had cached, not the segment that the recording had just made. */
static void a_predicted_failure_has_the_pieces_of_the_replay(void **state)
{
	(void)state;
	struct maker maker;
	struct neap_analysis analysis = {0};
	struct neap_error err;
	struct neap_analysis_options options = {.device = SIZE_MAX, .memory_bytes = 60 * MIB};
	begin(&maker);
	event(&maker, NEAP_TRACE_SEGMENT_ALLOC, 0x40000000, 40 * MIB, 0);
	event(&maker, NEAP_TRACE_ALLOC, 0x40000000, 40 * MIB, 0);
	release(&maker, 0x40000000, 40 * MIB, 0);
	event(&maker, NEAP_TRACE_ALLOC, 0x40000000, 20 * MIB, 0);
	event(&maker, NEAP_TRACE_SEGMENT_ALLOC, 0x80000000, 30 * MIB, 0);
	event(&maker, NEAP_TRACE_ALLOC, 0x80000000, 30 * MIB, 0);
	struct neap_trace *trace = finish(&maker);
	assert_int_equal(neap_analyze(trace, &options, &analysis, &err), NEAP_OK);
	const struct neap_oom_card *oom = &analysis.oom;
	assert_true(analysis.has_oom && oom->predicted);
	assert_int_equal(oom->cause, NEAP_OOM_FRAGMENTATION);
	assert_int_equal(oom->block_bytes, 30 * MIB);
	assert_int_equal(oom->cached_bytes, 20 * MIB);
	assert_int_equal(oom->largest_free_bytes, 20 * MIB);
	assert_int_equal(oom->elsewhere_free_bytes, 0);
	assert_int_equal(oom->shortfall_bytes, 10 * MIB);
	assert_false(oom->fragments.known);
	neap_analysis_fini(&analysis);
	neap_trace_free(trace);
}

/* A segment without a live block is returned whole; an expandable one returns its pages of 20 MiB that are free as a
 * whole.
 */
static void what_emptying_the_cache_returns(void **state)
{
	(void)state;
	struct maker maker;
	struct neap_analysis analysis = {0};
	struct neap_trace_segment segment = {
		.address = 0x40000000, .size = 20 * MIB, .large = true, .block_count = 1};
	struct neap_trace_block block = {.address = 0x40000000, .size = 20 * MIB, .state = NEAP_TRACE_BLOCK_FREE};
	begin(&maker);
	neap_build_segment(&maker.build, &segment);
	neap_build_block(&maker.build, &block);
	segment = (struct neap_trace_segment){.address = 0x80000000,
					      .size = 60 * MIB,
					      .large = true,
					      .expandable = true,
					      .first_block = 1,
					      .block_count = 2};
	neap_build_segment(&maker.build, &segment);
	block = (struct neap_trace_block){.address = 0x80000000, .size = 5 * MIB, .state = NEAP_TRACE_BLOCK_LIVE};
	neap_build_block(&maker.build, &block);
	block = (struct neap_trace_block){
		.address = 0x80000000 + 5 * MIB, .size = 55 * MIB, .state = NEAP_TRACE_BLOCK_FREE};
	neap_build_block(&maker.build, &block);
	maker.build.trace->devices[0].segment_count = 2;
	struct neap_trace *trace = finish(&maker);
	analyze(trace, (struct neap_instant){0}, (struct neap_instant){0}, &analysis);
	assert_int_equal(analysis.fragments.releasable, 60 * MIB);
	assert_int_equal(analysis.fragments.pinned, 15 * MIB);
	assert_int_equal(analysis.fragments.pinned_segments, 1);
	neap_analysis_fini(&analysis);
	neap_trace_free(trace);
}

/* Two plain segments and an expandable one; at the end only one plain segment is left. */
static void the_state_at_an_instant(void **state)
{
	(void)state;
	struct maker maker;
	struct neap_analysis analysis = {0};
	struct neap_fragments found;
	struct neap_error err = {0};
	begin(&maker);
	event(&maker, NEAP_TRACE_SEGMENT_ALLOC, 0x40000000, 20 * MIB, 0);
	event(&maker, NEAP_TRACE_ALLOC, 0x40000000, 5 * MIB, 0);
	event(&maker, NEAP_TRACE_SEGMENT_ALLOC, 0x50000000, 20 * MIB, 0);
	event(&maker, NEAP_TRACE_ALLOC, 0x50000000 + 8 * MIB, 4 * MIB, 0);
	event(&maker, NEAP_TRACE_SEGMENT_MAP, 0x60000000, 20 * MIB, 0);
	event(&maker, NEAP_TRACE_SEGMENT_MAP, 0x60000000 + 20 * MIB, 40 * MIB, 0);
	event(&maker, NEAP_TRACE_ALLOC, 0x60000000 + 19 * MIB, 2 * MIB, 0); /* 6: the instant */
	event(&maker, NEAP_TRACE_FREE_REQUESTED, 0x50000000 + 8 * MIB, 4 * MIB, 0);
	event(&maker, NEAP_TRACE_FREE_COMPLETED, 0x50000000 + 8 * MIB, 4 * MIB, 0);
	event(&maker, NEAP_TRACE_SEGMENT_FREE, 0x50000000, 20 * MIB, 0);
	event(&maker, NEAP_TRACE_FREE_REQUESTED, 0x60000000 + 19 * MIB, 2 * MIB, 0);
	event(&maker, NEAP_TRACE_FREE_COMPLETED, 0x60000000 + 19 * MIB, 2 * MIB, 0);
	event(&maker, NEAP_TRACE_SEGMENT_UNMAP, 0x60000000, 40 * MIB, 0);
	event(&maker, NEAP_TRACE_SEGMENT_UNMAP, 0x60000000 + 40 * MIB, 20 * MIB, 0);
	struct neap_trace_segment segment = {
		.address = 0x40000000, .size = 20 * MIB, .large = true, .first_block = 0, .block_count = 2};
	struct neap_trace_block live = {
		.address = 0x40000000, .size = 5 * MIB, .requested = 5 * MIB, .state = NEAP_TRACE_BLOCK_LIVE};
	struct neap_trace_block rest = {
		.address = 0x40000000 + 5 * MIB, .size = 15 * MIB, .state = NEAP_TRACE_BLOCK_FREE};
	neap_build_segment(&maker.build, &segment);
	neap_build_block(&maker.build, &live);
	neap_build_block(&maker.build, &rest);
	maker.build.trace->devices[0].segment_count = 1;
	struct neap_trace *trace = finish(&maker);
	analyze(trace, (struct neap_instant){0}, (struct neap_instant){0}, &analysis);
	assert_int_equal(neap_fragments_find(trace, 0, &analysis.lives, &analysis.sites, 6, NULL, &found, &err),
			 NEAP_OK);
	assert_true(found.known);
	assert_int_equal(found.segments, 3);
	assert_int_equal(found.reserved, 100 * MIB);
	assert_int_equal(found.live, 11 * MIB);
	/* 15 + 16, and the free part of the two pages of the expandable segment that hold the block. */
	assert_int_equal(found.pinned, (15 + 16 + 38) * MIB);
	assert_int_equal(found.releasable, 20 * MIB);
	assert_int_equal(found.largest_free, 39 * MIB);
	/* The peak is at that very instant; the state at the end is the file's own. */
	assert_int_equal(analysis.fragments_at_peak.reserved, 100 * MIB);
	assert_int_equal(analysis.fragments.reserved, 20 * MIB);
	assert_int_equal(neap_fragments_find(trace, 0, &analysis.lives, &analysis.sites, 9, NULL, &found, &err),
			 NEAP_OK);
	assert_int_equal(found.reserved, 80 * MIB);
	neap_analysis_fini(&analysis);
	neap_trace_free(trace);
}

int main(void)
{
	const struct CMUnitTest tests[] = {
		cmocka_unit_test(settings_that_are_better_left_out),
		cmocka_unit_test(limits_that_differ),
		cmocka_unit_test(a_failure_by_fragmentation),
		cmocka_unit_test(a_predicted_failure_has_the_pieces_of_the_replay),
		cmocka_unit_test(what_emptying_the_cache_returns),
		cmocka_unit_test(the_state_at_an_instant),
	};
	return cmocka_run_group_tests(tests, NULL, NULL);
}
