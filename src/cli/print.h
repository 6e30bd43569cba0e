/* cli/print.h: prints text and JSON from outside safely to a terminal, by base/printable.h. Inside a printf,
 * NEAP_PRINTABLE does the same for one argument. One thread. */
#ifndef NEAP_CLI_PRINT_H
#define NEAP_CLI_PRINT_H

#include "base/printable.h"
#include "store/json.h"

#include <stdio.h>

/* One line's text: newlines and tabs are replaced too. */
void print_safe_text(FILE *stream, const char *text);

/* A text of several lines. */
void print_safe_lines(FILE *stream, const char *text);

/* A JSON text: unsafe characters can only be inside its strings; they are escaped (\u009b), so a reader still gets
 * them. */
void print_safe_json(FILE *stream, const char *text);

/* A text as a field of CSV (RFC 4180), quoted, to stdout. If the text begins like a spreadsheet's formula (=, +, -,
 * @, a tab, a line's end), writes an apostrophe before it, as OWASP advises: a spreadsheet then shows the text
 * instead of computing it. */
void print_csv_text(const char *text);

/* Writes `root` and a newline to stdout, and releases `root`. Makes the text first: if memory runs out for it, or ran
 * out for `root`, writes nothing. `flags`: jansson's, for example JSON_INDENT(2). Returns the exit code; if that is
 * not 0, has complained in the name of `command`. main checks whether stdout could be written. */
int json_print(const char *command, json_t *root, size_t flags);

/* `value` as JSON in one line. Takes `value` over; the caller frees the text. NULL: host memory ran out, here or
 * before, when `value` (then NULL) was made. */
char *json_line(json_t *value);

/* Asks "QUESTION? [y/N]" on stderr. Returns whether the answer is yes; `*ret_asked` false: there is no terminal. */
bool print_confirm(const char *question, bool *ret_asked);

#endif
