/* report/markup.c: one character after the other, each copied, escaped or replaced. */
#include "report/markup.h"

#include <stdint.h>
#include <string.h>

/* Bytes of the character at `text` and its number; 0: they are no UTF-8 (overlong, a surrogate, beyond the last). */
static size_t decode(const unsigned char *text, uint32_t *ret_character)
{
	static const uint32_t lowest[] = {0, 0, 0x80, 0x800, 0x10000};
	unsigned char lead = text[0];
	size_t bytes = lead < 0x80 ? 1 : lead >> 5 == 6 ? 2 : lead >> 4 == 14 ? 3 : lead >> 3 == 30 ? 4 : 0;
	uint32_t character = bytes == 1 ? lead : bytes ? lead & (0x7fu >> bytes) : 0;

	for (size_t i = 1; i < bytes; i++) {
		if ((text[i] & 0xc0) != 0x80) /* also the text's end */
			return 0;
		character = character << 6 | (text[i] & 0x3f);
	}
	if (bytes == 0 || character < lowest[bytes] || character > 0x10ffff || (character >> 11) == 0x1b)
		return 0;
	*ret_character = character;
	return bytes;
}

static bool turns(uint32_t character)
{
	return character == 0x61c || character == 0x200e || character == 0x200f ||
	       (character >= 0x202a && character <= 0x202e) || (character >= 0x2066 && character <= 0x2069);
}

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
	if ((character < 0x20 && character != '\n' && character != '\t') || (character >= 0x7f && character < 0xa0))
		return "?";
	return turns(character) ? "\xef\xbf\xbd" : NULL;
}

void neap_markup_text(struct neap_buffer *out, const char *text)
{
	for (const unsigned char *at = (const unsigned char *)text; *at;) {
		uint32_t character = 0;
		size_t bytes = decode(at, &character);
		const char *instead = bytes ? escaped(character) : "\xef\xbf\xbd";

		if (instead)
			neap_buffer_text(out, instead);
		else
			neap_buffer_append(out, at, bytes);
		at += bytes ? bytes : 1;
	}
}
