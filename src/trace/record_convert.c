/* trace/record_convert.c: converts events of neap 0.1, whose kinds all shared one struct of general fields, to
 * today's layout. The header of such a recording has today's layout. */
#include "trace/record.h"

#include <string.h>

struct earlier {
	uint64_t time_ns;
	uint32_t sequence;
	uint16_t kind, name, device, flags;
	uint32_t stream;
	uint64_t address, size, block, a, b;
};
_Static_assert(sizeof(struct earlier) == sizeof(struct neap_event), "the slots have one size");

#define PARTS_SHIFT 8 /* where SPLIT and RUNG have the number of smaller parts in `stream`: above the rungs */

static struct neap_event_settings settings_of(const struct earlier *from)
{
	return (struct neap_event_settings){
		.rungs = from->stream & ((1u << PARTS_SHIFT) - 1),
		.smaller_parts = from->stream >> PARTS_SHIFT,
		.micro_batch = from->address,
		.accumulate = from->size,
	};
}

/* Converts a threshold's figures, a leak's interval, or the bound of --max-steps, depending on the event's name. */
static struct neap_event_request request_of(const struct earlier *from, const char *name)
{
	struct neap_event_request request = {.name = from->name, .request = (uint32_t)from->block};
	if (!strncmp(name, "leak", NEAP_RECORD_NAME_ROOM)) {
		request.low_step = from->size;
		request.high_step = from->address;
	} else if (!strncmp(name, "--max-steps", NEAP_RECORD_NAME_ROOM)) {
		request.max_steps = from->size;
	} else {
		request.left_bytes = from->size;
		request.threshold_bytes = from->address;
	}
	return request;
}

static struct neap_event convert_memory(const struct earlier *from, struct neap_event_held held)
{
	if (from->kind <= NEAP_EVENT_RECORD_STREAM)
		return neap_event_of_allocation(from->kind, from->device,
						(struct neap_event_allocation){.held = held,
									       .tag = from->name,
									       .stream = from->stream,
									       .address = from->address,
									       .requested_bytes = from->size,
									       .bytes = from->block});
	return neap_event_of_segment(
		from->kind, from->device,
		(struct neap_event_segment){
			.held = held, .stream = from->stream, .address = from->address, .bytes = from->size});
}

static struct neap_event convert_oom(const struct earlier *from, struct neap_event_held held)
{
	switch (from->kind) {
	case NEAP_EVENT_OOM:
		return neap_event_of_oom(from->device, (struct neap_event_oom){.held = held,
									       .tag = from->name,
									       .flags = from->flags,
									       .device_free_bytes = from->address,
									       .requested_bytes = from->size,
									       .bytes = from->block});
	case NEAP_EVENT_OOM_LIMITS:
		return neap_event_of_oom_limits(
			from->device, (struct neap_event_oom_limits){.context_bytes = (uint64_t)from->stream << 20,
								     .device_total_bytes = from->address,
								     .limit_bytes = from->size,
								     .largest_free_bytes = from->block,
								     .others_bytes = from->a,
								     .pending_bytes = from->b});
	case NEAP_EVENT_OOM_POOLS:
		return neap_event_of_oom_pools(
			from->device, (struct neap_event_oom_pools){.small_failed = from->address,
								    .small_largest_free_bytes = from->size,
								    .large_largest_free_bytes = from->block});
	default:
		return neap_event_of_tag_bytes(from->device, (struct neap_event_tag_bytes){.tag = from->name,
											   .live_blocks = from->size,
											   .live_bytes = from->a,
											   .peak_bytes = from->b});
	}
}

/* Converts the events that describe a process and its allocator. */
static struct neap_event convert_process(const struct earlier *from, struct neap_event_held held)
{
	switch (from->kind) {
	case NEAP_EVENT_PROCESS:
		return neap_event_of_process(from->device, (struct neap_event_process){.device_uuid = from->name,
										       .role = (uint32_t)from->block,
										       .rank = from->address,
										       .local_rank = from->size,
										       .ranks = from->a,
										       .parent = from->b});
	case NEAP_EVENT_PAGE:
		return neap_event_of_page(from->device, (struct neap_event_page){.device_uuid = from->name,
										 .context_bytes = from->address,
										 .peak_allocated_bytes = from->size,
										 .peak_reserved_bytes = from->block});
	case NEAP_EVENT_EMPTY_CACHE:
		return neap_event_of_empty_cache(
			from->device, (struct neap_event_empty_cache){
					      .held = held, .ns = from->address, .freed_bytes = from->size});
	case NEAP_EVENT_CLEANUP:
		return neap_event_of_cleanup(from->device, (struct neap_event_cleanup){.held = held,
										       .ns = from->address,
										       .freed_bytes = from->size,
										       .reason = from->block});
	default:
		return neap_event_of_room(from->device,
					  (struct neap_event_room){.held = held,
								   .page_bytes = (uint64_t)from->stream << 10,
								   .device_total_bytes = from->address,
								   .room_bytes = from->size,
								   .limit_bytes = from->block});
	}
}

/* Converts a session's events about its steps. */
static struct neap_event convert_steps(const struct earlier *from, struct neap_event_held held)
{
	switch (from->kind) {
	case NEAP_EVENT_MARK:
		return neap_event_of_mark(from->device, (struct neap_event_mark){.held = held,
										 .name = from->name,
										 .mark = (uint32_t)from->address,
										 .value = from->size});
	case NEAP_EVENT_STEP:
		return neap_event_of_step(from->device, (struct neap_event_step){.held = held,
										 .name = from->name,
										 .micro_batches = from->stream,
										 .number = from->address,
										 .peak_bytes = from->size,
										 .lowest_bytes = from->block});
	case NEAP_EVENT_SPLIT:
		return neap_event_of_split(from->device, (struct neap_event_split){.held = held,
										   .settings = settings_of(from),
										   .ranks = (uint32_t)from->block,
										   .layers = from->flags});
	case NEAP_EVENT_RUNG:
		return neap_event_of_rung(from->device, (struct neap_event_rung){.settings = settings_of(from),
										 .rung = from->block,
										 .micro_batch_before = from->a,
										 .accumulate_before = from->b});
	case NEAP_EVENT_SMALLER_PARTS:
		return neap_event_of_smaller_parts(from->device, (struct neap_event_smaller_parts){from->size});
	case NEAP_EVENT_METRIC: {
		struct neap_event_metric metric = {.held = held, .name = from->name, .step = from->size};
		memcpy(&metric.value, &from->address, sizeof metric.value);
		return neap_event_of_metric(from->device, metric);
	}
	default:
		return neap_event_of_scope(
			from->kind, from->device,
			(struct neap_event_scope){
				.held = held, .name = from->name, .ns = from->address, .peak_bytes = from->size});
	}
}

/* Converts a session's events about memory that runs short. */
static struct neap_event convert_shortage(const struct earlier *from, struct neap_event_held held, const char *name)
{
	switch (from->kind) {
	case NEAP_EVENT_LEAK:
		return neap_event_of_leak(from->device, (struct neap_event_leak){.held = held,
										 .bytes_per_step = from->size,
										 .confidence_permille = from->block});
	case NEAP_EVENT_LEVEL:
		return neap_event_of_level(from->device, (struct neap_event_level){.name = from->name,
										   .act = (uint32_t)from->block,
										   .threshold_bytes = from->address,
										   .left_bytes = from->size});
	case NEAP_EVENT_FORECAST:
		return neap_event_of_forecast(from->device, (struct neap_event_forecast){.step = from->address,
											 .low_step = from->size,
											 .high_step = from->block});
	case NEAP_EVENT_REQUEST:
		return neap_event_of_request(from->device, request_of(from, name));
	default:
		return neap_event_of_restart(from->device, (struct neap_event_restart){from->block});
	}
}

struct neap_event neap_record_convert(const struct neap_event *earlier, const struct neap_record_header *header)
{
	struct earlier from;
	memcpy(&from, earlier, sizeof from);
	const struct neap_event_held held = {from.a, from.b};
	const char *name = from.name < NEAP_RECORD_NAMES ? header->names[from.name] : "";
	struct neap_event event;
	switch (from.kind) {
	case NEAP_EVENT_ALLOC ... NEAP_EVENT_SEGMENT_UNMAP:
		event = convert_memory(&from, held);
		break;
	case NEAP_EVENT_OOM:
	case NEAP_EVENT_OOM_LIMITS:
	case NEAP_EVENT_OOM_POOLS:
	case NEAP_EVENT_TAG_BYTES:
		event = convert_oom(&from, held);
		break;
	case NEAP_EVENT_PROCESS:
	case NEAP_EVENT_PAGE:
	case NEAP_EVENT_EMPTY_CACHE:
	case NEAP_EVENT_CLEANUP:
	case NEAP_EVENT_ROOM:
		event = convert_process(&from, held);
		break;
	case NEAP_EVENT_LEAK:
	case NEAP_EVENT_LEVEL ... NEAP_EVENT_RESTART:
		event = convert_shortage(&from, held, name);
		break;
	case NEAP_EVENT_MARK ... NEAP_EVENT_SPLIT:
	case NEAP_EVENT_RUNG ... NEAP_EVENT_METRIC:
	case NEAP_EVENT_SMALLER_PARTS:
		event = convert_steps(&from, held);
		break;
	default: /* readers skip kinds that they do not know */
		event = (struct neap_event){.kind = UINT16_MAX};
	}
	event.time_ns = from.time_ns;
	event.sequence = from.sequence;
	return event;
}
