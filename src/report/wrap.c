/* report/wrap.c: breaks a text into lines. A word longer than a line is cut between characters. */
#include "report/wrap.h"

#include "base/printable.h"

#include "report/cells.h"

#include <string.h>

void neap_report_wrap(struct neap_buffer *out, const char *first, const char *text)
{
	size_t indent = neap_report_width(first, strlen(first)), column = indent;
	char clean[1024];

	neap_printable(clean, sizeof clean, text);
	neap_buffer_text(out, first);
	for (const char *at = clean; *at;) {
		size_t length = strcspn(at, " ");
		size_t columns = neap_report_width(at, length);
		if (column > indent && column + 1 + columns > NEAP_WRAP_COLUMNS) {
			neap_buffer_format(out, "\n%*s", (int)indent, "");
			column = indent;
		} else if (column > indent) {
			neap_buffer_text(out, " ");
			column++;
		}
		while (columns > NEAP_WRAP_COLUMNS - column) { /* one word, longer than a line */
			size_t bytes = 0, taken = 0;
			for (; taken < NEAP_WRAP_COLUMNS - column || ((unsigned char)at[bytes] & 0xc0) == 0x80;
			     bytes++)
				taken += ((unsigned char)at[bytes] & 0xc0) != 0x80;
			neap_buffer_append(out, at, bytes);
			neap_buffer_format(out, "\n%*s", (int)indent, "");
			at += bytes;
			length -= bytes;
			columns -= taken;
			column = indent;
		}
		neap_buffer_append(out, at, length);
		column += columns;
		at += length;
		at += strspn(at, " ");
	}
	neap_buffer_text(out, "\n");
}
