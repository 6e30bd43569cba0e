/* Pickles written by hand: what must be refused, with the byte where it is; what is odd but read, with its warnings;
 * and any change whatever of a good file, by the fuzz target's checks. */
#include "base/buffer.h"
#include "base/file.h"
#include "neap/trace.h"
#include "trace/trace.h"

#include <setjmp.h>
#include <stdarg.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/resource.h>
#include <unistd.h>
#include <zstd.h>

#include <cmocka.h>

int LLVMFuzzerTestOneInput(const uint8_t *data, size_t size);

static char folder[64];
static char path[128];

static int make_folder(void **state)
{
	(void)state;
	strcpy(folder, "/tmp/neap-pickle-XXXXXX");
	if (!mkdtemp(folder))
		return -1;
	snprintf(path, sizeof path, "%s/trace", folder);
	return 0;
}

static int remove_folder(void **state)
{
	(void)state;
	unlink(path);
	return rmdir(folder);
}

static struct neap_trace *read_bytes(const void *bytes, size_t length, struct neap_error *err)
{
	struct neap_trace *trace = NULL;

	FILE *file = fopen(path, "w");

	assert_non_null(file);
	assert_int_equal(fwrite(bytes, 1, length, file), length);
	assert_int_equal(fclose(file), 0);
	neap_trace_read(path, &trace, err);
	return trace;
}

/* Protocol 4; a short text; an event's first keys. */
#define P "\x80\x04"
#define EVENT_KEYS                                                                                                   \
	"\x8c\x06"                                                                                                   \
	"action"                                                                                                     \
	"\x8c\x05"                                                                                                   \
	"alloc"
#define ADDR                                                                                                         \
	"\x8c\x04"                                                                                                   \
	"addr"                                                                                                       \
	"K\x01"
#define SIZE                                                                                                         \
	"\x8c\x04"                                                                                                   \
	"size"                                                                                                       \
	"K\x09"
#define EVENT "}(" EVENT_KEYS ADDR SIZE "u"
#define SEGMENTS                                                                                                     \
	"\x8c\x08"                                                                                                   \
	"segments"
#define TRACES                                                                                                       \
	"\x8c\x0d"                                                                                                   \
	"device_traces"
#define BLOCK(more)                                                                                                  \
	"}(\x8c\x05"                                                                                                 \
	"state"                                                                                                      \
	"\x8c\x08"                                                                                                   \
	"inactive" SIZE more "u"
#define BLOCKS                                                                                                       \
	"\x8c\x06"                                                                                                   \
	"blocks"
#define TOTAL                                                                                                        \
	"\x8c\x0a"                                                                                                   \
	"total_size"                                                                                                 \
	"K\x09"
#define ADDRESS                                                                                                      \
	"\x8c\x07"                                                                                                   \
	"address"                                                                                                    \
	"K\x05"
#define DEVICE                                                                                                       \
	"\x8c\x06"                                                                                                   \
	"device"
#define BYTES(text) text, sizeof(text) - 1

static const struct {
	const char *bytes;
	size_t length;
	uint64_t position;
	const char *message;
} bad[] = {
	/* What would do something. */
	{BYTES(P "cos\nsystem\n\x8c\x01x\x85R."), 2, "GLOBAL would execute code"},
	{BYTES(P "\x8c\x02os\x8c\x06system\x93."), 14, "STACK_GLOBAL would execute code"},
	{BYTES(P "N)R."), 4, "REDUCE would execute code"},
	{BYTES(P "N}b."), 4, "BUILD would execute code"},
	{BYTES(P "N)\x81."), 4, "NEWOBJ would execute code"},
	{BYTES(P "N)N\x92."), 5, "NEWOBJ_EX would execute code"},
	{BYTES(P "(ios\nsystem\n."), 3, "INST would execute code"},
	{BYTES(P "(No."), 4, "OBJ would execute code"},
	{BYTES(P "NQ."), 3, "BINPERSID would execute code"},
	{BYTES(P "Pid\n."), 2, "PERSID would execute code"},
	{BYTES(P "\x82\x01."), 2, "EXT1 would execute code"},
	{BYTES(P "I1\n."), 2, "INT does not occur in snapshots"},
	{BYTES(P "\x8f."), 2, "EMPTY_SET does not occur in snapshots"},
	{BYTES(P "\xfe."), 2, "0xfe is no instruction of a pickle"},
	/* What ends too early, or claims to be longer than it is. */
	{BYTES("\x80"), 0, "the file ends inside PROTO"},
	{BYTES("\x80\x04"), 2, "the file ends inside the pickle"},
	{BYTES("\x80\x01."), 0, "protocol 1"},
	{BYTES("\x80\x06."), 0, "protocol 6"},
	{BYTES(P "J\x01\x02"), 2, "the file ends inside BININT"},
	{BYTES(P "\x8c\x05"
		 "abc"),
	 2, "a text of 5 bytes goes beyond the file's end"},
	{BYTES(P "X\xff\xff\xff\xff"
		 "abc"),
	 2, "a text of 4294967295 bytes goes beyond the file's end"},
	{BYTES(P "\x8d\xff\xff\xff\xff\xff\xff\xff\xff"
		 "abc"),
	 2, "goes beyond the file's end"},
	{BYTES(P "\x95\xff\xff\xff\xff\xff\xff\xff\xff"
		 "abc"),
	 2, "a frame of"},
	{BYTES(P "\x8a\x09\x01"), 2, "a number of 9 bytes goes beyond the file's end"},
	{BYTES(P "\x8b\xff\xff\xff\xff"), 2, "a number of 4294967295 bytes"},
	{BYTES(P "B\x10\x00\x00\x00"), 2, "a run of bytes of 16 bytes goes beyond the file's end"},
	/* The stack. */
	{BYTES(P "."), 2, "STOP needs 1 value"},
	{BYTES(P "NN."), 4, "2 values are left at STOP"},
	{BYTES(P "(N."), 4, "2 values are left at STOP"},
	{BYTES(P "a."), 2, "APPEND needs 2 values"},
	{BYTES(P "](a."), 4, "APPEND needs 2 values"},
	{BYTES(P "e."), 2, "APPENDS without a MARK"},
	{BYTES(P "(e."), 3, "APPENDS without a container"},
	{BYTES(P "N(u."), 4, "in a dict that was complete, or in no dict"},
	{BYTES(P "}(Nu."), 5, "a key without a value"},
	{BYTES(P "K\x01\x86."), 4, "TUPLE needs 2 values"},
	{BYTES(P "t."), 2, "TUPLE without a MARK"},
	{BYTES(P "0."), 2, "POP needs 1 value"},
	{BYTES(P "1."), 2, "POP_MARK without a MARK"},
	/* The memo. */
	{BYTES(P "h\x00."), 2, "memo 0 is fetched before it was put"},
	{BYTES(P "Nr\xff\xff\xff\xff."), 3, "memo 4294967295 is more than a file of this length can have"},
	{BYTES(P "\x94."), 2, "a put into the memo needs 1 value"},
	{BYTES(P "K\x01\x94."), 4, "a number is put into the memo"},
	{BYTES(P "N\x94\x94."), 4, "a value is put into the memo twice"},
	{BYTES(P "]q\x02]q\x01."), 6, "memo 1 is put out of order"},
	{BYTES(P "]\x94h\x00"
		 "a."),
	 4, "the list or dict of memo 0 contains itself"},
	{BYTES(P "]\x94(h\x00"
		 "e."),
	 5, "the list or dict of memo 0 contains itself"},
	{BYTES(P "}\x94(\x8c\x01xh\x00u."), 8, "the list or dict of memo 0 contains itself"},
	{BYTES(P "](]\x94(K\x01"
		 "eh\x00K\x02"
		 "ae."),
	 14, "items are added to a list that was complete"},
	{BYTES(P "](" EVENT "\x94h\x00"
		 "e."),
	 39, "is used a second time"},
	{BYTES(P "]}\x94(" EVENT_KEYS ADDR SIZE "uah\x00."), 39, "is used a second time"},
	/* The shapes. */
	{BYTES(P "N."), 3, "the pickle holds no snapshot"},
	{BYTES(P "}."), 3, "the pickle holds no snapshot"},
	{BYTES(P "](K"), 4, "the file ends inside BININT1"},
	{BYTES(P "}(" EVENT_KEYS SIZE "u."), 27, "an event without 'addr'"},
	{BYTES(P "}(" EVENT_KEYS ADDR "u."), 27, "an event without 'size'"},
	{BYTES(P "}(" EVENT_KEYS ADDR "\x8c\x04"
		 "size"
		 "J\xff\xff\xff\xff"
		 "u."),
	 38, "'size' of an event is negative"},
	{BYTES(P "}(" EVENT_KEYS ADDR "\x8c\x04"
		 "size"
		 "\x8c\x01"
		 "1"
		 "u."),
	 36, "'size' of an event is no whole number"},
	{BYTES(P "](N" EVENT "e."), 39, "in a list of something else"},
	{BYTES(P "](" EVENT "Ne."), 39, "holds something else"},
	{BYTES(P "](" EVENT "e](" EVENT "e0(" EVENT "e."), 112, "is built out of order"},
	{BYTES(P "}(" TRACES "N" SEGMENTS "]u."), 31, "'device_traces' is no list of lists of events"},
	{BYTES(P "}(" TRACES "](" EVENT "eu."), 56, "'device_traces' is no list of lists of events"},
	{BYTES(P "}(" SEGMENTS "](" EVENT "eu."), 51, "'segments' is no list of segments"},
	{BYTES(P "}(" BLOCKS "]" ADDRESS "u."), 24, "a segment without 'total_size'"},
	{BYTES(P "}(" BLOCKS "]" TOTAL "u."), 27, "a segment without 'address'"},
	{BYTES(P "}(" BLOCKS "N" TOTAL ADDRESS "u."), 38, "'blocks' of a segment is no list of blocks"},
	{BYTES(P "}(" BLOCKS "]" TOTAL ADDRESS DEVICE "M\x00\x01u."), 49, "a segment of device 256"},
};

static void test_bad(void **state)
{
	size_t wrong = 0;

	(void)state;
	for (size_t i = 0; i < sizeof bad / sizeof *bad; i++) {
		struct neap_error err = {0};
		char place[64];
		struct neap_trace *trace = read_bytes(bad[i].bytes, bad[i].length, &err);
		snprintf(place, sizeof place, "at byte %llu: ", (unsigned long long)bad[i].position);
		if (!trace && err.status == NEAP_EPARSE && err.position == bad[i].position &&
		    strstr(err.message, bad[i].message) && strstr(err.message, place) && strstr(err.message, path))
			continue;
		print_error("row %zu (%s): %s\n", i, bad[i].message, trace ? "was read" : err.message);
		neap_trace_free(trace);
		wrong++;
	}
	assert_int_equal(wrong, 0);
}

static void append(struct neap_buffer *buffer, const char *bytes, size_t length)
{
	neap_buffer_append(buffer, bytes, length);
}

static struct neap_trace *read_buffer(struct neap_buffer *buffer, struct neap_error *err)
{
	assert_int_equal(neap_buffer_status(buffer, NULL), NEAP_OK);
	struct neap_trace *trace = read_bytes(buffer->data, buffer->length, err);
	neap_buffer_fini(buffer);
	return trace;
}

static void test_nested(void **state)
{
	struct neap_buffer buffer = {0};
	struct neap_error err = {0};

	(void)state;
	append(&buffer, BYTES(P));
	for (int i = 0; i < 1000000; i++)
		append(&buffer, BYTES("]("));
	assert_null(read_buffer(&buffer, &err));
	assert_non_null(strstr(err.message, "nested more than"));
	assert_int_equal(err.position, 2 + 2 * 64 + 1);
}

/* 2^60 items for whoever follows the references. */
static void test_laughs(void **state)
{
	struct neap_buffer buffer = {0};
	struct neap_error err = {0};

	(void)state;
	append(&buffer, BYTES(P "]\x94Na"));
	for (char i = 0; i < 60; i++) {
		char twice[] = {']', (char)0x94, '(', 'h', i, 'h', i, 'e'};
		append(&buffer, twice, sizeof twice);
	}
	append(&buffer, BYTES("."));
	assert_null(read_buffer(&buffer, &err));
	assert_non_null(strstr(err.message, "61 values are left"));
}

/* Memory stays within a few times the file, whatever it claims. */
static void test_stack_limit(void **state)
{
	struct neap_buffer buffer = {0};
	struct neap_error err = {0};

	(void)state;
	append(&buffer, BYTES(P "]("));
	for (int i = 0; i < 2000000; i++)
		append(&buffer, BYTES("N"));
	append(&buffer, BYTES("e."));
	assert_null(read_buffer(&buffer, &err));
	assert_non_null(strstr(err.message, "more than 1048576 values"));
	assert_int_equal(err.position, 2 + (1 << 20));
}

/* A snapshot of one segment and one event, with what is asked for put in. */
static void begin_snapshot(struct neap_buffer *buffer) { append(buffer, BYTES(P "}(")); }

static struct neap_trace *read_snapshot(struct neap_buffer *buffer)
{
	struct neap_error err = {0};
	struct neap_trace *trace;

	append(buffer, BYTES("u."));
	trace = read_buffer(buffer, &err);
	if (!trace)
		fail_msg("%s", err.message);
	return trace;
}

static void assert_warned(const struct neap_trace *trace, const char *text)
{
	for (size_t i = 0; i < trace->warning_count; i++)
		if (strstr(trace->warnings[i].text, text))
			return;
	fail_msg("no warning says '%s'", text);
}

static void test_odd(void **state)
{
	struct neap_buffer buffer = {0};
	struct neap_trace *trace;

	(void)state;
	/* An action of the future is left out, and so is what follows the pickle; no segments. */
	begin_snapshot(&buffer);
	append(&buffer, BYTES(TRACES "](](" EVENT "}(\x8c\x06"
				     "action"
				     "\x8c\x06"
				     "foobar"
				     "u" EVENT "ee"));
	append(&buffer, BYTES("u.junk"));
	struct neap_error err = {0};
	trace = read_buffer(&buffer, &err);
	assert_non_null(trace);
	assert_int_equal(trace->devices[0].event_count, 2);
	assert_warned(trace, "unknown action 'foobar'");
	assert_warned(trace, "bytes follow the end");
	assert_warned(trace, "there are no segments");
	assert_int_equal(trace->warnings[0].position, 2 + 2 + 15 + 2 + 2 + (sizeof(EVENT) - 1) + 18);
	neap_trace_free(trace);

	/* Blocks that do not fill their segment, in a state of the future; a history that is not there. */
	begin_snapshot(&buffer);
	append(&buffer, BYTES(SEGMENTS "](}(" BLOCKS "](}(\x8c\x05"
				       "state"
				       "\x8c\x05"
				       "state" SIZE "ueu"
				       "e"));
	neap_buffer_fini(&buffer);
	begin_snapshot(&buffer);
	append(&buffer, BYTES(SEGMENTS "](}(" BLOCKS "](}(\x8c\x05"
				       "state"
				       "\x8c\x05"
				       "weird" SIZE "u" BLOCK(ADDRESS) "e"));
	append(&buffer, BYTES(TOTAL ADDRESS "ue"));
	trace = read_snapshot(&buffer);
	assert_int_equal(trace->segment_count, 1);
	assert_int_equal(trace->segments[0].block_count, 2);
	assert_int_equal(trace->blocks[0].address, 5);
	assert_warned(trace, "unknown state 'weird'");
	assert_warned(trace, "blocks without an address");
	assert_warned(trace, "do not add up");
	assert_warned(trace, "there is no history of events");
	neap_trace_free(trace);
}

/* The same snapshot as protocol 2 without batches, with DICT and LIST, and with SETITEM and APPEND. */
static void test_spellings(void **state)
{
	static const struct {
		const char *bytes;
		size_t length;
	} spellings[] = {
		{BYTES("](" EVENT EVENT "e")},
		{BYTES("(" EVENT EVENT "l")},
		{BYTES("]" EVENT "a" EVENT "a")},
		{BYTES("(K\x01"
		       "1](" EVENT EVENT "e")},
		{BYTES("](N0" EVENT "(0" EVENT "e")},
	};

	(void)state;
	for (size_t i = 0; i < sizeof spellings / sizeof *spellings; i++) {
		struct neap_buffer buffer = {0};
		begin_snapshot(&buffer);
		append(&buffer, BYTES(TRACES "]("));
		append(&buffer, spellings[i].bytes, spellings[i].length);
		append(&buffer, BYTES("e" SEGMENTS "]"));
		struct neap_trace *trace = read_snapshot(&buffer);
		assert_int_equal(trace->devices[0].event_count, 2);
		neap_trace_free(trace);
	}
}

static void emit(struct neap_recorder *recorder, struct neap_event event)
{
	const struct neap_observer *observer = neap_recorder_observer(recorder);

	observer->event(observer->context, &event);
}

static void write_recording(const char *to, uint64_t capacity)
{
	struct neap_recorder *recorder = NULL;

	assert_int_equal(neap_recorder_create(to, 8, capacity, &recorder, NULL), NEAP_OK);
	const struct neap_observer *observer = neap_recorder_observer(recorder);
	uint16_t tag = observer->name(observer->context, "weights");
	struct neap_event event = {.time_ns = 1000, .kind = NEAP_EVENT_SEGMENT_ALLOC, .address = 512, .size = 4096};
	emit(recorder, event);
	event = (struct neap_event){.time_ns = 2000,
				    .kind = NEAP_EVENT_ALLOC,
				    .address = 512,
				    .size = 700,
				    .block = 1024,
				    .tag = tag,
				    .stream = 3};
	emit(recorder, event);
	event = (struct neap_event){.time_ns = 2500, .kind = NEAP_EVENT_STEP, .address = 1};
	emit(recorder, event);
	event = (struct neap_event){
		.time_ns = 3000, .kind = NEAP_EVENT_OOM, .address = 99, .size = 5, .block = 512, .device = 2};
	emit(recorder, event);
	event = (struct neap_event){.time_ns = 4000, .kind = NEAP_EVENT_FREE_REQUESTED, .address = 512, .size = 700};
	emit(recorder, event);
	event = (struct neap_event){.time_ns = 5000, .kind = NEAP_EVENT_METRIC, .tag = tag};
	emit(recorder, event);
	event = (struct neap_event){.time_ns = 6000, .kind = NEAP_EVENT_MARK, .tag = tag, .size = 4, .device = 300};
	emit(recorder, event);
	neap_recorder_destroy(recorder);
}

static void test_recording(void **state)
{
	struct neap_trace *trace = NULL;
	struct neap_error err = {0};
	struct neap_trace_event event;

	(void)state;
	write_recording(path, 16);
	if (neap_trace_read(path, &trace, &err) != NEAP_OK)
		fail_msg("%s", err.message);
	assert_int_equal(trace->source, NEAP_TRACE_RECORDING);
	assert_int_equal(trace->device_count, 3);
	assert_int_equal(trace->devices[0].event_count, 3);
	assert_int_equal(trace->devices[1].event_count, 0);
	assert_int_equal(trace->devices[2].event_count, 1);
	struct neap_trace_cursor cursor = neap_trace_events(trace, 0, 1);
	assert_true(neap_trace_next(&cursor, &event));
	assert_int_equal(event.kind, NEAP_TRACE_ALLOC);
	assert_int_equal(event.size, 700);
	assert_int_equal(trace->streams[event.stream].handle, 3);
	assert_true(event.time_us > 1000000ull * 1000000000ull / 1000);
	assert_int_equal(trace->calls[event.stack].parent, 0);
	assert_string_equal(neap_trace_text(trace, trace->frames[trace->calls[event.stack].frame].name), "weights");
	cursor = neap_trace_events(trace, 2, 0);
	assert_true(neap_trace_next(&cursor, &event));
	assert_int_equal(event.kind, NEAP_TRACE_OOM);
	assert_int_equal(event.size, 512);
	assert_int_equal(event.address, 99);
	assert_int_equal(event.device, 2);
	assert_int_equal(trace->mark_count, 1);
	assert_int_equal(trace->marks[0].kind, NEAP_TRACE_STEP);
	assert_int_equal(trace->marks[0].event, 2);
	assert_int_equal(trace->warning_count, 1);
	assert_warned(trace, "1 events of no possible device");
	neap_trace_free(trace);

	/* Wrapped: the oldest is gone, and that is said. Cut short: an error with its place. */
	write_recording(path, 2);
	assert_int_equal(neap_trace_read(path, &trace, &err), NEAP_OK);
	assert_int_equal(trace->devices[0].event_count, 2);
	assert_int_equal(trace->devices[0].lost, 1);
	assert_warned(trace, "1 older allocation events were overwritten");
	neap_trace_free(trace);
	assert_int_equal(truncate(path, 16384 + 64), 0);
	trace = NULL;
	assert_int_equal(neap_trace_read(path, &trace, &err), NEAP_EPARSE);
	assert_int_equal(err.position, 16384 + 64);
	assert_null(trace);
}

/* --- changed files -----------------------------------------------------------------------------------------------
 */

static uint64_t next_random(uint64_t *seed)
{
	*seed ^= *seed << 13;
	*seed ^= *seed >> 7;
	return *seed ^= *seed << 17;
}

/* Copies of `bytes` with a few places changed, cut, doubled or moved. */
static void change(const unsigned char *bytes, size_t length, unsigned rounds, uint64_t seed)
{
	static const unsigned char interesting[] = {0x80, 0x94, '(',  '}', ']', 'u',  'e',  'a', 's', 'h',
						    'j',  'q',  'r',  '.', 'K', 'J',  'X',  'd', 'l', 't',
						    '0',  '1',  0xff, 0,   1,   0x8a, 0x8c, ' ', '\n'};
	unsigned char *copy = malloc(length * 2 + 64);

	assert_non_null(copy);
	for (unsigned round = 0; round < rounds; round++) {
		size_t used = length;
		memcpy(copy, bytes, length);
		for (uint64_t n = 1 + next_random(&seed) % 4; n; n--) {
			size_t at = next_random(&seed) % used, to = next_random(&seed) % used;
			size_t span = 1 + next_random(&seed) % 16;
			span = span > used - at ? used - at : span;
			switch (next_random(&seed) % 5) {
			case 0:
				copy[at] ^= (unsigned char)(1u << next_random(&seed) % 8);
				break;
			case 1:
				copy[at] = interesting[next_random(&seed) % sizeof interesting];
				break;
			case 2: /* take out */
				memmove(copy + at, copy + at + span, used - at - span);
				used = used > span ? used - span : 1;
				break;
			case 3: /* copy over */
				span = span > used - to ? used - to : span;
				memmove(copy + to, copy + at, span);
				break;
			default: /* double */
				memmove(copy + at + span, copy + at, used - at);
				used += span;
			}
		}
		LLVMFuzzerTestOneInput(copy, used);
	}
	free(copy);
}

/* A trace with everything, written in each form. */
static const char source[] = "a 1 512 0\na 2 70000 1\nm one\nr 1 1\nf 2\ns\na 3 20971520 0\ne\nf 1\nm two\n";

static const unsigned char *snapshot_bytes(size_t *ret_length)
{
	static struct neap_buffer buffer;

	neap_buffer_clear(&buffer);
	begin_snapshot(&buffer);
	append(&buffer, BYTES("\x8c\x08"
			      "segments\x94](}(\x8c\x06"
			      "device\x94K\x00" ADDRESS TOTAL "\x8c\x06"
			      "stream\x94K\x07"));
	append(&buffer, BYTES("\x8c\x0f"
			      "segment_pool_id(K\x01K\x02t\x94\x8c\x06"
			      "frames\x94]\x94(}\x94(\x8c\x04"
			      "name\x94"));
	append(&buffer, BYTES("\x8c\x01"
			      "f\x94\x8c\x08"
			      "filename\x94\x8c\x04"
			      "a.py\x94\x8c\x04"
			      "line\x94K\x07ue"));
	append(&buffer, BYTES(BLOCKS "](" BLOCK("h\x04h\x05") BLOCK(ADDRESS) "eue"));
	append(&buffer, BYTES("\x8c\x14"
			      "external_annotations"
			      "](}(\x8c\x05"
			      "stage"
			      "\x8c\x05"
			      "START"
			      "h\x07\x8c\x01"
			      "i"));
	append(&buffer, BYTES("\x8c\x07"
			      "time_usK\x05h\x01K\x00ue"));
	append(&buffer, BYTES("\x8c\x12"
			      "allocator_settings"
			      "}(\x8c\x0e"
			      "max_split_size"
			      "J\xff\xff\xff\xff\x8c\x01zG"));
	append(&buffer, BYTES("\x3f\xe0\x00\x00\x00\x00\x00\x00\x8c\x18"
			      "roundup_power2_divisions"
			      "}(\x8c\x01"
			      "1K\x04uu"));
	append(&buffer, BYTES(TRACES "](](" EVENT EVENT "e](" EVENT "}\x94(" EVENT_KEYS ADDR SIZE "h\x04h\x05u"));
	append(&buffer, BYTES("eeu."));
	assert_int_equal(neap_buffer_status(&buffer, NULL), NEAP_OK);
	*ret_length = buffer.length;
	return (unsigned char *)buffer.data;
}

static void test_changed_pickles(void **state)
{
	size_t length;
	const unsigned char *bytes = snapshot_bytes(&length);
	struct neap_error err = {0};
	struct neap_trace *trace = read_bytes(bytes, length, &err);

	(void)state;
	if (!trace)
		fail_msg("%s", err.message);
	assert_int_equal(trace->device_count, 2);
	assert_int_equal(trace->devices[1].event_count, 2);
	assert_int_equal(trace->segment_count, 1);
	assert_int_equal(trace->mark_count, 1);
	assert_int_equal(trace->settings.roundup_power2_divisions[0], 4);
	neap_trace_free(trace);
	for (size_t cut = 0; cut < length; cut++) {
		trace = read_bytes(bytes, cut, &err);
		if (trace)
			fail_msg("the first %zu bytes were read", cut);
		LLVMFuzzerTestOneInput(bytes, cut);
	}
	change(bytes, length, 6000, 1);
	change((const unsigned char *)BYTES(P "}(" SEGMENTS "]" TRACES "](](" EVENT EVENT "eeu."), 6000, 2);
}

static void test_changed_others(void **state)
{
	char packed[512];
	struct neap_buffer recording = {0};
	size_t length = ZSTD_compress(packed, sizeof packed, source, sizeof source - 1, 1);

	(void)state;
	assert_false(ZSTD_isError(length));
	change((const unsigned char *)BYTES(source), 6000, 3);
	change((const unsigned char *)packed, length, 1500, 4);
	write_recording(path, 2);
	assert_int_equal(neap_file_read(path, 1 << 20, &recording, NULL), NEAP_OK);
	/* The names are most of the file: the fields before them and the events after. */
	unsigned char *bytes = (unsigned char *)recording.data;
	uint64_t seed = 5;
	for (int i = 0; i < 600; i++) {
		size_t at =
			i % 2 ? next_random(&seed) % 112 : 16384 + next_random(&seed) % (recording.length - 16384);
		unsigned char kept = bytes[at];
		bytes[at] ^= (unsigned char)(1u << next_random(&seed) % 8);
		LLVMFuzzerTestOneInput(bytes, recording.length);
		bytes[at] = i % 3 ? kept : bytes[at];
		if (i % 50 == 49)
			memcpy(bytes, NEAP_RECORD_MAGIC, 8);
	}
	neap_buffer_fini(&recording);
}

int main(void)
{
	const struct CMUnitTest tests[] = {
		cmocka_unit_test(test_bad),
		cmocka_unit_test(test_nested),
		cmocka_unit_test(test_laughs),
		cmocka_unit_test(test_stack_limit),
		cmocka_unit_test(test_odd),
		cmocka_unit_test(test_spellings),
		cmocka_unit_test(test_recording),
		cmocka_unit_test(test_changed_pickles),
		cmocka_unit_test(test_changed_others),
	};

	return cmocka_run_group_tests(tests, make_folder, remove_folder);
}
