/* report/packed.h: a page written as it is made, and numbers packed into it: as little memory as a page of any size
 * needs.
 *
 *   numbers ── packed (variable length) ── deflate ── base64 ─┐
 *   text of the page ─────────────────────────────────────────┴─ buffer ── file descriptor
 *
 * Functions never fail one by one: the first failure is kept in the output, later calls do nothing, and the caller
 * asks once at the end. One thread.
 */
#ifndef NEAP_REPORT_PACKED_H
#define NEAP_REPORT_PACKED_H

#include "base/buffer.h"

#include <stdint.h>
#include <zlib.h>

struct neap_page_out {
	int fd;
	enum neap_status status; /* the first failure */
	struct neap_error error;
	uint64_t written;          /* bytes, also those still in `bytes` */
	struct neap_buffer buffer; /* text of the page is made here; flushed when it is long */
	/* Asked now and then; false ends it with NEAP_ECANCELED. NULL: never. */
	bool (*progress)(void *context, uint64_t done, uint64_t total);
	void *context;
};

/* `fd` is the caller's. */
void neap_page_out_init(struct neap_page_out *out, int fd);
/* Writes out what has gathered in `buffer`; where it is short it may stay, unless `all`. */
void neap_page_out_flush(struct neap_page_out *out, bool all);
/* Keeps the first failure. */
void neap_page_out_fail(struct neap_page_out *out, enum neap_status status, const struct neap_error *err);
void neap_page_out_fini(struct neap_page_out *out);

/* Numbers for a script: deflated (with zlib's header and check) and in base64. */
struct neap_packed {
	struct neap_page_out *out;
	z_stream deflater;
	bool open;
	uint32_t until_asked;
	size_t used, carried; /* of `plain`; of `carry` */
	unsigned char plain[16384], carry[3];
};

void neap_packed_begin(struct neap_packed *packed, struct neap_page_out *out);
void neap_packed_number(struct neap_packed *packed, uint64_t value); /* 7 bits a byte, the lowest first */
void neap_packed_signed(struct neap_packed *packed, int64_t value);  /* 0, -1, 1, -2 as 0, 1, 2, 3 */
void neap_packed_u64(struct neap_packed *packed, uint64_t value);    /* 8 bytes, the lowest first */
void neap_packed_bytes(struct neap_packed *packed, const void *bytes, size_t length);
/* Writes the rest. Also to be called after a failure. */
void neap_packed_end(struct neap_packed *packed);

#endif
