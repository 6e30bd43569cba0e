/* cli/csv.h: a text as a field of CSV (RFC 4180), quoted. One that begins as a spreadsheet's formula does (=, +, -,
 * @, a tab, a line's end) gets an apostrophe before it, as OWASP advises: a spreadsheet then shows it and does not
 * compute it. */
#ifndef NEAP_CLI_CSV_H
#define NEAP_CLI_CSV_H

void csv_print_text(const char *text);

#endif
