/* agent/requests.c: what an attached process does when it is asked. One function per row of proto/commands.h.
 *
 * A device that refuses its part (a graph is being captured, say) answers so in its own group; the others do theirs.
 */
#include "agent/agent.h"

#include "agent/external.h"

#include "alloc/emptied.h"
#include "base/error.h"
#include "neap/train.h"
#include "proto/commands.h"

#include <string.h>

typedef enum neap_status answer(const struct neap_fields *arguments, struct neap_field_writer *reply,
				struct neap_error *err);

static uint64_t counter(const struct neap_stats *stats, enum neap_metric metric)
{
	int64_t value = stats->metric[metric][NEAP_CLASS_ALL].current;
	return value > 0 ? (uint64_t)value : 0;
}

static uint64_t peak(const struct neap_stats *stats, enum neap_metric metric)
{
	int64_t value = stats->metric[metric][NEAP_CLASS_ALL].peak;
	return value > 0 ? (uint64_t)value : 0;
}

static void write_device(struct neap_field_writer *reply, struct neap_alloc *alloc, const struct neap_stats *stats)
{
	const struct neap_device_info *info = neap_device_info(neap_alloc_device(alloc));
	neap_write_bytes(reply, NEAP_FIELD_UUID, info->uuid, sizeof info->uuid);
	neap_write_u64(reply, NEAP_FIELD_ORDINAL, (uint64_t)info->ordinal);
	neap_write_string(reply, NEAP_FIELD_NAME, info->name);
	neap_write_u64(reply, NEAP_FIELD_TOTAL, info->total_bytes);
	neap_write_u64(reply, NEAP_FIELD_ALLOCATED, counter(stats, NEAP_METRIC_ALLOCATED_BYTES));
	neap_write_u64(reply, NEAP_FIELD_RESERVED, counter(stats, NEAP_METRIC_RESERVED_BYTES));
	neap_write_u64(reply, NEAP_FIELD_MAX_ALLOCATED, peak(stats, NEAP_METRIC_ALLOCATED_BYTES));
	neap_write_u64(reply, NEAP_FIELD_MAX_RESERVED, peak(stats, NEAP_METRIC_RESERVED_BYTES));
}

static void write_failure(struct neap_field_writer *reply, const struct neap_error *err)
{
	neap_write_u64(reply, NEAP_FIELD_STATUS, err->status);
	neap_write_string(reply, NEAP_FIELD_ERROR, err->message);
}

/* What an external allocator has in its answer of one device; UINT64_MAX is left out. */
static void write_external(struct neap_field_writer *reply, const struct neap_external_device *device)
{
	const struct {
		unsigned number;
		uint64_t value;
	} numbers[] = {
		{NEAP_FIELD_ORDINAL, device->ordinal},
		{NEAP_FIELD_TOTAL, device->total},
		{NEAP_FIELD_ALLOCATED, device->allocated},
		{NEAP_FIELD_RESERVED, device->reserved},
		{NEAP_FIELD_MAX_ALLOCATED, device->max_allocated},
		{NEAP_FIELD_MAX_RESERVED, device->max_reserved},
		{NEAP_FIELD_ALLOCATED_BEFORE, device->allocated_before},
		{NEAP_FIELD_RESERVED_BEFORE, device->reserved_before},
		{NEAP_FIELD_RESERVED_NOW, device->reserved},
		{NEAP_FIELD_FREE_BEFORE, device->free_before},
		{NEAP_FIELD_FREE, device->free_after},
		{NEAP_FIELD_FREED, device->freed},
		{NEAP_FIELD_NANOSECONDS, device->nanoseconds},
		{NEAP_FIELD_EMPTIED, device->emptied},
	};
	neap_write_bytes(reply, NEAP_FIELD_UUID, device->uuid, sizeof device->uuid);
	neap_write_string(reply, NEAP_FIELD_NAME, device->name);
	for (size_t i = 0; i < sizeof numbers / sizeof *numbers; i++)
		if (numbers[i].value != UINT64_MAX)
			neap_write_u64(reply, numbers[i].number, numbers[i].value);
	neap_write_u64(reply, NEAP_FIELD_LIMIT_BEFORE, device->limit_before); /* UINT64_MAX: no limit */
	neap_write_u64(reply, NEAP_FIELD_LIMIT, device->limit_after);
	if (device->status != NEAP_OK) {
		neap_write_u64(reply, NEAP_FIELD_STATUS, device->status);
		neap_write_string(reply, NEAP_FIELD_ERROR, device->message);
	}
}

/* Asks another allocator of this process, if there is one. If it refuses, the whole request is refused before
 * anything else is done. */
static enum neap_status ask_external(enum neap_external_kind kind, bool force, double fraction,
				     struct neap_field_writer *reply, struct neap_error *err)
{
	const struct agent_external_answer *given = NULL;
	enum neap_status status = agent_external_ask(kind, force, fraction, &given, err);
	if (status == NEAP_ENOENT)
		return NEAP_OK;
	if (status)
		return status;
	if (given->status != NEAP_OK)
		return neap_fail(err, given->status, "%s", given->text);
	for (const char *line = given->text; *line; line += strspn(line, "\n")) {
		size_t length = strcspn(line, "\n");
		neap_write_bytes(reply, NEAP_FIELD_LINE, line, length);
		line += length;
	}
	for (size_t i = 0; i < given->count; i++) {
		size_t group = neap_write_group_begin(reply, NEAP_FIELD_DEVICE);
		write_external(reply, &given->devices[i]);
		neap_write_group_end(reply, group);
	}
	return NEAP_OK;
}

static enum neap_status answer_hello(const struct neap_fields *arguments, struct neap_field_writer *reply,
				     struct neap_error *err)
{
	struct agent_identity identity;
	struct neap_error fault;
	(void)arguments;
	(void)err;
	if (agent_identify(&identity, &fault) != NEAP_OK)
		neap_write_string(reply, NEAP_FIELD_FAULT, fault.message);
	neap_write_u64(reply, NEAP_FIELD_PID, (uint64_t)identity.pid);
	neap_write_u64(reply, NEAP_FIELD_START_TICKS, identity.start_ticks);
	neap_write_string(reply, NEAP_FIELD_NAME, identity.name);
	neap_write_string(reply, NEAP_FIELD_VERSION, NEAP_VERSION);
	neap_write_string(reply, NEAP_FIELD_RUN_ID, identity.run_id);
	neap_write_string(reply, NEAP_FIELD_RECORD, identity.record_path);
	return NEAP_OK;
}

static enum neap_status answer_info(const struct neap_fields *arguments, struct neap_field_writer *reply,
				    struct neap_error *err)
{
	struct neap_alloc *allocators[AGENT_ALLOCATORS];
	answer_hello(arguments, reply, err);
	enum neap_status status = ask_external(NEAP_EXTERNAL_INFO, false, 0, reply, err);
	if (status)
		return status;
	size_t count = agent_pin(allocators);
	for (size_t i = 0; i < count; i++) {
		struct neap_stats stats;
		neap_get_stats(allocators[i], &stats);
		size_t group = neap_write_group_begin(reply, NEAP_FIELD_DEVICE);
		write_device(reply, allocators[i], &stats);
		neap_write_group_end(reply, group);
	}
	agent_unpin(allocators, count);
	return NEAP_OK;
}

/* Empties one allocator's cache and reports the bytes it returned and the time it took. The program keeps running
 * meanwhile: the answer reports separately what it allocated again. */
static void clear_one(struct neap_alloc *alloc, struct neap_field_writer *reply)
{
	struct neap_emptied emptied;
	struct neap_stats now;
	struct neap_error err;
	enum neap_status status = neap_empty_cache_told(alloc, &emptied, &err);
	neap_get_stats(alloc, &now);
	if (status) {
		write_device(reply, alloc, &now);
		write_failure(reply, &err);
		return;
	}
	write_device(reply, alloc, &emptied.after);
	neap_write_u64(reply, NEAP_FIELD_ALLOCATED_BEFORE, counter(&emptied.before, NEAP_METRIC_ALLOCATED_BYTES));
	neap_write_u64(reply, NEAP_FIELD_RESERVED_BEFORE, counter(&emptied.before, NEAP_METRIC_RESERVED_BYTES));
	neap_write_u64(reply, NEAP_FIELD_RESERVED_NOW, counter(&now, NEAP_METRIC_RESERVED_BYTES));
	neap_write_u64(reply, NEAP_FIELD_FREED, emptied.freed_bytes);
	neap_write_u64(reply, NEAP_FIELD_NANOSECONDS, emptied.nanoseconds);
	if (emptied.free_known) {
		neap_write_u64(reply, NEAP_FIELD_FREE_BEFORE, emptied.free_before);
		neap_write_u64(reply, NEAP_FIELD_FREE, emptied.free_after);
	}
	neap_emit_cleanup(alloc, (struct neap_event_cleanup){.ns = emptied.nanoseconds,
							     .freed_bytes = emptied.freed_bytes,
							     .reason = NEAP_CLEANUP_REQUEST});
}

static enum neap_status answer_clear(const struct neap_fields *arguments, struct neap_field_writer *reply,
				     struct neap_error *err)
{
	struct neap_alloc *allocators[AGENT_ALLOCATORS];
	uint64_t force = 0;
	neap_fields_u64(arguments, NEAP_FIELD_FORCE, &force);
	enum neap_status status = ask_external(NEAP_EXTERNAL_CLEAR, force, 0, reply, err);
	if (status)
		return status;
	if (force)
		neap_write_u64(reply, NEAP_FIELD_CALLBACK_BYTES, agent_call_clear(true));
	size_t count = agent_pin(allocators);
	for (size_t i = 0; i < count; i++) {
		size_t group = neap_write_group_begin(reply, NEAP_FIELD_DEVICE);
		clear_one(allocators[i], reply);
		neap_write_group_end(reply, group);
	}
	agent_unpin(allocators, count);
	return NEAP_OK;
}

static enum neap_status answer_reset_peak(const struct neap_fields *arguments, struct neap_field_writer *reply,
					  struct neap_error *err)
{
	struct neap_alloc *allocators[AGENT_ALLOCATORS];
	(void)arguments;
	enum neap_status status = ask_external(NEAP_EXTERNAL_RESET_PEAK, false, 0, reply, err);
	if (status)
		return status;
	size_t count = agent_pin(allocators);
	for (size_t i = 0; i < count; i++) {
		struct neap_stats stats;
		neap_get_stats(allocators[i], &stats);
		neap_reset_peak_stats(allocators[i]);
		size_t group = neap_write_group_begin(reply, NEAP_FIELD_DEVICE);
		write_device(reply, allocators[i], &stats);
		neap_write_group_end(reply, group);
	}
	agent_unpin(allocators, count);
	return NEAP_OK;
}

/* Limits one allocator. A cache that could not be emptied is a failure of this device's part, told with it: the limit
 * is in force all the same. */
static void limit_one(struct neap_alloc *alloc, double fraction, struct neap_field_writer *reply)
{
	struct neap_limited limited = {0};
	const struct neap_emptied *cache = &limited.cache;
	struct neap_stats now;
	struct neap_error err;
	enum neap_status status = neap_set_fraction_told(alloc, fraction, &limited, &err);
	neap_get_stats(alloc, &now);
	write_device(reply, alloc, &cache->after);
	neap_write_u64(reply, NEAP_FIELD_LIMIT_BEFORE, limited.limit_before);
	neap_write_u64(reply, NEAP_FIELD_LIMIT, limited.limit_after);
	neap_write_u64(reply, NEAP_FIELD_EMPTIED, limited.emptied);
	neap_write_u64(reply, NEAP_FIELD_ALLOCATED_BEFORE, counter(&cache->before, NEAP_METRIC_ALLOCATED_BYTES));
	neap_write_u64(reply, NEAP_FIELD_RESERVED_BEFORE, counter(&cache->before, NEAP_METRIC_RESERVED_BYTES));
	neap_write_u64(reply, NEAP_FIELD_RESERVED_NOW, counter(&now, NEAP_METRIC_RESERVED_BYTES));
	neap_write_u64(reply, NEAP_FIELD_FREED, cache->freed_bytes);
	neap_write_u64(reply, NEAP_FIELD_NANOSECONDS, cache->nanoseconds);
	if (cache->free_known) {
		neap_write_u64(reply, NEAP_FIELD_FREE_BEFORE, cache->free_before);
		neap_write_u64(reply, NEAP_FIELD_FREE, cache->free_after);
	}
	if (status)
		write_failure(reply, &err);
	else if (limited.emptied)
		neap_emit_cleanup(alloc, (struct neap_event_cleanup){.ns = cache->nanoseconds,
								     .freed_bytes = cache->freed_bytes,
								     .reason = NEAP_CLEANUP_REQUEST});
}

static enum neap_status answer_fraction(const struct neap_fields *arguments, struct neap_field_writer *reply,
					struct neap_error *err)
{
	struct neap_alloc *allocators[AGENT_ALLOCATORS];
	double fraction = 0;
	if (!neap_fields_f64(arguments, NEAP_FIELD_FRACTION, &fraction) || !(fraction > 0 && fraction <= 1))
		return neap_fail(err, NEAP_EINVAL, "the fraction must be above 0 and at most 1");
	enum neap_status status = ask_external(NEAP_EXTERNAL_FRACTION, false, fraction, reply, err);
	if (status)
		return status;
	neap_write_f64(reply, NEAP_FIELD_FRACTION, fraction);
	size_t count = agent_pin(allocators);
	for (size_t i = 0; i < count; i++) {
		size_t group = neap_write_group_begin(reply, NEAP_FIELD_DEVICE);
		limit_one(allocators[i], fraction, reply);
		neap_write_group_end(reply, group);
	}
	agent_unpin(allocators, count);
	return NEAP_OK;
}

static const struct request {
	unsigned number;
	answer *answer;
} requests[] = {
#define X(number, NAME, name, help) {NEAP_REQUEST_##NAME, answer_##name},
	NEAP_REQUESTS(X)
#undef X
};

enum neap_status agent_execute(void *context, unsigned command, const struct neap_fields *arguments,
			       struct neap_field_writer *reply, struct neap_error *err)
{
	struct agent_identity identity;
	struct neap_error fault;
	(void)context;
	agent_check();
	/* A disabled agent still says who it is and what is wrong, and touches nothing. */
	if (command != NEAP_REQUEST_HELLO && agent_identify(&identity, &fault) != NEAP_OK)
		return neap_fail(err, NEAP_ESTATE, "the agent disabled itself: %s", fault.message);
	for (size_t i = 0; i < sizeof requests / sizeof *requests; i++)
		if (requests[i].number == command)
			return requests[i].answer(arguments, reply, err);
	return neap_fail(err, NEAP_ENOTSUP, "version " NEAP_VERSION " of neap does not know request %u", command);
}
