/* trace/store.c: packing and unpacking of events, and the accessors of a loaded trace. See store.h for the format.
 * Only this process writes the packed events, so unpacking trusts them. */
#include "trace/store.h"
#include "trace/record.h"

#include <stdlib.h>
#include <string.h>

#define CHUNK_BYTES     (256u << 10)
#define EVENT_BYTES_MAX 40u /* 1 + 10 + 10 + 10 + 5 + 3, rounded up */

enum {
	KIND_BITS = 0x0f,
	SAME_PLACE = 0x10,
	IN_512 = 0x20,
	SAME_STACK = 0x40,
	SAME_STREAM = 0x80,
};

static uint64_t zigzag(uint64_t difference) { return difference << 1 ^ (0 - (difference >> 63)); }

static uint64_t unzigzag(uint64_t value) { return value >> 1 ^ (0 - (value & 1)); }

static unsigned char *put_number(unsigned char *at, uint64_t value)
{
	for (; value >= 0x80; value >>= 7)
		*at++ = (unsigned char)(value | 0x80);
	*at++ = (unsigned char)value;
	return at;
}

static inline const unsigned char *get_number(const unsigned char *at, uint64_t *ret_value)
{
	uint64_t value = *at++;

	if (value & 0x80) { /* most numbers have one byte */
		value &= 0x7f;
		for (unsigned shift = 7;; shift += 7) {
			unsigned char byte = *at++;
			value |= (uint64_t)(byte & 0x7f) << shift;
			if (!(byte & 0x80))
				break;
		}
	}
	*ret_value = value;
	return at;
}

/* Packs a size into fewer bytes if it is a multiple of 512, as most large sizes are. */
static uint64_t pack_size(uint64_t size) { return size & 511 ? size << 1 : size >> 9 << 1 | 1; }

static uint64_t unpack_size(uint64_t value) { return value & 1 ? value >> 1 << 9 : value >> 1; }

/* Makes space for a whole group in one chunk, and keeps its place. */
static bool begin_group(struct neap_trace_store *store)
{
	if (store->group_count == store->group_capacity) {
		size_t capacity = store->group_capacity ? store->group_capacity * 2 : 64;
		const unsigned char **groups = realloc(store->groups, capacity * sizeof *groups);
		if (!groups)
			return false;
		store->groups = groups;
		uint16_t *kinds = realloc(store->kinds, capacity * sizeof *kinds);
		if (!kinds)
			return false;
		store->kinds = kinds;
		store->group_capacity = capacity;
	}
	if (!store->chunk_count || CHUNK_BYTES - store->chunk_used < NEAP_STORE_GROUP * EVENT_BYTES_MAX) {
		if (store->chunk_count == store->chunk_capacity) {
			size_t capacity = store->chunk_capacity ? store->chunk_capacity * 2 : 16;
			unsigned char **chunks = realloc(store->chunks, capacity * sizeof *chunks);
			if (!chunks)
				return false;
			store->chunks = chunks;
			store->chunk_capacity = capacity;
		}
		unsigned char *chunk = malloc(CHUNK_BYTES);
		if (!chunk)
			return false;
		store->chunks[store->chunk_count++] = chunk;
		store->chunk_used = 0;
	}
	store->kinds[store->group_count] = 0;
	store->groups[store->group_count++] = store->chunks[store->chunk_count - 1] + store->chunk_used;
	memset(&store->last, 0, sizeof store->last);
	return true;
}

bool neap_store_add(struct neap_trace_store *store, const struct neap_trace_event *added)
{
	struct neap_trace_event event = *added;

	if (event.size > INT64_MAX)
		event.size = INT64_MAX;
	if (store->count % NEAP_STORE_GROUP == 0 && !begin_group(store))
		return false;
	const struct neap_trace_event *last = &store->last;
	unsigned char *start = store->chunks[store->chunk_count - 1] + store->chunk_used, *at = start + 1;
	uint64_t moved = event.address - last->address;
	unsigned tag = event.kind & KIND_BITS;
	if (moved == 0 && event.size == last->size)
		tag |= SAME_PLACE;
	else if ((moved & 511) == 0)
		tag |= IN_512;
	if (event.stack == last->stack)
		tag |= SAME_STACK;
	if (event.stream == last->stream)
		tag |= SAME_STREAM;
	*start = (unsigned char)tag;
	store->kinds[store->group_count - 1] |= (uint16_t)(1u << (tag & KIND_BITS));
	at = put_number(at, zigzag(event.time_us - last->time_us));
	if (!(tag & SAME_PLACE)) {
		at = put_number(at, zigzag(tag & IN_512 ? (uint64_t)((int64_t)moved / 512) : moved));
		at = put_number(at, pack_size(event.size));
	}
	if (!(tag & SAME_STACK))
		at = put_number(at, event.stack);
	if (!(tag & SAME_STREAM))
		at = put_number(at, event.stream);
	store->chunk_used += (size_t)(at - start);
	store->last = event;
	store->count++;
	return true;
}

/* Returns a cursor before event `target` of the store that ends at `end`. */
static struct neap_trace_cursor cursor_at(const struct neap_trace *trace, uint64_t target, uint64_t end,
					  uint8_t device)
{
	struct neap_trace_cursor cursor = {
		.store = trace->store, .next = target / NEAP_STORE_GROUP * NEAP_STORE_GROUP, .end = end};
	struct neap_trace_event skipped;

	cursor.previous.device = device;
	if (target % NEAP_STORE_GROUP)
		while (cursor.next < target)
			neap_trace_next(&cursor, &skipped);
	return cursor;
}

struct neap_trace_cursor neap_trace_events(const struct neap_trace *trace, size_t device, uint64_t first)
{
	if (device >= trace->device_count || first >= trace->devices[device].event_count)
		return (struct neap_trace_cursor){.store = trace->store};
	const struct neap_trace_device *of = &trace->devices[device];
	return cursor_at(trace, of->first_event + first, of->first_event + of->event_count, (uint8_t)device);
}

struct neap_trace_cursor neap_trace_host_events(const struct neap_trace *trace)
{
	const struct neap_trace_host *host = &trace->host;

	return host->event_count ? cursor_at(trace, host->first_event, host->first_event + host->event_count, 0)
				 : (struct neap_trace_cursor){.store = trace->store};
}

struct neap_trace_note neap_trace_note_at(const struct neap_trace *trace, size_t device, uint64_t event)
{
	size_t low = 0, high = trace->note_count;

	while (low < high) {
		size_t middle = low + (high - low) / 2;
		const struct neap_trace_note *note = &trace->notes[middle];
		if (note->device < device || (note->device == device && note->event <= event))
			low = middle + 1;
		else
			high = middle;
	}
	return low && trace->notes[low - 1].device == device ? trace->notes[low - 1] : (struct neap_trace_note){0};
}

bool neap_trace_next(struct neap_trace_cursor *cursor, struct neap_trace_event *ret_event)
{
	uint64_t number;

	if (cursor->next >= cursor->end)
		return false;
	/* A copy stays in registers; reading the cursor's struct as a whole would wait until each of its fields is
	 * stored. */
	struct neap_trace_event event = cursor->previous;
	if (cursor->next % NEAP_STORE_GROUP == 0) {
		cursor->at = cursor->store->groups[cursor->next / NEAP_STORE_GROUP];
		event = (struct neap_trace_event){.device = event.device};
	}
	const unsigned char *at = cursor->at;
	unsigned tag = *at++;
	event.kind = tag & KIND_BITS;
	at = get_number(at, &number);
	event.time_us += unzigzag(number);
	if (!(tag & SAME_PLACE)) {
		at = get_number(at, &number);
		event.address += unzigzag(number) * (tag & IN_512 ? 512 : 1);
		at = get_number(at, &number);
		event.size = unpack_size(number);
	}
	if (!(tag & SAME_STACK)) {
		at = get_number(at, &number);
		event.stack = (uint32_t)number;
	}
	if (!(tag & SAME_STREAM)) {
		at = get_number(at, &number);
		event.stream = (uint16_t)number;
	}
	cursor->at = at;
	cursor->next++;
	cursor->previous = event;
	*ret_event = event;
	return true;
}

bool neap_trace_find(struct neap_trace_cursor *cursor, unsigned kinds, struct neap_trace_event *ret_event)
{
	while (cursor->next < cursor->end) {
		uint64_t group = cursor->next / NEAP_STORE_GROUP, after = (group + 1) * NEAP_STORE_GROUP;
		if (!(cursor->store->kinds[group] & kinds)) {
			cursor->next = after < cursor->end ? after : cursor->end;
			continue;
		}
		struct neap_trace_event event;
		if (neap_trace_next(cursor, &event) && (kinds >> event.kind & 1)) {
			*ret_event = event;
			return true;
		}
	}
	return false;
}

const char *neap_trace_text(const struct neap_trace *trace, uint32_t text)
{
	const struct neap_trace_store *store = trace->store;

	return text < store->text_count ? store->texts + store->text_offsets[text] : "";
}

const char *neap_trace_kind_name(enum neap_trace_kind kind)
{
	static const char *const names[] = {
		[NEAP_TRACE_ALLOC] = "alloc",
		[NEAP_TRACE_FREE_REQUESTED] = "free_requested",
		[NEAP_TRACE_FREE_COMPLETED] = "free_completed",
		[NEAP_TRACE_RECORD_STREAM] = "record_stream",
		[NEAP_TRACE_SEGMENT_ALLOC] = "segment_alloc",
		[NEAP_TRACE_SEGMENT_FREE] = "segment_free",
		[NEAP_TRACE_SEGMENT_MAP] = "segment_map",
		[NEAP_TRACE_SEGMENT_UNMAP] = "segment_unmap",
		[NEAP_TRACE_OOM] = "oom",
		[NEAP_TRACE_SNAPSHOT_TAKEN] = "snapshot",
		[NEAP_TRACE_EMPTY_CACHE] = "empty_cache",
	};

	return (size_t)kind < sizeof names / sizeof *names && names[kind] ? names[kind] : "unknown";
}

/* Shrinks an array in place. If that fails, the array stays as it is. */
static void *shrink(void *array, size_t bytes)
{
	void *smaller = bytes ? realloc(array, bytes) : NULL;

	return smaller ? smaller : array;
}

void neap_store_trim(struct neap_trace_store *store)
{
	store->groups = shrink(store->groups, store->group_count * sizeof *store->groups);
	store->kinds = shrink(store->kinds, store->group_count * sizeof *store->kinds);
	store->group_capacity = store->group_count;
	store->texts = shrink(store->texts, store->texts_length);
	store->texts_capacity = store->texts_length;
	store->text_offsets = shrink(store->text_offsets, store->text_count * sizeof *store->text_offsets);
	store->text_capacity = store->text_count;
}

static void free_store(struct neap_trace_store *store)
{
	if (!store)
		return;
	for (size_t i = 0; i < store->chunk_count; i++)
		free(store->chunks[i]);
	free(store->chunks);
	free(store->groups);
	free(store->kinds);
	free(store->texts);
	free(store->text_offsets);
	free(store);
}

void neap_trace_free(struct neap_trace *trace)
{
	if (!trace)
		return;
	free_store(trace->store);
	free(trace->devices);
	free(trace->streams);
	free(trace->marks);
	free(trace->segments);
	free(trace->blocks);
	free(trace->other_settings);
	free(trace->notes);
	free(trace->annotations);
	free(trace->host.segments);
	free(trace->frames);
	free(trace->calls);
	free(trace->warnings);
	if (trace->record)
		neap_record_fini(trace->record);
	free(trace->record);
	free(trace);
}
