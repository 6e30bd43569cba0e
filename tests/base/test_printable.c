/* What may be printed on a terminal, and what may not. */
#include "base/printable.h"

#include "support/test.h"

#include <stdlib.h>
#include <string.h>

static void is(const char *source, const char *wanted)
{
	char text[256], copy[256];

	assert_string_equal(neap_printable(text, sizeof text, source), wanted);
	strcpy(copy, source);
	assert_string_equal(neap_printable_lines(copy), wanted);
}

static void test_replaced(void **state)
{
	(void)state;
	is("", "");
	is("epoch=3.ckpt", "epoch=3.ckpt");
	is("é €5 → \xf0\x9f\x8c\x8a ~", "é €5 → \xf0\x9f\x8c\x8a ~");
	is("\x1b[31mred\x1b[0m\a\b\r", "?[31mred?[0m???");
	is("a\x7f", "a?");
	is("step=4-\xc2\x9b"
	   "31m",
	   "step=4-?31m");                                /* U+009B */
	is("\xc2\x80|\xc2\x9f|\xc2\xa0", "?|?|\xc2\xa0"); /* the first and the last of C1, and what follows */
	is("a\xe2\x80\xae"
	   "b\xe2\x81\xa6"
	   "c\xe2\x80\x8e\xd8\x9c",
	   "a?b?c??");
	is("\xe2\x80\xa8\xe2\x80\xa9", "??");
	is("\x9b"
	   "31m",
	   "?31m");                                                  /* C1 as a byte */
	is("\xc1\x9b|\xe0\x82\x9b|\xf0\x80\x82\x9b", "??|???|????"); /* overlong */
	is("\xed\xa0\x80|\xf4\x90\x80\x80|\xff", "???|????|?");      /* surrogate, beyond the last, never */
	is("cut \xe2\x82", "cut ??");
	is("\xe2\x82x", "??x");
}

static void test_lines(void **state)
{
	char text[64] = "a\tb\nc\x1b\n", line[64];

	(void)state;
	assert_string_equal(neap_printable(line, sizeof line, text), "a?b?c??");
	assert_string_equal(neap_printable_lines(text), "a\tb\nc?\n");
	assert_string_equal(NEAP_PRINTABLE("x\n"), "x?");
	assert_string_equal(NEAP_PRINTABLE(NULL), "");
}

/* Cut between characters, never within one. */
static void test_cut(void **state)
{
	char text[8] = "zzzzzzz";

	(void)state;
	assert_string_equal(neap_printable(text, 4, "a€b"), "a");
	assert_string_equal(neap_printable(text, 5, "a€b"), "a€");
	assert_string_equal(neap_printable(text, 1, "a"), "");
	memset(text, 'z', sizeof text);
	neap_printable(text, 0, "a");
	assert_int_equal(text[0], 'z');
}

/* Whatever the bytes, the output is printable UTF-8, and filtering it again changes nothing. */
static void test_random(void **state)
{
	static const char often[] = {'\xc2', '\x9b', '\xe2', '\x80', '\xae', 'A'};

	(void)state;
	srand(7);
	for (int round = 0; round < 20000; round++) {
		char source[40], once[40], twice[40];
		size_t length = (size_t)rand() % (sizeof source - 1);

		for (size_t i = 0; i < length; i++)
			source[i] = (char)(rand() % 2 ? 1 + rand() % 255 : often[rand() % 6]);
		source[length] = '\0';
		neap_printable(once, sizeof once, source);
		for (size_t at = 0, left = strlen(once); left > 0;) {
			uint32_t character;
			size_t bytes = neap_utf8_next(once + at, left, &character);

			assert_true(neap_printable_is(character));
			at += bytes;
			left -= bytes;
		}
		assert_string_equal(neap_printable(twice, sizeof twice, once), once);
	}
}

int main(void)
{
	const struct CMUnitTest tests[] = {cmocka_unit_test(test_replaced), cmocka_unit_test(test_lines),
					   cmocka_unit_test(test_cut), cmocka_unit_test(test_random)};

	return cmocka_run_group_tests(tests, NULL, NULL);
}
