/* report/markup.c: copies, escapes or replaces one character after the other. */
#include "report/markup.h"

#include "base/printable.h"

#include <stdint.h>
#include <string.h>

static const char *escaped(uint32_t character)
{
	switch (character) {
	case '&':
		return "&amp;";
	case '<':
		return "&lt;";
	case '>':
		return "&gt;";
	case '"':
		return "&quot;";
	case '\'':
		return "&#39;";
	default:
		break;
	}
	if (character == UINT32_MAX || neap_printable_turns(character))
		return "\xef\xbf\xbd";
	return neap_printable_is(character) || character == '\n' || character == '\t' ? NULL : "?";
}

void neap_markup_text(struct neap_buffer *out, const char *text)
{
	for (size_t left = strlen(text); left > 0;) {
		uint32_t character;
		size_t bytes = neap_utf8_next(text, left, &character);
		const char *instead = escaped(character);

		if (instead)
			neap_buffer_text(out, instead);
		else
			neap_buffer_append(out, text, bytes);
		text += bytes;
		left -= bytes;
	}
}
