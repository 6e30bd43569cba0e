/* cli/json_print.h: how every command writes JSON: whole, or not at all and with an error. */
#ifndef NEAP_CLI_JSON_PRINT_H
#define NEAP_CLI_JSON_PRINT_H

#include <stdbool.h>
#include <stddef.h>

struct json_t;

/* Writes `root` and a newline to stdout, and lets go of it. `failed`: host memory ran out while it was made. It is
 * first made as a text: when memory runs out for that, nothing is written either. `flags`: jansson's, JSON_INDENT(2)
 * for instance. Returns the exit code, after a complaint in the name of `command` where it is not 0. */
int json_print(const char *command, struct json_t *root, bool failed, size_t flags);

/* `value` (taken over) as JSON in one line; free() it. NULL: host memory ran out, or value is NULL, which says the
 * same. */
char *json_line(struct json_t *value);

#endif
