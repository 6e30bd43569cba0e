/* cli/print.h: how text and JSON that the command did not write itself reach a terminal: through base/printable.h.
 * Inside a printf, NEAP_PRINTABLE does the same for one argument. One thread. */
#ifndef NEAP_CLI_PRINT_H
#define NEAP_CLI_PRINT_H

#include "base/printable.h"
#include "store/json.h"

#include <stdio.h>

/* One line's text: newlines and tabs are replaced too. */
void print_safe_text(FILE *stream, const char *text);

/* A text of several lines. */
void print_safe_lines(FILE *stream, const char *text);

/* A JSON text: such characters can only stand inside its strings, where they are escaped (\u009b) and so are kept for
 * whatever reads it. */
void print_safe_json(FILE *stream, const char *text);

/* A text as a field of CSV (RFC 4180), quoted, to stdout. One that begins as a spreadsheet's formula does (=, +, -,
 * @, a tab, a line's end) gets an apostrophe before it, as OWASP advises: a spreadsheet then shows it and does not
 * compute it. */
void print_csv_text(const char *text);

/* Writes `root` and a newline to stdout, and lets go of it. The text is made first: when memory runs out for it, or
 * ran out for `root`, nothing is written. `flags`: jansson's, JSON_INDENT(2) for instance. Returns the exit code,
 * after a complaint in the name of `command` where it is not 0; main finds what could not be written. */
int json_print(const char *command, json_t *root, size_t flags);

/* `value` as JSON in one line. Takes `value` over; the caller frees the text. NULL: host memory ran out, here or when
 * `value`, then NULL, was made. */
char *json_line(json_t *value);

/* Asks "QUESTION? [y/N]" on stderr. Returns whether the answer is yes; `*ret_asked` false: there is no terminal. */
bool print_confirm(const char *question, bool *ret_asked);

#endif
