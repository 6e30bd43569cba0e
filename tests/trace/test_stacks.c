/* The stacks beside a recording of PyTorch's own allocator: they give its events lines, and the trace its settings.
 * Their text is hostile. */
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

/* Without the file it is still PyTorch's; with none of its tags it is neap's. */
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
	/* A stack without frames, and a frame without a name, are nothing odd. */
	snprintf(text, sizeof text, "%s1\n3\t/a.py\t1\t\n", good);
	write_watched(to, "", text);
	trace = read_watched(to);
	assert_null(frame_at(trace, 1, 0));
	assert_int_equal(trace->warning_count, 0);
	neap_trace_free(trace);
	/* The first line of a stack's number counts. */
	snprintf(text, sizeof text, "%s2\t/a.py\t1\tf\n", good);
	write_watched(to, "", text);
	trace = read_watched(to);
	assert_int_equal(frame_at(trace, 2, 0)->line, 7);
	neap_trace_free(trace);
	/* Another version, or no whole first line. */
	static const char *const none[] = {"", "neap-stacks 1\ttorch 2.9.1", "neap-stacks 2\ttorch 2.9.1\tconf \n"};
	for (size_t i = 0; i < sizeof none / sizeof none[0]; i++) {
		write_watched(to, "", none[i]);
		trace = read_watched(to);
		assert_warned(trace, "the stacks that were recorded beside it cannot be read");
		neap_trace_free(trace);
	}
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
		cmocka_unit_test(test_lines),
		cmocka_unit_test(test_missing),
		cmocka_unit_test(test_hostile),
		cmocka_unit_test(test_changed_bytes),
	};

	return cmocka_run_group_tests(tests, set_up, clean_up);
}
