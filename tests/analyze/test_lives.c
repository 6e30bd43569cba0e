/* When each allocation began and ended, the levels that follow, and which line of the program it counts for. */
#include "analysis_test.h"

/* A block that is freed but was never allocated was there before; of a block that is allocated twice, the free was
 * lost. */
static void lives_from_before(void **state)
{
	(void)state;
	struct maker maker;
	struct neap_lives lives;
	begin(&maker);
	event(&maker, NEAP_TRACE_ALLOC, 0x2000, 10, 0);
	release(&maker, 0x1000, 700, 0);
	event(&maker, NEAP_TRACE_ALLOC, 0x2000, 20, 0);
	event(&maker, NEAP_TRACE_FREE_REQUESTED, 0x2000, 20, 0);
	struct neap_trace *trace = finish(&maker);
	assert_int_equal(neap_lives_find(trace, 0, &lives, NULL), NEAP_OK);
	assert_int_equal(lives.count, 3);
	assert_int_equal(lives.before, 1);
	assert_int_equal(lives.odd, 1);
	struct neap_life items[3];
	struct neap_life_cursor cursor = neap_lives_begin(&lives, 0);
	for (size_t i = 0; i < 3; i++)
		assert_true(neap_lives_next(&cursor, &items[i]));
	assert_false(neap_lives_next(&cursor, &items[0]));
	assert_int_equal(items[0].size, 700);
	assert_int_equal(items[0].freed, 1);
	assert_int_equal(items[0].end, 2);
	assert_int_equal(items[1].end, 3);
	assert_int_equal(items[2].freed, 4);
	assert_true(items[2].end == NEAP_LIFE_AFTER);
	assert_true(neap_life_at(&items[0], NEAP_LIFE_BEFORE));
	assert_true(neap_life_at(&items[0], 1));
	assert_false(neap_life_at(&items[0], 2));
	neap_lives_fini(&lives);
	neap_trace_free(trace);
}

/* Levels are the sums of the live blocks, whatever odd events claim: a free whose size differs from its allocation's,
 * an allocation at a live block's address, a free that completes 200 events after its request. */
static void levels_of_odd_events(void **state)
{
	(void)state;
	static const uint64_t requested[] = {1000, 1200, 2200, 2200, 1200, 500},
			      rounded[] = {1024, 1536, 2560, 1536, 1536, 1024};
	struct maker maker;
	struct neap_lives lives;
	struct neap_timeline timeline;
	struct neap_torch_settings settings;
	size_t at = 0;
	begin(&maker);
	event(&maker, NEAP_TRACE_ALLOC, 0x1000, 1000, 0);
	event(&maker, NEAP_TRACE_ALLOC, 0x2000, 200, 0);
	event(&maker, NEAP_TRACE_ALLOC, 0x3000, 1000, 0);
	event(&maker, NEAP_TRACE_FREE_REQUESTED, 0x3000, 77, 0);
	for (int i = 0; i < 200; i++)
		event(&maker, NEAP_TRACE_SNAPSHOT_TAKEN, 0, 5, 0);
	event(&maker, NEAP_TRACE_FREE_COMPLETED, 0x3000, 1000, 0);
	event(&maker, NEAP_TRACE_ALLOC, 0x1000, 300, 0);
	struct neap_trace *trace = finish(&maker);
	neap_torch_settings_default(&settings);
	assert_int_equal(neap_lives_find(trace, 0, &lives, NULL), NEAP_OK);
	assert_int_equal(neap_timeline_make(trace, 0, &lives, &settings, &timeline, NULL), NEAP_OK);
	struct neap_timeline_cursor cursor = neap_timeline_begin(&timeline);
	while (neap_timeline_next(&cursor)) {
		if (cursor.event.kind == NEAP_TRACE_SNAPSHOT_TAKEN)
			continue;
		assert_int_equal(cursor.now.requested, requested[at]);
		assert_int_equal(cursor.now.rounded, rounded[at++]);
	}
	assert_int_equal(at, 6);
	neap_timeline_fini(&timeline);
	neap_lives_fini(&lives);
	neap_trace_free(trace);
}

/* If frees carry their allocations' stacks, they do not show where the free was, but where an early block came
 * from. */
static void frees_with_the_stacks_of_allocations(void **state)
{
	(void)state;
	struct maker maker;
	struct neap_lives lives;
	begin(&maker);
	uint32_t one = stack(&maker, "/home/me/job/model.py", "forward", 20);
	uint32_t other = stack(&maker, "/home/me/job/model.py", "forward", 21);
	release(&maker, 0x1000, 700, other);
	event(&maker, NEAP_TRACE_ALLOC, 0x2000, 10, one);
	release(&maker, 0x2000, 10, one);
	struct neap_trace *trace = finish(&maker);
	assert_int_equal(neap_lives_find(trace, 0, &lives, NULL), NEAP_OK);
	struct neap_life_cursor cursor = neap_lives_begin(&lives, 0);
	struct neap_life life;
	assert_true(neap_lives_next(&cursor, &life));
	assert_int_equal(life.stack, other);
	assert_int_equal(life.freed_stack, 0);
	assert_true(neap_lives_next(&cursor, &life));
	assert_int_equal(life.freed_stack, 0);
	neap_lives_fini(&lives);
	neap_trace_free(trace);
}

/* Frames of PyTorch, neap, Python itself and compiled code are attributed to the program's line that called them. */
static void what_is_no_line_of_the_program(void **state)
{
	static const char *const frames[][2] = {
		{"/v/site-packages/neap/_estimate.py", "reader"},
		{"/v/site-packages/neap/hooks.py", "inner"},
		{"/v/site-packages/torch/cuda/memory.py", "inner"},
		{"/usr/lib/python3.12/contextlib.py", "inner"},
		{"/v/i6/ci642mh5izvlkdgh6pu4slnmfhmnz453ddto65z7v2s65u5l5jde.py", "call"},
		{"/src/pytorch/torch/distributions/normal.py", "sample"},
		{"/v/site-packages/monai/meta_tensor.py", "__torch_function__"},
	};
	(void)state;
	struct maker maker;
	begin(&maker);
	event(&maker, NEAP_TRACE_SEGMENT_ALLOC, 0x10000000, 64 * MIB, 0);
	for (size_t i = 0; i < sizeof frames / sizeof frames[0]; i++)
		event(&maker, NEAP_TRACE_ALLOC, 0x10000000 + i * MIB, MIB,
		      stack(&maker, frames[i][0], frames[i][1], 7));
	uint32_t folder = stack(&maker, "/home/me/torch/unet.py", "main", 99);
	event(&maker, NEAP_TRACE_ALLOC, 0x10000000 + 16 * MIB, MIB, folder);
	struct neap_trace *trace = finish(&maker);
	struct neap_analysis analysis = {0};
	char text[320];
	analyze(trace, (struct neap_instant){0}, (struct neap_instant){0}, &analysis);
	assert_int_equal(analysis.holder_count, 2);
	neap_holder_text(trace, &analysis.holders[0], text, sizeof text);
	assert_string_equal(text, "job/train.py:412 <module>");
	neap_holder_text(trace, &analysis.holders[1], text, sizeof text);
	assert_string_equal(text, "torch/unet.py:99 main");
	neap_analysis_fini(&analysis);
	neap_trace_free(trace);
}

int main(void)
{
	const struct CMUnitTest tests[] = {
		cmocka_unit_test(lives_from_before),
		cmocka_unit_test(levels_of_odd_events),
		cmocka_unit_test(frees_with_the_stacks_of_allocations),
		cmocka_unit_test(what_is_no_line_of_the_program),
	};
	return cmocka_run_group_tests(tests, NULL, NULL);
}
