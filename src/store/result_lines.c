/* store/result_lines.c: reads the fields of a run's result from the form that neap writes, without building JSON.
 *
 *   {\n "schema": 1,\n "run_id": "...",\n ... all fields in their order ... ,\n "samples": ...
 *
 * A list of all runs reads nothing else, so its time is that of this function. It accepts only values that it reads
 * exactly as neap_result_parse does. For others (an escape such as \u0001, another order, a number out of range) it
 * returns false, and the caller parses the whole text, which also finds the error if there is one. It does not see
 * damage in the lists: `neap history` lists such a run without an error, and --json, which reads them, fails.
 */
#include "store/result.h"

#include "base/printable.h"
#include "store/json.h"

#include <math.h>
#include <stdlib.h>
#include <string.h>

/* These functions read one value at `at`. They return its end; NULL: not a value of the simple form. */

static const char *read_digits(const char *at, uint64_t most, uint64_t *ret_number)
{
	const char *start = at;
	uint64_t number = 0;
	for (; *at >= '0' && *at <= '9' && at - start < 19; at++)
		number = 10 * number + (uint64_t)(*at - '0');
	bool plain = at > start && (*start != '0' || at == start + 1) && !(*at >= '0' && *at <= '9');
	*ret_number = number;
	return plain && number <= most ? at : NULL;
}

static const char *read_real(const char *at, enum neap_result_kind kind, double *ret_number)
{
	char text[64];
	json_t *root = NULL;
	if (!strncmp(at, "0.0,", 4)) {
		*ret_number = 0;
		return at + 3;
	}
	if (kind == NEAP_RESULT_LOSS && !strncmp(at, "null,", 5)) {
		*ret_number = (double)NAN;
		return at + 4;
	}
	size_t length = strcspn(at, ",");
	if (length > sizeof text - 3)
		return NULL;
	text[0] = '[';
	memcpy(text + 1, at, length);
	text[length + 1] = ']';
	const json_t *value =
		neap_json_parse("a number", text, length + 2, &root, NULL) ? NULL : json_array_get(root, 0);
	double number = json_is_number(value) ? json_number_value(value) : (double)NAN;
	json_decref(root);
	if (!isfinite(number) || (kind == NEAP_RESULT_SHARE && (number < 0 || number > 1)))
		return NULL;
	*ret_number = number;
	return at + length;
}

/* The end of a text without its quotes; NULL: it has bytes or escapes that need the whole parser. */
static const char *text_end(const char *at)
{
	uint32_t character;
	while (*at != '"') {
		if ((unsigned char)*at < 0x20 || (*at == '\\' && !strchr("\"\\/nrt", at[1])) ||
		    (*at == '\\' && !at[1]))
			return NULL;
		size_t length = *at == '\\'                 ? 2
				: (unsigned char)*at < 0x80 ? 1
							    : neap_utf8_next(at, strnlen(at, 4), &character);
		if ((unsigned char)*at >= 0x80 && character == UINT32_MAX)
			return NULL;
		at += length;
	}
	return at;
}

/* Replaces *field only where it differs: most texts of a list are empty or alike. */
static const char *read_text(const char *at, char **field)
{
	const char *end = *at == '"' ? text_end(++at) : NULL;
	if (!end || (!strncmp(*field, at, (size_t)(end - at)) && !(*field)[end - at] &&
		     !memchr(at, '\\', (size_t)(end - at))))
		return end ? end + 1 : NULL;
	char *copy = malloc((size_t)(end - at) + 1), *to = copy;
	for (; copy && at < end; at++)
		*to++ = *at != '\\' ? *at : *++at == 'n' ? '\n' : *at == 'r' ? '\r' : *at == 't' ? '\t' : *at;
	if (!copy)
		return NULL;
	*to = '\0';
	free(*field);
	*field = copy;
	return end + 1;
}

static const char *read_outcome(const char *at, enum neap_outcome *ret_outcome)
{
	char name[32];
	size_t length = *at == '"' ? strcspn(++at, "\"") : sizeof name;
	if (length >= sizeof name || at[length] != '"')
		return NULL;
	memcpy(name, at, length);
	name[length] = '\0';
	return neap_outcome_named(name, ret_outcome) ? at + length + 1 : NULL;
}

static const char *read_value(const char *at, const struct neap_result_field *field, struct neap_result *result)
{
	char *place = (char *)result + field->offset;
	uint64_t number = 0;
	switch (field->kind) {
	case NEAP_RESULT_TEXT:
		return read_text(at, (char **)place);
	case NEAP_RESULT_BYTES:
	case NEAP_RESULT_NS:
	case NEAP_RESULT_WALL:
	case NEAP_RESULT_COUNT:
		return read_digits(at, INT64_MAX, (uint64_t *)place);
	case NEAP_RESULT_SMALL:
		at = read_digits(at, UINT32_MAX, &number);
		*(uint32_t *)place = (uint32_t)number;
		return at;
	case NEAP_RESULT_STATUS:
		at = read_digits(at, 255, &number);
		*(int *)place = (int)number;
		return at;
	case NEAP_RESULT_NUMBER:
	case NEAP_RESULT_SHARE:
	case NEAP_RESULT_LOSS:
		return read_real(at, field->kind, (double *)place);
	case NEAP_RESULT_BOOL:
		*(bool *)place = *at == 't';
		return !strncmp(at, "true", 4) ? at + 4 : !strncmp(at, "false", 5) ? at + 5 : NULL;
	case NEAP_RESULT_OUTCOME:
		return read_outcome(at, (enum neap_outcome *)place);
	}
	return NULL;
}

bool neap_result_read_lines(const char *text, struct neap_result *result)
{
	static const struct {
		const char *text;
		size_t length;
	} keys[] = {
#define X(KIND, name, label) {",\n \"" #name "\": ", sizeof ",\n \"" #name "\": " - 1},
#include "store/result_fields.h"
#undef X
	};
	static const char begin[] = "{\n \"schema\": 1";
	if (strncmp(text, begin, sizeof begin - 1))
		return false;
	text += sizeof begin - 1;
	for (size_t i = 0; i < NEAP_RESULT_FIELDS && text; i++) {
		if (strncmp(text, keys[i].text, keys[i].length))
			return false;
		text = read_value(text + keys[i].length, &neap_result_fields[i], result);
	}
	return text && !strncmp(text, ",\n \"samples\": [", 15);
}
