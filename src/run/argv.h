/* run/argv.h: a list of strings that is always a valid argv: NULL-terminated, every string owned.
 *
 * A zeroed struct is an empty list (items NULL). One thread. Functions that can fail return NEAP_ENOMEM only, unless
 * they say more.
 */
#ifndef NEAP_RUN_ARGV_H
#define NEAP_RUN_ARGV_H

#include "neap/status.h"

#include <stddef.h>

struct neap_argv {
	char **items; /* count of them, then NULL */
	size_t count;
};

enum neap_status neap_argv_add(struct neap_argv *argv, const char *text);
/* Adds printf's result. */
enum neap_status neap_argv_format(struct neap_argv *argv, const char *format, ...) NEAP_PRINTF(2, 3);
/* For lists of "KEY=VALUE": replaces KEY's value, or adds it. */
enum neap_status neap_argv_set(struct neap_argv *argv, const char *key, const char *value);
enum neap_status neap_argv_copy(const struct neap_argv *argv, struct neap_argv *ret_copy);
void neap_argv_fini(struct neap_argv *argv);

/* Splits a command line as a shell does (blanks, 'single', "double", backslash) but expands nothing. Errors:
 * NEAP_EPARSE for a quote that does not end, and for syntax that needs a shell: an unquoted word of only |, &, ;, <
 * and >; a variable ($NAME, ${), a command ($(, `) or a leading ~ that is not in '...' or escaped. */
enum neap_status neap_argv_split(const char *text, struct neap_argv *ret_argv, struct neap_error *err);

/* Returns the words as one line, which neap_argv_split reads back. The caller frees it. NULL: out of memory. */
char *neap_argv_join(const struct neap_argv *argv);

#endif
