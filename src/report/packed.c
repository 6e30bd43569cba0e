/* report/packed.c: packs numbers through three small buffers, piece by piece. */
#include "report/packed.h"

#include "base/error.h"
#include "base/file.h"

#include <string.h>

#define FLUSH_BYTES 65536
#define NUMBERS_ASK 65536 /* numbers between two checks whether to continue */
#define PIECE_BYTES 16383 /* a multiple of 3: base64 without padding in between */
#define LEVEL       6

void neap_page_out_init(struct neap_page_out *out, int fd) { *out = (struct neap_page_out){.fd = fd}; }

void neap_page_out_fini(struct neap_page_out *out) { neap_buffer_fini(&out->buffer); }

void neap_page_out_fail(struct neap_page_out *out, enum neap_status status, const struct neap_error *err)
{
	if (out->status != NEAP_OK)
		return;
	out->status = status;
	out->error = *err;
}

void neap_page_out_flush(struct neap_page_out *out, bool all)
{
	struct neap_error err;

	if (out->buffer.failed) {
		enum neap_status status = neap_buffer_status(&out->buffer, &err);
		neap_page_out_fail(out, status, &err);
	}
	if (!all && out->buffer.length < FLUSH_BYTES)
		return;
	out->written += out->buffer.length;
	if (out->status == NEAP_OK && out->buffer.length > 0) {
		enum neap_status status = neap_fd_write(out->fd, out->buffer.data, out->buffer.length, &err);
		if (status)
			neap_page_out_fail(out, status, &err);
	}
	neap_buffer_clear(&out->buffer);
}

static void put_base64(struct neap_page_out *out, const unsigned char *bytes, size_t length)
{
	static const char digits[] = "ABCDEFGHIJKLMNOPQRSTUVWXYZabcdefghijklmnopqrstuvwxyz0123456789+/";
	char text[4096];
	size_t used = 0;

	for (size_t i = 0; i < length; i += 3) {
		size_t left = length - i;
		uint32_t three = (uint32_t)bytes[i] << 16 | (left > 1 ? (uint32_t)bytes[i + 1] << 8 : 0) |
				 (left > 2 ? bytes[i + 2] : 0);
		text[used++] = digits[three >> 18];
		text[used++] = digits[three >> 12 & 63];
		text[used++] = left > 1 ? digits[three >> 6 & 63] : '=';
		text[used++] = left > 2 ? digits[three & 63] : '=';
		if (used == sizeof text) {
			neap_buffer_append(&out->buffer, text, used);
			used = 0;
		}
	}
	neap_buffer_append(&out->buffer, text, used);
	neap_page_out_flush(out, false);
}

/* Deflates `plain`. Writes the output in pieces of a multiple of three bytes, and carries up to two bytes over. */
static void push(struct neap_packed *packed, int how)
{
	unsigned char piece[PIECE_BYTES + 3];
	int result = Z_OK;

	if (!packed->open || packed->out->status != NEAP_OK) {
		packed->used = 0;
		return;
	}
	packed->deflater.next_in = packed->plain;
	packed->deflater.avail_in = (uInt)packed->used;
	do {
		memcpy(piece, packed->carry, packed->carried);
		packed->deflater.next_out = piece + packed->carried;
		packed->deflater.avail_out = (uInt)(PIECE_BYTES - packed->carried);
		result = deflate(&packed->deflater, how);
		size_t made = PIECE_BYTES - packed->deflater.avail_out;
		size_t whole = result == Z_STREAM_END ? made : made / 3 * 3;
		put_base64(packed->out, piece, whole);
		packed->carried = made - whole;
		memcpy(packed->carry, piece + whole, packed->carried);
	} while (packed->deflater.avail_out == 0 || (how == Z_FINISH && result == Z_OK));
	packed->used = 0;
}

void neap_packed_begin(struct neap_packed *packed, struct neap_page_out *out)
{
	struct neap_error err;

	*packed = (struct neap_packed){.out = out, .until_asked = NUMBERS_ASK};
	packed->open = deflateInit(&packed->deflater, LEVEL) == Z_OK;
	if (!packed->open)
		neap_page_out_fail(out, neap_fail(&err, NEAP_ENOMEM, "no memory to compress a page's data"), &err);
}

static void ask(struct neap_packed *packed)
{
	struct neap_page_out *out = packed->out;
	struct neap_error err;

	packed->until_asked = NUMBERS_ASK;
	if (out->progress && !out->progress(out->context, 0, 0))
		neap_page_out_fail(out, neap_fail(&err, NEAP_ECANCELED, "stopped"), &err);
}

void neap_packed_bytes(struct neap_packed *packed, const void *bytes, size_t length)
{
	const unsigned char *at = bytes;

	while (length > 0) {
		size_t capacity = sizeof packed->plain - packed->used, part = length < capacity ? length : capacity;
		memcpy(packed->plain + packed->used, at, part);
		packed->used += part;
		at += part;
		length -= part;
		if (packed->used == sizeof packed->plain)
			push(packed, Z_NO_FLUSH);
	}
}

void neap_packed_number(struct neap_packed *packed, uint64_t value)
{
	unsigned char bytes[10];
	size_t used = 0;

	for (; value >= 0x80; value >>= 7)
		bytes[used++] = (unsigned char)(value | 0x80);
	bytes[used++] = (unsigned char)value;
	neap_packed_bytes(packed, bytes, used);
	if (--packed->until_asked == 0)
		ask(packed);
}

void neap_packed_signed(struct neap_packed *packed, int64_t value)
{
	neap_packed_number(packed, (uint64_t)value << 1 ^ (uint64_t)(value >> 63));
}

void neap_packed_u64(struct neap_packed *packed, uint64_t value)
{
	unsigned char bytes[8];

	for (size_t i = 0; i < sizeof bytes; i++)
		bytes[i] = (unsigned char)(value >> (8 * i));
	neap_packed_bytes(packed, bytes, sizeof bytes);
}

void neap_packed_end(struct neap_packed *packed)
{
	push(packed, Z_FINISH);
	if (packed->open)
		deflateEnd(&packed->deflater);
	packed->open = false;
}
