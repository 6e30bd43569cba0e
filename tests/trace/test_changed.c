/* Any change of a good file of each form, with the fuzz target's checks. */
#include "base/file.h"
#include "pickle_words.h"
#include "recording_test.h"

#include <zstd.h>

int LLVMFuzzerTestOneInput(const uint8_t *data, size_t size);

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
	/* The names are most of the file; the fields are before them and the events after. */
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
		cmocka_unit_test(test_changed_pickles),
		cmocka_unit_test(test_changed_others),
	};

	return cmocka_run_group_tests(tests, set_up, tear_down);
}
