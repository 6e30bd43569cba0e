/* Frames and fields: whole, cut, slow, and hostile. */
#include "base/clock.h"
#include "proto/commands.h"
#include "proto/fields.h"
#include "proto/frame.h"
#include "support/test.h"

#include <inttypes.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/socket.h>
#include <unistd.h>

int LLVMFuzzerTestOneInput(const uint8_t *data, size_t size);

/* Lives until the end of the statement's block. */
#define soon(ms)                                                                                                     \
	(&(struct neap_deadline){neap_clock_system(), neap_clock_now(neap_clock_system()) + (ms)*NEAP_NS_PER_MS})

static size_t sample_payload(unsigned char *data, size_t capacity)
{
	struct neap_field_writer writer = {.data = data, .capacity = capacity};
	neap_write_u64(&writer, NEAP_FIELD_PID, 0x0123456789abcdefull);
	neap_write_f64(&writer, 61, 0.5);
	neap_write_string(&writer, NEAP_FIELD_NAME, "a\nname");
	for (uint64_t i = 0; i < 2; i++) {
		size_t group = neap_write_group_begin(&writer, NEAP_FIELD_DEVICE);
		neap_write_u64(&writer, NEAP_FIELD_ORDINAL, i + 7);
		neap_write_group_end(&writer, group);
	}
	assert_false(writer.overflow);
	return writer.length;
}

static void check_sample(const void *data, size_t length)
{
	struct neap_fields fields, group;
	uint64_t u64 = 0;
	double f64 = 0;
	char text[32];
	const void *bytes;
	size_t count;
	assert_int_equal(neap_fields_open(data, length, &fields, NULL), NEAP_OK);
	assert_true(neap_fields_u64(&fields, NEAP_FIELD_PID, &u64));
	assert_true(u64 == 0x0123456789abcdefull);
	assert_true(neap_fields_f64(&fields, 61, &f64) && f64 == 0.5);
	assert_true(neap_fields_string(&fields, NEAP_FIELD_NAME, text, sizeof text));
	assert_string_equal(text, "a?name");
	assert_true(neap_fields_string(&fields, NEAP_FIELD_NAME, text, 4));
	assert_string_equal(text, "a?n");
	assert_false(neap_fields_u64(&fields, NEAP_FIELD_NAME, &u64)); /* another type */
	for (size_t i = 0; i < 2; i++) {
		assert_true(neap_fields_bytes(&fields, NEAP_FIELD_DEVICE, i, &bytes, &count));
		assert_int_equal(neap_fields_open(bytes, count, &group, NULL), NEAP_OK);
		assert_true(neap_fields_u64(&group, NEAP_FIELD_ORDINAL, &u64) && u64 == i + 7);
	}
	assert_false(neap_fields_bytes(&fields, NEAP_FIELD_DEVICE, 2, &bytes, &count));
}

static void fields_there_and_back(void **state)
{
	(void)state;
	unsigned char data[512];
	check_sample(data, sample_payload(data, sizeof data));
}

/* Every capacity that is too small: the writer marks it, its fields are well formed, and it writes no byte beyond. */
static void fields_that_do_not_fit(void **state)
{
	(void)state;
	unsigned char whole[512], cut[512];
	const void *group;
	size_t group_length, length = sample_payload(whole, sizeof whole);
	for (size_t capacity = 0; capacity <= length; capacity++) { /* the last capacity fits exactly */
		struct neap_fields fields;
		struct neap_field_writer writer = {.data = cut, .capacity = capacity};
		memset(cut, 0xee, sizeof cut);
		neap_write_u64(&writer, NEAP_FIELD_PID, 1);
		neap_write_f64(&writer, 61, 0.5);
		neap_write_string(&writer, NEAP_FIELD_NAME, "a\nname");
		size_t outer = neap_write_group_begin(&writer, NEAP_FIELD_DEVICE);
		size_t inner = neap_write_group_begin(&writer, NEAP_FIELD_DEVICE);
		neap_write_u64(&writer, NEAP_FIELD_ORDINAL, 1);
		neap_write_u64(&writer, NEAP_FIELD_ORDINAL, 2);
		neap_write_group_end(&writer, inner);
		neap_write_group_end(&writer, outer);
		assert_int_equal(writer.overflow, capacity < 16 * 2 + 14 + 8 + 8 + 32);
		assert_int_equal(neap_fields_open(cut, writer.length, &fields, NULL), NEAP_OK);
		/* A group is there as a whole or not at all. */
		assert_int_equal(neap_fields_bytes(&fields, NEAP_FIELD_DEVICE, 0, &group, &group_length),
				 !writer.overflow);
		for (size_t i = capacity; i < sizeof cut; i++)
			assert_int_equal(cut[i], 0xee);
	}
}

static void fields_malformed(void **state)
{
	(void)state;
	static const struct {
		unsigned char bytes[16];
		size_t length;
	} bad[] = {
		{{1, 0, 1, 0, 8, 0, 0}, 7},                          /* no whole header */
		{{1, 0, 1, 0, 8, 0, 0, 0, 1, 2, 3, 4, 5, 6, 7}, 15}, /* value cut */
		{{1, 0, 9, 0, 0, 0, 0, 0}, 8},                       /* unknown type */
		{{1, 0, 0, 0, 0, 0, 0, 0}, 8},
		{{1, 0, 4, 1, 0, 0, 0, 0}, 8},                /* the zero of the text is missing */
		{{1, 0, 2, 0, 4, 0, 0, 0, 1, 2, 3, 4}, 12},   /* a number of four bytes */
		{{1, 0, 5, 0, 0xff, 0xff, 0xff, 0xff, 1}, 9}, /* longer than everything */
	};
	for (size_t i = 0; i < sizeof bad / sizeof *bad; i++) {
		struct neap_fields fields = {.length = 77};
		struct neap_error err;
		assert_int_equal(neap_fields_open(bad[i].bytes, bad[i].length, &fields, &err), NEAP_EPROTO);
		assert_int_equal(fields.length, 77);
		assert_int_equal(err.position, 0);
		assert_non_null(strstr(err.message, "field"));
	}
}

static void header_checked(void **state)
{
	(void)state;
	struct neap_frame frame = {.version = NEAP_FRAME_VERSION,
				   .command = 3,
				   .request = 9,
				   .status = 2,
				   .length = 5},
			  back;
	unsigned char header[NEAP_FRAME_HEADER_BYTES];
	struct neap_error err;
	neap_frame_encode(&frame, header);
	assert_int_equal(neap_frame_decode(header, &back, &err), NEAP_OK);
	assert_memory_equal(&frame, &back, sizeof frame);
	header[16] = 0;
	header[18] = 0x10; /* 1 MiB, the limit */
	assert_int_equal(neap_frame_decode(header, &back, &err), NEAP_OK);
	assert_int_equal(back.length, NEAP_FRAME_PAYLOAD_MAX);
	header[16] = 5; /* and 5 bytes */
	assert_int_equal(neap_frame_decode(header, &back, &err), NEAP_EPROTO);
	assert_non_null(strstr(err.message, "1048581 bytes"));
	neap_frame_encode(&frame, header);
	header[4] = 2;
	assert_int_equal(neap_frame_decode(header, &back, &err), NEAP_EPROTO);
	assert_non_null(strstr(err.message, "version 2"));
	assert_int_equal(back.request, 9);
	header[0] = 'X';
	assert_int_equal(neap_frame_decode(header, &back, &err), NEAP_EPROTO);
}

static void frame_through_a_socket(void **state)
{
	(void)state;
	int pair[2];
	unsigned char data[512];
	struct neap_buffer payload = {0};
	struct neap_frame back;
	assert_int_equal(socketpair(AF_UNIX, SOCK_STREAM, 0, pair), 0);
	struct neap_frame frame = {.version = NEAP_FRAME_VERSION, .command = 2, .request = 1};
	frame.length = (uint32_t)sample_payload(data, sizeof data);
	assert_int_equal(neap_frame_send(pair[0], &frame, data, soon(5000), NULL), NEAP_OK);
	assert_int_equal(neap_frame_receive(pair[1], &back, &payload, soon(5000), NULL), NEAP_OK);
	assert_memory_equal(&frame, &back, sizeof frame);
	check_sample(payload.data, payload.length);
	neap_buffer_fini(&payload);
	close(pair[0]);
	close(pair[1]);
}

/* A frame cut at each byte, from a peer that waits and from one that hangs up. */
static void frame_cut_anywhere(void **state)
{
	(void)state;
	unsigned char bytes[NEAP_FRAME_HEADER_BYTES + 4] = {0};
	struct neap_frame frame = {.version = NEAP_FRAME_VERSION, .command = 2, .length = 4}, back;
	neap_frame_encode(&frame, bytes);
	for (size_t cut = 0; cut < sizeof bytes; cut++) {
		int pair[2];
		struct neap_buffer payload = {0};
		struct neap_error err;
		assert_int_equal(socketpair(AF_UNIX, SOCK_STREAM, 0, pair), 0);
		assert_int_equal(send(pair[0], bytes, cut, 0), cut);
		assert_int_equal(neap_frame_receive(pair[1], &back, &payload, soon(1), &err), NEAP_ETIMEDOUT);
		assert_int_equal(send(pair[0], bytes, cut, 0), cut);
		close(pair[0]);
		enum neap_status status = neap_frame_receive(pair[1], &back, &payload, soon(5000), &err);
		assert_true(status == NEAP_EIO);
		neap_buffer_fini(&payload);
		close(pair[1]);
	}
}

/* A peer that reads nothing: the time limit holds. A peer that is gone: an error and no signal. */
static void send_to_the_deaf(void **state)
{
	(void)state;
	int pair[2];
	struct neap_error err;
	static unsigned char data[NEAP_FRAME_PAYLOAD_MAX];
	struct neap_frame frame = {.version = NEAP_FRAME_VERSION, .length = sizeof data};
	assert_int_equal(socketpair(AF_UNIX, SOCK_STREAM, 0, pair), 0);
	assert_int_equal(neap_frame_send(pair[0], &frame, data, soon(20), &err), NEAP_ETIMEDOUT);
	close(pair[1]);
	assert_int_equal(neap_frame_send(pair[0], &frame, data, soon(5000), &err), NEAP_EIO);
	close(pair[0]);
}

/* The fuzz target over frames that are almost right. */
static void hostile_corpus(void **state)
{
	(void)state;
	uint64_t seed = test_seed();
	for (int i = 0; i < 4000; i++) {
		unsigned char whole[512];
		struct neap_frame frame = {.version = NEAP_FRAME_VERSION, .command = 2};
		size_t length =
			sample_payload(whole + NEAP_FRAME_HEADER_BYTES, sizeof whole - NEAP_FRAME_HEADER_BYTES);
		frame.length = (uint32_t)length;
		neap_frame_encode(&frame, whole);
		length += NEAP_FRAME_HEADER_BYTES;
		for (uint64_t flips = next_random(&seed) % 6; flips > 0; flips--)
			whole[next_random(&seed) % length] = (unsigned char)next_random(&seed);
		/* A copy of the exact size, so that a sanitizer sees a read beyond it. */
		size_t kept = next_random(&seed) % 4 ? length : next_random(&seed) % length;
		unsigned char *copy = malloc(kept + 1);
		assert_non_null(copy);
		memcpy(copy + 1, whole, kept);
		LLVMFuzzerTestOneInput(copy + 1, kept);
		free(copy);
	}
}

int main(void)
{
	const struct CMUnitTest tests[] = {
		cmocka_unit_test(fields_there_and_back),  cmocka_unit_test(fields_that_do_not_fit),
		cmocka_unit_test(fields_malformed),       cmocka_unit_test(header_checked),
		cmocka_unit_test(frame_through_a_socket), cmocka_unit_test(frame_cut_anywhere),
		cmocka_unit_test(send_to_the_deaf),       cmocka_unit_test(hostile_corpus),
	};
	return cmocka_run_group_tests(tests, NULL, NULL);
}
