/* trace/snapshot_list.c: recognises a list or tuple of a PyTorch snapshot by its items: a stack of frames, runs of
 * events, blocks or segments, the traces of all devices. */
#include "trace/pickle.h"

#include <stdlib.h>

#define STACK_FRAMES_MAX (1u << 20)

void neap_snapshot_tuple(const struct neap_pickled *items, size_t count, struct neap_pickled *ret_tuple)
{
	if (count == 2 && items[0].type == NEAP_PICKLE_INT && items[1].type == NEAP_PICKLE_INT)
		neap_value_become(ret_tuple, VALUE_PAIR, items[0].a, items[1].a);
}

/* Adds frames to a list, which may already have some. */
static enum neap_status add_frames(struct reader *reader, struct neap_pickled *list, const struct neap_pickled *items,
				   size_t count)
{
	const struct neap_trace *trace = reader->build->trace;
	size_t used = 0;

	for (uint32_t call = list->type == VALUE_STACK ? (uint32_t)list->a : 0; call;
	     call = trace->calls[call].parent)
		used++;
	if (used + count > STACK_FRAMES_MAX)
		return neap_pickle_fail(&reader->pickle, "a stack of more than %u frames", STACK_FRAMES_MAX);
	if (used + count > reader->frame_capacity) {
		size_t capacity = (used + count) * 2;
		uint32_t *frames = realloc(reader->frames, capacity * sizeof *frames);
		if (!frames)
			return neap_pickle_no_memory(&reader->pickle);
		reader->frames = frames;
		reader->frame_capacity = capacity;
	}
	used = 0;
	for (uint32_t call = list->type == VALUE_STACK ? (uint32_t)list->a : 0; call;
	     call = trace->calls[call].parent)
		reader->frames[used++] = trace->calls[call].frame;
	for (size_t i = 0; i < count; i++)
		reader->frames[used++] = (uint32_t)items[i].a;
	neap_value_become(list, VALUE_STACK, neap_build_stack(reader->build, reader->frames, used), 0);
	return NEAP_OK;
}

static enum neap_status add_trace(struct reader *reader, const struct neap_pickled *item)
{
	if (reader->trace_count == sizeof reader->traces / sizeof *reader->traces)
		return neap_pickle_fail(&reader->pickle, "traces of more than 256 devices");
	reader->traces[reader->trace_count++] =
		item->type == VALUE_EVENTS ? (struct range){item->a, item->b} : (struct range){0};
	return NEAP_OK;
}

static bool is_trace(const struct neap_pickled *item)
{
	return (item->type == VALUE_EVENTS && item->list) || item->type == NEAP_PICKLE_LIST;
}

static bool is_run(const struct neap_pickled *item)
{
	return item->type == VALUE_EVENTS || item->type == VALUE_BLOCKS || item->type == VALUE_SEGMENTS;
}

/* Recognises a list by its first item. */
static enum neap_status add_first(struct reader *reader, struct neap_pickled *list, const struct neap_pickled *item)
{
	unsigned type = NEAP_PICKLE_OTHER;

	if (is_trace(item) && !reader->trace_count) {
		type = VALUE_TRACES;
	} else if (!item->list) {
		switch (item->type) {
		case VALUE_EVENTS:
		case VALUE_BLOCKS:
		case VALUE_SEGMENTS:
		case VALUE_MARKS:
		case VALUE_HISTORY:
			type = item->type;
			break;
		case NEAP_PICKLE_INT:
			type = VALUE_INTS;
			break;
		default:
			break;
		}
	}
	neap_value_become(list, type, item->a, item->b);
	return type == VALUE_TRACES ? add_trace(reader, item) : NEAP_OK;
}

static enum neap_status add_item(struct reader *reader, struct neap_pickled *list, const struct neap_pickled *item)
{
	switch (list->type) {
	case NEAP_PICKLE_LIST:
		return add_first(reader, list, item);
	case VALUE_EVENTS:
	case VALUE_BLOCKS:
	case VALUE_SEGMENTS:
		if (item->type != list->type || item->list)
			return neap_pickle_fail(&reader->pickle,
						"a list of events, blocks or segments holds something else");
		if (item->b && list->b && list->a + list->b != item->a)
			return neap_pickle_fail(&reader->pickle,
						"a list of events, blocks or segments is built out of order");
		if (!list->b)
			list->a = item->a;
		list->b += item->b;
		return NEAP_OK;
	case VALUE_TRACES:
		if (!is_trace(item))
			return neap_pickle_fail(&reader->pickle,
						"'device_traces' holds something that is not a list of events");
		return add_trace(reader, item);
	case VALUE_INTS:
		neap_value_become(list, item->type == NEAP_PICKLE_INT ? VALUE_PAIR : NEAP_PICKLE_OTHER, list->a,
				  item->a);
		return NEAP_OK;
	case VALUE_MARKS:
	case VALUE_HISTORY: /* the first history is the latest */
		if (item->type == list->type)
			return NEAP_OK;
		break;
	default:
		break;
	}
	if (is_run(item) && !item->list)
		return neap_pickle_fail(&reader->pickle, "events, blocks or segments in a list of something else");
	neap_value_become(list, NEAP_PICKLE_OTHER, 0, 0);
	return NEAP_OK;
}

enum neap_status neap_snapshot_list(struct reader *reader, struct neap_pickled *list, struct neap_pickled *items,
				    size_t count)
{
	enum neap_status status = NEAP_OK;
	size_t frames = 0;

	if (!list->list || !list->fresh)
		return neap_pickle_fail(&reader->pickle,
					"items are added to a list that was complete, or to no list");
	if (list->type == NEAP_PICKLE_LIST || list->type == VALUE_STACK) {
		while (frames < count && items[frames].type == VALUE_FRAME)
			frames++;
		if (frames)
			status = add_frames(reader, list, items, frames);
	}
	for (size_t i = frames; !status && i < count; i++)
		status = add_item(reader, list, &items[i]);
	return status;
}
