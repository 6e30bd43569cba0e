/* What is kept of a long run: which steps stay whole, what remains of the others. The live blocks at its end are
 * exactly those of all events, however much was left out. */
#include "run/keep.h"

#include "analyze/analysis.h"
#include "base/clock.h"
#include "support/watched.h"

#include <stdlib.h>
#include <sys/stat.h>

static char folder[TEST_FOLDER_CAPACITY];

static int set_up(void **state)
{
	(void)state;
	return make_folder(folder, "keep");
}

static int tear_down(void **state)
{
	(void)state;
	return remove_folder(folder);
}

/* --- choosing --- */

static void test_choice(void **state)
{
	static const struct {
		uint64_t begin_s, peak_bytes;
		bool failed, part;
		enum neap_keep_why why;
	} steps[] = {
		{0, 100, false, false, NEAP_KEEP_FIRST},    {1, 90, false, false, NEAP_KEEP_FIRST},
		{2, 90, false, false, NEAP_KEEP_FIRST},     {3, 90, false, false, NEAP_KEEP_FIRST},
		{4, 90, false, false, NEAP_KEEP_FIRST},     {5, 90, false, false, NEAP_KEEP_THINNED},
		{6, 100, false, false, NEAP_KEEP_THINNED},  {7, 101, false, false, NEAP_KEEP_PEAK},
		{8, 101, false, false, NEAP_KEEP_THINNED},  {9, 50, true, false, NEAP_KEEP_OOM},
		{63, 50, false, false, NEAP_KEEP_THINNED},  {64, 50, false, false, NEAP_KEEP_MINUTE},
		{65, 50, false, false, NEAP_KEEP_THINNED},  {123, 50, false, false, NEAP_KEEP_THINNED},
		{124, 50, false, true, NEAP_KEEP_MINUTE}, /* all parts of a minute's step stay */
		{125, 50, false, true, NEAP_KEEP_MINUTE},   {126, 50, false, false, NEAP_KEEP_MINUTE},
		{127, 50, false, true, NEAP_KEEP_THINNED},  {128, 102, false, true, NEAP_KEEP_PEAK},
		{129, 50, false, false, NEAP_KEEP_THINNED},
	};
	struct neap_keep_choice choice = {0};

	(void)state;
	for (size_t i = 0; i < sizeof steps / sizeof steps[0]; i++) {
		struct neap_keep_step step = {.begin_ns = steps[i].begin_s * NEAP_NS_PER_S,
					      .peak_bytes = {0, steps[i].peak_bytes},
					      .failed = steps[i].failed,
					      .part = steps[i].part};
		if (neap_keep_choose(&choice, &step) != steps[i].why)
			fail_msg("step %zu", i);
	}
}

/* --- thinning --- */

/* The blocks and segments that exist: address to size. An event that does not fit fails the test. */
struct state {
	struct neap_map blocks, pending, segments;
};

static void put_new(struct neap_map *map, uint64_t address, uint64_t value)
{
	assert_false(neap_map_get(map, address, NULL));
	assert_true(neap_map_put(map, address, value));
}

static void apply(struct state *to, const struct neap_event *event)
{
	const struct neap_event_allocation *block = &event->allocation;
	uint64_t size = 0;

	switch (event->kind) {
	case NEAP_EVENT_ALLOC:
		assert_false(neap_map_get(&to->pending, block->address, NULL));
		put_new(&to->blocks, block->address, block->requested_bytes);
		break;
	case NEAP_EVENT_FREE:
	case NEAP_EVENT_FREE_REQUESTED:
		assert_true(neap_map_remove(&to->blocks, block->address, &size));
		assert_int_equal(size, block->requested_bytes);
		if (event->kind == NEAP_EVENT_FREE_REQUESTED)
			put_new(&to->pending, block->address, size);
		break;
	case NEAP_EVENT_FREE_COMPLETED:
		assert_true(neap_map_remove(&to->pending, block->address, NULL));
		break;
	case NEAP_EVENT_SEGMENT_ALLOC:
	case NEAP_EVENT_SEGMENT_MAP:
		put_new(&to->segments, event->segment.address, event->segment.bytes);
		break;
	case NEAP_EVENT_SEGMENT_FREE:
	case NEAP_EVENT_SEGMENT_UNMAP:
		assert_true(neap_map_remove(&to->segments, event->segment.address, &size));
		assert_int_equal(size, event->segment.bytes);
		break;
	default:
		break;
	}
}

static void assert_same_map(const struct neap_map *one, const struct neap_map *other)
{
	const struct neap_map_slot *slot;
	uint64_t value = 0;

	assert_int_equal(one->count, other->count);
	for (size_t cursor = 0; (slot = neap_map_next(one, &cursor));) {
		assert_true(neap_map_get(other, slot->key, &value));
		assert_int_equal(value, slot->value);
	}
}

static void assert_same(const struct state *one, const struct state *other)
{
	assert_same_map(&one->blocks, &other->blocks);
	assert_same_map(&one->pending, &other->pending);
	assert_same_map(&one->segments, &other->segments);
}

static void fini(struct state *which)
{
	neap_map_fini(&which->blocks);
	neap_map_fini(&which->pending);
	neap_map_fini(&which->segments);
}

/* Makes an event that fits the state. */
static struct neap_event next_event(uint64_t *seed, const struct state *now)
{
	uint64_t slot = 1 + next_random(seed) % 20, size = slot * 512;
	uint16_t kind;

	if (next_random(seed) % 6 == 0) {
		bool there = neap_map_get(&now->segments, slot, &size);
		kind = there ? NEAP_EVENT_SEGMENT_FREE : NEAP_EVENT_SEGMENT_ALLOC;
		return (struct neap_event){.kind = kind, .segment = {.address = slot, .bytes = size}};
	}
	if (neap_map_get(&now->pending, slot, &size))
		kind = NEAP_EVENT_FREE_COMPLETED;
	else if (neap_map_get(&now->blocks, slot, &size))
		kind = next_random(seed) % 2 ? NEAP_EVENT_FREE : NEAP_EVENT_FREE_REQUESTED;
	else
		kind = NEAP_EVENT_ALLOC;
	return (struct neap_event){.kind = kind, .allocation = {.address = slot, .requested_bytes = size}};
}

static void test_thin(void **state)
{
	uint64_t seed = test_seed();

	(void)state;
	for (int round = 0; round < 300; round++) {
		struct state all = {0}, thinned = {0};
		size_t left = 0, taken = 0;
		for (int step = 0; step < 6; step++) {
			struct neap_event events[200];
			size_t count = 1 + next_random(&seed) % 200;
			for (size_t i = 0; i < count; i++) {
				events[i] = next_event(&seed, &all);
				apply(&all, &events[i]);
			}
			taken += count;
			count = neap_keep_thin(events, count);
			left += count;
			for (size_t i = 0; i < count; i++)
				apply(&thinned, &events[i]);
			assert_same(&all, &thinned);
		}
		assert_true(left < taken);
		fini(&all);
		fini(&thinned);
	}
}

/* A restart frees everything at once: all that lived then stays in the file. A part of a mapping does not count as
 * whole. */
static void test_thin_keeps(void **state)
{
	struct neap_event events[] = {
		{.kind = NEAP_EVENT_ALLOC, .allocation = {.address = 1}},
		{.kind = NEAP_EVENT_ALLOC, .allocation = {.address = 3}},
		{.kind = NEAP_EVENT_RESTART},
		{.kind = NEAP_EVENT_FREE, .allocation = {.address = 3}},
		{.kind = NEAP_EVENT_ALLOC, .allocation = {.address = 1}},
		{.kind = NEAP_EVENT_FREE, .allocation = {.address = 1}},
		{.kind = NEAP_EVENT_SEGMENT_MAP, .segment = {.address = 1, .bytes = 10}},
		{.kind = NEAP_EVENT_SEGMENT_UNMAP, .segment = {.address = 4, .bytes = 2}},
		{.kind = NEAP_EVENT_SEGMENT_MAP, .segment = {.address = 4, .bytes = 2}},
		{.kind = NEAP_EVENT_SEGMENT_UNMAP, .segment = {.address = 1, .bytes = 10}},
		{.kind = NEAP_EVENT_ALLOC, .allocation = {.address = 2}},
		{.kind = NEAP_EVENT_RECORD_STREAM, .allocation = {.address = 2}},
		{.kind = NEAP_EVENT_FREE, .allocation = {.address = 2}},
		{.kind = NEAP_EVENT_OOM},
	};

	(void)state;
	assert_int_equal(neap_keep_thin(events, sizeof events / sizeof events[0]), 12);
	assert_int_equal(events[2].kind, NEAP_EVENT_RESTART);
	assert_int_equal(events[4].kind, NEAP_EVENT_SEGMENT_MAP);
}

static void test_join_steps(void **state)
{
	struct neap_event events[] = {
		neap_event_of_step(0, (struct neap_event_step){.number = 1, .peak_bytes = 9, .lowest_bytes = 5}),
		neap_event_of_metric(0, (struct neap_event_metric){.value = 1}),
		neap_event_of_step(1, (struct neap_event_step){.number = 1, .peak_bytes = 7, .lowest_bytes = 5}),
		neap_event_of_step(0, (struct neap_event_step){.number = 2, .peak_bytes = 8, .lowest_bytes = 6}),
		neap_event_of_step(0, (struct neap_event_step){.number = 3, .peak_bytes = 8, .lowest_bytes = 6}),
	};

	(void)state;
	assert_int_equal(neap_keep_join_steps(events, 5), 3);
	assert_int_equal(events[0].device, 1);
	assert_int_equal(events[1].step.number, 2);
	assert_int_equal(events[1].step.peak_bytes, 9);
	assert_int_equal(events[1].step.lowest_bytes, 5);
	assert_int_equal(events[2].step.number, 3);
}

/* --- a run --- */

static void note(void *context, const struct neap_event *event) { apply(context, event); }

static struct neap_record read_record(const struct watched *watched)
{
	struct neap_record record = {0};
	struct neap_error err = {0};

	if (neap_record_read(watched->path, &record, &err))
		fail_msg("%s", err.message);
	return record;
}

/* From now on `all` holds what lives in the program. `note` does not see its beginning, during which nothing was
 * freed. */
static void follow(struct watched *watched, struct state *all)
{
	struct neap_record record = read_record(watched);
	for (size_t i = 0; i < record.allocation_count; i++)
		apply(all, &record.allocations[i]);
	neap_record_fini(&record);
	watched->seen = note;
	watched->context = all;
}

/* Everything that can be read of the run is consistent, and has the live blocks of all events. */
static void assert_whole(const struct watched *watched, const struct state *all)
{
	struct neap_record record = read_record(watched);
	struct state read = {0};

	for (size_t i = 0; i < record.allocation_count; i++)
		apply(&read, &record.allocations[i]);
	assert_same(&read, all);
	assert_int_equal(record.allocations_lost + record.allocations_missing + record.journal_lost + record.torn, 0);
	fini(&read);
	neap_record_fini(&record);
}

static void begin(struct neap_keep *keep, const struct watched *watched, const struct neap_keep_options *options)
{
	struct neap_error err = {0};

	if (neap_keep_begin(keep, watched->path, options, &err))
		fail_msg("%s", err.message);
}

static void look(struct neap_keep *keep, const struct watched *watched)
{
	struct neap_error err = {0};

	if (neap_keep_poll(keep, watched->now_ns - 5 * watched->tick_ns, &err))
		fail_msg("%s", err.message);
}

static uint64_t file_bytes(const char *path)
{
	struct stat info = {0};
	return stat(path, &info) ? 0 : (uint64_t)info.st_size;
}

static void merge(const struct watched *watched)
{
	struct neap_error err = {0};

	if (neap_record_merge(watched->path, 0600, &err))
		fail_msg("%s", err.message);
}

static void test_two_hours(void **state)
{
	struct neap_keep keep;
	struct neap_trace *trace = NULL;
	struct watched watched;
	struct state all = {0};
	uint64_t most = 0;

	(void)state;
	watched_begin(&watched, folder, "", 0, 4096);
	follow(&watched, &all);
	watched.tick_ns = NEAP_NS_PER_S / 70; /* a step takes a second or so */
	begin(&keep, &watched, &(struct neap_keep_options){0});
	for (int step = 0; watched.now_ns < 7200 * NEAP_NS_PER_S; step++) {
		assert_true(watched_step(&watched, step == 3000 ? 40 : 20)); /* one peak in the middle */
		if (step % 10 == 0)
			look(&keep, &watched);
		if (step == 3333)
			assert_whole(&watched, &all); /* while it runs */
		if (step % 1000 == 0)
			watched_alloc(&watched, WATCHED_MIB, WATCHED_LEAK);
		most = file_bytes(keep.path) > most ? file_bytes(keep.path) : most;
	}
	look(&keep, &watched);
	assert_true(watched.steps > 5000);
	assert_true(most <= NEAP_KEEP_BYTES);
	uint64_t whole_bytes = watched.events * sizeof(struct neap_event);
	assert_true(most < whole_bytes / 8);
	assert_whole(&watched, &all);
	neap_keep_end(&keep);
	assert_whole(&watched, &all); /* as after a crash of the supervisor */
	watched_end(&watched);
	merge(&watched);
	assert_int_equal(file_bytes(keep.path), 0);
	assert_whole(&watched, &all);
	struct neap_record record = read_record(&watched);
	assert_true(record.thinned_steps > 4500 && record.thinned_steps < watched.steps);
	assert_int_equal(record.allocation_count + record.journal_count + record.thinned_events, watched.events);
	neap_record_fini(&record);

	/* Its peak, its steps and its leak are found. */
	struct neap_analysis analysis = {0};
	const struct neap_analysis_options options = {.device = SIZE_MAX};
	assert_int_equal(neap_trace_read(watched.path, &trace, NULL), NEAP_OK);
	assert_int_equal(neap_analyze(trace, &options, &analysis, NULL), NEAP_OK);
	assert_true(trace->partial);
	assert_int_equal(analysis.steps.count, watched.steps);
	assert_int_equal(neap_steps_before(&analysis.steps, analysis.profile.requested_peak.event), 3000);
	assert_int_equal(analysis.lives.odd, 0);
	/* Their peaks and the time between are reported as if all steps had been whole; the newest step is. */
	assert_true(analysis.trends.teeth_per_step > 0.9 && analysis.trends.teeth_per_step < 1.1);
	assert_true(analysis.trends.amplitude_bytes > 100 * WATCHED_MIB);
	size_t last = analysis.steps.count - 1;
	uint64_t events = analysis.steps.ends[last] - analysis.steps.ends[last - 1];
	assert_int_equal(events, analysis.steps.ends[last - 1] - analysis.steps.ends[last - 2]);
	assert_true(events > 6 * WATCHED_LAYERS);
	neap_analysis_fini(&analysis);
	neap_trace_free(trace);
	fini(&all);
}

/* However small the file is. */
static void test_bounded(void **state)
{
	static const uint64_t bounds[] = {1 << 20, 256 << 10, 64 << 10};

	(void)state;
	for (size_t i = 0; i < sizeof bounds / sizeof bounds[0]; i++) {
		struct neap_keep keep;
		struct watched watched;
		struct state all = {0};
		watched_begin(&watched, folder, i % 2 ? "expandable_segments:True" : "", 0, 4096);
		follow(&watched, &all);
		watched.tick_ns = NEAP_NS_PER_S / 7;
		begin(&keep, &watched, &(struct neap_keep_options){.bytes = bounds[i]});
		for (uint64_t step = 0; step < 2000; step++) {
			assert_true(watched_step(&watched, 20 + step / 100)); /* peaks that keep rising */
			look(&keep, &watched);
			assert_true(file_bytes(keep.path) <= bounds[i]);
		}
		assert_whole(&watched, &all);
		neap_keep_end(&keep);
		watched_end(&watched);
		merge(&watched);
		assert_whole(&watched, &all);
		unlink(watched.path);
		fini(&all);
	}
}

/* Spans that were kept for this reason, with all the events of a step. */
static size_t count_whole(const struct neap_keep *keep, enum neap_keep_why why)
{
	size_t count = 0;

	for (size_t i = 0; i + 1 < keep->span_count; i++)
		count += keep->spans[i].why == why &&
			 keep->spans[i + 1].first - keep->spans[i].first > 6 * WATCHED_LAYERS;
	return count;
}

/* A month of steps, more than two minutes each: neap would keep every step whole, but then the file is full. */
static void test_filled(void **state)
{
	struct neap_keep keep;
	struct watched watched;
	struct state all = {0};
	uint64_t most = 0, highest = 0;

	(void)state;
	watched_begin(&watched, folder, "", 0, 0);
	follow(&watched, &all);
	watched.tick_ns = 2 * NEAP_NS_PER_S;
	begin(&keep, &watched, &(struct neap_keep_options){0});
	for (int step = 0; watched.now_ns < 30 * 86400 * NEAP_NS_PER_S; step++) {
		assert_true(watched_step(&watched, step == 10000 ? 40 : 20)); /* one peak in the middle */
		if (step % 20 == 0)
			look(&keep, &watched);
		most = file_bytes(keep.path) > most ? file_bytes(keep.path) : most;
	}
	look(&keep, &watched);
	assert_true(most <= NEAP_KEEP_BYTES && most > NEAP_KEEP_BYTES / 10 * 9);
	assert_true(count_whole(&keep, NEAP_KEEP_FIRST) == 5 && count_whole(&keep, NEAP_KEEP_PEAK) == 1);
	/* Each time the file was full, every second of the minutes' steps was given up. */
	size_t minutes = count_whole(&keep, NEAP_KEEP_MINUTE);
	assert_true(minutes > watched.steps / 2 && minutes < watched.steps);
	neap_keep_end(&keep);
	watched_end(&watched);
	merge(&watched);
	assert_whole(&watched, &all);
	struct neap_record record = read_record(&watched);
	for (size_t i = 0; i < record.journal_count; i++)
		if (record.journal[i].kind == NEAP_EVENT_STEP && record.journal[i].step.peak_bytes > highest)
			highest = record.journal[i].step.peak_bytes;
	assert_true(highest > 8 * 40 * WATCHED_MIB);
	neap_record_fini(&record);
	unlink(watched.path);
	fini(&all);
}

/* The supervisor was away for so long that the ring wrapped: the lost events are counted, and no block lives on that
 * is gone. */
static void test_overrun(void **state)
{
	struct neap_keep keep;
	struct watched watched;
	struct neap_trace *trace = NULL;
	struct neap_lives lives = {0};

	(void)state;
	for (int when = 0; when < 40; when++) {
		watched_begin(&watched, folder, "", 0, 256);
		begin(&keep, &watched, &(struct neap_keep_options){0});
		void *extra = watched_alloc(&watched, 50 * WATCHED_MIB, WATCHED_LEAK); /* nothing takes its place */
		for (int step = 0; step < 40; step++) {
			assert_true(watched_step(&watched, 20));
			if (step == 15)
				watched_free(&watched, extra);
			if (step < when / 4 || step > 20)
				look(&keep, &watched);
		}
		look(&keep, &watched);
		uint64_t allocated = watched.allocated;
		struct neap_record record = read_record(&watched);
		if (when < 4)
			assert_true(record.allocations_lost > 0);
		else
			assert_true(record.allocations_missing > 0 && record.allocations_lost == 0);
		assert_true(record.journal_count >= 40);
		neap_record_fini(&record);
		neap_keep_end(&keep);
		watched_end(&watched);
		merge(&watched);
		assert_int_equal(neap_trace_read(watched.path, &trace, NULL), NEAP_OK);
		assert_true(trace->partial || trace->devices[0].lost > 0);
		assert_int_equal(neap_lives_find(trace, 0, &lives, NULL), NEAP_OK);
		assert_int_equal(lives.odd, 0);
		uint64_t live = 0;
		struct neap_life_cursor cursor = neap_lives_begin(&lives, 0);
		for (struct neap_life life; neap_lives_next(&cursor, &life);)
			live += life.end == NEAP_LIFE_AFTER ? life.size : 0;
		if (when >= 4)
			assert_true(live <= allocated);
		neap_lives_fini(&lives);
		neap_trace_free(trace);
		unlink(watched.path);
	}
}

/* Killed after the recordings became one and before the file of kept steps was removed. */
static void test_killed(void **state)
{
	struct neap_keep keep;
	struct watched watched;
	struct state all = {0};
	char path[NEAP_RECORD_PATH], aside[NEAP_RECORD_PATH + 8];

	(void)state;
	watched_begin(&watched, folder, "", 0, 512);
	follow(&watched, &all);
	begin(&keep, &watched, &(struct neap_keep_options){0});
	for (int step = 0; step < 30; step++) {
		assert_true(watched_step(&watched, 20));
		look(&keep, &watched);
	}
	snprintf(path, sizeof path, "%s", keep.path);
	snprintf(aside, sizeof aside, "%s.aside", path);
	neap_keep_end(&keep);
	watched_end(&watched);
	assert_int_equal(link(path, aside), 0);
	merge(&watched);
	assert_int_equal(rename(aside, path), 0);
	assert_whole(&watched, &all);
	assert_int_equal(neap_record_cut(watched.path, NULL), NEAP_OK);
	assert_int_equal(file_bytes(path), 0);
	assert_whole(&watched, &all);
	fini(&all);
}

/* With any change of the file, the reader gives a recording or an error. */
static void test_changed(void **state)
{
	uint64_t seed = test_seed();
	struct neap_keep keep;
	struct watched watched;

	(void)state;
	watched_begin(&watched, folder, "", 0, 256);
	begin(&keep, &watched, &(struct neap_keep_options){0});
	for (int step = 0; step < 10; step++) {
		assert_true(watched_step(&watched, 20));
		look(&keep, &watched);
	}
	char path[NEAP_RECORD_PATH];
	snprintf(path, sizeof path, "%s", keep.path);
	neap_keep_end(&keep);
	watched_end(&watched);
	uint64_t length = file_bytes(path);
	char *bytes = malloc(length), *changed = malloc(length);
	FILE *file = fopen(path, "r");
	assert_true(file && bytes && changed && fread(bytes, 1, length, file) == length);
	fclose(file);
	for (int round = 0; round < 2000; round++) {
		struct neap_record record;
		size_t left = next_random(&seed) % 10 ? length : next_random(&seed) % length;
		memcpy(changed, bytes, length);
		for (uint64_t n = next_random(&seed) % 4; n; n--)
			changed[next_random(&seed) % (next_random(&seed) % 2 ? 128 : length)] ^=
				(char)(1 << next_random(&seed) % 8);
		file = fopen(path, "w");
		assert_true(file && fwrite(changed, 1, left, file) == left);
		fclose(file);
		if (neap_record_read(watched.path, &record, NULL) == NEAP_OK)
			neap_record_fini(&record);
	}
	free(bytes);
	free(changed);
}

int main(void)
{
	const struct CMUnitTest tests[] = {
		cmocka_unit_test(test_choice),     cmocka_unit_test(test_thin),
		cmocka_unit_test(test_thin_keeps), cmocka_unit_test(test_join_steps),
		cmocka_unit_test(test_two_hours),  cmocka_unit_test(test_bounded),
		cmocka_unit_test(test_filled),     cmocka_unit_test(test_overrun),
		cmocka_unit_test(test_killed),     cmocka_unit_test(test_changed),
	};

	return cmocka_run_group_tests(tests, set_up, tear_down);
}
