/* cli/json_print.h: how every command writes JSON: whole, or not at all and with an error. */
#ifndef NEAP_CLI_JSON_PRINT_H
#define NEAP_CLI_JSON_PRINT_H

#include "store/json.h"

/* Writes `root` and a newline to stdout, and lets go of it. The text is made first: when memory runs out for it, or
 * ran out for `root`, nothing is written. `flags`: jansson's, JSON_INDENT(2) for instance. Returns the exit code,
 * after a complaint in the name of `command` where it is not 0; main finds what could not be written. */
int json_print(const char *command, json_t *root, size_t flags);

/* `value` (taken over) as JSON in one line; free() it. NULL: host memory ran out, or value is NULL, which says the
 * same. */
char *json_line(json_t *value);

#endif
