/* cli/json_parts.h: members and items of a JSON document, and one flag for whether any of them failed. */
#ifndef NEAP_CLI_JSON_PARTS_H
#define NEAP_CLI_JSON_PARTS_H

#include <jansson.h>
#include <stdbool.h>
#include <stdint.h>

/* Both take `value` over; NULL, which host memory that ran out makes, is a failure. */
static inline void set(json_t *object, const char *key, json_t *value, bool *ret_failed)
{
	if (json_object_set_new(object, key, value) != 0)
		*ret_failed = true;
}

static inline void add(json_t *array, json_t *value, bool *ret_failed)
{
	if (json_array_append_new(array, value) != 0)
		*ret_failed = true;
}

static inline json_t *number(uint64_t value)
{
	return json_integer((json_int_t)(value > INT64_MAX ? INT64_MAX : value));
}

static inline json_t *number_or_null(uint64_t value, uint64_t none)
{
	return value == none ? json_null() : number(value);
}

#endif
