/* report/markup_report.h: a report's text as headings and tables, for a page.
 *
 * All of neap's reports share one layout, which this reads again:
 *
 *     Peaks                                                 a part's first line: its heading
 *       requested     4.70 GiB  what the program asked for  a row; two spaces or more stand between cells
 *                               (as it typed it)            the rest of a cell that was too long for its line
 *       utilization: 92 % on average                        a row of one cell
 *
 *     GPU          memory  fits                             a heading of three cells or more: the head of a table
 *     h100-80gb  79.6 GiB  yes
 *
 * An empty line ends a part. Text is escaped. Pure. */
#ifndef NEAP_REPORT_MARKUP_REPORT_H
#define NEAP_REPORT_MARKUP_REPORT_H

#include "base/buffer.h"

/* Appends the markup of `text`. A cell "yes", "no" or "probably" gets the class good, bad or warn; numbers the class
 * right; a row that is indented further than its part's others in1, in2 or in3. */
void neap_markup_report(struct neap_buffer *out, const char *text);

#endif
