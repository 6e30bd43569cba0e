/* base/units.c: numbers with units, read strictly and written for people.
 *
 * A number is digits with at most one point ("1", "1.5", ".5"). strtod does not read it, because strtod follows the
 * host's locale, and accepts signs, hex, inf and nan. A fraction is as exact as a double, which is enough for three
 * significant digits; a number without a point is exact in all 64 bits.
 */
#include "base/units.h"
#include "base/clock.h"
#include "base/error.h"

#include <inttypes.h>
#include <locale.h>
#include <math.h>
#include <stdbool.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <strings.h>

struct unit {
	const char *name;
	uint64_t factor;
};

static const struct unit size_units[] = {
	{"B", 1},
	{"K", NEAP_KIB},
	{"KB", NEAP_KIB},
	{"KiB", NEAP_KIB},
	{"M", NEAP_MIB},
	{"MB", NEAP_MIB},
	{"MiB", NEAP_MIB},
	{"G", NEAP_GIB},
	{"GB", NEAP_GIB},
	{"GiB", NEAP_GIB},
	{"T", 1024 * NEAP_GIB},
	{"TB", 1024 * NEAP_GIB},
	{"TiB", 1024 * NEAP_GIB},
	{NULL, 0},
};

static const struct unit duration_units[] = {
	{"ns", 1},
	{"us", 1000},
	{"ms", NEAP_NS_PER_MS},
	{"s", NEAP_NS_PER_S},
	{"m", 60 * NEAP_NS_PER_S},
	{"min", 60 * NEAP_NS_PER_S},
	{"h", 3600 * NEAP_NS_PER_S},
	{"d", 86400 * NEAP_NS_PER_S},
	{NULL, 0},
};

static bool is_digit(char c) { return c >= '0' && c <= '9'; }
static bool is_space(char c) { return c == ' ' || c == '\t' || c == '\n' || c == '\r'; }

static const char *skip_spaces(const char *text)
{
	while (is_space(*text))
		text++;
	return text;
}

static uint32_t column_of(const char *text, const char *at) { return (uint32_t)(at - text) + 1; }

/* Reads digits[.digits] at *at. `whole` is the integer part, `fraction` what follows the point. */
static bool read_decimal(const char **at, uint64_t *ret_whole, double *ret_fraction, bool *ret_overflow)
{
	const char *p = *at;
	uint64_t whole = 0;
	double fraction = 0, weight = 0.1;
	bool digits = false, overflow = false;

	for (; is_digit(*p); p++, digits = true) {
		uint64_t next;
		overflow |= __builtin_mul_overflow(whole, 10, &next) ||
			    __builtin_add_overflow(next, (uint64_t)(*p - '0'), &next);
		whole = next;
	}
	if (*p == '.') {
		p++;
		for (; is_digit(*p); p++, digits = true, weight /= 10)
			fraction += (*p - '0') * weight;
	}
	if (!digits)
		return false;
	*at = p;
	*ret_whole = whole;
	*ret_fraction = fraction;
	*ret_overflow = overflow;
	return true;
}

static const struct unit *find_unit(const struct unit *units, const char *text, size_t length)
{
	for (; units->name; units++)
		if (strlen(units->name) == length && strncasecmp(units->name, text, length) == 0)
			return units;
	return NULL;
}

static enum neap_status parse_with_unit(const char *text, const char *what, const struct unit *units,
					uint64_t bare_factor, uint64_t *ret_value, struct neap_error *err)
{
	const char *at = skip_spaces(text);
	const char *number = at;
	uint64_t whole, value, factor = bare_factor;
	double fraction;
	bool overflow;

	if (!read_decimal(&at, &whole, &fraction, &overflow))
		return neap_fail_at(err, 1, column_of(text, at), "expected %s, not \"%.60s\"", what, text);
	at = skip_spaces(at);
	if (*at) {
		size_t length = strcspn(at, " \t\r\n");
		const struct unit *unit = find_unit(units, at, length);
		if (!unit)
			return neap_fail_at(err, 1, column_of(text, at),
					    "unknown unit \"%.20s\" in \"%.60s\": expected %s", at, text, what);
		factor = unit->factor;
		at = skip_spaces(at + length);
		if (*at)
			return neap_fail_at(err, 1, column_of(text, at),
					    "\"%.20s\" after the unit in \"%.60s\": expected %s", at, text, what);
	}
	overflow |= __builtin_mul_overflow(whole, factor, &value) ||
		    __builtin_add_overflow(value, (uint64_t)(fraction * (double)factor + 0.5), &value);
	if (overflow)
		return neap_fail_at(err, 1, column_of(text, number), "\"%.60s\" is too large for 64 bits", text);
	*ret_value = value;
	return NEAP_OK;
}

enum neap_status neap_size_parse(const char *text, uint64_t *ret_bytes, struct neap_error *err)
{
	return parse_with_unit(text, "a size such as 512MiB or 1.5GiB", size_units, 1, ret_bytes, err);
}

enum neap_status neap_duration_parse(const char *text, uint64_t *ret_ns, struct neap_error *err)
{
	return parse_with_unit(text, "a duration such as 250ms, 2s or 1.5h", duration_units, NEAP_NS_PER_S, ret_ns,
			       err);
}

enum neap_status neap_u64_parse(const char *text, uint64_t *ret_value, struct neap_error *err)
{
	const char *at = text;
	uint64_t value = 0;

	if (!is_digit(*at))
		return neap_fail_at(err, 1, 1, "expected a whole number, not \"%.60s\"", text);
	for (; is_digit(*at); at++)
		if (__builtin_mul_overflow(value, 10, &value) ||
		    __builtin_add_overflow(value, (uint64_t)(*at - '0'), &value))
			return neap_fail_at(err, 1, 1, "\"%.60s\" is too large for 64 bits", text);
	if (*at)
		return neap_fail_at(err, 1, column_of(text, at), "expected a whole number, not \"%.60s\"", text);
	*ret_value = value;
	return NEAP_OK;
}

enum neap_status neap_double_parse(const char *text, double *ret_value, struct neap_error *err)
{
	/* strtod in the C locale rounds correctly. First refuse all that it accepts beyond decimal numbers. */
	const char *at = text;
	bool digits = false;

	if (*at == '+' || *at == '-')
		at++;
	for (; is_digit(*at); at++)
		digits = true;
	if (*at == '.')
		for (at++; is_digit(*at); at++)
			digits = true;
	if (digits && (*at == 'e' || *at == 'E')) {
		at++;
		if (*at == '+' || *at == '-')
			at++;
		digits = is_digit(*at);
		while (is_digit(*at))
			at++;
	}
	if (!digits || *at)
		return neap_fail_at(err, 1, column_of(text, at), "expected a number, not \"%.60s\"", text);

	locale_t c_locale = newlocale(LC_NUMERIC_MASK, "C", (locale_t)0);
	if (!c_locale)
		return neap_fail(err, NEAP_ENOMEM, "reading the number \"%.60s\": out of host memory", text);
	double value = strtod_l(text, NULL, c_locale);
	freelocale(c_locale);
	if (!isfinite(value))
		return neap_fail_at(err, 1, 1, "\"%.60s\" is too large", text);
	*ret_value = value;
	return NEAP_OK;
}

/* Writes `value`, at least 1 and below 1024, with three significant digits, and with '.' in every locale. */
static void format_three_digits(char *text, size_t capacity, double value, const char *unit)
{
	int decimals = value < 9.995 ? 2 : value < 99.95 ? 1 : 0;
	uint64_t scale = decimals == 2 ? 100 : decimals == 1 ? 10 : 1;
	uint64_t scaled = (uint64_t)(value * (double)scale + 0.5);

	if (decimals == 0)
		snprintf(text, capacity, "%" PRIu64 " %s", scaled, unit);
	else
		snprintf(text, capacity, "%" PRIu64 ".%0*" PRIu64 " %s", scaled / scale, decimals, scaled % scale,
			 unit);
}

enum neap_status neap_fraction_parse(const char *text, double *ret_fraction, struct neap_error *err)
{
	double fraction;
	if (neap_double_parse(text, &fraction, NULL) != NEAP_OK || !(fraction > 0 && fraction <= 1))
		return neap_fail(err, NEAP_EPARSE, "a fraction is a number above 0 and at most 1, not '%.64s'", text);
	*ret_fraction = fraction;
	return NEAP_OK;
}

const char *neap_size_format(uint64_t bytes, char text[NEAP_UNITS_CAPACITY])
{
	static const char *const units[] = {"KiB", "MiB", "GiB", "TiB", "PiB", "EiB"};
	double value = (double)bytes / 1024;
	size_t unit = 0;

	if (bytes < 1024) {
		snprintf(text, NEAP_UNITS_CAPACITY, "%" PRIu64 " B", bytes);
		return text;
	}
	/* 1023.5 would be written as 1024. */
	for (; value >= 1023.5 && unit + 1 < sizeof units / sizeof units[0]; unit++)
		value /= 1024;
	if (value < 1)
		value = 1;
	format_three_digits(text, NEAP_UNITS_CAPACITY, value, units[unit]);
	return text;
}

const char *neap_size_format_delta(int64_t bytes, char text[NEAP_UNITS_CAPACITY])
{
	char size[NEAP_UNITS_CAPACITY];

	if (bytes == 0)
		return neap_size_format(0, text);
	neap_size_format(bytes < 0 ? 0 - (uint64_t)bytes : (uint64_t)bytes, size);
	snprintf(text, NEAP_UNITS_CAPACITY, "%c%.30s", bytes < 0 ? '-' : '+', size);
	return text;
}

const char *neap_nth(uint64_t number, char text[NEAP_UNITS_CAPACITY])
{
	static const char *const endings[] = {"th", "st", "nd", "rd"};
	uint64_t last = number % 10;
	bool teen = number / 10 % 10 == 1;
	snprintf(text, NEAP_UNITS_CAPACITY, "%" PRIu64 "%s", number, endings[!teen && last < 4 ? last : 0]);
	return text;
}

const char *neap_duration_format(uint64_t ns, char text[NEAP_UNITS_CAPACITY])
{
	uint64_t seconds = ns / NEAP_NS_PER_S + (ns % NEAP_NS_PER_S >= NEAP_NS_PER_S / 2);

	if (ns < 1000)
		snprintf(text, NEAP_UNITS_CAPACITY, "%" PRIu64 " ns", ns);
	else if (ns < 999500)
		format_three_digits(text, NEAP_UNITS_CAPACITY, (double)ns / 1e3, "us");
	else if (ns < 999500000)
		format_three_digits(text, NEAP_UNITS_CAPACITY, (double)ns / 1e6, "ms");
	else if (ns < 59950000000ull)
		format_three_digits(text, NEAP_UNITS_CAPACITY, (double)ns / 1e9, "s");
	else if (seconds < 3600)
		snprintf(text, NEAP_UNITS_CAPACITY, "%" PRIu64 " m %02" PRIu64 " s", seconds / 60, seconds % 60);
	else
		snprintf(text, NEAP_UNITS_CAPACITY, "%" PRIu64 " h %02" PRIu64 " m", seconds / 3600,
			 seconds / 60 % 60);
	return text;
}
