/* cli/print.h: how text that the command did not write itself reaches a terminal: through base/printable.h. Inside a
 * printf, NEAP_PRINTABLE does the same for one argument. One
 * thread. */
#ifndef NEAP_CLI_PRINT_H
#define NEAP_CLI_PRINT_H

#include "base/printable.h"

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

#endif
