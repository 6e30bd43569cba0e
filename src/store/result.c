/* store/result.c: one table of fields, used to write and to read. The file has one key a line:
 *
 *   {
 *    "schema": 1,
 *    "outcome": "oom",
 *    "exit_status": 1,
 *    ...
 *    "samples": [[time_ns, allocated_bytes, reserved_bytes, device_bytes or null], ...]
 *    "marks": [[time_ns, name, value], ...]
 *    "ranks": [{"role": "rank", "rank": 0, "local_rank": 0, "pid": 4711, "device": "GPU-...", ...}, ...]
 *   }
 *
 * Keys are the names of the struct's fields; unknown keys are skipped, so that a later version may add some; another
 * schema is refused. Bytes of a command line that are not UTF-8 are written as '?'.
 */
#include "store/result.h"

#include "base/buffer.h"
#include "base/error.h"
#include "base/file.h"
#include "store/json.h"

#include <math.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#define LIMIT_BYTES   (64u << 20)
#define LIMIT_SAMPLES 200000u

enum field_kind {
	FIELD_STRING,
	FIELD_U64,
	FIELD_U32,
	FIELD_BOOL,
	FIELD_STATUS, /* int, 0..255 */
	FIELD_NUMBER, /* double, finite */
	FIELD_PROBABILITY,
	FIELD_LOSS, /* double, NAN is null */
	FIELD_OUTCOME,
	FIELD_SAMPLES,
	FIELD_MARKS,
	FIELD_RANKS,
};

static const struct field {
	const char *key;
	size_t offset;
	enum field_kind kind;
	bool newer; /* absent in results of earlier versions: zero then */
} fields[] = {
#define FIELD(name) #name, offsetof(struct neap_result, name)
	{FIELD(name), FIELD_STRING},
	{FIELD(command), FIELD_STRING},
	{FIELD(parameters), FIELD_STRING},
	{FIELD(run_id), FIELD_STRING},
	{FIELD(device_name), FIELD_STRING},
	{FIELD(device_uuid), FIELD_STRING},
	{FIELD(backend), FIELD_STRING},
	{FIELD(outcome), FIELD_OUTCOME},
	{FIELD(evidence), FIELD_STRING},
	{FIELD(folder), FIELD_STRING, true},
	{FIELD(error_line), FIELD_STRING, true},
	{FIELD(last_lines), FIELD_STRING, true},
	{FIELD(last_lines_of), FIELD_STRING, true},
	{FIELD(exit_status), FIELD_STATUS},
	{FIELD(started_wall_ns), FIELD_U64},
	{FIELD(ended_wall_ns), FIELD_U64},
	{FIELD(duration_ns), FIELD_U64},
	{FIELD(device_total_bytes), FIELD_U64},
	{FIELD(attached), FIELD_BOOL},
	{FIELD(peak_allocated_bytes), FIELD_U64},
	{FIELD(peak_reserved_bytes), FIELD_U64},
	{FIELD(peak_device_bytes), FIELD_U64},
	{FIELD(headroom_bytes), FIELD_U64},
	{FIELD(waited_ns), FIELD_U64},
	{FIELD(drain_ns), FIELD_U64},
	{FIELD(drained), FIELD_BOOL},
	{FIELD(drain_note), FIELD_STRING},
	{FIELD(retries), FIELD_U32},
	{FIELD(ooms), FIELD_U32},
	{FIELD(rungs), FIELD_U32},
	{FIELD(rung), FIELD_STRING},
	{FIELD(steps), FIELD_U64},
	{FIELD(last_loss), FIELD_LOSS},
	{FIELD(leak_verdict), FIELD_STRING},
	{FIELD(leak_bytes_per_step), FIELD_NUMBER},
	{FIELD(leak_confidence), FIELD_PROBABILITY},
	{FIELD(memory_ends_step), FIELD_U64, true},
	{FIELD(memory_ends_low_step), FIELD_U64, true},
	{FIELD(memory_ends_high_step), FIELD_U64, true},
	{FIELD(restarts), FIELD_U32, true},
	{FIELD(fluctuation), FIELD_STRING},
	{FIELD(savings), FIELD_STRING, true},
	{FIELD(cleanup), FIELD_STRING},
	{FIELD(advice), FIELD_STRING, true},
	{FIELD(micro_batch), FIELD_U64, true},
	{FIELD(accumulate), FIELD_U64, true},
	{FIELD(batch), FIELD_U64, true},
	{FIELD(advised_micro_batch), FIELD_U64, true},
	{FIELD(advised_headroom_bytes), FIELD_U64, true},
	{FIELD(advised_uncertainty_bytes), FIELD_U64, true},
	{FIELD(kept_micro_batch), FIELD_U64, true},
	{FIELD(kept_accumulate), FIELD_U64, true},
	{FIELD(kept_headroom_bytes), FIELD_U64, true},
	{FIELD(stray_contexts), FIELD_STRING, true},
	{FIELD(not_attached), FIELD_STRING, true},
	{FIELD(simulated), FIELD_STRING, true},
	{FIELD(containment), FIELD_STRING, true},
	{FIELD(oom_card), FIELD_STRING},
	{FIELD(samples), FIELD_SAMPLES},
	{FIELD(marks), FIELD_MARKS, true},
	{FIELD(ranks), FIELD_RANKS, true},
#undef FIELD
};
#define FIELD_COUNT (sizeof fields / sizeof *fields)

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
	if ((unsigned)outcome >= NEAP_OUTCOME_COUNT)
		return "unknown";
	return outcome_names[outcome];
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

enum neap_status neap_result_set(char **field, const char *text, struct neap_error *err)
{
	char *copy = strdup(text ? text : "");
	if (!copy)
		return neap_fail(err, NEAP_ENOMEM, "out of host memory while noting a run's result");
	free(*field);
	*field = copy;
	return NEAP_OK;
}

static void *at(const struct neap_result *result, const struct field *field)
{
	return (char *)(uintptr_t)result + field->offset;
}

enum neap_status neap_result_init(struct neap_result *result, struct neap_error *err)
{
	struct neap_result fresh = {.last_loss = NAN};
	for (size_t i = 0; i < FIELD_COUNT; i++) {
		if (fields[i].kind != FIELD_STRING)
			continue;
		enum neap_status status = neap_result_set(at(&fresh, &fields[i]), "", err);
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
	for (size_t i = 0; i < FIELD_COUNT; i++)
		if (fields[i].kind == FIELD_STRING)
			free(*(char **)at(result, &fields[i]));
	free(result->samples);
	free(result->marks);
	free(result->ranks);
	*result = (struct neap_result){.last_loss = NAN};
}

static json_t *u64_value(uint64_t number, const char *key, struct neap_error *err)
{
	if (number > INT64_MAX) {
		neap_fail(err, NEAP_EINVAL, "%s is no plausible figure: %llu", key, (unsigned long long)number);
		return NULL;
	}
	return json_integer((json_int_t)number);
}

static json_t *samples_value(const struct neap_result *result, struct neap_error *err)
{
	json_t *rows = json_array();
	for (size_t i = 0; rows && i < result->sample_count; i++) {
		const struct neap_result_sample *sample = &result->samples[i];
		json_t *row = json_array();
		const uint64_t columns[] = {sample->time_ns, sample->allocated_bytes, sample->reserved_bytes};
		int bad = !row;
		for (size_t c = 0; !bad && c < 3; c++)
			bad = json_array_append_new(row, u64_value(columns[c], "samples", err));
		if (!bad)
			bad = json_array_append_new(row, sample->device_bytes == UINT64_MAX
								 ? json_null()
								 : u64_value(sample->device_bytes, "samples", err));
		if (bad)
			json_decref(row);
		if (bad || json_array_append_new(rows, row)) {
			json_decref(rows);
			return NULL;
		}
	}
	return rows;
}

static json_t *marks_value(const struct neap_result *result, struct neap_error *err)
{
	json_t *rows = json_array();
	for (size_t i = 0; rows && i < result->mark_count; i++) {
		const struct neap_result_mark *mark = &result->marks[i];
		json_t *row = json_array();
		int bad = !row || json_array_append_new(row, u64_value(mark->time_ns, "marks", err)) ||
			  json_array_append_new(row, neap_json_text(mark->name)) ||
			  json_array_append_new(row, u64_value(mark->value, "marks", err));
		if (bad)
			json_decref(row);
		if (bad || json_array_append_new(rows, row)) {
			json_decref(rows);
			return NULL;
		}
	}
	return rows;
}

static json_t *rank_value(const struct neap_result_rank *rank, struct neap_error *err)
{
	json_t *object = json_object();
	int bad = !object || json_object_set_new(object, "role", json_string(neap_role_name(rank->role))) ||
		  json_object_set_new(object, "device", neap_json_text(rank->device));
	for (size_t i = 0; !bad && i < RANK_FIGURES; i++) {
		uint64_t figure = *(const uint64_t *)((const char *)rank + rank_figures[i].offset);
		bad = json_object_set_new(object, rank_figures[i].key,
					  rank_figures[i].nullable && figure == UINT64_MAX
						  ? json_null()
						  : u64_value(figure, "ranks", err));
	}
	if (bad)
		json_decref(object);
	return bad ? NULL : object;
}

static json_t *ranks_value(const struct neap_result *result, struct neap_error *err)
{
	json_t *rows = json_array();
	for (size_t i = 0; rows && i < result->rank_count; i++) {
		json_t *object = rank_value(&result->ranks[i], err);
		if (!object || json_array_append_new(rows, object)) {
			json_decref(rows);
			return NULL;
		}
	}
	return rows;
}

/* NULL: *err has the error, or (status 0) the host is out of memory. */
static json_t *field_value(const struct neap_result *result, const struct field *field, struct neap_error *err)
{
	const void *place = at(result, field);
	switch (field->kind) {
	case FIELD_STRING:
		return neap_json_text(*(char *const *)place);
	case FIELD_U64:
		return u64_value(*(const uint64_t *)place, field->key, err);
	case FIELD_U32:
		return json_integer(*(const uint32_t *)place);
	case FIELD_BOOL:
		return json_boolean(*(const bool *)place);
	case FIELD_STATUS:
		return json_integer(*(const int *)place);
	case FIELD_NUMBER:
	case FIELD_PROBABILITY:
	case FIELD_LOSS:
		if (isfinite(*(const double *)place))
			return json_real(*(const double *)place);
		if (field->kind == FIELD_LOSS)
			return json_null();
		neap_fail(err, NEAP_EINVAL, "%s is not a finite number", field->key);
		return NULL;
	case FIELD_OUTCOME:
		return json_string(neap_outcome_name(*(const enum neap_outcome *)place));
	case FIELD_SAMPLES:
		return samples_value(result, err);
	case FIELD_MARKS:
		return marks_value(result, err);
	case FIELD_RANKS:
		return ranks_value(result, err);
	}
	return NULL;
}

enum neap_status neap_result_format(const char *name, const struct neap_result *result, struct neap_buffer *text,
				    struct neap_error *err)
{
	struct neap_error detail = {0};
	const uint64_t failures = neap_json_failures();
	neap_buffer_format(text, "{\n \"schema\": %d", NEAP_RESULT_SCHEMA);
	for (size_t i = 0; i < FIELD_COUNT; i++) {
		json_t *value = field_value(result, &fields[i], &detail);
		char *dumped = neap_json_dump(value, JSON_ENCODE_ANY | JSON_REAL_PRECISION(17));
		json_decref(value);
		if (!dumped)
			return detail.status
				       ? neap_fail(err, detail.status, "writing %s: %s", name, detail.message)
				       : neap_fail(err, NEAP_ENOMEM, "out of host memory while writing %s", name);
		neap_buffer_format(text, ",\n \"%s\": ", fields[i].key);
		neap_buffer_text(text, dumped);
		free(dumped);
	}
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

/* The only error that is not about the value. */
static const char no_memory[] = "does not fit into host memory";

static bool get_u64(const json_t *value, uint64_t *ret_number)
{
	if (!json_is_integer(value) || json_integer_value(value) < 0)
		return false;
	*ret_number = (uint64_t)json_integer_value(value);
	return true;
}

static const char *read_samples(const json_t *rows, struct neap_result *result)
{
	if (!json_is_array(rows) || json_array_size(rows) > LIMIT_SAMPLES)
		return "must be an array of at most 200000 samples";
	size_t count = json_array_size(rows);
	result->samples = calloc(count ? count : 1, sizeof *result->samples);
	if (!result->samples)
		return no_memory;
	uint64_t before_ns = 0;
	for (size_t i = 0; i < count; i++) {
		struct neap_result_sample *sample = &result->samples[i];
		const json_t *row = json_array_get(rows, i);
		if (json_array_size(row) != 4 || !get_u64(json_array_get(row, 0), &sample->time_ns) ||
		    !get_u64(json_array_get(row, 1), &sample->allocated_bytes) ||
		    !get_u64(json_array_get(row, 2), &sample->reserved_bytes))
			return "has a sample that is not [time_ns, allocated_bytes, reserved_bytes, device_bytes]";
		const json_t *device = json_array_get(row, 3);
		sample->device_bytes = UINT64_MAX;
		if (!json_is_null(device) && !get_u64(device, &sample->device_bytes))
			return "has a sample whose device_bytes is neither bytes nor null";
		if (sample->time_ns < before_ns)
			return "goes back in time";
		before_ns = sample->time_ns;
	}
	result->sample_count = count;
	return NULL;
}

static const char *read_marks(const json_t *rows, struct neap_result *result)
{
	if (!json_is_array(rows) || json_array_size(rows) > NEAP_RESULT_MARKS)
		return "must be an array of at most 256 marks";
	size_t count = json_array_size(rows);
	result->marks = calloc(count ? count : 1, sizeof *result->marks);
	if (!result->marks)
		return no_memory;
	for (size_t i = 0; i < count; i++) {
		struct neap_result_mark *mark = &result->marks[i];
		const json_t *row = json_array_get(rows, i), *name = json_array_get(row, 1);
		if (json_array_size(row) != 3 || !get_u64(json_array_get(row, 0), &mark->time_ns) ||
		    !json_is_string(name) || !get_u64(json_array_get(row, 2), &mark->value))
			return "has a mark that is not [time_ns, name, value]";
		snprintf(mark->name, sizeof mark->name, "%s", json_string_value(name));
	}
	result->mark_count = count;
	return NULL;
}

static bool read_rank(const json_t *object, struct neap_result_rank *rank)
{
	const json_t *role = json_object_get(object, "role"), *device = json_object_get(object, "device");
	int found = -1;
	for (int i = 0; json_is_string(role) && i < NEAP_ROLE_COUNT; i++)
		if (!strcmp(json_string_value(role), role_names[i]))
			found = i;
	if (found < 0 || !json_is_string(device) || json_string_length(device) >= sizeof rank->device)
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

static const char *read_ranks(const json_t *rows, struct neap_result *result)
{
	if (!json_is_array(rows) || json_array_size(rows) > NEAP_RESULT_RANKS)
		return "must be an array of at most 64 processes";
	size_t count = json_array_size(rows);
	result->ranks = calloc(count ? count : 1, sizeof *result->ranks);
	if (!result->ranks)
		return no_memory;
	for (size_t i = 0; i < count; i++)
		if (!read_rank(json_array_get(rows, i), &result->ranks[i]))
			return "has a process whose role, rank, local_rank, pid, device, peaks, steps or ooms are "
			       "missing or wrong";
	result->rank_count = count;
	return NULL;
}

static const char *read_number(const json_t *value, enum field_kind kind, double *ret_number)
{
	if (kind == FIELD_LOSS && json_is_null(value))
		return NULL; /* NAN from init */
	if (!json_is_number(value) || !isfinite(json_number_value(value)))
		return kind == FIELD_LOSS ? "must be a number or null" : "must be a number";
	double number = json_number_value(value);
	if (kind == FIELD_PROBABILITY && (number < 0 || number > 1))
		return "must be between 0 and 1";
	*ret_number = number;
	return NULL;
}

static const char *read_outcome(const json_t *value, enum neap_outcome *ret_outcome)
{
	for (int outcome = 0; outcome < NEAP_OUTCOME_COUNT; outcome++) {
		if (json_is_string(value) && !strcmp(json_string_value(value), outcome_names[outcome])) {
			*ret_outcome = (enum neap_outcome)outcome;
			return NULL;
		}
	}
	return "must be an outcome (\"ok\", \"failed\", \"oom\", ...)";
}

static const char *read_string(const json_t *value, char **ret_text)
{
	if (!json_is_string(value) || json_string_length(value) != strlen(json_string_value(value)))
		return "must be a string";
	return neap_result_set(ret_text, json_string_value(value), NULL) ? no_memory : NULL;
}

/* NULL, or the error in the value. */
static const char *read_field(const struct field *field, const json_t *value, struct neap_result *result)
{
	void *place = at(result, field);
	uint64_t number = 0;
	switch (field->kind) {
	case FIELD_STRING:
		return read_string(value, place);
	case FIELD_U64:
		return get_u64(value, place) ? NULL : "must be a whole number from 0";
	case FIELD_U32:
		if (!get_u64(value, &number) || number > UINT32_MAX)
			return "must be a whole number from 0 to 4294967295";
		*(uint32_t *)place = (uint32_t)number;
		return NULL;
	case FIELD_BOOL:
		if (!json_is_boolean(value))
			return "must be true or false";
		*(bool *)place = json_is_true(value);
		return NULL;
	case FIELD_STATUS:
		if (!get_u64(value, &number) || number > 255)
			return "must be a whole number from 0 to 255";
		*(int *)place = (int)number;
		return NULL;
	case FIELD_NUMBER:
	case FIELD_PROBABILITY:
	case FIELD_LOSS:
		return read_number(value, field->kind, place);
	case FIELD_OUTCOME:
		return read_outcome(value, place);
	case FIELD_SAMPLES:
		return read_samples(value, result);
	case FIELD_MARKS:
		return read_marks(value, result);
	case FIELD_RANKS:
		return read_ranks(value, result);
	}
	return "is of an unknown kind";
}

enum neap_status neap_result_parse(const char *name, const struct neap_buffer *text, struct neap_result *ret_result,
				   struct neap_error *err)
{
	struct neap_result result = {0};
	json_t *root = NULL;
	enum neap_status status = neap_result_init(&result, err);
	if (status)
		return status;
	status = neap_json_parse(name, neap_buffer_string(text), text->length, &root, err);
	if (status)
		goto out;
	if (!json_is_object(root)) {
		status = neap_fail_at(err, 1, 1, "%s: expected an object", name);
		goto out;
	}
	const json_t *schema = json_object_get(root, "schema");
	if (!json_is_integer(schema) || json_integer_value(schema) != NEAP_RESULT_SCHEMA) {
		status = complain(text, name, "schema", "must be 1: written by another version of neap?", err);
		goto out;
	}
	for (size_t i = 0; i < FIELD_COUNT; i++) {
		const json_t *value = json_object_get(root, fields[i].key);
		const char *wrong = value ? read_field(&fields[i], value, &result) : "is missing";
		if (!value && fields[i].newer)
			continue;
		if (wrong == no_memory) {
			status = neap_fail(err, NEAP_ENOMEM, "reading %s: %s %s", name, fields[i].key, wrong);
			goto out;
		}
		if (wrong) {
			status = complain(text, name, fields[i].key, wrong, err);
			goto out;
		}
	}
	*ret_result = result;
	result = (struct neap_result){0};
out:
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
