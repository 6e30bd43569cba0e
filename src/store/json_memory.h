/* store/json_memory.h: jansson, where host memory runs out.
 *
 * jansson does not come through that: where its scanner's buffer cannot grow, a character is dropped and the text
 * read on, so that good JSON is called malformed, is read as something else, or a failed assertion ends the process;
 * a dump may lack a piece. So its allocations are watched. One that fails is given from a small reserve, and counted;
 * what was read or written while one of them failed does not count:
 *
 *   uint64_t before = neap_json_failures();
 *   ... jansson ...
 *   if (neap_json_failures() != before)  out of host memory
 *
 * Any thread.
 */
#ifndef NEAP_STORE_JSON_MEMORY_H
#define NEAP_STORE_JSON_MEMORY_H

#include <jansson.h>
#include <stdint.h>

/* How many of jansson's allocations have failed since the first call, which begins to watch. */
uint64_t neap_json_failures(void);

/* json_loadb with JSON_REJECT_DUPLICATES, which stops soon after an allocation has failed: the reserve is for what it
 * has begun. NULL: *ret_error says why, but for memory, of which the count of failures tells. */
json_t *neap_json_load(const char *text, size_t length, json_error_t *ret_error);

/* json_dumps, whole or NULL: host memory ran out, or `value` is NULL. free() it. */
char *neap_json_dump(const json_t *value, size_t flags);

#endif
