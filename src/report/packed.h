/* report/packed.h: writes a page while it is made, and packs numbers into it: memory does not grow with the page.
 *
 *   numbers ── packed (variable length) ── deflate ── base64 ─┐
 *   text of the page ─────────────────────────────────────────┴─ buffer ── file descriptor
 *
 * Functions report no failures: the first one is kept in the output, later calls do nothing, and the caller
 * checks once at the end. One thread.
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
	/* Called now and then; false ends the output with NEAP_ECANCELED. NULL: never called. */
	bool (*progress)(void *context, uint64_t done, uint64_t total);
	void *context;
};

/* `fd` is the caller's. */
void neap_page_out_init(struct neap_page_out *out, int fd);
/* Writes out `buffer` once it is long; with `all`, always. */
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
/* Writes the rest. Call it after a failure too. */
void neap_packed_end(struct neap_packed *packed);

#endif
