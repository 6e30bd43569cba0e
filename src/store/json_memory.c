/* store/json_memory.c: see json_memory.h. The reserve is handed out piece by piece, and used again once all of it has
 * come back.
 */
#include "store/json_memory.h"

#include "base/buffer.h"

#include <pthread.h>
#include <stdbool.h>
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

struct text {
	const char *at, *end;
	uint64_t failures; /* before */
};

static size_t feed(void *buffer, size_t room, void *context)
{
	struct text *text = context;
	size_t length = (size_t)(text->end - text->at);
	if (neap_json_failures() != text->failures)
		return (size_t)-1;
	if (length > room)
		length = room;
	memcpy(buffer, text->at, length);
	text->at += length;
	return length;
}

json_t *neap_json_load(const char *text, size_t length, json_error_t *ret_error)
{
	struct text rest = {text, text + length, neap_json_failures()};
	json_t *root = json_load_callback(feed, &rest, JSON_REJECT_DUPLICATES, ret_error);
	if (!root || neap_json_failures() == rest.failures)
		return root;
	json_decref(root);
	return NULL;
}

static int keep(const char *bytes, size_t length, void *context)
{
	neap_buffer_append(context, bytes, length);
	return 0; /* the buffer remembers */
}

char *neap_json_dump(const json_t *value, size_t flags)
{
	struct neap_buffer text = {0};
	const uint64_t before = neap_json_failures();
	bool whole = value && !json_dump_callback(value, keep, &text, flags) && neap_json_failures() == before;
	char *copy = whole ? neap_buffer_detach(&text) : NULL;
	neap_buffer_fini(&text);
	return copy;
}
