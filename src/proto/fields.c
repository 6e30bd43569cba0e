/* proto/fields.c: writes fields to bytes, and reads fields from hostile bytes. */
#include "proto/fields.h"

#include "base/error.h"
#include "base/printable.h"

#include <string.h>

#define FIELD_HEADER 8u

static uint64_t get_number(const unsigned char *from, size_t bytes)
{
	uint64_t value = 0;
	while (bytes-- > 0)
		value = value << 8 | from[bytes];
	return value;
}

static void put_number(unsigned char *to, size_t bytes, uint64_t value)
{
	for (size_t i = 0; i < bytes; i++, value >>= 8)
		to[i] = (unsigned char)value;
}

static enum neap_status check_field(const unsigned char *data, size_t length, size_t at, size_t *ret_end,
				    struct neap_error *err)
{
	const char *wrong = NULL;
	size_t value_length = 0;
	if (length - at < FIELD_HEADER) {
		wrong = "is cut short";
	} else {
		unsigned type = data[at + 2];
		value_length = get_number(data + at + 4, 4);
		if (type < NEAP_TYPE_U64 || type > NEAP_TYPE_BYTES || data[at + 3] != 0)
			wrong = "has an unknown type";
		else if (value_length > length - at - FIELD_HEADER)
			wrong = "is longer than the payload";
		else if (type <= NEAP_TYPE_F64 && value_length != 8)
			wrong = "is a number that is not of 8 bytes";
	}
	if (wrong) {
		enum neap_status status = neap_fail(err, NEAP_EPROTO, "a field of the payload %s", wrong);
		if (err)
			err->position = at;
		return status;
	}
	*ret_end = at + FIELD_HEADER + value_length;
	return NEAP_OK;
}

enum neap_status neap_fields_open(const void *data, size_t length, struct neap_fields *ret_fields,
				  struct neap_error *err)
{
	for (size_t at = 0; at < length;) {
		enum neap_status status = check_field(data, length, at, &at, err);
		if (status)
			return status;
	}
	*ret_fields = (struct neap_fields){.data = data, .length = length};
	return NEAP_OK;
}

/* The value of the nth field with this number and type; NULL when there is none. */
static const unsigned char *find(const struct neap_fields *fields, unsigned number, enum neap_field_type type,
				 size_t n, size_t *ret_length)
{
	size_t value_length;
	for (size_t at = 0; at < fields->length; at += FIELD_HEADER + value_length) {
		const unsigned char *field = fields->data + at;
		value_length = get_number(field + 4, 4);
		if (get_number(field, 2) == number && field[2] == type && n-- == 0) {
			*ret_length = value_length;
			return field + FIELD_HEADER;
		}
	}
	return NULL;
}

bool neap_fields_u64(const struct neap_fields *fields, unsigned number, uint64_t *ret_value)
{
	size_t length;
	const unsigned char *value = find(fields, number, NEAP_TYPE_U64, 0, &length);
	if (value)
		*ret_value = get_number(value, 8);
	return value != NULL;
}

bool neap_fields_f64(const struct neap_fields *fields, unsigned number, double *ret_value)
{
	size_t length;
	const unsigned char *value = find(fields, number, NEAP_TYPE_F64, 0, &length);
	if (value) {
		uint64_t bits = get_number(value, 8);
		memcpy(ret_value, &bits, 8);
	}
	return value != NULL;
}

bool neap_fields_string(const struct neap_fields *fields, unsigned number, char *ret_text, size_t capacity)
{
	size_t length;
	const unsigned char *value = find(fields, number, NEAP_TYPE_STRING, 0, &length);
	if (!value || capacity == 0)
		return false;
	neap_printable_bytes(ret_text, capacity, (const char *)value, length);
	return true;
}

bool neap_fields_bytes(const struct neap_fields *fields, unsigned number, size_t n, const void **ret_bytes,
		       size_t *ret_length)
{
	size_t length;
	const unsigned char *value = find(fields, number, NEAP_TYPE_BYTES, n, &length);
	if (!value)
		return false;
	*ret_bytes = value;
	*ret_length = length;
	return true;
}

/* Reserves space for one field. Returns the place of its value, or NULL. After an overflow nothing is written. */
static unsigned char *add(struct neap_field_writer *writer, unsigned number, enum neap_field_type type, size_t length)
{
	size_t left = writer->capacity - writer->length;
	if (writer->overflow || left < FIELD_HEADER || left - FIELD_HEADER < length || length > UINT32_MAX) {
		writer->overflow = true;
		return NULL;
	}
	unsigned char *field = writer->data + writer->length;
	put_number(field, 2, number);
	field[2] = (unsigned char)type;
	field[3] = 0;
	put_number(field + 4, 4, length);
	writer->length += FIELD_HEADER + length;
	return field + FIELD_HEADER;
}

static void add_number(struct neap_field_writer *writer, unsigned number, enum neap_field_type type, uint64_t bits)
{
	unsigned char *value = add(writer, number, type, 8);
	if (value)
		put_number(value, 8, bits);
}

void neap_write_u64(struct neap_field_writer *writer, unsigned number, uint64_t value)
{
	add_number(writer, number, NEAP_TYPE_U64, value);
}

void neap_write_f64(struct neap_field_writer *writer, unsigned number, double value)
{
	uint64_t bits;
	memcpy(&bits, &value, 8);
	add_number(writer, number, NEAP_TYPE_F64, bits);
}

void neap_write_string(struct neap_field_writer *writer, unsigned number, const char *text)
{
	size_t length = strlen(text);
	unsigned char *value = add(writer, number, NEAP_TYPE_STRING, length);
	if (value)
		memcpy(value, text, length);
}

void neap_write_bytes(struct neap_field_writer *writer, unsigned number, const void *bytes, size_t length)
{
	unsigned char *value = add(writer, number, NEAP_TYPE_BYTES, length);
	if (value && length > 0)
		memcpy(value, bytes, length);
}

size_t neap_write_group_begin(struct neap_field_writer *writer, unsigned number)
{
	size_t group = writer->length;
	add(writer, number, NEAP_TYPE_BYTES, 0);
	return group;
}

void neap_write_group_end(struct neap_field_writer *writer, size_t group)
{
	/* A group that did not fit is removed entirely. */
	if (writer->overflow)
		writer->length = group < writer->length ? group : writer->length;
	else
		put_number(writer->data + group + 4, 4, writer->length - group - FIELD_HEADER);
}
