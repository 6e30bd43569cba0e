/* store/json_memory.h: makes jansson safe when host memory runs out.
 *
 * By itself it is not: when its scanner's buffer cannot grow, it drops a character and reads on, so good JSON is
 * rejected as malformed or misread, or a failed assertion ends the process; a dump may lack a piece. So neap watches
 * its allocations. A failed one is served from a small reserve and counted; discard everything read or written while
 * one failed:
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

/* How many of jansson's allocations have failed since the first call, which starts counting. */
uint64_t neap_json_failures(void);

/* json_loadb with JSON_REJECT_DUPLICATES, which stops soon after a failed allocation: the reserve covers the work it
 * has begun. NULL: *ret_error has the reason, except for memory, which the count of failures shows. */
json_t *neap_json_load(const char *text, size_t length, json_error_t *ret_error);

/* json_dumps, whole or NULL: host memory ran out, or `value` is NULL. free() it. */
char *neap_json_dump(const json_t *value, size_t flags);

#endif
