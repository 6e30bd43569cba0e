/* proto/fields.h: a payload is a sequence of numbered, typed fields.
 *
 *   0  2  number   enum neap_field (proto/commands.h); unknown numbers are skipped, so that new ones can be added
 *   2  1  type     enum neap_field_type
 *   3  1  zero
 *   4  4  length   of the value: 8 for numbers
 *   8  .. value    little-endian; strings without a terminator; a group is bytes that hold fields
 *
 * A reader checks the whole payload once (neap_fields_open) and then cannot fail; the bytes stay the caller's and
 * must stay in place. A writer fills storage of fixed size: it allocates nothing, and sets `overflow` if a field does
 * not fit.
 */
#ifndef NEAP_PROTO_FIELDS_H
#define NEAP_PROTO_FIELDS_H

#include "neap/status.h"

#include <stdbool.h>
#include <stddef.h>

enum neap_field_type {
	NEAP_TYPE_U64 = 1,
	NEAP_TYPE_F64 = 3,
	NEAP_TYPE_STRING = 4,
	NEAP_TYPE_BYTES = 5,
};

struct neap_fields {
	const unsigned char *data; /* checked */
	size_t length;
};

/* Errors: NEAP_EPROTO with the byte position of the field that is wrong. */
enum neap_status neap_fields_open(const void *data, size_t length, struct neap_fields *ret_fields,
				  struct neap_error *err);

/* The nth field (from 0) of this number and type, to *ret; false when there is none. A value of another type counts
 * as absent. A string is copied, cut where it does not fit, always terminated, control bytes replaced by '?'. */
bool neap_fields_u64(const struct neap_fields *fields, unsigned number, uint64_t *ret_value);
bool neap_fields_f64(const struct neap_fields *fields, unsigned number, double *ret_value);
bool neap_fields_string(const struct neap_fields *fields, unsigned number, char *ret_text, size_t capacity);
bool neap_fields_bytes(const struct neap_fields *fields, unsigned number, size_t n, const void **ret_bytes,
		       size_t *ret_length);

struct neap_field_writer {
	unsigned char *data; /* the caller's */
	size_t capacity, length;
	bool overflow; /* a field did not fit; the fields before it are complete */
};

void neap_write_u64(struct neap_field_writer *writer, unsigned number, uint64_t value);
void neap_write_f64(struct neap_field_writer *writer, unsigned number, double value);
void neap_write_string(struct neap_field_writer *writer, unsigned number, const char *text);
void neap_write_bytes(struct neap_field_writer *writer, unsigned number, const void *bytes, size_t length);

/* A group: write the fields between begin and end into the same writer. Groups may nest. */
size_t neap_write_group_begin(struct neap_field_writer *writer, unsigned number);
void neap_write_group_end(struct neap_field_writer *writer, size_t group);

#endif
