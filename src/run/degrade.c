/* run/degrade.c: scans the rules of a ladder, and halves and doubles whole numbers that are kept as text. */
#include "run/degrade.h"

#include "base/error.h"
#include "base/units.h"

#include <inttypes.h>
#include <stdio.h>
#include <string.h>

static const char *const verb_names[] = {"halve", "double", "set", "enable"};
#define VERBS (sizeof verb_names / sizeof *verb_names)

static const char *const switches[][2] = {
	{"0", "1"}, {"false", "true"}, {"off", "on"}, {"no", "yes"}, {"False", "True"}};
#define SWITCHES (sizeof switches / sizeof *switches)

/* No ctype: the grammar is the same in every locale. */
static bool is_letter(char c) { return (c >= 'a' && c <= 'z') || (c >= 'A' && c <= 'Z') || c == '_'; }
static bool is_name(char c) { return is_letter(c) || (c >= '0' && c <= '9') || c == '-' || c == '.'; }

static size_t name_length(const char *text)
{
	if (!is_letter(*text))
		return 0;
	size_t length = 1;
	while (is_name(text[length]))
		length++;
	return length;
}

static struct neap_parameter *find(const struct neap_parameters *parameters, const char *name, size_t length)
{
	for (size_t i = 0; i < parameters->count; i++) {
		const struct neap_parameter *item = &parameters->items[i];
		if (strlen(item->name) == length && !memcmp(item->name, name, length))
			return (struct neap_parameter *)(uintptr_t)item;
	}
	return NULL;
}

const char *neap_parameters_get(const struct neap_parameters *parameters, const char *name)
{
	const struct neap_parameter *item = find(parameters, name, strlen(name));
	return item ? item->value : NULL;
}

enum neap_status neap_parameters_add(struct neap_parameters *parameters, const char *text, struct neap_error *err)
{
	size_t length = name_length(text);
	if (!length || length >= NEAP_PARAMETER_NAME_CAPACITY)
		return neap_fail_at(err, 1, 1,
				    "parameter '%s': expected NAME=VALUE, the name of letters, digits, '_', "
				    "'-' and '.', at most %d of them",
				    text, NEAP_PARAMETER_NAME_CAPACITY - 1);
	if (text[length] != '=')
		return neap_fail_at(err, 1, (uint32_t)length + 1, "parameter '%s': expected '=' after the name",
				    text);
	if (strlen(text + length + 1) >= NEAP_PARAMETER_VALUE_CAPACITY)
		return neap_fail_at(err, 1, (uint32_t)length + 2,
				    "parameter '%.*s': its value is longer than %d bytes", (int)length, text,
				    NEAP_PARAMETER_VALUE_CAPACITY - 1);
	if (find(parameters, text, length))
		return neap_fail(err, NEAP_EEXIST, "parameter '%.*s' is given twice", (int)length, text);
	if (parameters->count == NEAP_PARAMETERS)
		return neap_fail(err, NEAP_EINVAL, "more than %d parameters", NEAP_PARAMETERS);
	struct neap_parameter *item = &parameters->items[parameters->count++];
	*item = (struct neap_parameter){0};
	memcpy(item->name, text, length);
	strcpy(item->value, text + length + 1);
	return NEAP_OK;
}

enum neap_status neap_parameters_expand(const struct neap_parameters *parameters, const char *word,
					struct neap_buffer *out, struct neap_error *err)
{
	for (const char *p = word; *p;) {
		bool escaped = p[0] == '{' && p[1] == '{';
		size_t length = *p == '{' ? name_length(p + 1 + escaped) : 0;
		const char *end = p + 1 + escaped + length;
		if (!length || *end != '}' || (escaped && end[1] != '}') || (p > word && p[-1] == '$')) {
			neap_buffer_append(out, p++, 1);
		} else if (escaped) {
			neap_buffer_append(out, p + 1, length + 2);
			p = end + 2;
		} else {
			const struct neap_parameter *item = find(parameters, p + 1, length);
			if (!item)
				return neap_fail(err, NEAP_EINVAL,
						 "'%s': there is no parameter '%.*s' (give --param "
						 "%.*s=VALUE, or write {{%.*s}} for the text itself)",
						 word, (int)length, p + 1, (int)length, p + 1, (int)length, p + 1);
			neap_buffer_text(out, item->value);
			p = end + 1;
		}
	}
	return neap_buffer_status(out, err);
}

void neap_parameters_text(const struct neap_parameters *parameters, struct neap_buffer *out)
{
	for (size_t i = 0; i < parameters->count; i++)
		neap_buffer_format(out, "%s%s=%s", i ? " " : "", parameters->items[i].name,
				   parameters->items[i].value);
}

void neap_parameters_difference(const struct neap_parameters *before, const struct neap_parameters *after,
				struct neap_buffer *out)
{
	const char *separator = "";
	for (size_t i = 0; i < before->count && i < after->count; i++) {
		if (!strcmp(before->items[i].value, after->items[i].value))
			continue;
		neap_buffer_format(out, "%s%s %s -> %s", separator, before->items[i].name, before->items[i].value,
				   after->items[i].value);
		separator = ", ";
	}
}

struct scanner {
	const char *start, *at;
	struct neap_error *err;
};

static void skip_blanks(struct scanner *scan)
{
	while (*scan->at == ' ' || *scan->at == '\t')
		scan->at++;
}

static enum neap_status expected(const struct scanner *scan, const char *place, const char *what)
{
	char found[40];
	size_t length = strcspn(place, " \t,;=");
	if (!length && *place)
		length = 1;
	snprintf(found, sizeof found, "'%.*s'", (int)(length > 30 ? 30 : length), place);
	return neap_fail_at(scan->err, 1, (uint32_t)(place - scan->start) + 1, "expected %s, found %s", what,
			    *place ? found : "the end");
}

static enum neap_status scan_verb(struct scanner *scan, enum neap_verb *ret_verb)
{
	size_t length = strcspn(scan->at, " \t,;=");
	for (size_t i = 0; i < VERBS; i++) {
		if (strlen(verb_names[i]) == length && !memcmp(scan->at, verb_names[i], length)) {
			scan->at += length;
			*ret_verb = (enum neap_verb)i;
			return NEAP_OK;
		}
	}
	return expected(scan, scan->at, "a verb (halve, double, set or enable)");
}

static bool on_or_off(const char *value)
{
	for (size_t i = 0; i < SWITCHES; i++)
		if (!strcmp(value, switches[i][0]) || !strcmp(value, switches[i][1]))
			return true;
	return false;
}

static enum neap_status check_value(const struct scanner *scan, const char *place, enum neap_verb verb,
				    const struct neap_parameter *item)
{
	uint64_t number = 0;
	bool whole = !neap_u64_parse(item->value, &number, NULL) && number > 0;
	if ((verb == NEAP_VERB_HALVE || verb == NEAP_VERB_DOUBLE) && !whole)
		return neap_fail_at(scan->err, 1, (uint32_t)(place - scan->start) + 1,
				    "%s %s: its value must be a whole number from 1, not '%s'", verb_names[verb],
				    item->name, item->value);
	if (verb == NEAP_VERB_ENABLE && !on_or_off(item->value))
		return neap_fail_at(scan->err, 1, (uint32_t)(place - scan->start) + 1,
				    "enable %s: its value must be 0, false, off or no, not '%s'", item->name,
				    item->value);
	return NEAP_OK;
}

static enum neap_status scan_value(struct scanner *scan, struct neap_change *change)
{
	skip_blanks(scan);
	if (*scan->at != '=')
		return expected(scan, scan->at, "'=' and a value");
	scan->at++;
	skip_blanks(scan);
	size_t length = strcspn(scan->at, " \t,;");
	if (!length || length >= sizeof change->value)
		return expected(scan, scan->at, "a value of at most 255 bytes");
	memcpy(change->value, scan->at, length);
	scan->at += length;
	return NEAP_OK;
}

static enum neap_status scan_change(struct scanner *scan, const struct neap_parameters *parameters,
				    struct neap_change *change)
{
	*change = (struct neap_change){0};
	skip_blanks(scan);
	enum neap_status status = scan_verb(scan, &change->verb);
	if (status)
		return status;
	skip_blanks(scan);
	const char *place = scan->at;
	size_t length = name_length(place);
	if (!length)
		return expected(scan, place, "the name of a parameter");
	const struct neap_parameter *item = find(parameters, place, length);
	if (!item)
		return neap_fail_at(scan->err, 1, (uint32_t)(place - scan->start) + 1,
				    "there is no parameter '%.*s' (give --param %.*s=VALUE)", (int)length, place,
				    (int)length, place);
	memcpy(change->name, place, length);
	scan->at += length;
	if (change->verb == NEAP_VERB_SET)
		return scan_value(scan, change);
	return check_value(scan, place, change->verb, item);
}

enum neap_status neap_ladder_parse(const char *rules, const struct neap_parameters *parameters,
				   struct neap_ladder *ret_ladder, struct neap_error *err)
{
	struct neap_ladder ladder = {0};
	struct scanner scan = {rules, rules, err};
	for (;;) {
		if (ladder.count == NEAP_LADDER_RUNGS)
			return expected(&scan, scan.at, "at most 16 rungs");
		size_t count = ladder.rungs[ladder.count].count;
		if (count == NEAP_RUNG_CHANGES)
			return expected(&scan, scan.at, "at most 8 changes in a rung");
		struct neap_change *change = &ladder.rungs[ladder.count].changes[count];
		enum neap_status status = scan_change(&scan, parameters, change);
		if (status)
			return status;
		for (size_t i = 0; i < count; i++)
			if (!strcmp(ladder.rungs[ladder.count].changes[i].name, change->name))
				return neap_fail_at(err, 1, (uint32_t)(scan.at - rules) + 1,
						    "'%s' is changed twice in one rung", change->name);
		ladder.rungs[ladder.count].count++;
		skip_blanks(&scan);
		if (*scan.at == ';' || !*scan.at)
			ladder.count++;
		if (!*scan.at)
			break;
		if (*scan.at != ',' && *scan.at != ';')
			return expected(&scan, scan.at, "',', ';' or the end");
		scan.at++;
	}
	*ret_ladder = ladder;
	return NEAP_OK;
}

/* False: the change does not apply. A change whose value is already set applies and changes nothing. */
static bool change_value(const struct neap_change *change, struct neap_parameter *item)
{
	uint64_t number = 0;
	switch (change->verb) {
	case NEAP_VERB_SET:
		strcpy(item->value, change->value);
		return true;
	case NEAP_VERB_ENABLE:
		for (size_t i = 0; i < SWITCHES; i++)
			if (!strcmp(item->value, switches[i][0]))
				strcpy(item->value, switches[i][1]);
		return on_or_off(item->value);
	case NEAP_VERB_HALVE:
		if (neap_u64_parse(item->value, &number, NULL) || number == 0 || number % 2)
			return false;
		snprintf(item->value, sizeof item->value, "%" PRIu64, number / 2);
		return true;
	case NEAP_VERB_DOUBLE:
		if (neap_u64_parse(item->value, &number, NULL) || number == 0 || number > INT64_MAX / 2)
			return false;
		snprintf(item->value, sizeof item->value, "%" PRIu64, number * 2);
		return true;
	}
	return false;
}

bool neap_ladder_descend(const struct neap_ladder *ladder, struct neap_parameters *parameters, size_t *rung)
{
	for (size_t r = *rung; r < ladder->count; r++) {
		struct neap_parameters after = *parameters;
		bool applies = true, changed = false;
		for (size_t i = 0; applies && i < ladder->rungs[r].count; i++) {
			const struct neap_change *change = &ladder->rungs[r].changes[i];
			struct neap_parameter *item = find(&after, change->name, strlen(change->name));
			const char *before = neap_parameters_get(parameters, change->name);
			applies = item && change_value(change, item);
			changed = changed || (applies && strcmp(before, item->value) != 0);
		}
		if (applies && changed) {
			*parameters = after;
			*rung = r;
			return true;
		}
	}
	return false;
}
