/* fuzz/fuzz_frame.c: hostile bytes as a frame's header, as a payload of fields, and as a group inside it. Built with
 * libFuzzer (clang -fsanitize=fuzzer,address -Iinclude -Isrc fuzz/fuzz_frame.c src/proto/frame.c src/proto/fields.c
 * src/base/error.c src/base/buffer.c src/base/clock.c), and run over a generated corpus by tests/proto. */
#include "proto/commands.h"
#include "proto/fields.h"
#include "proto/frame.h"

#include <string.h>

int LLVMFuzzerTestOneInput(const uint8_t *data, size_t size);

static void read_everything(const struct neap_fields *fields, int depth)
{
	char text[16];
	for (unsigned number = 0; number < 64; number++) {
		uint64_t u64;
		double f64;
		neap_fields_u64(fields, number, &u64);
		neap_fields_f64(fields, number, &f64);
		if (neap_fields_string(fields, number, text, sizeof text) && strlen(text) >= sizeof text)
			__builtin_trap();
		const void *bytes;
		size_t length;
		struct neap_fields group;
		for (size_t n = 0; n < 4 && neap_fields_bytes(fields, number, n, &bytes, &length); n++)
			if (depth < 2 && neap_fields_open(bytes, length, &group, NULL) == NEAP_OK)
				read_everything(&group, depth + 1);
	}
}

int LLVMFuzzerTestOneInput(const uint8_t *data, size_t size)
{
	struct neap_frame frame;
	struct neap_fields fields;
	struct neap_error err;
	if (size >= NEAP_FRAME_HEADER_BYTES && neap_frame_decode(data, &frame, &err) == NEAP_OK) {
		unsigned char again[NEAP_FRAME_HEADER_BYTES];
		neap_frame_encode(&frame, again);
		if (memcmp(data, again, sizeof again) != 0)
			__builtin_trap();
		data += NEAP_FRAME_HEADER_BYTES;
		size -= NEAP_FRAME_HEADER_BYTES;
	}
	if (neap_fields_open(data, size, &fields, &err) == NEAP_OK)
		read_everything(&fields, 0);
	return 0;
}
