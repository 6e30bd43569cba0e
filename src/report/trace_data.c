/* report/trace_data.c: writes column by column, with one pass over the lives (or events) for each: similar numbers
 * stand together, so that they deflate well, and only the numbers given to texts, sizes and addresses are kept. */
#include "report/trace_data.h"

#include "base/array.h"
#include "base/error.h"
#include "base/map.h"

#include <stdlib.h>
#include <string.h>

/* Numbers given to values in the order of their first appearance. */
struct table {
	struct neap_map map;
	uint64_t *values;
	size_t count;
	bool failed;
};

static uint64_t table_number(struct table *table, uint64_t value)
{
	uint64_t number = 0;

	if (table->failed || neap_map_get(&table->map, value, &number))
		return number;
	if (!neap_array_grow(&table->values, table->count, sizeof value) ||
	    !neap_map_put(&table->map, value, table->count)) {
		table->failed = true;
		return 0;
	}
	table->values[table->count] = value;
	return table->count++;
}

static void table_fini(struct table *table, struct neap_page_out *out)
{
	struct neap_error err;

	if (table->failed)
		neap_page_out_fail(out, neap_fail(&err, NEAP_ENOMEM, "no memory for the data of a page"), &err);
	neap_map_fini(&table->map);
	free(table->values);
}

static void put_texts(struct neap_packed *packed, const struct neap_trace *trace, const struct table *texts)
{
	neap_packed_number(packed, texts->count);
	for (size_t i = 0; i < texts->count; i++)
		neap_packed_number(packed, strlen(neap_trace_text(trace, (uint32_t)texts->values[i])));
	for (size_t i = 0; i < texts->count; i++) {
		const char *text = neap_trace_text(trace, (uint32_t)texts->values[i]);
		neap_packed_bytes(packed, text, strlen(text));
	}
}

/* Text numbers in the order in which frames and marks name them; the marks of a device find theirs the same way. */
static void number_texts(struct table *texts, const struct neap_trace *trace)
{
	for (size_t i = 0; i < trace->frame_count; i++) {
		table_number(texts, trace->frames[i].file);
		table_number(texts, trace->frames[i].name);
	}
	for (size_t i = 0; i < trace->mark_count; i++)
		table_number(texts, trace->marks[i].name);
}

static void put_sites(struct neap_packed *packed, const struct neap_trace *trace, const struct neap_sites *sites)
{
	struct table frames = {0};
	char text[512];

	for (size_t i = 0; i < trace->call_count; i++)
		neap_packed_number(packed, table_number(&frames, sites->frames[i]));
	neap_packed_number(packed, frames.count);
	for (size_t i = 0; i < frames.count; i++) {
		neap_site_text(trace, (uint32_t)frames.values[i], text, sizeof text);
		neap_packed_number(packed, strlen(text));
	}
	for (size_t i = 0; i < frames.count; i++) {
		neap_site_text(trace, (uint32_t)frames.values[i], text, sizeof text);
		neap_packed_bytes(packed, text, strlen(text));
	}
	table_fini(&frames, packed->out);
}

void neap_trace_data_names(struct neap_page_out *out, const struct neap_trace *trace, const struct neap_sites *sites)
{
	struct neap_packed packed;
	struct table texts = {0};

	neap_packed_begin(&packed, out);
	number_texts(&texts, trace);
	put_texts(&packed, trace, &texts);
	neap_packed_number(&packed, trace->frame_count);
	for (size_t i = 0; i < trace->frame_count; i++)
		neap_packed_number(&packed, table_number(&texts, trace->frames[i].file));
	for (size_t i = 0; i < trace->frame_count; i++)
		neap_packed_number(&packed, table_number(&texts, trace->frames[i].name));
	for (size_t i = 0; i < trace->frame_count; i++)
		neap_packed_number(&packed, trace->frames[i].line);
	neap_packed_number(&packed, trace->call_count);
	for (size_t i = 0; i < trace->call_count; i++)
		neap_packed_number(&packed, trace->calls[i].frame);
	for (size_t i = 0; i < trace->call_count; i++)
		neap_packed_number(&packed, i - trace->calls[i].parent);
	put_sites(&packed, trace, sites);
	neap_packed_end(&packed);
	table_fini(&texts, out);
}

/* Whether the life overlaps the stretch between the analysis's first and last event. */
static bool shown(const struct neap_analysis *analysis, const struct neap_life *life)
{
	uint64_t from = analysis->profile.from, to = analysis->profile.to;
	return (life->begin == NEAP_LIFE_BEFORE || life->begin < to) &&
	       (life->end == NEAP_LIFE_AFTER || life->end > from || from == 0);
}

uint64_t neap_trace_data_lives(const struct neap_analysis *analysis)
{
	struct neap_life_cursor cursor = neap_lives_begin(&analysis->lives, 0);
	struct neap_life life;
	uint64_t count = 0;
	while (neap_lives_next(&cursor, &life))
		count += shown(analysis, &life);
	return count;
}

struct device_data {
	struct neap_packed packed;
	const struct neap_analysis *analysis;
	struct table sizes, addresses;
	uint64_t before; /* the previous value, for columns of differences */
};

static void put_begin(struct device_data *data, const struct neap_life *life)
{
	if (life->begin == NEAP_LIFE_BEFORE)
		return;
	neap_packed_number(&data->packed, life->begin - data->before);
	data->before = life->begin;
}

static uint64_t span(uint64_t begin, uint64_t end)
{
	return end == NEAP_LIFE_AFTER ? 0 : end - (begin == NEAP_LIFE_BEFORE ? 0 : begin) + 1;
}

static void put_end(struct device_data *data, const struct neap_life *life)
{
	neap_packed_number(&data->packed, span(life->begin, life->end));
}

static void put_freed(struct device_data *data, const struct neap_life *life)
{
	uint64_t end = life->end == NEAP_LIFE_AFTER ? data->analysis->timeline.count : life->end;
	neap_packed_number(&data->packed, life->freed == NEAP_LIFE_AFTER ? 0 : end - life->freed + 1);
}

static void put_size(struct device_data *data, const struct neap_life *life)
{
	neap_packed_number(&data->packed, table_number(&data->sizes, life->size));
}

/* A text trace has an id for each allocation in place of an address: there is nothing to draw. */
static uint64_t address_of(const struct device_data *data, const struct neap_life *life)
{
	return data->analysis->trace->source == NEAP_TRACE_TEXT ? 0 : life->address;
}

static void put_address(struct device_data *data, const struct neap_life *life)
{
	uint64_t number = table_number(&data->addresses, address_of(data, life));
	neap_packed_signed(&data->packed, (int64_t)(number - data->before));
	data->before = number;
}

static void put_stack(struct device_data *data, const struct neap_life *life)
{
	neap_packed_number(&data->packed, life->stack);
}

static void put_freed_stack(struct device_data *data, const struct neap_life *life)
{
	neap_packed_number(&data->packed, life->freed_stack);
}

static void put_stream(struct device_data *data, const struct neap_life *life)
{
	neap_packed_number(&data->packed, life->stream);
}

static void put_category(struct device_data *data, const struct neap_life *life)
{
	const struct neap_analysis *analysis = data->analysis;
	enum neap_category_how how = NEAP_HOW_NOTHING;
	enum neap_category category =
		neap_category_of(&analysis->sites, &analysis->steps, analysis->timeline.count, life, &how);
	neap_packed_number(&data->packed, (uint64_t)category * 4 + how);
}

static void number_value(struct device_data *data, const struct neap_life *life)
{
	table_number(&data->sizes, life->size);
	table_number(&data->addresses, address_of(data, life));
}

static void each_life(struct device_data *data, void (*put)(struct device_data *, const struct neap_life *))
{
	struct neap_life_cursor cursor = neap_lives_begin(&data->analysis->lives, 0);
	struct neap_life life;

	data->before = 0;
	while (data->packed.out->status == NEAP_OK && neap_lives_next(&cursor, &life))
		if (shown(data->analysis, &life))
			put(data, &life);
}

static void put_lives(struct device_data *data)
{
	static void (*const columns[])(struct device_data *, const struct neap_life *) = {
		put_begin, put_end,         put_freed,  put_size,    put_address,
		put_stack, put_freed_stack, put_stream, put_category};
	const struct neap_analysis *analysis = data->analysis;
	struct neap_packed *packed = &data->packed;
	uint64_t before = 0;

	each_life(data, number_value);
	neap_packed_number(packed, data->sizes.count);
	for (size_t i = 0; i < data->sizes.count; i++)
		neap_packed_u64(packed, data->sizes.values[i]);
	for (size_t i = 0; i < data->sizes.count; i++)
		neap_packed_u64(packed, neap_torch_round(&analysis->replay.settings, data->sizes.values[i]));
	neap_packed_number(packed, data->addresses.count);
	for (size_t i = 0; i < data->addresses.count; i++)
		neap_packed_u64(packed, data->addresses.values[i]);
	for (size_t i = 0; i < analysis->lives.before; i++)
		before += shown(analysis, &analysis->lives.early[i]);
	neap_packed_number(packed, neap_trace_data_lives(analysis));
	neap_packed_number(packed, before);
	for (size_t i = 0; i < sizeof columns / sizeof columns[0]; i++)
		each_life(data, columns[i]);
}

static void put_pieces(struct neap_packed *packed, const struct neap_pieces *pieces)
{
	const struct neap_piece *items = pieces->items;
	size_t count = pieces->count;

	neap_packed_number(packed, count);
	for (size_t i = 0; i < count; i++)
		neap_packed_number(packed, items[i].begin + 1); /* from before: 0 */
	for (size_t i = 0; i < count; i++)
		neap_packed_number(packed, span(items[i].begin, items[i].end));
	for (size_t i = 0; i < count; i++)
		neap_packed_u64(packed, items[i].address);
	for (size_t i = 0; i < count; i++)
		neap_packed_u64(packed, items[i].size);
	for (size_t i = 0; i < count; i++)
		neap_packed_number(packed, items[i].stack);
	for (size_t i = 0; i < count; i++)
		neap_packed_number(packed, items[i].stream);
	for (size_t i = 0; i < count; i++)
		neap_packed_number(packed, items[i].expandable);
}

static bool within(const struct neap_analysis *analysis, uint64_t event)
{
	return event >= analysis->profile.from && event < analysis->profile.to;
}

/* Puts one event during a pass over the events; *value lives through the pass and begins as 0. False: put nothing. */
typedef bool put_event(struct device_data *data, const struct neap_timeline_cursor *cursor, uint64_t *value);

static bool is_change(struct device_data *data, const struct neap_timeline_cursor *cursor, uint64_t *reserved)
{
	bool changed = cursor->now.reserved != *reserved;
	(void)data;
	*reserved = cursor->now.reserved;
	return changed;
}

static bool put_change_event(struct device_data *data, const struct neap_timeline_cursor *cursor, uint64_t *reserved)
{
	if (!is_change(data, cursor, reserved))
		return false;
	neap_packed_number(&data->packed, cursor->now.event - data->before);
	data->before = cursor->now.event;
	return true;
}

static bool put_change(struct device_data *data, const struct neap_timeline_cursor *cursor, uint64_t *reserved)
{
	int64_t change = (int64_t)(cursor->now.reserved - *reserved);
	if (!is_change(data, cursor, reserved))
		return false;
	neap_packed_signed(&data->packed, change);
	return true;
}

static bool is_failure(struct device_data *data, const struct neap_timeline_cursor *cursor, uint64_t *value)
{
	(void)data;
	(void)value;
	return cursor->event.kind == NEAP_TRACE_OOM;
}

static bool put_failure_event(struct device_data *data, const struct neap_timeline_cursor *cursor, uint64_t *value)
{
	if (!is_failure(data, cursor, value))
		return false;
	neap_packed_number(&data->packed, cursor->now.event - data->before);
	data->before = cursor->now.event;
	return true;
}

static bool put_asked(struct device_data *data, const struct neap_timeline_cursor *cursor, uint64_t *value)
{
	if (is_failure(data, cursor, value))
		neap_packed_number(&data->packed, cursor->event.size);
	return false;
}

static bool put_device_free(struct device_data *data, const struct neap_timeline_cursor *cursor, uint64_t *value)
{
	if (is_failure(data, cursor, value))
		neap_packed_number(&data->packed, cursor->event.address);
	return false;
}

static bool put_failure_stack(struct device_data *data, const struct neap_timeline_cursor *cursor, uint64_t *value)
{
	if (is_failure(data, cursor, value))
		neap_packed_number(&data->packed, cursor->event.stack);
	return false;
}

static bool is_emptied(struct device_data *data, const struct neap_timeline_cursor *cursor, uint64_t *value)
{
	(void)data;
	(void)value;
	return cursor->event.kind == NEAP_TRACE_EMPTY_CACHE;
}

static bool put_emptied(struct device_data *data, const struct neap_timeline_cursor *cursor, uint64_t *value)
{
	if (!is_emptied(data, cursor, value))
		return false;
	neap_packed_number(&data->packed, cursor->now.event - data->before);
	data->before = cursor->now.event;
	return true;
}

/* Differences of times; while times run backwards, they are 0 until the clock has caught up. */
static bool put_time(struct device_data *data, const struct neap_timeline_cursor *cursor, uint64_t *value)
{
	(void)value;
	uint64_t time = cursor->now.time_us > data->before ? cursor->now.time_us : data->before;
	neap_packed_number(&data->packed, time - data->before);
	data->before = time;
	return true;
}

/* Calls `put` for each event between the first and the last; returns how often it was true. `start` is its value and
 * `before` the data's at the beginning. */
static uint64_t each_event(struct device_data *data, uint64_t start, uint64_t before, put_event *put)
{
	struct neap_timeline_cursor cursor = neap_timeline_begin(&data->analysis->timeline);
	uint64_t count = 0, value = start;

	data->before = before;
	while (data->packed.out->status == NEAP_OK && neap_timeline_next(&cursor) &&
	       cursor.now.event < data->analysis->profile.to)
		if (within(data->analysis, cursor.now.event))
			count += put(data, &cursor, &value);
	return count;
}

static void put_events(struct device_data *data)
{
	const struct neap_profile *profile = &data->analysis->profile;
	struct neap_packed *packed = &data->packed;
	uint64_t start = profile->start.reserved;

	neap_packed_number(packed, data->analysis->timeline.reserved_known);
	neap_packed_number(packed, start);
	neap_packed_number(packed, each_event(data, start, 0, is_change));
	each_event(data, start, 0, put_change_event);
	each_event(data, start, 0, put_change);
	neap_packed_number(packed, profile->kinds[NEAP_TRACE_OOM]);
	if (profile->kinds[NEAP_TRACE_OOM] > 0) {
		each_event(data, 0, 0, put_failure_event);
		each_event(data, 0, 0, put_asked);
		each_event(data, 0, 0, put_device_free);
		each_event(data, 0, 0, put_failure_stack);
	}
	neap_packed_number(packed, profile->kinds[NEAP_TRACE_EMPTY_CACHE]);
	if (profile->kinds[NEAP_TRACE_EMPTY_CACHE] > 0)
		each_event(data, 0, 0, put_emptied);
}

static void put_steps(struct device_data *data)
{
	const struct neap_steps *steps = &data->analysis->steps;
	uint64_t count = 0, before = 0;

	for (size_t i = 0; i < steps->count; i++)
		count += within(data->analysis, steps->ends[i]);
	neap_packed_number(&data->packed, count);
	for (size_t i = 0; i < steps->count; i++) {
		if (!within(data->analysis, steps->ends[i]))
			continue;
		neap_packed_number(&data->packed, steps->ends[i] - before);
		before = steps->ends[i];
	}
}

static void put_marks(struct device_data *data)
{
	const struct neap_trace *trace = data->analysis->trace;
	const struct neap_trace_device *device = &trace->devices[data->analysis->device];
	const struct neap_trace_mark *marks = trace->marks + device->first_mark;
	uint64_t before = 0;
	size_t first = 0, count = 0;
	struct table texts = {0};

	while (first < device->mark_count && marks[first].event < data->analysis->profile.from)
		first++;
	while (first + count < device->mark_count && count < NEAP_TRACE_DATA_MARKS &&
	       marks[first + count].event <= data->analysis->profile.to)
		count++;
	marks += first;
	number_texts(&texts, trace);
	neap_packed_number(&data->packed, count);
	for (size_t i = 0; i < count; i++) {
		neap_packed_number(&data->packed, marks[i].event - before);
		before = marks[i].event;
	}
	for (size_t i = 0; i < count; i++)
		neap_packed_number(&data->packed, marks[i].kind);
	for (size_t i = 0; i < count; i++)
		neap_packed_number(&data->packed, marks[i].number);
	for (size_t i = 0; i < count; i++)
		neap_packed_number(&data->packed, table_number(&texts, marks[i].name));
	table_fini(&texts, data->packed.out);
}

void neap_trace_data_device(struct neap_page_out *out, const struct neap_analysis *analysis,
			    const struct neap_pieces *pieces)
{
	struct device_data data = {.analysis = analysis};
	const struct neap_profile *profile = &analysis->profile;

	neap_packed_begin(&data.packed, out);
	neap_packed_number(&data.packed, profile->from);
	neap_packed_number(&data.packed, profile->to);
	put_lives(&data);
	put_pieces(&data.packed, pieces);
	put_events(&data);
	put_steps(&data);
	put_marks(&data);
	neap_packed_number(&data.packed, profile->last_time_us ? profile->to - profile->from : 0);
	if (profile->last_time_us) {
		neap_packed_u64(&data.packed, profile->first_time_us);
		each_event(&data, 0, profile->first_time_us, put_time);
	}
	neap_packed_end(&data.packed);
	table_fini(&data.sizes, out);
	table_fini(&data.addresses, out);
}
