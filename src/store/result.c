/* store/result.c: a run's result, and result.json, which has one key a line:
 *
 *   {
 *    "schema": 1,
 *    "run_id": "...",
 *    "exit_status": 1,
 *    ...
 *    "samples": [[time_ns, allocated_bytes, reserved_bytes, device_bytes or null], ...],
 *    "marks": [[time_ns, name, value], ...],
 *    "ranks": [{"role": "rank", "rank": 0, "local_rank": 0, "pid": 4711, "device": "GPU-...", ...}, ...]
 *   }
 *
 * Keys are the names of the struct's fields. Versions may differ in their fields: unknown keys are skipped, and what
 * a file does not have is 0 or "". `outcome` must be there. Another schema is refused. Bytes of a command line that
 * are not UTF-8 are written as '?'.
 */
#include "store/result.h"

#include "base/error.h"
#include "base/file.h"
#include "store/json.h"

#include <math.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#define LIMIT_BYTES   (64u << 20)
#define LIMIT_SAMPLES 200000u

const struct neap_result_field neap_result_fields[NEAP_RESULT_FIELDS] = {
#define X(KIND, name, label) {#name, label, NEAP_RESULT_##KIND, offsetof(struct neap_result, name)},
#include "store/result_fields.h"
#undef X
};

static const char *const outcome_names[NEAP_OUTCOME_COUNT] = {
	[NEAP_OUTCOME_OK] = "ok",
	[NEAP_OUTCOME_FAILED] = "failed",
	[NEAP_OUTCOME_OOM] = "oom",
	[NEAP_OUTCOME_HOST_OOM] = "host oom",
	[NEAP_OUTCOME_SIGNALED] = "signaled",
	[NEAP_OUTCOME_TIMEOUT] = "timeout",
	[NEAP_OUTCOME_CANCELED] = "canceled",
	[NEAP_OUTCOME_KILLED] = "killed",
	[NEAP_OUTCOME_NOT_FOUND] = "not found",
	[NEAP_OUTCOME_NO_MEMORY] = "no memory",
	[NEAP_OUTCOME_LOST] = "lost",
	[NEAP_OUTCOME_STOPPED] = "stopped early",
	[NEAP_OUTCOME_NO_DEVICE] = "device lost",
};

const char *neap_outcome_name(enum neap_outcome outcome)
{
	return (unsigned)outcome < NEAP_OUTCOME_COUNT ? outcome_names[outcome] : "unknown";
}

bool neap_outcome_named(const char *name, enum neap_outcome *ret_outcome)
{
	for (int i = 0; i < NEAP_OUTCOME_COUNT; i++) {
		if (strcmp(name, outcome_names[i]))
			continue;
		*ret_outcome = (enum neap_outcome)i;
		return true;
	}
	return false;
}

static const char *const role_names[NEAP_ROLE_COUNT] = {
	[NEAP_ROLE_PROCESS] = "process",
	[NEAP_ROLE_RANK] = "rank",
	[NEAP_ROLE_WORKER] = "worker",
};

const char *neap_role_name(enum neap_role role)
{
	return (unsigned)role < NEAP_ROLE_COUNT ? role_names[role] : role_names[NEAP_ROLE_PROCESS];
}

enum neap_status neap_result_set(char **field, const char *text, struct neap_error *err)
{
	char *copy = strdup(text ? text : "");
	if (!copy)
		return neap_fail(err, NEAP_ENOMEM, "out of host memory while noting a run's result");
	free(*field);
	*field = copy;
	return NEAP_OK;
}

enum neap_status neap_result_init(struct neap_result *result, struct neap_error *err)
{
	struct neap_result fresh = {.last_loss = NAN};
	for (size_t i = 0; i < NEAP_RESULT_FIELDS; i++) {
		if (neap_result_fields[i].kind != NEAP_RESULT_TEXT)
			continue;
		char **text = (char **)((char *)&fresh + neap_result_fields[i].offset);
		enum neap_status status = neap_result_set(text, "", err);
		if (status) {
			neap_result_fini(&fresh);
			return status;
		}
	}
	*result = fresh;
	return NEAP_OK;
}

void neap_result_fini(struct neap_result *result)
{
	if (!result)
		return;
	for (size_t i = 0; i < NEAP_RESULT_FIELDS; i++)
		if (neap_result_fields[i].kind == NEAP_RESULT_TEXT)
			free(*(char *const *)neap_result_at(result, &neap_result_fields[i]));
	free(result->samples);
	free(result->marks);
	free(result->ranks);
	*result = (struct neap_result){.last_loss = NAN};
}

/* --- the lists: samples, marks, ranks --- */

static bool get_u64(const json_t *value, uint64_t *ret_number)
{
	if (!json_is_integer(value) || json_integer_value(value) < 0)
		return false;
	*ret_number = (uint64_t)json_integer_value(value);
	return true;
}

static json_t *write_sample(const void *item)
{
	const struct neap_result_sample *sample = item;
	return json_pack("[o, o, o, o]", neap_json_number(sample->time_ns), neap_json_number(sample->allocated_bytes),
			 neap_json_number(sample->reserved_bytes), neap_json_known(sample->device_bytes));
}

static bool read_sample(const json_t *row, void *item)
{
	struct neap_result_sample *sample = item;
	const json_t *device = json_array_get(row, 3);
	sample->device_bytes = UINT64_MAX;
	return json_array_size(row) == 4 && get_u64(json_array_get(row, 0), &sample->time_ns) &&
	       get_u64(json_array_get(row, 1), &sample->allocated_bytes) &&
	       get_u64(json_array_get(row, 2), &sample->reserved_bytes) &&
	       (json_is_null(device) || get_u64(device, &sample->device_bytes));
}

static json_t *write_mark(const void *item)
{
	const struct neap_result_mark *mark = item;
	return json_pack("[o, o, o]", neap_json_number(mark->time_ns), neap_json_text(mark->name),
			 neap_json_number(mark->value));
}

static bool read_mark(const json_t *row, void *item)
{
	struct neap_result_mark *mark = item;
	const char *name = json_string_value(json_array_get(row, 1));
	snprintf(mark->name, sizeof mark->name, "%s", name ? name : "");
	return json_array_size(row) == 3 && get_u64(json_array_get(row, 0), &mark->time_ns) && name &&
	       get_u64(json_array_get(row, 2), &mark->value);
}

/* The figures of a rank. */
static const struct figure {
	const char *key;
	size_t offset;
	bool nullable;
} rank_figures[] = {
	{"rank", offsetof(struct neap_result_rank, rank), true},
	{"local_rank", offsetof(struct neap_result_rank, local_rank), true},
	{"pid", offsetof(struct neap_result_rank, pid), false},
	{"peak_allocated_bytes", offsetof(struct neap_result_rank, peak_allocated_bytes), false},
	{"peak_reserved_bytes", offsetof(struct neap_result_rank, peak_reserved_bytes), false},
	{"steps", offsetof(struct neap_result_rank, steps), false},
	{"ooms", offsetof(struct neap_result_rank, ooms), false},
};
#define RANK_FIGURES (sizeof rank_figures / sizeof *rank_figures)

static json_t *write_rank(const void *item)
{
	const struct neap_result_rank *rank = item;
	json_t *object = json_object();
	neap_json_set(object, "role", json_string(neap_role_name(rank->role)));
	neap_json_set(object, "device", neap_json_text(rank->device));
	for (size_t i = 0; i < RANK_FIGURES; i++) {
		uint64_t figure = *(const uint64_t *)((const char *)rank + rank_figures[i].offset);
		neap_json_set(object, rank_figures[i].key,
			      rank_figures[i].nullable ? neap_json_known(figure) : neap_json_number(figure));
	}
	return object;
}

static bool read_rank(const json_t *object, void *item)
{
	struct neap_result_rank *rank = item;
	const char *role = neap_json_get_text(object, "role");
	const json_t *device = json_object_get(object, "device");
	int found = 0;
	while (found < NEAP_ROLE_COUNT && strcmp(role, role_names[found]))
		found++;
	if (found == NEAP_ROLE_COUNT || !json_is_string(device) || json_string_length(device) >= sizeof rank->device)
		return false;
	rank->role = (enum neap_role)found;
	snprintf(rank->device, sizeof rank->device, "%s", json_string_value(device));
	for (size_t i = 0; i < RANK_FIGURES; i++) {
		const json_t *value = json_object_get(object, rank_figures[i].key);
		uint64_t *figure = (uint64_t *)((char *)rank + rank_figures[i].offset);
		*figure = UINT64_MAX;
		if (!(rank_figures[i].nullable && json_is_null(value)) && !get_u64(value, figure))
			return false;
	}
	return true;
}

static const struct list {
	const char *key;
	size_t items, count; /* offsets */
	size_t size, most;
	json_t *(*write)(const void *item);
	bool (*read)(const json_t *row, void *item);
	const char *too_many, *bad_row;
} lists[] = {
#define MEMBERS(items, count)                                                                                        \
#items, offsetof(struct neap_result, items), offsetof(struct neap_result, count),                            \
		sizeof *((struct neap_result *)0)->items
	{MEMBERS(samples, sample_count), LIMIT_SAMPLES, write_sample, read_sample,
	 "must be an array of at most 200000 samples",
	 "has a sample that is not [time_ns, allocated_bytes, reserved_bytes, device_bytes or null]"},
	{MEMBERS(marks, mark_count), NEAP_RESULT_MARKS, write_mark, read_mark,
	 "must be an array of at most 256 marks", "has a mark that is not [time_ns, name, value]"},
	{MEMBERS(ranks, rank_count), NEAP_RESULT_RANKS, write_rank, read_rank,
	 "must be an array of at most 64 processes",
	 "has a process whose role, rank, local_rank, pid, device, peaks, steps or ooms are missing or wrong"},
#undef MEMBERS
};
#define LISTS (sizeof lists / sizeof *lists)

/* The only error that does not concern the value. */
static const char no_memory[] = "does not fit into host memory";

static json_t *list_value(const struct neap_result *result, const struct list *list)
{
	const char *items;
	size_t count = *(const size_t *)((const char *)result + list->count);
	json_t *rows = json_array();
	memcpy(&items, (const char *)result + list->items, sizeof items);
	for (size_t i = 0; i < count; i++)
		neap_json_add(rows, list->write(items + i * list->size));
	return rows;
}

static const char *read_list(const json_t *rows, const struct list *list, struct neap_result *result)
{
	size_t *count = (size_t *)((char *)result + list->count), rows_count = json_array_size(rows);
	if (!json_is_array(rows) || rows_count > list->most)
		return list->too_many;
	char *items = calloc(rows_count ? rows_count : 1, list->size);
	if (!items)
		return no_memory;
	memcpy((char *)result + list->items, &items, sizeof items);
	for (; *count < rows_count; ++*count)
		if (!list->read(json_array_get(rows, *count), items + *count * list->size))
			return list->bad_row;
	for (size_t i = 1; i < result->sample_count; i++)
		if (result->samples[i].time_ns < result->samples[i - 1].time_ns)
			return "goes back in time";
	return NULL;
}

/* --- the fields --- */

static json_t *field_value(const struct neap_result *result, const struct neap_result_field *field)
{
	const void *place = neap_result_at(result, field);
	double real;
	switch (field->kind) {
	case NEAP_RESULT_TEXT:
		return neap_json_text(*(char *const *)place);
	case NEAP_RESULT_BYTES:
	case NEAP_RESULT_NS:
	case NEAP_RESULT_WALL:
	case NEAP_RESULT_COUNT:
		return neap_json_number(*(const uint64_t *)place);
	case NEAP_RESULT_SMALL:
		return json_integer(*(const uint32_t *)place);
	case NEAP_RESULT_STATUS:
		return json_integer(*(const int *)place);
	case NEAP_RESULT_BOOL:
		return json_boolean(*(const bool *)place);
	case NEAP_RESULT_NUMBER:
	case NEAP_RESULT_SHARE:
	case NEAP_RESULT_LOSS:
		real = *(const double *)place;
		if (isfinite(real))
			return json_real(real);
		return field->kind == NEAP_RESULT_LOSS ? json_null() : json_real(0);
	case NEAP_RESULT_OUTCOME:
		return json_string(neap_outcome_name(*(const enum neap_outcome *)place));
	}
	return NULL;
}

/* Writes one key on its line. Releases the value. */
static void format_value(struct neap_buffer *text, const char *key, json_t *value)
{
	char *dumped = neap_json_dump(value, JSON_ENCODE_ANY | JSON_REAL_PRECISION(17));
	neap_buffer_format(text, ",\n \"%s\": ", key);
	neap_buffer_text(text, dumped ? dumped : ""); /* neap_json_failures counts it */
	free(dumped);
	json_decref(value);
}

enum neap_status neap_result_format(const char *name, const struct neap_result *result, struct neap_buffer *text,
				    struct neap_error *err)
{
	const uint64_t failures = neap_json_failures();
	neap_buffer_format(text, "{\n \"schema\": %d", NEAP_RESULT_SCHEMA);
	for (size_t i = 0; i < NEAP_RESULT_FIELDS; i++)
		format_value(text, neap_result_fields[i].key, field_value(result, &neap_result_fields[i]));
	for (size_t i = 0; i < LISTS; i++)
		format_value(text, lists[i].key, list_value(result, &lists[i]));
	neap_buffer_text(text, "\n}\n");
	if (neap_json_failures() != failures)
		return neap_fail(err, NEAP_ENOMEM, "out of host memory while writing %s", name);
	return neap_buffer_status(text, err);
}

enum neap_status neap_result_write(const char *path, const struct neap_result *result, struct neap_error *err)
{
	struct neap_buffer text = {0};
	enum neap_status status = neap_result_format(path, result, &text, err);
	if (!status)
		status = neap_file_write(path, text.data, text.length, err);
	neap_buffer_fini(&text);
	return status;
}

/* Finds a key's place in the file, for a message: jansson keeps no places of values. */
static enum neap_status complain(const struct neap_buffer *text, const char *path, const char *key, const char *what,
				 struct neap_error *err)
{
	char quoted[64];
	snprintf(quoted, sizeof quoted, "\"%s\"", key);
	const char *start = neap_buffer_string(text);
	const char *place = strstr(start, quoted);
	uint32_t line = 1, column = 1;
	for (const char *p = start; place && p < place; p++) {
		column = *p == '\n' ? 1 : column + 1;
		line += *p == '\n';
	}
	return neap_fail_at(err, line, column, "%s: %s %s", path, key, what);
}

static const char *read_whole_number(const json_t *value, uint64_t most, uint64_t *ret_number)
{
	if (!get_u64(value, ret_number) || *ret_number > most)
		return most == 255          ? "must be a whole number from 0 to 255"
		       : most == UINT32_MAX ? "must be a whole number from 0 to 4294967295"
					    : "must be a whole number from 0";
	return NULL;
}

static const char *read_number(const json_t *value, enum neap_result_kind kind, double *ret_number)
{
	double number = json_number_value(value);
	if (kind == NEAP_RESULT_LOSS && json_is_null(value))
		return NULL; /* NAN from init */
	if (!json_is_number(value) || !isfinite(number))
		return kind == NEAP_RESULT_LOSS ? "must be a number or null" : "must be a number";
	if (kind == NEAP_RESULT_SHARE && (number < 0 || number > 1))
		return "must be between 0 and 1";
	*ret_number = number;
	return NULL;
}

/* NULL, or the error in the value. */
static const char *read_field(const struct neap_result_field *field, const json_t *value, struct neap_result *result)
{
	char *place = (char *)result + field->offset;
	uint64_t number = 0;
	const char *wrong = NULL;
	switch (field->kind) {
	case NEAP_RESULT_TEXT:
		if (!json_is_string(value) || json_string_length(value) != strlen(json_string_value(value)))
			return "must be a string";
		return neap_result_set((char **)place, json_string_value(value), NULL) ? no_memory : NULL;
	case NEAP_RESULT_BYTES:
	case NEAP_RESULT_NS:
	case NEAP_RESULT_WALL:
	case NEAP_RESULT_COUNT:
		return read_whole_number(value, UINT64_MAX, (uint64_t *)place);
	case NEAP_RESULT_SMALL:
		if (!(wrong = read_whole_number(value, UINT32_MAX, &number)))
			*(uint32_t *)place = (uint32_t)number;
		return wrong;
	case NEAP_RESULT_STATUS:
		if (!(wrong = read_whole_number(value, 255, &number)))
			*(int *)place = (int)number;
		return wrong;
	case NEAP_RESULT_BOOL:
		*(bool *)place = json_is_true(value);
		return json_is_boolean(value) ? NULL : "must be true or false";
	case NEAP_RESULT_NUMBER:
	case NEAP_RESULT_SHARE:
	case NEAP_RESULT_LOSS:
		return read_number(value, field->kind, (double *)place);
	case NEAP_RESULT_OUTCOME:
		if (json_is_string(value) && neap_outcome_named(json_string_value(value), (enum neap_outcome *)place))
			return NULL;
		return "must be an outcome (\"ok\", \"failed\", \"oom\", ...)";
	}
	return "is of an unknown kind";
}

/* Returns the key whose value is wrong; *ret_wrong says how. NULL: all values are good. */
static const char *read_object(const json_t *root, struct neap_result *result, const char **ret_wrong)
{
	const json_t *schema = json_object_get(root, "schema");
	*ret_wrong = "must be 1: written by another version of neap?";
	if (!json_is_integer(schema) || json_integer_value(schema) != NEAP_RESULT_SCHEMA)
		return "schema";
	for (size_t i = 0; i < NEAP_RESULT_FIELDS; i++) {
		const json_t *value = json_object_get(root, neap_result_fields[i].key);
		if (value || i == NEAP_RESULT_FIELD_outcome)
			*ret_wrong = read_field(&neap_result_fields[i], value, result);
		else
			*ret_wrong = NULL;
		if (*ret_wrong)
			return neap_result_fields[i].key;
	}
	for (size_t i = 0; i < LISTS; i++) {
		const json_t *value = json_object_get(root, lists[i].key);
		if (value && (*ret_wrong = read_list(value, &lists[i], result)))
			return lists[i].key;
	}
	return NULL;
}

enum neap_status neap_result_parse(const char *name, const struct neap_buffer *text, struct neap_result *ret_result,
				   struct neap_error *err)
{
	struct neap_result result = {0};
	json_t *root = NULL;
	const char *wrong = NULL;
	enum neap_status status = neap_result_init(&result, err);
	if (!status)
		status = neap_json_parse(name, neap_buffer_string(text), text->length, &root, err);
	if (!status && !json_is_object(root))
		status = neap_fail_at(err, 1, 1, "%s: expected an object", name);
	const char *key = status ? NULL : read_object(root, &result, &wrong);
	if (key && wrong == no_memory)
		status = neap_fail(err, NEAP_ENOMEM, "reading %s: %s %s", name, key, wrong);
	else if (key)
		status = complain(text, name, key, wrong, err);
	if (!status) {
		*ret_result = result;
		result = (struct neap_result){0};
	}
	json_decref(root);
	neap_result_fini(&result);
	return status;
}

enum neap_status neap_result_read(const char *path, struct neap_result *ret_result, struct neap_error *err)
{
	struct neap_buffer text = {0};
	enum neap_status status = neap_file_read(path, LIMIT_BYTES, &text, err);
	if (status == NEAP_EINVAL) /* longer than any result is */
		status = neap_fail_at(err, 1, 1, "%s: longer than %u bytes", path, LIMIT_BYTES);
	if (!status)
		status = neap_result_parse(path, &text, ret_result, err);
	neap_buffer_fini(&text);
	return status;
}
