/* base/printable.c: see the header. */
#include "base/printable.h"

#include <string.h>

size_t neap_utf8_next(const char *text, size_t length, uint32_t *ret_character)
{
	static const uint32_t lowest[] = {0, 0, 0x80, 0x800, 0x10000};
	const unsigned char *bytes = (const unsigned char *)text;
	unsigned char lead = bytes[0];
	size_t wanted = lead < 0x80 ? 1 : lead >> 5 == 6 ? 2 : lead >> 4 == 14 ? 3 : lead >> 3 == 30 ? 4 : 0;
	uint32_t character = wanted == 1 ? lead : wanted ? lead & (0x7fu >> wanted) : 0;

	*ret_character = UINT32_MAX;
	if (wanted == 0 || wanted > length)
		return 1;
	for (size_t i = 1; i < wanted; i++) {
		if ((bytes[i] & 0xc0) != 0x80)
			return 1;
		character = character << 6 | (bytes[i] & 0x3f);
	}
	if (character < lowest[wanted] || character > 0x10ffff || (character >> 11) == 0x1b)
		return 1;
	*ret_character = character;
	return wanted;
}

bool neap_printable_turns(uint32_t character)
{
	return character == 0x61c || character == 0x200e || character == 0x200f ||
	       (character >= 0x202a && character <= 0x202e) || (character >= 0x2066 && character <= 0x2069);
}

bool neap_printable_is(uint32_t character)
{
	return character >= 0x20 && !(character >= 0x7f && character < 0xa0) && character != 0x2028 &&
	       character != 0x2029 && character != UINT32_MAX && !neap_printable_turns(character);
}

/* `to` may be `source`: a character never grows. */
static void filter(char *to, size_t capacity, const char *source, size_t left, bool lines)
{
	size_t used = 0;

	while (left > 0) {
		uint32_t character;
		size_t bytes = neap_utf8_next(source, left, &character);
		bool fine = neap_printable_is(character) || (lines && (character == '\n' || character == '\t'));

		if (used + (fine ? bytes : 1) >= capacity)
			break;
		if (fine)
			memmove(to + used, source, bytes);
		else
			to[used] = '?';
		used += fine ? bytes : 1;
		source += bytes;
		left -= bytes;
	}
	to[used] = '\0';
}

const char *neap_printable(char *ret_text, size_t capacity, const char *source)
{
	return neap_printable_bytes(ret_text, capacity, source, source ? strlen(source) : 0);
}

const char *neap_printable_bytes(char *ret_text, size_t capacity, const char *source, size_t length)
{
	if (capacity > 0)
		filter(ret_text, capacity, source, length, false);
	return ret_text;
}

const char *neap_printable_lines(char *text)
{
	filter(text, strlen(text) + 1, text, strlen(text), true);
	return text;
}
