/* The end of a command's output: the lines that are kept, and the line with the reason of the failure. */
#include "run/last_output.h"

#include "support/test.h"

#include <stdio.h>
#include <stdlib.h>
#include <string.h>

static struct neap_last_output found(const char *text)
{
	struct neap_last_output output = {0};
	neap_last_output_find(text, strlen(text), &output);
	return output;
}

#define ERROR_OF(text) found(text).error
#define LINES_OF(text) found(text).lines

static void test_last_line(void **state)
{
	(void)state;
	assert_string_equal(ERROR_OF(""), "");
	assert_string_equal(LINES_OF("\n \n"), "");
	assert_string_equal(ERROR_OF("one\ntwo"), "two");
	assert_string_equal(LINES_OF("one\n\n two\n   \n"), "one\n two\n");
	assert_string_equal(ERROR_OF("one\r\n"), "one");
}

static void test_exceptions(void **state)
{
	(void)state;
	/* The last exception of a chain. */
	assert_string_equal(ERROR_OF("Traceback (most recent call last):\n  File \"a\", line 1\nKeyError: 'x'\n\n"
				     "During handling of the above exception, another exception occurred:\n\n"
				     "Traceback (most recent call last):\n  File \"a\", line 2\n"
				     "torch.OutOfMemoryError: CUDA out of memory.\nmore of it\n"),
			    "torch.OutOfMemoryError: CUDA out of memory.");
	/* An exception without a colon, and one with any name. */
	assert_string_equal(ERROR_OF("Traceback (most recent call last):\n  x\nAssertionError\nbye\n"),
			    "AssertionError");
	assert_string_equal(ERROR_OF("Traceback (most recent call last):\n  x\nmine.Stop: now\nbye\n"),
			    "mine.Stop: now");
	/* A syntax error has no traceback. */
	assert_string_equal(
		ERROR_OF("  File \"t.py\", line 1\n    x =\n       ^\nSyntaxError: invalid syntax\nbye\n"),
		"SyntaxError: invalid syntax");
	/* A rank's name before each line; torchrun's own exception follows and is less useful. */
	assert_string_equal(ERROR_OF("[rank1]: Traceback (most recent call last):\n[rank1]:   File \"a\", line 1\n"
				     "[rank1]: ValueError: bad\n"
				     "Traceback (most recent call last):\n  File \"torchrun\"\n"
				     "torch.distributed.elastic.multiprocessing.errors.ChildFailedError: \n"
				     "====\ntrain.py FAILED\n"),
			    "ValueError: bad");
	assert_string_equal(ERROR_OF("Traceback (most recent call last):\n  a\nerrors.ChildFailedError: \n==\n"),
			    "errors.ChildFailedError:");
	/* Lines that only look like an error. */
	assert_string_equal(ERROR_OF("note: ValueErrors are rare\nError 7 in line\n"), "Error 7 in line");
}

static void test_filtered(void **state)
{
	(void)state;
	/* Colors are dropped; other control bytes are replaced. */
	assert_string_equal(LINES_OF("\033[1;31mred\033[0m \033]0;title\a\x9b\x01 end\n"), "red ?? end\n");
	/* The last form of a progress bar. */
	assert_string_equal(LINES_OF(" 10%\r 50%\r100% done\nnext\n"), "100% done\nnext\n");
	/* An escape sequence that is cut off. */
	assert_string_equal(LINES_OF("a\033["), "a\n");
	assert_string_equal(LINES_OF("a\033"), "a\n");
	struct neap_last_output output = {0};
	neap_last_output_find("a\0b\n", 4, &output);
	assert_string_equal(output.lines, "a b\n");
}

static void test_bounds(void **state)
{
	(void)state;
	char *text = calloc(1, 100000);
	size_t length = 0, lines = 0;
	for (int i = 0; i < 40; i++)
		length += (size_t)sprintf(text + length, "line %d\n", i);
	struct neap_last_output output = {0};
	neap_last_output_find(text, length, &output);
	for (const char *c = output.lines; *c; c++)
		lines += *c == '\n';
	assert_int_equal(lines, NEAP_LAST_LINES);
	assert_memory_equal(output.lines, "line 24\n", 8);
	/* A blank line does not count. */
	strcpy(text + length, "\n\n");
	neap_last_output_find(text, length + 2, &output);
	assert_memory_equal(output.lines, "line 24\n", 8);
	/* Long lines: cut, and only as many as fit, whole. */
	memset(text, 'x', 99999);
	for (size_t i = 4000; i < 99999; i += 4000)
		text[i] = '\n';
	neap_last_output_find(text, 99999, &output);
	assert_true(strlen(output.lines) < NEAP_LAST_BYTES);
	assert_true(strlen(output.lines) > NEAP_LAST_BYTES / 2);
	assert_int_equal(output.lines[strlen(output.lines) - 1], '\n');
	assert_true(strlen(output.error) == sizeof output.error - 1);
	free(text);
}

int main(void)
{
	const struct CMUnitTest tests[] = {
		cmocka_unit_test(test_last_line),
		cmocka_unit_test(test_exceptions),
		cmocka_unit_test(test_filtered),
		cmocka_unit_test(test_bounds),
	};
	return cmocka_run_group_tests(tests, NULL, NULL);
}
