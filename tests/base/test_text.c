/* Errors, buffers, units and log lines. */
#include "base/buffer.h"
#include "base/clock.h"
#include "base/error.h"
#include "base/log.h"
#include "base/units.h"
#include "support/test.h"

#include <errno.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

static void errors_are_filled(void **unused)
{
	struct neap_error err = {.line = 9, .column = 9, .position = 9, .cause = 9};

	(void)unused;
	assert_int_equal(neap_fail(&err, NEAP_EBUSY, "page %d", 7), NEAP_EBUSY);
	assert_string_equal(err.message, "page 7");
	assert_true(err.line == 0 && err.column == 0 && err.position == 0 && err.cause == 0);
	assert_int_equal(neap_fail_at(&err, 3, 4, "x"), NEAP_EPARSE);
	assert_true(err.line == 3 && err.column == 4);
	assert_int_equal(neap_fail_errno(&err, ENOSPC, "writing %s", "a"), NEAP_ENOSPC);
	assert_string_equal(err.message, "writing a: No space left on device");
	assert_int_equal(err.cause, ENOSPC);
	neap_error_prefix(&err, "run %d", 5);
	assert_string_equal(err.message, "run 5: writing a: No space left on device");
	assert_int_equal(neap_fail_errno(NULL, EACCES, "x"), NEAP_EPERM);
	assert_int_equal(neap_fail_errno(NULL, ENOENT, "x"), NEAP_ENOENT);
	assert_int_equal(neap_fail_errno(NULL, EPIPE, "x"), NEAP_EIO);
	neap_error_prefix(NULL, "x");
	assert_string_equal(neap_status_name(NEAP_EINTERNAL), "NEAP_EINTERNAL");
	assert_string_equal(neap_status_name((enum neap_status)4711), "NEAP_UNKNOWN");
	assert_string_equal(neap_status_text((enum neap_status)(-1)), "unknown status");
	for (int status = 0; status <= NEAP_EINTERNAL; status++)
		assert_string_not_equal(neap_status_name((enum neap_status)status), "NEAP_UNKNOWN");
}

/* Whatever the offset of the cut, no partial character stays. */
static void long_messages_end_at_a_character(void **unused)
{
	char text[600] = "";
	struct neap_error err;

	(void)unused;
	for (int shift = 0; shift < 4; shift++) {
		memset(text, 'a', (size_t)shift);
		text[shift] = '\0';
		while (strlen(text) < 500)
			strcat(text, "\xe2\x82\xac\xc3\xa9\xf0\x9f\x8c\x8a"); /* of three, two and four bytes */
		neap_fail(&err, NEAP_EIO, "%s", text);
		size_t length = strlen(err.message);
		assert_true(length >= 252 && length <= 255);
		assert_memory_equal(err.message, text, length);
		assert_int_not_equal((unsigned char)text[length] & 0xc0, 0x80);

		/* The same if a prefix or an errno's text moves the end past the limit. */
		neap_error_prefix(&err, "prefix");
		length = strlen(err.message) - 8;
		assert_memory_equal(err.message + 8, text, length);
		assert_int_not_equal((unsigned char)text[length] & 0xc0, 0x80);
		neap_fail_errno(&err, EIO, "%s", text);
		char *tail = strstr(err.message, ": Input/output error");
		assert_non_null(tail);
		assert_string_equal(tail, ": Input/output error");
		length = (size_t)(tail - err.message);
		assert_true(length > 220);
		assert_memory_equal(err.message, text, length);
		assert_int_not_equal((unsigned char)text[length] & 0xc0, 0x80);
	}
}

static void buffers_grow_and_hand_over(void **unused)
{
	struct neap_buffer buffer = {0};
	char expected[5000] = "";

	(void)unused;
	assert_string_equal(neap_buffer_string(&buffer), "");
	for (int i = 0; i < 500; i++) {
		char part[16];
		snprintf(part, sizeof part, "%d,", i);
		strcat(expected, part);
		neap_buffer_format(&buffer, "%d%s", i, ",");
	}
	assert_string_equal(neap_buffer_string(&buffer), expected);
	assert_int_equal(buffer.length, strlen(expected));
	neap_buffer_append(&buffer, "a\0b", 3);
	assert_int_equal(buffer.length, strlen(expected) + 3);
	assert_memory_equal(buffer.data + strlen(expected), "a\0b\0", 4);
	neap_buffer_clear(&buffer);
	assert_string_equal(neap_buffer_string(&buffer), "");
	char *empty = neap_buffer_detach(&buffer);
	assert_string_equal(empty, "");
	free(empty);
	assert_null(buffer.data);

	neap_buffer_text(&buffer, "kept");
	neap_buffer_append(&buffer, "", SIZE_MAX / 2); /* more than there can be: marked, no crash */
	neap_buffer_text(&buffer, "lost");
	assert_int_equal(neap_buffer_status(&buffer, NULL), NEAP_ENOMEM);
	assert_string_equal(neap_buffer_string(&buffer), "kept");
	assert_null(neap_buffer_detach(&buffer));
	neap_buffer_fini(&buffer);
	neap_buffer_fini(NULL);
}

static void sizes_are_read(void **unused)
{
	static const struct {
		const char *text;
		uint64_t bytes;
	} good[] = {
		{"0", 0},
		{"1536", 1536},
		{"1.5GiB", 3 * NEAP_GIB / 2},
		{"20 MiB", 20 * NEAP_MIB},
		{"512kib", 512 * NEAP_KIB},
		{"512KB", 512 * NEAP_KIB},
		{"3T", 3 * 1024 * NEAP_GIB},
		{" 7 b ", 7},
		{".5K", 512},
		{"18446744073709551615", UINT64_MAX},
		{"0.0001K", 0},
	};
	static const struct {
		const char *text;
		uint32_t column;
	} bad[] = {
		{"", 1},
		{"  ", 3},
		{"-1", 1},
		{"GiB", 1},
		{"1.5.2G", 4},
		{"12 parsec", 4},
		{"1G 2", 4},
		{"0x10", 2},
		{"+4", 1},
		{"18446744073709551616", 1},
		{"16777216TiB", 1},
		{"1e3", 2},
		{".", 1},
		{"nan", 1},
		{"99999999999999999999999K", 1},
	};
	struct neap_error err;

	(void)unused;
	for (size_t i = 0; i < sizeof good / sizeof good[0]; i++) {
		uint64_t bytes = 99;
		assert_int_equal(neap_size_parse(good[i].text, &bytes, &err), NEAP_OK);
		assert_true(bytes == good[i].bytes);
	}
	for (size_t i = 0; i < sizeof bad / sizeof bad[0]; i++) {
		uint64_t bytes = 99;
		err = (struct neap_error){0};
		assert_int_equal(neap_size_parse(bad[i].text, &bytes, &err), NEAP_EPARSE);
		assert_int_equal(err.column, bad[i].column);
		assert_int_equal(err.line, 1);
		assert_true(bytes == 99);
	}
	neap_size_parse("12 parsec", &(uint64_t){0}, &err);
	assert_string_equal(err.message,
			    "unknown unit \"parsec\" in \"12 parsec\": expected a size such as 512MiB or 1.5GiB");
}

static void durations_are_read(void **unused)
{
	uint64_t ns = 0;
	struct neap_error err;

	(void)unused;
	assert_int_equal(neap_duration_parse("250ms", &ns, NULL), NEAP_OK);
	assert_true(ns == 250 * NEAP_NS_PER_MS);
	assert_int_equal(neap_duration_parse("2", &ns, NULL), NEAP_OK);
	assert_true(ns == 2 * NEAP_NS_PER_S);
	assert_int_equal(neap_duration_parse("1.5 m", &ns, NULL), NEAP_OK);
	assert_true(ns == 90 * NEAP_NS_PER_S);
	assert_int_equal(neap_duration_parse("2d", &ns, NULL), NEAP_OK);
	assert_true(ns == 172800 * NEAP_NS_PER_S);
	assert_int_equal(neap_duration_parse("5 weeks", &ns, &err), NEAP_EPARSE);
	assert_int_equal(err.column, 3);
	assert_int_equal(neap_duration_parse("300000000d", &ns, &err), NEAP_EPARSE);
	assert_true(ns == 172800 * NEAP_NS_PER_S);
}

static void numbers_are_read(void **unused)
{
	uint64_t value = 5;
	double number = 5;
	struct neap_error err;

	(void)unused;
	assert_int_equal(neap_u64_parse("18446744073709551615", &value, NULL), NEAP_OK);
	assert_true(value == UINT64_MAX);
	assert_int_equal(neap_u64_parse("18446744073709551616", &value, NULL), NEAP_EPARSE);
	assert_int_equal(neap_u64_parse("12a", &value, &err), NEAP_EPARSE);
	assert_int_equal(err.column, 3);
	assert_int_equal(neap_u64_parse(" 1", &value, NULL), NEAP_EPARSE);
	assert_int_equal(neap_u64_parse("", &value, NULL), NEAP_EPARSE);
	assert_int_equal(neap_double_parse("-1.25e-3", &number, NULL), NEAP_OK);
	assert_true(number == -1.25e-3);
	static const char *const bad[] = {"", "inf", "nan", "0x1p3", "1,5", "1e", "1e999", "1 ", "."};
	for (size_t i = 0; i < sizeof bad / sizeof bad[0]; i++)
		assert_int_equal(neap_double_parse(bad[i], &number, NULL), NEAP_EPARSE);
	assert_true(number == -1.25e-3);
}

static void figures_are_written(void **unused)
{
	char text[NEAP_UNITS_CAPACITY];

	(void)unused;
	assert_string_equal(neap_size_format(0, text), "0 B");
	assert_string_equal(neap_size_format(1023, text), "1023 B");
	assert_string_equal(neap_size_format(1536, text), "1.50 KiB");
	assert_string_equal(neap_size_format(1024 * NEAP_KIB - 1, text), "1.00 MiB");
	assert_string_equal(neap_size_format(23 * NEAP_MIB + 420 * NEAP_KIB, text), "23.4 MiB");
	assert_string_equal(neap_size_format(999 * NEAP_MIB, text), "999 MiB");
	assert_string_equal(neap_size_format(UINT64_MAX, text), "16.0 EiB");
	assert_string_equal(neap_size_format_delta(3 * (int64_t)NEAP_MIB, text), "+3.00 MiB");
	assert_string_equal(neap_size_format_delta(-512, text), "-512 B");
	assert_string_equal(neap_size_format_delta(0, text), "0 B");
	static const char *const ordinals[] = {"1st",  "2nd",  "3rd",  "4th",  "10th",
					       "11th", "12th", "13th", "21st", "111th"};
	static const uint64_t numbers[] = {1, 2, 3, 4, 10, 11, 12, 13, 21, 111};
	for (size_t i = 0; i < sizeof numbers / sizeof *numbers; i++)
		assert_string_equal(neap_nth(numbers[i], text), ordinals[i]);
	assert_string_equal(neap_size_format_delta(INT64_MIN, text), "-8.00 EiB");
	assert_string_equal(neap_duration_format(850, text), "850 ns");
	assert_string_equal(neap_duration_format(12345, text), "12.3 us");
	assert_string_equal(neap_duration_format(999499, text), "999 us");
	assert_string_equal(neap_duration_format(999500, text), "1.00 ms");
	assert_string_equal(neap_duration_format(4560000, text), "4.56 ms");
	assert_string_equal(neap_duration_format(1230000000, text), "1.23 s");
	assert_string_equal(neap_duration_format(125 * NEAP_NS_PER_S, text), "2 m 05 s");
	assert_string_equal(neap_duration_format(59990 * NEAP_NS_PER_MS, text), "1 m 00 s");
	assert_string_equal(neap_duration_format(11050 * NEAP_NS_PER_S, text), "3 h 04 m");
}

static void keep_line(void *context, enum neap_log_level level, const char *text)
{
	snprintf(context, 2000, "%d %s", (int)level, text);
}

static void log_lines_are_whole(void **unused)
{
	char kept[2000] = "";
	struct neap_log_sink sink = {keep_line, kept}, empty = {0};

	(void)unused;
	neap_log(&sink, NEAP_LOG_WARNING, "%d of %d", 1, 2);
	assert_string_equal(kept, "2 1 of 2");
	neap_log(&sink, NEAP_LOG_INFO, "%1500s", "x");
	assert_int_equal(strlen(kept), 2 + 1023);
	neap_log(NULL, NEAP_LOG_INFO, "x");
	neap_log(&empty, NEAP_LOG_INFO, "x");
	assert_true(neap_clock_now(neap_clock_system()) <= neap_clock_now(neap_clock_system()));
}

int main(void)
{
	const struct CMUnitTest tests[] = {
		cmocka_unit_test(errors_are_filled),          cmocka_unit_test(long_messages_end_at_a_character),
		cmocka_unit_test(buffers_grow_and_hand_over), cmocka_unit_test(sizes_are_read),
		cmocka_unit_test(durations_are_read),         cmocka_unit_test(numbers_are_read),
		cmocka_unit_test(figures_are_written),        cmocka_unit_test(log_lines_are_whole),
	};

	return cmocka_run_group_tests(tests, NULL, NULL);
}
