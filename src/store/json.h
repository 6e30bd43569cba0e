/* store/json.h: how neap writes and reads JSON: with jansson's own functions and with these.
 *
 * jansson by itself is not safe when host memory runs out. If its scanner's buffer cannot grow, it drops a character
 * and reads on: then it rejects or misreads good JSON, or a failed assertion ends the process. A dump may lack a
 * piece. So neap supplies jansson's allocator: when memory runs out, it counts the failure and allocates from a small
 * reserve. Discard everything that was read or written while an allocation failed:
 *
 *   uint64_t before = neap_json_failures();
 *   ... build a document ...
 *   char *text = neap_json_dump(root, flags);
 *   if (!text || neap_json_failures() != before)  out of host memory
 *
 * Any thread.
 */
#ifndef NEAP_STORE_JSON_H
#define NEAP_STORE_JSON_H

#include "neap/status.h"

#include "base/buffer.h"

#include <jansson.h>
#include <stdbool.h>
#include <stdint.h>

/* How many of jansson's allocations have failed since the first call, which starts counting. */
uint64_t neap_json_failures(void);

/* Both take over `value`. NULL, which jansson returns when host memory runs out, counts as a failure. */
void neap_json_set(json_t *object, const char *key, json_t *value);
void neap_json_add(json_t *array, json_t *value);

/* A text from any bytes: each byte that is not UTF-8 becomes '?'. NULL is "". */
json_t *neap_json_text(const char *text);

/* At most INT64_MAX, JSON's largest whole number. */
json_t *neap_json_number(uint64_t value);
/* The number, or null if it is `none`. neap_json_known: null if it is UINT64_MAX. */
json_t *neap_json_number_or_null(uint64_t value, uint64_t none);
json_t *neap_json_known(uint64_t value);

/* A member of an object: a row of the tables of json_rows.h. neap_json_put sets the rows in order, up to the first
 * without a key, takes ownership of their values, and returns the object. A NULL value counts as a failure. */
struct neap_json_row {
	const char *key;
	json_t *value;
};
json_t *neap_json_put(json_t *object, const struct neap_json_row *rows);
/* The row if `known`, else null under its key. */
struct neap_json_row neap_json_only(bool known, struct neap_json_row row);

/* Give null in place of "" and NULL; of 0; of a number that is not finite; the same again; of a number below 0. */
json_t *neap_json_given_text(const char *text);
json_t *neap_json_given(uint64_t value);
json_t *neap_json_given_real(double value);
json_t *neap_json_known_real(double value);
json_t *neap_json_known_integer(int value);

/* Get a member of an object. True: it is a whole number, at least 0. neap_json_get_text: "" if it is no string. */
bool neap_json_get_number(const json_t *object, const char *key, uint64_t *ret_number);
const char *neap_json_get_text(const json_t *object, const char *key);

/* Parses a text that holds one value. Stops soon after a failed allocation; the reserve lasts until then. The caller
 * releases *ret_root. Errors: NEAP_EPARSE with the place, also for a key that stands twice in an object; NEAP_ENOMEM.
 * `name` is for the message. */
enum neap_status neap_json_parse(const char *name, const char *text, size_t length, json_t **ret_root,
				 struct neap_error *err);

/* json_dumps, whole or NULL, which counts as a failure: host memory ran out, or `value` is NULL. free() it. */
char *neap_json_dump(const json_t *value, size_t flags);

#endif
