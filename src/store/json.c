/* store/json.c: see json.h. The reserve is handed out piece by piece, and reused once all pieces were freed. */
#include "store/json.h"

#include "base/error.h"
#include "base/printable.h"

#include <math.h>
#include <pthread.h>
#include <stdlib.h>
#include <string.h>

#define RESERVE_BYTES (512u * 1024)

static pthread_mutex_t lock = PTHREAD_MUTEX_INITIALIZER;
static _Alignas(16) char reserve[RESERVE_BYTES];
static size_t reserve_used, reserve_pieces;
static uint64_t failures;

static void *allocate(size_t bytes)
{
	char *memory = malloc(bytes);
	if (memory || !bytes)
		return memory;
	pthread_mutex_lock(&lock);
	failures++;
	if (bytes <= RESERVE_BYTES - reserve_used) {
		memory = reserve + reserve_used;
		reserve_used += (bytes + 15) & ~(size_t)15;
		reserve_pieces++;
	}
	pthread_mutex_unlock(&lock);
	return memory;
}

static void release(void *memory)
{
	if ((char *)memory < reserve || (char *)memory >= reserve + RESERVE_BYTES) {
		free(memory);
		return;
	}
	pthread_mutex_lock(&lock);
	if (--reserve_pieces == 0)
		reserve_used = 0;
	pthread_mutex_unlock(&lock);
}

static void watch(void) { json_set_alloc_funcs(allocate, release); }

uint64_t neap_json_failures(void)
{
	static pthread_once_t once = PTHREAD_ONCE_INIT;
	pthread_once(&once, watch);
	pthread_mutex_lock(&lock);
	uint64_t count = failures;
	pthread_mutex_unlock(&lock);
	return count;
}

static void count_failure(void)
{
	neap_json_failures();
	pthread_mutex_lock(&lock);
	failures++;
	pthread_mutex_unlock(&lock);
}

void neap_json_set(json_t *object, const char *key, json_t *value)
{
	if (json_object_set_new(object, key, value))
		count_failure();
}

void neap_json_add(json_t *array, json_t *value)
{
	if (json_array_append_new(array, value))
		count_failure();
}

json_t *neap_json_text(const char *text)
{
	text = text ? text : "";
	json_t *value = json_string(text);
	char *copy = value ? NULL : strdup(text);
	if (!copy)
		return value;
	uint32_t character;
	for (char *at = copy, *end = copy + strlen(copy); at < end;) {
		size_t length = neap_utf8_next(at, (size_t)(end - at), &character);
		if (character == UINT32_MAX)
			*at = '?';
		at += length;
	}
	value = json_string(copy);
	free(copy);
	return value;
}

json_t *neap_json_number(uint64_t value) { return json_integer((json_int_t)(value > INT64_MAX ? INT64_MAX : value)); }

json_t *neap_json_number_or_null(uint64_t value, uint64_t none)
{
	return value == none ? json_null() : neap_json_number(value);
}

json_t *neap_json_known(uint64_t value) { return neap_json_number_or_null(value, UINT64_MAX); }

json_t *neap_json_put(json_t *object, const struct neap_json_row *rows)
{
	for (; rows->key; rows++)
		neap_json_set(object, rows->key, rows->value);
	return object;
}

struct neap_json_row neap_json_only(bool known, struct neap_json_row row)
{
	if (known)
		return row;
	json_decref(row.value);
	return (struct neap_json_row){row.key, json_null()};
}

json_t *neap_json_given_text(const char *text) { return text && *text ? neap_json_text(text) : json_null(); }
json_t *neap_json_given(uint64_t value) { return neap_json_number_or_null(value, 0); }
json_t *neap_json_given_real(double value) { return value > 0 || value < 0 ? json_real(value) : json_null(); }
json_t *neap_json_known_real(double value) { return isfinite(value) ? json_real(value) : json_null(); }
json_t *neap_json_known_integer(int value) { return value < 0 ? json_null() : json_integer(value); }

bool neap_json_get_number(const json_t *object, const char *key, uint64_t *ret_number)
{
	const json_t *value = json_object_get(object, key);
	if (!json_is_integer(value) || json_integer_value(value) < 0)
		return false;
	*ret_number = (uint64_t)json_integer_value(value);
	return true;
}

const char *neap_json_get_text(const json_t *object, const char *key)
{
	const char *text = json_string_value(json_object_get(object, key));
	return text ? text : "";
}

struct text {
	const char *at, *end;
	uint64_t failures; /* before */
};

static size_t feed(void *buffer, size_t capacity, void *context)
{
	struct text *text = context;
	size_t length = (size_t)(text->end - text->at);
	if (neap_json_failures() != text->failures)
		return (size_t)-1;
	if (length > capacity)
		length = capacity;
	memcpy(buffer, text->at, length);
	text->at += length;
	return length;
}

enum neap_status neap_json_parse(const char *name, const char *text, size_t length, json_t **ret_root,
				 struct neap_error *err)
{
	struct text rest = {text, text + length, neap_json_failures()};
	json_error_t error = {0};
	json_t *root = json_load_callback(feed, &rest, JSON_REJECT_DUPLICATES, &error);
	if (neap_json_failures() != rest.failures) {
		json_decref(root);
		return neap_fail(err, NEAP_ENOMEM, "reading %.150s: out of host memory", name);
	}
	if (!root)
		return neap_fail_at(err, error.line > 0 ? (uint32_t)error.line : 1,
				    error.column > 0 ? (uint32_t)error.column : 1, "%s: %s", name, error.text);
	*ret_root = root;
	return NEAP_OK;
}

static int keep(const char *bytes, size_t length, void *context)
{
	neap_buffer_append(context, bytes, length);
	return 0; /* the buffer records a failure */
}

char *neap_json_dump(const json_t *value, size_t flags)
{
	struct neap_buffer text = {0};
	const uint64_t before = neap_json_failures();
	bool whole = value && !json_dump_callback(value, keep, &text, flags) && neap_json_failures() == before;
	char *copy = whole ? neap_buffer_detach(&text) : NULL;
	neap_buffer_fini(&text);
	if (!copy)
		count_failure();
	return copy;
}
