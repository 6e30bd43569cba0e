/* The stacks beside a recording of PyTorch's own allocator: they give lines to its events, and settings to the trace.
 * The text is hostile. */
#include "trace/ranges.h"
#include "trace/stacks.h"

#include "recording_test.h"

#include <fcntl.h>
#include <sys/stat.h>

int LLVMFuzzerTestOneInput(const uint8_t *data, size_t size);

static void put_text(const char *to, const char *text)
{
	FILE *file = fopen(to, "w");

	assert_non_null(file);
	fputs(text, file);
	assert_int_equal(fclose(file), 0);
}

static int clean_up(void **state)
{
	(void)state;
	return remove_folder(folder);
}

static const char good[] = "neap-stacks 1\ttorch 2.9.1+cu130\tconf expandable_segments:True\n"
			   "0\t/home/me/train.py\t12\tforward\t/home/me/train.py\t40\t<module>\n"
			   "2\t/home/me/other.py\t7\tload\n";

/* A recording with events of the stacks 0, 1 (which has no line) and 2, as record.7 in the folder. */
static void write_watched(char ret_path[160], const char *prefix, const char *stacks)
{
	struct neap_recorder *recorder = NULL;
	char beside[160];

	snprintf(ret_path, 160, "%s/%srecord.7", folder, prefix);
	assert_int_equal(neap_recorder_create(ret_path, 8, 8, &recorder, NULL), NEAP_OK);
	for (uint32_t i = 0; i < 3; i++)
		emit(recorder, (struct neap_event){.time_ns = 1000 + i,
						   .kind = NEAP_EVENT_ALLOC,
						   .allocation = {.tag = NEAP_EVENT_FIRST_STACK + i,
								  .address = 4096 * (i + 1),
								  .requested_bytes = 100,
								  .bytes = 512}});
	neap_recorder_destroy(recorder);
	snprintf(beside, sizeof beside, "%s/%sstacks.7", folder, prefix);
	unlink(beside);
	if (stacks)
		put_text(beside, stacks);
}

static struct neap_trace *read_watched(const char *from)
{
	struct neap_trace *trace = NULL;
	struct neap_error err = {0};

	if (neap_trace_read(from, &trace, &err))
		fail_msg("%s", err.message);
	return trace;
}

static const struct neap_trace_frame *frame_at(const struct neap_trace *trace, uint64_t event, unsigned outwards)
{
	struct neap_trace_cursor cursor = neap_trace_events(trace, 0, event);
	struct neap_trace_event found;

	assert_true(neap_trace_next(&cursor, &found));
	uint32_t call = found.stack;
	for (; call && outwards; outwards--)
		call = trace->calls[call].parent;
	return call ? &trace->frames[trace->calls[call].frame] : NULL;
}

static void test_lines(void **state)
{
	char to[160];

	(void)state;
	for (int start = 0; start < 2; start++) { /* of the last start, and of one before */
		write_watched(to, start ? "start-1." : "", good);
		struct neap_trace *trace = read_watched(to);
		assert_int_equal(trace->source, NEAP_TRACE_RECORDING);
		assert_true(trace->torch);
		assert_int_equal(trace->torch_from, 9);
		assert_int_equal(trace->torch_to, 9);
		assert_true(trace->settings.known);
		assert_string_equal(neap_trace_text(trace, trace->settings.conf), "expandable_segments:True");
		const struct neap_trace_frame *inner = frame_at(trace, 0, 0), *outer = frame_at(trace, 0, 1);
		assert_string_equal(neap_trace_text(trace, inner->file), "/home/me/train.py");
		assert_string_equal(neap_trace_text(trace, inner->name), "forward");
		assert_int_equal(inner->line, 12);
		assert_string_equal(neap_trace_text(trace, outer->name), "<module>");
		assert_null(frame_at(trace, 0, 2));
		assert_null(frame_at(trace, 1, 0));
		assert_int_equal(frame_at(trace, 2, 0)->line, 7);
		assert_int_equal(trace->warning_count, 0);
		neap_trace_free(trace);
	}
}

/* Without the file it is still PyTorch's; without any of its tags it is neap's. */
static void test_missing(void **state)
{
	char to[160], beside[160];

	(void)state;
	write_watched(to, "", NULL);
	struct neap_trace *trace = read_watched(to);
	assert_true(trace->torch);
	assert_false(trace->settings.known);
	assert_warned(trace, "the stacks that were recorded beside it cannot be read");
	neap_trace_free(trace);
	/* A FIFO in its place is not waited for. */
	snprintf(beside, sizeof beside, "%s/stacks.7", folder);
	assert_int_equal(mkfifo(beside, 0600), 0);
	trace = read_watched(to);
	assert_true(trace->torch);
	neap_trace_free(trace);
	write_recording(to, 8);
	trace = read_watched(to);
	assert_false(trace->torch);
	neap_trace_free(trace);
	unlink(beside);
}

static void test_hostile(void **state)
{
	static const char *const odd[] = {
		"x\t/a.py\t1\tf\n",
		"65536\t/a.py\t1\tf\n",
		"-1\t/a.py\t1\tf\n",
		"1\t/a.py\tone\tf\n",
		"1\t/a.py\n",
		"1.\n",
		"1\t/a.py\t9999999999\tf\n",
		"\n",
		"1\t/a.py\t1\tf\t/b.py\n",
	};
	char to[160], text[4096];

	(void)state;
	for (size_t i = 0; i < sizeof odd / sizeof odd[0]; i++) {
		snprintf(text, sizeof text, "%s%s1\t/a.py\t1\tlast", good, odd[i]); /* the last is cut short */
		write_watched(to, "", text);
		struct neap_trace *trace = read_watched(to);
		assert_true(trace->torch);
		assert_null(frame_at(trace, 1, 0));
		assert_int_equal(frame_at(trace, 2, 0)->line, 7);
		assert_warned(trace, "a line of its stacks is not a stack");
		neap_trace_free(trace);
	}
	/* More frames than any writer makes: the rest is left out. */
	size_t length = (size_t)snprintf(text, sizeof text, "%s1", good);
	for (int i = 0; i < 40; i++)
		length += (size_t)snprintf(text + length, sizeof text - length, "\t/a.py\t%d\tf", i + 1);
	snprintf(text + length, sizeof text - length, "\n");
	write_watched(to, "", text);
	struct neap_trace *trace = read_watched(to);
	assert_int_equal(frame_at(trace, 1, 31)->line, 32);
	assert_null(frame_at(trace, 1, 32));
	neap_trace_free(trace);
	/* A stack without frames is a thread without Python. A frame without a name counts as normal. */
	snprintf(text, sizeof text, "%s1\n3\t/a.py\t1\t\n", good);
	write_watched(to, "", text);
	trace = read_watched(to);
	assert_string_equal(neap_trace_text(trace, frame_at(trace, 1, 0)->name), NEAP_STACKS_THREAD);
	assert_null(frame_at(trace, 1, 1));
	assert_int_equal(trace->warning_count, 0);
	neap_trace_free(trace);
	/* The first line with a stack's number counts. */
	snprintf(text, sizeof text, "%s2\t/a.py\t1\tf\n", good);
	write_watched(to, "", text);
	trace = read_watched(to);
	assert_int_equal(frame_at(trace, 2, 0)->line, 7);
	neap_trace_free(trace);
	/* Another version, or no complete first line. */
	static const char *const none[] = {"", "neap-stacks 1\ttorch 2.9.1", "neap-stacks 2\ttorch 2.9.1\tconf \n"};
	for (size_t i = 0; i < sizeof none / sizeof none[0]; i++) {
		write_watched(to, "", none[i]);
		trace = read_watched(to);
		assert_warned(trace, "the stacks that were recorded beside it cannot be read");
		neap_trace_free(trace);
	}
}

/* --- private pools --- */

static void test_ranges(void **state)
{
	static struct neap_ranges ranges;
	uint64_t seed = test_seed();
	uint8_t pools[256] = {0};

	(void)state;
	for (int round = 0; round < 20000; round++) {
		uint64_t at = next_random(&seed) % 256, bytes = next_random(&seed) % 40,
			 pool = 1 + next_random(&seed) % 3;
		bool add = next_random(&seed) % 2;
		bytes = bytes < 256 - at ? bytes : 256 - at;
		if (add)
			neap_ranges_add(&ranges, at, bytes, pool);
		else
			neap_ranges_remove(&ranges, at, bytes);
		memset(pools + at, add ? (int)pool : 0, bytes);
		for (size_t i = 0; i < sizeof pools; i++)
			assert_int_equal(neap_ranges_pool(&ranges, i), pools[i]);
	}
	/* Neighbours are joined. Ranges beyond the capacity are unknown. The end of the address space is handled. */
	neap_ranges_remove(&ranges, 0, UINT64_MAX);
	assert_int_equal(ranges.count, 0);
	for (uint64_t i = 0; i < 100; i++)
		neap_ranges_add(&ranges, 4096 * i, 4096, 7);
	assert_int_equal(ranges.count, 1);
	for (uint64_t i = 0; i < 2 * NEAP_RANGES_MAX; i++)
		neap_ranges_add(&ranges, 10000000 + 2 * i, 1, 7);
	assert_int_equal(ranges.count, NEAP_RANGES_MAX);
	neap_ranges_remove(&ranges, 4096, 4096);
	assert_true(ranges.count <= NEAP_RANGES_MAX);
	neap_ranges_add(&ranges, UINT64_MAX - 1, 4096, 7);
	assert_int_equal(neap_ranges_pool(&ranges, UINT64_MAX - 1), 0);
}

/* A block has its segment's pool as long as the segment exists. */
static void test_private_pool(void **state)
{
	const struct neap_event events[] = {
		{.kind = NEAP_EVENT_SEGMENT_ALLOC, .segment = {.address = 4096, .bytes = 4096}},
		{.kind = NEAP_EVENT_SEGMENT_ALLOC,
		 .segment = {.address = 8192, .bytes = 4096, .stream = 1, .pool = 5ull << 32 | 6}},
		{.kind = NEAP_EVENT_ALLOC,
		 .allocation = {.address = 8704, .requested_bytes = 512, .bytes = 512, .stream = 1}},
		{.kind = NEAP_EVENT_ALLOC, .allocation = {.address = 4608, .requested_bytes = 512, .bytes = 512}},
		{.kind = NEAP_EVENT_FREE, .allocation = {.address = 8704, .requested_bytes = 512, .stream = 1}},
		{.kind = NEAP_EVENT_SEGMENT_FREE,
		 .segment = {.address = 8192, .bytes = 4096, .stream = 1, .pool = 5ull << 32 | 6}},
		{.kind = NEAP_EVENT_SEGMENT_ALLOC, .segment = {.address = 8192, .bytes = 4096, .stream = 1}},
		{.kind = NEAP_EVENT_ALLOC,
		 .allocation = {.address = 8704, .requested_bytes = 512, .bytes = 512, .stream = 1}},
	};
	static const uint64_t pools[] = {0, 5, 5, 0, 5, 5, 5, 0, 0}; /* FREE is two events */
	struct neap_recorder *recorder = NULL;
	struct neap_trace_event found;
	char to[160], beside[160];

	(void)state;
	snprintf(to, sizeof to, "%s/record.7", folder);
	snprintf(beside, sizeof beside, "%s/stacks.7", folder);
	assert_int_equal(neap_recorder_create(to, 8, 16, &recorder, NULL), NEAP_OK);
	for (size_t i = 0; i < sizeof events / sizeof events[0]; i++) {
		struct neap_event event = events[i];
		event.time_ns = i + 1;
		emit(recorder, event);
	}
	neap_recorder_destroy(recorder);
	put_text(beside, good);
	struct neap_trace *trace = read_watched(to);
	struct neap_trace_cursor cursor = neap_trace_events(trace, 0, 0);
	for (size_t i = 0; i < sizeof pools / sizeof pools[0]; i++) {
		assert_true(neap_trace_next(&cursor, &found));
		assert_int_equal(trace->streams[found.stream].pool[0], pools[i]);
		assert_int_equal(trace->streams[found.stream].pool[1], pools[i] ? 6 : 0);
	}
	neap_trace_free(trace);
}

static void test_changed_bytes(void **state)
{
	uint64_t seed = 20261123;
	char text[sizeof good];

	(void)state;
	for (int round = 0; round < 20000; round++) {
		memcpy(text, good, sizeof good);
		for (uint64_t n = 1 + next_random(&seed) % 3; n; n--)
			text[next_random(&seed) % (sizeof good - 1)] = "\t\n0129 \xff:x"[next_random(&seed) % 10];
		LLVMFuzzerTestOneInput((const uint8_t *)text, next_random(&seed) % sizeof good);
	}
}

int main(void)
{
	const struct CMUnitTest tests[] = {
		cmocka_unit_test(test_lines),        cmocka_unit_test(test_missing),
		cmocka_unit_test(test_hostile),      cmocka_unit_test(test_ranges),
		cmocka_unit_test(test_private_pool), cmocka_unit_test(test_changed_bytes),
	};

	return cmocka_run_group_tests(tests, set_up, clean_up);
}
