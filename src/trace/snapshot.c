/* trace/snapshot.c: recognises a dict of a PyTorch snapshot by its keys:
 *
 *   action                event        filename or line+name   frame        stage+name   annotation
 *   blocks                segment      real_size               history      segments, device_traces: the snapshot
 *   state+size            block        "1" "2" "4" ...         roundup divisions      max_split_size, ...: settings
 *
 * Newer and older layouts have different keys, so only the keys that matter are required. */
#include "trace/pickle.h"

#include <inttypes.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#define BIT(name)       (1ull << NAME_##name)
#define MISSING_ADDRESS UINT64_MAX
#define LAST_KEY        NAME_MAX_ROUND_THRESHOLD

/* The values of a dict's known keys. Only those in `keys` are set. */
struct known {
	uint64_t keys;
	const struct neap_pickled *of[64];
};

_Static_assert(LAST_KEY < 64, "a bit per key");
_Static_assert(NAME_SNAPSHOT - NAME_ALLOC == NEAP_TRACE_SNAPSHOT_TAKEN - NEAP_TRACE_ALLOC, "actions are in order");
_Static_assert(VALUE_COUNT <= 32, "a type has 5 bits in the memo");

void neap_snapshot_begin(struct reader *reader)
{
#define KNOWN(name, text) text,
	static const char *const texts[] = {
		"",
#include "trace/snapshot_names.h"
	};
#undef KNOWN
	for (size_t i = 1; i < sizeof texts / sizeof *texts; i++)
		neap_build_text(reader->build, texts[i], strlen(texts[i]));
}

/* --- single values -----------------------------------------------------------------------------------------------
 */

/* Returns the number of an optional key, which fits in 64 bits, signed or not; else `absent`. */
static uint64_t word_of(const struct known *known, enum known_text key, uint64_t absent)
{
	if (!(known->keys & 1ull << key) || known->of[key]->type != NEAP_PICKLE_INT || known->of[key]->b == 2)
		return absent;
	return known->of[key]->a;
}

/* A number of bytes. */
static enum neap_status size_of(struct reader *reader, const struct known *known, enum known_text key,
				const char *whose, bool required, uint64_t *ret_size)
{
	const struct neap_trace *trace = reader->build->trace;

	if (!(known->keys & 1ull << key) && required)
		return neap_pickle_fail(&reader->pickle, "%s without '%s'", whose, neap_trace_text(trace, key));
	if (!(known->keys & 1ull << key))
		return NEAP_OK;
	const struct neap_pickled *value = known->of[key];
	if (value->type != NEAP_PICKLE_INT)
		return neap_pickle_fail(&reader->pickle, "'%s' of %s is not a whole number",
					neap_trace_text(trace, key), whose);
	if (value->b || value->a > INT64_MAX)
		return neap_pickle_fail(&reader->pickle, "'%s' of %s is negative or too large",
					neap_trace_text(trace, key), whose);
	*ret_size = value->a;
	return NEAP_OK;
}

static uint32_t text_of(const struct known *known, enum known_text key)
{
	return known->keys & 1ull << key && known->of[key]->type == NEAP_PICKLE_TEXT ? (uint32_t)known->of[key]->a
										     : 0;
}

static bool truth_of(const struct known *known, enum known_text key)
{
	const struct neap_pickled *value = known->keys & 1ull << key ? known->of[key] : NULL;

	return value && (value->type == NEAP_PICKLE_BOOL || value->type == NEAP_PICKLE_INT) && value->a;
}

static uint32_t stack_of(struct reader *reader, const struct known *known)
{
	const struct neap_pickled *value;

	if (known->keys & BIT(FRAMES)) {
		value = known->of[NAME_FRAMES];
		if (value->type == VALUE_STACK)
			return (uint32_t)value->a;
		if (value->type != NEAP_PICKLE_LIST && value->type != NEAP_PICKLE_NONE)
			neap_build_warn(reader->build, reader->pickle.position, "frames that are no list of frames");
	} else if (known->keys & BIT(HISTORY) && known->of[NAME_HISTORY]->type == VALUE_HISTORY) {
		return (uint32_t)known->of[NAME_HISTORY]->a;
	}
	return 0;
}

static uint16_t stream_of(struct reader *reader, const struct known *known, enum known_text pool_key)
{
	const struct neap_pickled *pool = known->keys & 1ull << pool_key ? known->of[pool_key] : NULL;

	if (pool && pool->type != VALUE_PAIR)
		pool = NULL;
	return neap_build_stream(reader->build, word_of(known, NAME_STREAM, 0), pool ? pool->a : 0,
				 pool ? pool->b : 0);
}

/* --- the release -------------------------------------------------------------------------------------------------
 */

/* The keys that every dict of a kind has since a release of PyTorch 2, as the wheels of 2.4 to 2.15 show. */
static const struct {
	enum known_text key;
	enum { IN_EVENT, IN_SETTINGS, IN_TOP } where;
	unsigned since;
} dated_keys[] = {
	{NAME_COMPILE_CONTEXT, IN_EVENT, 8},         {NAME_REUSE_IN_CAPTURE, IN_SETTINGS, 9},
	{NAME_USER_METADATA, IN_EVENT, 10},          {NAME_POOL_ID, IN_EVENT, 12},
	{NAME_MAX_ROUND_THRESHOLD, IN_SETTINGS, 13}, {NAME_HOST_TRACES, IN_TOP, 14},
};

static void date_by_keys(struct reader *reader, const struct known *known, unsigned where)
{
	for (size_t i = 0; i < sizeof dated_keys / sizeof *dated_keys; i++) {
		unsigned since = dated_keys[i].since;
		if (dated_keys[i].where != where)
			continue;
		if (known->keys & 1ull << dated_keys[i].key)
			reader->torch_from = since > reader->torch_from ? since : reader->torch_from;
		else if (!reader->torch_to || since <= reader->torch_to)
			reader->torch_to = since - 1;
	}
}

/* --- dicts -------------------------------------------------------------------------------------------------------
 */

/* Takes the text that is attached to a live block. */
static void take_annotated(struct reader *reader, const struct known *known)
{
	struct neap_trace_annotation annotation = {.address = word_of(known, NAME_ADDR, 0),
						   .event = reader->build->trace->store->count,
						   .time_us = word_of(known, NAME_TIME_US, 0),
						   .size = word_of(known, NAME_SIZE, 0),
						   .stream = stream_of(reader, known, NAME_POOL_ID),
						   .text = text_of(known, NAME_USER_METADATA),
						   .stack = stack_of(reader, known)};

	neap_build_annotation(reader->build, &annotation);
}

static enum neap_status take_event(struct reader *reader, struct neap_pickled *dict, const struct known *known)
{
	struct neap_build *build = reader->build;
	uint64_t at = build->trace->store->count;
	struct neap_trace_event event = {0};
	uint32_t action = text_of(known, NAME_ACTION);
	enum neap_status status;

	if (action == NAME_ANNOTATE) {
		take_annotated(reader, known);
		neap_value_become(dict, VALUE_EVENTS, at, 0);
		return NEAP_OK;
	}
	if (action < NAME_ALLOC || action > NAME_SNAPSHOT || action == NAME_NO_ACTION) {
		neap_build_warn(build, reader->pickle.position, "events with the unknown action '%.60s' are left out",
				neap_trace_text(build->trace, action));
		neap_value_become(dict, VALUE_EVENTS, at, 0);
		return NEAP_OK;
	}
	event.kind = (uint8_t)(action - NAME_ALLOC + NEAP_TRACE_ALLOC);
	bool placed = event.kind != NEAP_TRACE_OOM && event.kind != NEAP_TRACE_SNAPSHOT_TAKEN;
	if (placed && (!(known->keys & BIT(ADDR)) || known->of[NAME_ADDR]->type != NEAP_PICKLE_INT))
		return neap_pickle_fail(&reader->pickle, "an event without 'addr'");
	status = size_of(reader, known, NAME_SIZE, "an event", placed, &event.size);
	if (status)
		return status;
	date_by_keys(reader, known, IN_EVENT);
	event.address = word_of(known, NAME_ADDR, 0);
	if (event.kind == NEAP_TRACE_OOM)
		event.address = word_of(known, NAME_DEVICE_FREE, event.address);
	event.time_us = word_of(known, NAME_TIME_US, 0);
	event.stack = stack_of(reader, known);
	event.stream = known->keys & BIT(POOL_ID)
			       ? stream_of(reader, known, NAME_POOL_ID)
			       : neap_pools_stream(&reader->pools, build, word_of(known, NAME_STREAM, 0),
						   placed ? &event.address : NULL);
	neap_beside_event(reader, text_of(known, NAME_USER_METADATA), text_of(known, NAME_INTERNAL_METADATA),
			  text_of(known, NAME_COMPILE_CONTEXT));
	neap_build_event(build, &event);
	reader->free_requests += event.kind == NEAP_TRACE_FREE_REQUESTED;
	reader->free_completions += event.kind == NEAP_TRACE_FREE_COMPLETED;
	neap_value_become(dict, VALUE_EVENTS, at, 1);
	return NEAP_OK;
}

static enum neap_status take_block(struct reader *reader, struct neap_pickled *dict, const struct known *known)
{
	struct neap_build *build = reader->build;
	const struct neap_pickled *history = known->keys & BIT(HISTORY) ? known->of[NAME_HISTORY] : NULL;
	struct neap_trace_block block = {.address = word_of(known, NAME_ADDRESS, MISSING_ADDRESS)};
	uint32_t state = text_of(known, NAME_STATE);
	enum neap_status status = size_of(reader, known, NAME_SIZE, "a block", true, &block.size);

	if (status)
		return status;
	block.requested = block.size;
	if (history && history->type == VALUE_HISTORY)
		block.requested = history->b;
	status = size_of(reader, known, NAME_REQUESTED_SIZE, "a block", false, &block.requested);
	if (status)
		return status;
	if (state == NAME_ACTIVE_ALLOCATED)
		block.state = NEAP_TRACE_BLOCK_LIVE;
	else if (state == NAME_ACTIVE_PENDING_FREE || state == NAME_ACTIVE_AWAITING_FREE)
		block.state = NEAP_TRACE_BLOCK_PENDING;
	else
		block.state = NEAP_TRACE_BLOCK_FREE;
	if (block.state == NEAP_TRACE_BLOCK_FREE && state != NAME_INACTIVE)
		neap_build_warn(build, reader->pickle.position,
				"blocks in the unknown state '%.60s' are taken for free",
				neap_trace_text(build->trace, state));
	block.stack = stack_of(reader, known);
	neap_value_become(dict, VALUE_BLOCKS, build->trace->block_count, 1);
	neap_build_block(build, &block);
	return NEAP_OK;
}

/* Gives blocks of older layouts their addresses, and warns of sums that do not add up. */
static void place_blocks(struct reader *reader, const struct neap_trace_segment *segment)
{
	struct neap_build *build = reader->build;
	struct neap_trace_block *blocks = build->trace->blocks + segment->first_block;
	uint64_t at = segment->address, sum = 0;
	bool outside = false;

	for (size_t i = 0; i < segment->block_count; i++) {
		if (blocks[i].address == MISSING_ADDRESS) {
			blocks[i].address = at;
			neap_build_warn(
				build, reader->pickle.position,
				"blocks without an address: taken to lie one after the other in their segment");
		}
		if (blocks[i].address < segment->address || blocks[i].address - segment->address > segment->size)
			outside = true;
		at = blocks[i].address + blocks[i].size;
		sum += blocks[i].size;
	}
	if (outside)
		neap_build_warn(build, reader->pickle.position, "segments with blocks outside of them");
	if (sum != segment->size)
		neap_build_warn(build, reader->pickle.position, "segments whose blocks do not add up to their size");
}

static enum neap_status take_segment(struct reader *reader, struct neap_pickled *dict, const struct known *known)
{
	static const char whose[] = "a segment";
	struct neap_build *build = reader->build;
	struct neap_trace_segment segment = {.address = word_of(known, NAME_ADDRESS, MISSING_ADDRESS)};
	const struct neap_pickled *blocks = known->of[NAME_BLOCKS];
	uint64_t device = word_of(known, NAME_DEVICE, 0);
	uint32_t type = text_of(known, NAME_SEGMENT_TYPE);
	enum neap_status status = size_of(reader, known, NAME_TOTAL_SIZE, whose, true, &segment.size);

	if (!status)
		status = size_of(reader, known, NAME_ALLOCATED_SIZE, whose, false, &segment.allocated);
	segment.active = segment.allocated;
	if (!status)
		status = size_of(reader, known, NAME_ACTIVE_SIZE, whose, false, &segment.active);
	segment.requested = segment.allocated;
	if (!status)
		status = size_of(reader, known, NAME_REQUESTED_SIZE, whose, false, &segment.requested);
	if (status)
		return status;
	if (segment.address == MISSING_ADDRESS)
		return neap_pickle_fail(&reader->pickle, "a segment without 'address'");
	bool host = device == UINT64_MAX;
	if (!host && !neap_build_device(build, device))
		return neap_pickle_fail(&reader->pickle, "a segment of device %" PRId64 "; 0 to 255 are possible",
					(int64_t)device);
	if (blocks->type != VALUE_BLOCKS && blocks->type != NEAP_PICKLE_LIST)
		return neap_pickle_fail(&reader->pickle, "'blocks' of a segment is not a list of blocks");
	segment.first_block = blocks->type == VALUE_BLOCKS ? (size_t)blocks->a : 0;
	segment.block_count = blocks->type == VALUE_BLOCKS ? (size_t)blocks->b : 0;
	segment.device = (uint8_t)device;
	segment.stream = stream_of(reader, known, NAME_SEGMENT_POOL_ID);
	segment.stack = stack_of(reader, known);
	segment.large = type ? type != NAME_SMALL : segment.size > 2u << 20;
	segment.expandable = truth_of(known, NAME_IS_EXPANDABLE);
	if (!build->failed)
		place_blocks(reader, &segment);
	if (host) { /* a list of pinned memory needs nothing more */
		neap_value_become(dict, NEAP_PICKLE_OTHER, 0, 0);
		neap_build_host_segment(build, &segment);
		return NEAP_OK;
	}
	neap_value_become(dict, VALUE_SEGMENTS, build->trace->segment_count, 1);
	neap_build_segment(build, &segment);
	return NEAP_OK;
}

static enum neap_status take_frame(struct reader *reader, struct neap_pickled *dict, const struct known *known)
{
	uint64_t line = word_of(known, NAME_LINE, 0);

	neap_value_become(dict, VALUE_FRAME,
			  neap_build_frame(reader->build, text_of(known, NAME_FILENAME), text_of(known, NAME_NAME),
					   line > UINT32_MAX ? 0 : (uint32_t)line),
			  0);
	return NEAP_OK;
}

static enum neap_status take_history(struct reader *reader, struct neap_pickled *dict, const struct known *known)
{
	uint64_t requested = 0;
	enum neap_status status = size_of(reader, known, NAME_REAL_SIZE, "a block's history", true, &requested);

	if (!status)
		neap_value_become(dict, VALUE_HISTORY, stack_of(reader, known), requested);
	return status;
}

static enum neap_status take_annotation(struct reader *reader, struct neap_pickled *dict, const struct known *known)
{
	uint64_t device = word_of(known, NAME_DEVICE, 0);
	uint32_t stage = text_of(known, NAME_STAGE);
	struct neap_trace_mark mark = {.time_us = word_of(known, NAME_TIME_US, 0), .name = text_of(known, NAME_NAME)};

	neap_value_become(dict, VALUE_MARKS, 0, 0);
	if (device > UINT8_MAX || !neap_build_device(reader->build, device)) {
		neap_build_warn(reader->build, reader->pickle.position,
				"annotations of no possible device are left out");
		return NEAP_OK;
	}
	mark.device = (uint8_t)device;
	mark.kind = stage == NAME_START ? NEAP_TRACE_BEGIN : stage == NAME_END ? NEAP_TRACE_END : NEAP_TRACE_MARK;
	neap_build_mark(reader->build, &mark);
	return NEAP_OK;
}

static enum neap_status take_top(struct reader *reader, struct neap_pickled *dict, const struct known *known)
{
	const struct neap_pickled *segments = known->keys & BIT(SEGMENTS) ? known->of[NAME_SEGMENTS] : NULL;
	const struct neap_pickled *traces = known->keys & BIT(DEVICE_TRACES) ? known->of[NAME_DEVICE_TRACES] : NULL;

	if (segments && segments->type != VALUE_SEGMENTS && segments->type != NEAP_PICKLE_LIST)
		return neap_pickle_fail(&reader->pickle, "'segments' is not a list of segments");
	if (traces && traces->type != VALUE_TRACES && traces->type != NEAP_PICKLE_LIST)
		return neap_pickle_fail(&reader->pickle, "'device_traces' is not a list of lists of events");
	if (segments && traces)
		date_by_keys(reader, known, IN_TOP);
	reader->has_segments = segments != NULL;
	reader->has_traces = traces != NULL;
	if (known->keys & BIT(HOST_TRACES) && known->of[NAME_HOST_TRACES]->type == VALUE_EVENTS)
		reader->host_trace = (struct range){known->of[NAME_HOST_TRACES]->a, known->of[NAME_HOST_TRACES]->b};
	neap_value_become(dict, VALUE_TOP, 0, 0);
	return NEAP_OK;
}

static void keep_setting(struct reader *reader, uint32_t key, const struct neap_pickled *value)
{
	char text[64];
	double number;

	switch (value->type) {
	case NEAP_PICKLE_TEXT:
		neap_build_setting(reader->build, key, (uint32_t)value->a);
		return;
	case NEAP_PICKLE_BOOL:
		snprintf(text, sizeof text, "%s", value->a ? "True" : "False");
		break;
	case NEAP_PICKLE_INT:
		snprintf(text, sizeof text, "%" PRId64, (int64_t)value->a);
		break;
	case NEAP_PICKLE_FLOAT:
		memcpy(&number, &value->a, sizeof number);
		snprintf(text, sizeof text, "%.17g", number);
		break;
	default:
		return;
	}
	neap_build_setting(reader->build, key, neap_build_text(reader->build, text, strlen(text)));
}

static enum neap_status take_settings(struct reader *reader, struct neap_pickled *dict, const struct known *known,
				      const struct neap_pickled *items, size_t count)
{
	struct neap_trace_settings *settings = &reader->build->trace->settings;
	const struct neap_pickled *threshold = known->keys & BIT(GC_THRESHOLD) ? known->of[NAME_GC_THRESHOLD] : NULL;

	date_by_keys(reader, known, IN_SETTINGS);
	settings->known = true;
	settings->expandable_segments = truth_of(known, NAME_EXPANDABLE_SEGMENTS);
	settings->max_split_size = (int64_t)word_of(known, NAME_MAX_SPLIT_SIZE, UINT64_MAX);
	if (settings->max_split_size < 0)
		settings->max_split_size = -1;
	settings->conf = text_of(known, NAME_CONF);
	if (threshold && threshold->type == NEAP_PICKLE_FLOAT)
		memcpy(&settings->garbage_collection_threshold, &threshold->a, sizeof(double));
	if (!(settings->garbage_collection_threshold > 0 && settings->garbage_collection_threshold <= 1))
		settings->garbage_collection_threshold = 0;
	if (known->keys & BIT(DIVISIONS) && known->of[NAME_DIVISIONS]->type == VALUE_DIVISIONS)
		memcpy(settings->roundup_power2_divisions, reader->divisions, sizeof reader->divisions);
	for (size_t i = 0; i < count; i += 2)
		if (items[i].type == NEAP_PICKLE_TEXT && (items[i].a < NAME_CONF || items[i].a > NAME_DIVISIONS))
			keep_setting(reader, (uint32_t)items[i].a, &items[i + 1]);
	neap_value_become(dict, VALUE_SETTINGS, 0, 0);
	return NEAP_OK;
}

static bool take_divisions(struct reader *reader, const struct neap_pickled *items, size_t count)
{
	for (size_t i = 0; i < count; i += 2)
		if (items[i].type != NEAP_PICKLE_TEXT || items[i].a < NAME_MIB_1 || items[i].a > NAME_MIB_32768 ||
		    items[i + 1].type != NEAP_PICKLE_INT)
			return false;
	memset(reader->divisions, 0, sizeof reader->divisions);
	for (size_t i = 0; i < count; i += 2)
		reader->divisions[items[i].a - NAME_MIB_1] =
			items[i + 1].b || items[i + 1].a > UINT32_MAX ? 0 : (uint32_t)items[i + 1].a;
	return true;
}

enum neap_status neap_snapshot_dict(struct reader *reader, struct neap_pickled *dict, struct neap_pickled *items,
				    size_t count)
{
	struct known known;

	known.keys = 0;
	if (dict->type == NEAP_PICKLE_OTHER && dict->fresh)
		return NEAP_OK;
	if (dict->type != NEAP_PICKLE_DICT || !dict->fresh)
		return neap_pickle_fail(&reader->pickle, "items are set in a dict that was complete, or in no dict");
	if (count % 2)
		return neap_pickle_fail(&reader->pickle, "a key without a value");
	if (!count)
		return NEAP_OK;
	for (size_t i = 0; i < count; i += 2) {
		if (items[i].type != NEAP_PICKLE_TEXT || items[i].a > LAST_KEY)
			continue;
		known.keys |= 1ull << items[i].a;
		known.of[items[i].a] = &items[i + 1];
	}
	if (known.keys & BIT(ACTION))
		return take_event(reader, dict, &known);
	if (known.keys & (BIT(SEGMENTS) | BIT(DEVICE_TRACES)))
		return take_top(reader, dict, &known);
	if (known.keys & BIT(BLOCKS))
		return take_segment(reader, dict, &known);
	if (known.keys & BIT(STATE) && known.keys & BIT(SIZE))
		return take_block(reader, dict, &known);
	if (known.keys & BIT(REAL_SIZE))
		return take_history(reader, dict, &known);
	if (known.keys & BIT(STAGE) && known.keys & BIT(NAME))
		return take_annotation(reader, dict, &known);
	if (known.keys & BIT(FILENAME) || (known.keys & BIT(LINE) && known.keys & BIT(NAME)))
		return take_frame(reader, dict, &known);
	if (known.keys & (BIT(CONF) | BIT(MAX_SPLIT_SIZE) | BIT(EXPANDABLE_SEGMENTS)))
		return take_settings(reader, dict, &known, items, count);
	neap_value_become(dict, take_divisions(reader, items, count) ? VALUE_DIVISIONS : NEAP_PICKLE_OTHER, 0, 0);
	return NEAP_OK;
}
