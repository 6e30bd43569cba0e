/* store/json.h: how neap writes and reads JSON. jansson's values are built and taken apart with its own functions and
 * with these.
 *
 * jansson by itself is not safe when host memory runs out: when its scanner's buffer cannot grow, it drops a
 * character and reads on, so good JSON is rejected as malformed or misread, or a failed assertion ends the process; a
 * dump may lack a piece. So neap watches its allocations. A failed one is served from a small reserve and counted;
 * discard everything read or written while one failed:
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

/* Both take `value` over. NULL, which jansson returns when host memory runs out, counts as a failure. */
void neap_json_set(json_t *object, const char *key, json_t *value);
void neap_json_add(json_t *array, json_t *value);

/* A text of any bytes: each that is not UTF-8 becomes '?'. */
json_t *neap_json_text(const char *text);

/* At most INT64_MAX, JSON's largest whole number. */
json_t *neap_json_number(uint64_t value);
/* null for `none`; neap_json_known: for UINT64_MAX. */
json_t *neap_json_number_or_null(uint64_t value, uint64_t none);
json_t *neap_json_known(uint64_t value);

/* A member that is a whole number from 0: true, and its value. A string: "" where there is none. */
bool neap_json_get_number(const json_t *object, const char *key, uint64_t *ret_number);
const char *neap_json_get_text(const json_t *object, const char *key);

/* Reads a text that holds one value. It stops soon after a failed allocation: the reserve covers the work it has
 * begun. The caller lets go of *ret_root. Errors: NEAP_EPARSE with the place, also for a key that stands twice in an
 * object; NEAP_ENOMEM. `name` is for the message. */
enum neap_status neap_json_parse(const char *name, const char *text, size_t length, json_t **ret_root,
				 struct neap_error *err);

/* json_dumps, whole or NULL, which counts as a failure: host memory ran out, or `value` is NULL. free() it. */
char *neap_json_dump(const json_t *value, size_t flags);

#endif
