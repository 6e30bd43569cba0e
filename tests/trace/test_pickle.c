/* Pickles written by hand: those that must be refused, with the byte of the error; odd ones that are read, with their
 * warnings.
 */
#include "pickle_words.h"

static const struct {
	const char *bytes;
	size_t length;
	uint64_t position;
	const char *message;
} bad[] = {
	/* Pickles that would execute something. */
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
	{BYTES(P "\xfe."), 2, "0xfe is not an instruction of a pickle"},
	/* Pickles that end too early, or claim to be longer than they are. */
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
	 36, "'size' of an event is not a whole number"},
	{BYTES(P "](N" EVENT "e."), 39, "in a list of something else"},
	{BYTES(P "](" EVENT "Ne."), 39, "holds something else"},
	{BYTES(P "](" EVENT "e](" EVENT "e0(" EVENT "e."), 112, "is built out of order"},
	{BYTES(P "}(" TRACES "N" SEGMENTS "]u."), 31, "'device_traces' is not a list of lists of events"},
	{BYTES(P "}(" TRACES "](" EVENT "eu."), 56, "'device_traces' is not a list of lists of events"},
	{BYTES(P "}(" SEGMENTS "](" EVENT "eu."), 51, "'segments' is not a list of segments"},
	{BYTES(P "}(" BLOCKS "]" ADDRESS "u."), 24, "a segment without 'total_size'"},
	{BYTES(P "}(" BLOCKS "]" TOTAL "u."), 27, "a segment without 'address'"},
	{BYTES(P "}(" BLOCKS "N" TOTAL ADDRESS "u."), 38, "'blocks' of a segment is not a list of blocks"},
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

/* 2^60 items for a reader that follows the references. */
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

static void test_odd(void **state)
{
	struct neap_buffer buffer = {0};
	struct neap_trace *trace;

	(void)state;
	/* An action of the future is left out, and so is everything behind the pickle; no segments. */
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
	assert_int_equal(trace->warnings[0].position, 2 + 2 + 15 + 2 + 2 + (sizeof EVENT - 1) + 18);
	neap_trace_free(trace);

	/* Blocks that do not fill their segment, in a state of the future; a history that is missing. */
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

int main(void)
{
	const struct CMUnitTest tests[] = {
		cmocka_unit_test(test_bad),         cmocka_unit_test(test_nested), cmocka_unit_test(test_laughs),
		cmocka_unit_test(test_stack_limit), cmocka_unit_test(test_odd),    cmocka_unit_test(test_spellings),
	};

	return cmocka_run_group_tests(tests, set_up, tear_down);
}
