/* agent/requests.c: executes requests in an attached process. One function per row of proto/commands.h.
 *
 * If a device refuses its part (for example during a graph capture), its group in the answer says so; the other
 * devices do theirs.
 */
#include "agent/agent.h"

#include "agent/external.h"

#include "alloc/agent.h"
#include "base/error.h"
#include "neap/train.h"
#include "proto/commands.h"
#include "proto/device_answer.h"

#include <stdio.h>
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

static void fill_device(struct neap_device_answer *device, struct neap_alloc *alloc, const struct neap_stats *stats)
{
	const struct neap_device_info *info = neap_device_info(neap_alloc_device(alloc));
	neap_device_answer_init(device);
	memcpy(device->uuid, info->uuid, sizeof device->uuid);
	snprintf(device->name, sizeof device->name, "%s", info->name);
	device->ordinal = (uint64_t)info->ordinal;
	device->total = info->total_bytes;
	device->allocated = counter(stats, NEAP_METRIC_ALLOCATED_BYTES);
	device->reserved = counter(stats, NEAP_METRIC_RESERVED_BYTES);
	device->max_allocated = peak(stats, NEAP_METRIC_ALLOCATED_BYTES);
	device->max_reserved = peak(stats, NEAP_METRIC_RESERVED_BYTES);
}

static void fill_failure(struct neap_device_answer *device, const struct neap_error *err)
{
	device->status = err->status;
	snprintf(device->message, sizeof device->message, "%s", err->message);
}

/* Fills in the change, and what the program has reserved now. */
static void fill_emptied(struct neap_device_answer *device, struct neap_alloc *alloc,
			 const struct neap_emptied *emptied)
{
	struct neap_stats now;
	neap_get_stats(alloc, &now);
	device->allocated_before = counter(&emptied->before, NEAP_METRIC_ALLOCATED_BYTES);
	device->reserved_before = counter(&emptied->before, NEAP_METRIC_RESERVED_BYTES);
	device->reserved_now = counter(&now, NEAP_METRIC_RESERVED_BYTES);
	device->freed = emptied->freed_bytes;
	device->nanoseconds = emptied->nanoseconds;
	if (emptied->free_known) {
		device->free_before = emptied->free_before;
		device->free = emptied->free_after;
	}
}

static void emit_cleanup(struct neap_alloc *alloc, const struct neap_emptied *emptied)
{
	neap_emit_cleanup(alloc, (struct neap_event_cleanup){.ns = emptied->nanoseconds,
							     .freed_bytes = emptied->freed_bytes,
							     .reason = NEAP_CLEANUP_REQUEST});
}

/* Writes one answer per allocator, each filled by `fill`. */
static void each_allocator(struct neap_field_writer *reply,
			   void (*fill)(struct neap_alloc *alloc, void *context, struct neap_device_answer *device),
			   void *context)
{
	struct neap_alloc *allocators[AGENT_ALLOCATORS];
	size_t count = agent_pin(allocators);
	for (size_t i = 0; i < count; i++) {
		struct neap_device_answer device;
		fill(allocators[i], context, &device);
		neap_device_answer_write(reply, &device);
	}
	agent_unpin(allocators, count);
}

/* Asks the external allocator of this process, if there is one. If it refuses, the whole request fails before
 * anything else is done. */
static enum neap_status ask_external(enum neap_external_kind kind, bool force, double fraction,
				     struct neap_field_writer *reply, struct neap_error *err)
{
	const struct agent_external_answer *given = NULL;
	struct neap_external_request request = {.kind = (uint32_t)kind, .force = force, .fraction = fraction};
	enum neap_status status = agent_external_ask(&request, &agent_external_bounds, &given, err);
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
	for (size_t i = 0; i < given->count; i++)
		neap_device_answer_write(reply, &given->devices[i]);
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

static void show_one(struct neap_alloc *alloc, void *context, struct neap_device_answer *device)
{
	struct neap_stats stats;
	(void)context;
	neap_get_stats(alloc, &stats);
	fill_device(device, alloc, &stats);
}

static enum neap_status answer_info(const struct neap_fields *arguments, struct neap_field_writer *reply,
				    struct neap_error *err)
{
	answer_hello(arguments, reply, err);
	enum neap_status status = ask_external(NEAP_EXTERNAL_INFO, false, 0, reply, err);
	if (!status)
		each_allocator(reply, show_one, NULL);
	return status;
}

/* Empties one allocator's cache and reports the bytes freed and the time it took. The program keeps running, so the
 * answer also reports what is reserved by then. */
static void clear_one(struct neap_alloc *alloc, void *context, struct neap_device_answer *device)
{
	struct neap_emptied emptied;
	struct neap_error err;
	if (neap_empty_cache_measured(alloc, &emptied, &err) != NEAP_OK) {
		show_one(alloc, context, device);
		fill_failure(device, &err);
		return;
	}
	fill_device(device, alloc, &emptied.after);
	fill_emptied(device, alloc, &emptied);
	emit_cleanup(alloc, &emptied);
}

static enum neap_status answer_clear(const struct neap_fields *arguments, struct neap_field_writer *reply,
				     struct neap_error *err)
{
	uint64_t force = 0;
	neap_fields_u64(arguments, NEAP_FIELD_FORCE, &force);
	enum neap_status status = ask_external(NEAP_EXTERNAL_CLEAR, force, 0, reply, err);
	if (status)
		return status;
	if (force)
		neap_write_u64(reply, NEAP_FIELD_CALLBACK_BYTES, agent_call_clear(true));
	each_allocator(reply, clear_one, NULL);
	return NEAP_OK;
}

static void reset_one(struct neap_alloc *alloc, void *context, struct neap_device_answer *device)
{
	show_one(alloc, context, device);
	neap_reset_peak_stats(alloc);
}

static enum neap_status answer_reset_peak(const struct neap_fields *arguments, struct neap_field_writer *reply,
					  struct neap_error *err)
{
	(void)arguments;
	enum neap_status status = ask_external(NEAP_EXTERNAL_RESET_PEAK, false, 0, reply, err);
	if (!status)
		each_allocator(reply, reset_one, NULL);
	return status;
}

/* Limits one allocator. If its cache could not be emptied, the device's part of the answer reports the failure; the
 * limit is in force nevertheless. */
static void limit_one(struct neap_alloc *alloc, void *context, struct neap_device_answer *device)
{
	struct neap_limited limited = {0};
	struct neap_error err;
	enum neap_status status = neap_set_fraction_measured(alloc, *(const double *)context, &limited, &err);
	fill_device(device, alloc, &limited.cache.after);
	fill_emptied(device, alloc, &limited.cache);
	device->limit_before = limited.limit_before;
	device->limit = limited.limit_after;
	device->emptied = limited.emptied;
	if (status)
		fill_failure(device, &err);
	else if (limited.emptied)
		emit_cleanup(alloc, &limited.cache);
}

static enum neap_status answer_fraction(const struct neap_fields *arguments, struct neap_field_writer *reply,
					struct neap_error *err)
{
	double fraction = 0;
	if (!neap_fields_f64(arguments, NEAP_FIELD_FRACTION, &fraction) || !(fraction > 0 && fraction <= 1))
		return neap_fail(err, NEAP_EINVAL, "the fraction must be above 0 and at most 1");
	enum neap_status status = ask_external(NEAP_EXTERNAL_FRACTION, false, fraction, reply, err);
	if (status)
		return status;
	neap_write_f64(reply, NEAP_FIELD_FRACTION, fraction);
	each_allocator(reply, limit_one, &fraction);
	return NEAP_OK;
}

static enum neap_status answer_release(const struct neap_fields *arguments, struct neap_field_writer *reply,
				       struct neap_error *err)
{
	return agent_answer_release(arguments, reply, err);
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
	/* A disabled agent answers only HELLO, which reports its process and its failure. */
	if (command != NEAP_REQUEST_HELLO && agent_identify(&identity, &fault) != NEAP_OK)
		return neap_fail(err, NEAP_ESTATE, "the agent disabled itself: %s", fault.message);
	for (size_t i = 0; i < sizeof requests / sizeof *requests; i++)
		if (requests[i].number == command)
			return requests[i].answer(arguments, reply, err);
	return neap_fail(err, NEAP_ENOTSUP, "version " NEAP_VERSION " of neap does not know request %u", command);
}
