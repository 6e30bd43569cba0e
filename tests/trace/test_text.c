/* The text form: events equal what the lines say, plain and zstd; every bad line is named by line and column.
 */
#include "base/file.h"
#include "trace_test.h"

#include <zstd.h>

static void assert_event(struct neap_trace_cursor *cursor, enum neap_trace_kind kind, uint64_t address, uint64_t size,
			 uint64_t handle, const struct neap_trace *trace)
{
	struct neap_trace_event event;

	assert_true(neap_trace_next(cursor, &event));
	assert_int_equal(event.kind, kind);
	assert_int_equal(event.address, address);
	assert_int_equal(event.size, size);
	assert_int_equal(trace->streams[event.stream].handle, handle);
	assert_int_equal(event.time_us | event.stack | event.device, 0);
}

static const char sample[] = "# a trace\n"
			     "a 1 512 0\n"
			     "  a 18446744073709551615\t1000 7  \r\n"
			     "\n"
			     "m epoch 1, caf\xc3\xa9 \x01\xff\n"
			     "r 1 7\n"
			     "f 1\n"
			     "s\n"
			     "a 1 1024 0\n"
			     "e\n"
			     "s"; /* no newline at the end */

static void check_sample(const struct neap_trace *trace)
{
	struct neap_trace_cursor cursor = neap_trace_events(trace, 0, 0);
	struct neap_trace_event event;

	assert_int_equal(trace->source, NEAP_TRACE_TEXT);
	assert_int_equal(trace->device_count, 1);
	assert_int_equal(trace->devices[0].event_count, 6);
	assert_int_equal(trace->segment_count + trace->block_count + trace->warning_count, 0);
	assert_event(&cursor, NEAP_TRACE_ALLOC, 1, 512, 0, trace);
	assert_event(&cursor, NEAP_TRACE_ALLOC, UINT64_MAX, 1000, 7, trace);
	assert_event(&cursor, NEAP_TRACE_RECORD_STREAM, 1, 512, 7, trace);
	assert_event(&cursor, NEAP_TRACE_FREE_REQUESTED, 1, 512, 0, trace);
	assert_event(&cursor, NEAP_TRACE_ALLOC, 1, 1024, 0, trace);
	assert_event(&cursor, NEAP_TRACE_EMPTY_CACHE, 0, 0, 0, trace);
	assert_false(neap_trace_next(&cursor, &event));
	assert_int_equal(trace->mark_count, 3);
	assert_int_equal(trace->devices[0].mark_count, 3);
	assert_int_equal(trace->marks[0].kind, NEAP_TRACE_MARK);
	assert_int_equal(trace->marks[0].event, 2);
	assert_string_equal(neap_trace_text(trace, trace->marks[0].name), "epoch 1, caf\xc3\xa9 ??");
	assert_int_equal(trace->marks[1].kind, NEAP_TRACE_STEP);
	assert_int_equal(trace->marks[1].event, 4);
	assert_int_equal(trace->marks[2].event, 6);
	assert_int_equal(trace->marks[2].number, 2);
	assert_string_equal(neap_trace_text(trace, 12345), "");
}

static void test_lines(void **state)
{
	struct neap_error err = {0};
	struct neap_trace *trace = read_bytes(sample, sizeof sample - 1, &err);

	(void)state;
	if (!trace)
		fail_msg("%s", err.message);
	check_sample(trace);
	neap_trace_free(trace);
	neap_trace_free(NULL);
}

static void test_zstd(void **state)
{
	char packed[1024];
	size_t length = ZSTD_compress(packed, sizeof packed, sample, sizeof sample - 1, 3);
	struct neap_error err = {0};
	struct neap_trace *trace;

	(void)state;
	/* Two frames, one after the other, are one text. */
	assert_false(ZSTD_isError(length));
	trace = read_bytes(packed, length, &err);
	if (!trace)
		fail_msg("%s", err.message);
	check_sample(trace);
	neap_trace_free(trace);
	for (size_t cut = 4; cut < length; cut++) {
		assert_null(read_bytes(packed, cut, &err));
		assert_int_equal(err.status, NEAP_EPARSE);
		assert_non_null(strstr(err.message, "cut short"));
	}
	packed[length / 2] ^= 0x55;
	trace = read_bytes(packed, length, &err);
	neap_trace_free(trace);
}

/* The remaining part ends within a line: the message names the cut file, not the odd line. */
static void test_zstd_cut_in_a_line(void **state)
{
	static const char half[] = "a 1 100 0\na 2";
	char packed[1024];
	ZSTD_outBuffer out = {packed, sizeof packed, 0};
	ZSTD_inBuffer in = {half, sizeof half - 1, 0};
	ZSTD_CCtx *context = ZSTD_createCCtx();
	struct neap_error err = {0};

	(void)state;
	assert_non_null(context);
	assert_false(ZSTD_isError(ZSTD_compressStream2(context, &out, &in, ZSTD_e_flush)));
	ZSTD_freeCCtx(context);
	assert_null(read_bytes(packed, out.pos, &err));
	assert_int_equal(err.status, NEAP_EPARSE);
	assert_non_null(strstr(err.message, "cut short"));
}

/* A small file that would fill memory. */
static void test_zstd_bomb(void **state)
{
	size_t capacity = 80u << 20, packed_capacity = ZSTD_compressBound(capacity);
	char *text = malloc(capacity), *packed = malloc(packed_capacity);
	struct neap_error err = {0};

	(void)state;
	assert_true(text && packed);
	memset(text, '\n', capacity);
	size_t length = ZSTD_compress(packed, packed_capacity, text, capacity, 1);
	assert_false(ZSTD_isError(length));
	assert_null(read_bytes(packed, length, &err));
	assert_non_null(strstr(err.message, "expands more than"));
	free(text);
	free(packed);
}

static const struct {
	const char *text;
	uint32_t line, column;
	const char *message;
} bad[] = {
	{"a 1 512 0\nx\n", 2, 1, "expected a, f, r, e, s, m or #"},
	{"a 1 512 0\n alloc 1", 2, 2, "expected a, f, r, e, s, m or #"},
	{"a", 1, 2, "expected the block's id"},
	{"a 1", 1, 4, "expected the number of bytes"},
	{"a 1 512", 1, 8, "expected the stream's number"},
	{"a 1 512 0 9", 1, 11, "expected the end of the line"},
	{"a -1 512 0", 1, 3, "expected the block's id"},
	{"a 0x10 512 0", 1, 4, "expected only digits in the block's id"},
	{"a 18446744073709551616 512 0", 1, 3, "the block's id is too large"},
	{"a 1 0 0", 1, 5, "an allocation of 0 bytes"},
	{"a 1 140737488355328 0", 1, 5, "the number of bytes is too large"},
	{"a 1 512 4294967296", 1, 9, "the stream's number is too large"},
	{"a 1 512 0\na 1 512 0", 2, 3, "this id is live already"},
	{"f 1", 1, 3, "no block with this id is live"},
	{"a 1 512 0\nf 1\nf 1", 3, 3, "no block with this id is live"},
	{"r 1 0", 1, 3, "no block with this id is live"},
	{"a 1 512 0\nr 1", 2, 4, "expected the stream's number"},
	{"m", 1, 2, "expected the mark's name"},
	{"e 1", 1, 3, "expected the end of the line"},
	{"s 1", 1, 3, "expected the end of the line"},
};

static void test_bad_lines(void **state)
{
	(void)state;
	for (size_t i = 0; i < sizeof bad / sizeof *bad; i++) {
		struct neap_error err = {0};
		if (read_bytes(bad[i].text, strlen(bad[i].text), &err))
			fail_msg("%s: was read", bad[i].text);
		if (err.status != NEAP_EPARSE || err.line != bad[i].line || err.column != bad[i].column ||
		    !strstr(err.message, bad[i].message) || !strstr(err.message, path))
			fail_msg("%s: line %u, column %u: %s", bad[i].text, err.line, err.column, err.message);
	}
}

static void test_no_trace(void **state)
{
	struct neap_trace *trace = NULL;
	struct neap_error err = {0};

	(void)state;
	assert_null(read_bytes("", 0, &err));
	assert_non_null(strstr(err.message, "it is empty"));
	assert_null(read_bytes("PK\003\004and so on", 13, &err));
	assert_non_null(strstr(err.message, "zip archive"));
	assert_null(read_bytes("\x1f\x8b\x08", 3, &err));
	assert_non_null(strstr(err.message, "gzip"));
	assert_int_equal(neap_trace_read(folder, &trace, &err), NEAP_EINVAL);
	unlink(path);
	assert_int_equal(neap_trace_read(path, &trace, &err), NEAP_ENOENT);
	assert_null(trace);
}

/* Every way an event can differ from the one before it survives packing, from any starting point. */
static void test_packing(void **state)
{
	enum { COUNT = 5000 };
	static char text[COUNT * 64];
	static uint64_t ids[COUNT], sizes[COUNT];
	uint64_t random = 88172645463325252ull;
	size_t length = 0;
	struct neap_error err = {0};

	(void)state;
	for (size_t i = 0; i < COUNT; i++) {
		random ^= random << 13;
		random ^= random >> 7;
		random ^= random << 17;
		ids[i] = i % 3 ? random >> (i % 60) << (i % 7 ? 0 : 9) : i * 512;
		ids[i] = ids[i] << 13 | i; /* unlike any other */
		if (i % 5 == 0)
			ids[i] = (uint64_t)i << 9;
		sizes[i] = 1 + (i % 2 ? random >> 20 : (random >> 40) * 512 + 511);
		length += (size_t)snprintf(text + length, sizeof text - length, "a %llu %llu %u\n",
					   (unsigned long long)ids[i], (unsigned long long)sizes[i],
					   (unsigned)(random % 5));
	}
	struct neap_trace *trace = read_bytes(text, length, &err);
	if (!trace)
		fail_msg("%s", err.message);
	assert_int_equal(trace->devices[0].event_count, COUNT);
	for (size_t first = 0; first < COUNT; first += first < 130 ? 1 : 977) {
		struct neap_trace_cursor cursor = neap_trace_events(trace, 0, first);
		struct neap_trace_event event;
		size_t i = first;
		for (; neap_trace_next(&cursor, &event); i++) {
			assert_int_equal(event.address, ids[i]);
			assert_int_equal(event.size, sizes[i]);
		}
		assert_int_equal(i, COUNT);
	}
	struct neap_trace_event event;
	struct neap_trace_cursor past = neap_trace_events(trace, 0, COUNT), none = neap_trace_events(trace, 1, 0);
	assert_false(neap_trace_next(&past, &event));
	assert_false(neap_trace_next(&none, &event));
	neap_trace_free(trace);
}

int main(void)
{
	const struct CMUnitTest tests[] = {
		cmocka_unit_test(test_lines),     cmocka_unit_test(test_zstd),
		cmocka_unit_test(test_zstd_bomb), cmocka_unit_test(test_zstd_cut_in_a_line),
		cmocka_unit_test(test_bad_lines), cmocka_unit_test(test_no_trace),
		cmocka_unit_test(test_packing),
	};

	return cmocka_run_group_tests(tests, set_up, tear_down);
}
