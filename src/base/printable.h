/* base/printable.h: makes text from outside safe to print on a terminal. libc only, pure, any thread.
 *
 * A file's name, a process's name or a line of a log may hold bytes that a terminal obeys: they can color, move the
 * cursor, hide or rewrite what was printed before. Each of these becomes one '?':
 *
 *   C0 controls, DEL                   U+0000 to U+001F, U+007F
 *   C1 controls, encoded as UTF-8      U+0080 to U+009F: U+009B begins an escape sequence as ESC [ does
 *   controls of the text's direction   U+061C, U+200E, U+200F, U+202A to U+202E, U+2066 to U+2069
 *   separators of lines, paragraphs    U+2028, U+2029
 *   what is not UTF-8                  a stray byte, an overlong form, a surrogate, beyond U+10FFFF: each byte
 *
 * The command passes all text from outside through here before it prints it. Data for programs (JSON) is escaped by
 * its own rules.
 */
#ifndef NEAP_BASE_PRINTABLE_H
#define NEAP_BASE_PRINTABLE_H

#include <stdbool.h>
#include <stddef.h>
#include <stdint.h>

/* Returns the bytes, 1 to 4, of the character at `text`, where `length` bytes (at least 1) are left. `ret_character`
 * gets its number; for a byte that is not UTF-8 it gets UINT32_MAX, and 1 is returned. */
size_t neap_utf8_next(const char *text, size_t length, uint32_t *ret_character);

/* Whether a character turns the direction of the text around it. */
bool neap_printable_turns(uint32_t character);

/* Whether a character may be printed as it is. */
bool neap_printable_is(uint32_t character);

/* Copies `source` (NULL: ""), cut at a character's end where `capacity` is too small. Returns `ret_text`. */
const char *neap_printable(char *ret_text, size_t capacity, const char *source);

/* The same for `length` bytes, in which NUL is replaced like other controls. */
const char *neap_printable_bytes(char *ret_text, size_t capacity, const char *source, size_t length);

/* The same, in place, for a text of several lines: newlines and tabs stay. Returns `text`. */
const char *neap_printable_lines(char *text);

/* For an argument of printf: cut at 4095 bytes, valid until the end of the enclosing block. */
#define NEAP_PRINTABLE_CAPACITY 4096
#define NEAP_PRINTABLE(text)    neap_printable((char[NEAP_PRINTABLE_CAPACITY]){0}, NEAP_PRINTABLE_CAPACITY, text)

#endif
