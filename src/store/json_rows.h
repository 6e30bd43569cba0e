/* store/json_rows.h: a JSON object as a table of rows, one for each member: its kind, its key, its value.
 *
 *   return JSON(TEXT("name", device->name), NUMBER("bytes", device->bytes), KNOWN("limit", device->limit),
 *               ONLY(device->ended, NUMBER("left", device->left)), VALUE("processes", processes_json(device)));
 *
 * For files that write JSON: the macros have short names, so that a row is short.
 *
 *   NUMBER  a whole number from 0, at most INT64_MAX      INTEGER  one that may be below 0
 *   REAL    a finite number       BOOL  true or false     TEXT     any bytes: what is not UTF-8 becomes '?'
 *   KNOWN   a NUMBER, REAL or int, null if it is UINT64_MAX, not finite, or below 0
 *   GIVEN   a NUMBER, REAL or TEXT, null if it is 0, "" or NULL
 *   VALUE   any json_t, which is taken over
 *   ONLY    a row whose value is null unless the condition is true; the row is evaluated all the same
 */
#ifndef NEAP_STORE_JSON_ROWS_H
#define NEAP_STORE_JSON_ROWS_H

#include "store/json.h"

/* A new object of these rows, in their order; and rows into an object, which is the result. */
#define JSON(...)             JSON_PUT(json_object(), __VA_ARGS__)
#define JSON_PUT(object, ...) neap_json_put(object, (const struct neap_json_row[]){__VA_ARGS__, {NULL, NULL}})

#define ROW(key, value)     ((struct neap_json_row){key, value})
#define NUMBER(key, value)  ROW(key, neap_json_number(value))
#define INTEGER(key, value) ROW(key, json_integer(value))
#define REAL(key, value)    ROW(key, json_real(value))
#define BOOL(key, value)    ROW(key, json_boolean(value))
#define TEXT(key, value)    ROW(key, neap_json_text(value))
#define VALUE(key, value)   ROW(key, value)
#define ONLY(known, row)    neap_json_only(known, row)
#define KNOWN(key, value)   ROW(key, KNOWN_BY_TYPE(value)(value))
#define GIVEN(key, value)   ROW(key, GIVEN_BY_TYPE(value)(value))
#define KNOWN_BY_TYPE(value)                                                                                         \
	_Generic((value), double : neap_json_known_real, int : neap_json_known_integer, default : neap_json_known)
#define GIVEN_BY_TYPE(value)                                                                                         \
	_Generic((value), char *: neap_json_given_text, const char *: neap_json_given_text,                           \
		 double: neap_json_given_real, default: neap_json_given)

#endif
