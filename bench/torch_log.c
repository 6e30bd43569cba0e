/* bench/torch_log.c: everything that neap's model of PyTorch's policy does with a text trace, one action a line, for
 * bench/torch_reference.py to compare with a second model.
 *
 *     torch_log TRACE SETTINGS MEMORY EVENT-DELAY
 *
 * Requests that do not fit are skipped. The last line has the peaks of requested, allocated, active and reserved
 * bytes, retries and failures. */
#include "base/error.h"
#include "base/map.h"
#include "replay/torch_policy.h"
#include "trace/trace.h"

#include <inttypes.h>
#include <stdio.h>
#include <stdlib.h>

static void print_action(void *context, enum neap_torch_action action, uint64_t address, uint64_t size,
			 uint64_t stream)
{
	static const char *const names[NEAP_TORCH_ACTIONS] = {
		"alloc",        "free_requested", "free_completed", "segment_alloc",
		"segment_free", "segment_map",    "segment_unmap",  "oom"};
	(void)context;
	printf("%s %" PRIu64 " %" PRIu64 " %" PRIu64 "\n", names[action], address, size, stream);
}

static enum neap_status apply(struct neap_policy *policy, const struct neap_trace *trace,
			      const struct neap_trace_event *event, struct neap_map *live, struct neap_error *err)
{
	uint64_t stream = trace->streams[event->stream].handle, value = 0;
	void *block = NULL;

	switch ((enum neap_trace_kind)event->kind) {
	case NEAP_TRACE_ALLOC: {
		enum neap_status status = policy->alloc(policy, event->size, stream, 0, &block, err);
		if (!status && !neap_map_put(live, event->address, (uint64_t)(uintptr_t)block))
			return NEAP_ENOMEM;
		return status == NEAP_EOOM ? NEAP_OK : status;
	}
	case NEAP_TRACE_FREE_REQUESTED:
		if (neap_map_remove(live, event->address, &value))
			return policy->free(policy, (void *)(uintptr_t)value, err);
		return NEAP_OK;
	case NEAP_TRACE_RECORD_STREAM:
		if (neap_map_get(live, event->address, &value))
			return policy->record_stream(policy, (void *)(uintptr_t)value, stream, err);
		return NEAP_OK;
	case NEAP_TRACE_EMPTY_CACHE:
		return policy->empty_cache(policy, err);
	default:
		return NEAP_OK;
	}
}

static void print_sums(struct neap_policy *policy)
{
	static const int metrics[] = {NEAP_METRIC_REQUESTED_BYTES, NEAP_METRIC_ALLOCATED_BYTES,
				      NEAP_METRIC_ACTIVE_BYTES, NEAP_METRIC_RESERVED_BYTES};
	struct neap_policy_usage usage;

	policy->usage(policy, &usage);
	printf("sums");
	for (size_t i = 0; i < sizeof metrics / sizeof metrics[0]; i++)
		printf(" %" PRId64, (int64_t)usage.stats.metric[metrics[i]][NEAP_CLASS_ALL].peak);
	printf(" %" PRIu64 " %" PRIu64 "\n", (uint64_t)usage.stats.num_alloc_retries, (uint64_t)usage.stats.num_ooms);
}

int main(int argc, char **argv)
{
	struct neap_torch_options options = {.observe = print_action};
	struct neap_policy *policy = NULL;
	struct neap_trace *trace = NULL;
	struct neap_map live = {0};
	struct neap_error err = {0};
	struct neap_trace_event event;

	if (argc != 5) {
		fputs("Usage: torch_log TRACE SETTINGS MEMORY EVENT-DELAY\n", stderr);
		return 64;
	}
	neap_torch_settings_default(&options.settings);
	options.device_bytes = strtoull(argv[3], NULL, 10);
	options.event_delay = strtoull(argv[4], NULL, 10);
	enum neap_status status = neap_torch_settings_parse(argv[2], &options.settings, &err);
	if (!status)
		status = neap_trace_read(argv[1], &trace, &err);
	if (!status)
		status = neap_torch_create(&options, &policy, &err);
	if (!status) {
		struct neap_trace_cursor cursor = neap_trace_events(trace, 0, 0);
		for (uint64_t at = 0; !status && neap_trace_next(&cursor, &event); at++) {
			policy->at(policy, at);
			status = apply(policy, trace, &event, &live, &err);
			if (!status)
				status = policy->check(policy, &err);
		}
	}
	if (!status)
		print_sums(policy);
	else
		fprintf(stderr, "torch_log: %s\n", err.message);
	if (policy)
		policy->destroy(policy);
	neap_map_fini(&live);
	neap_trace_free(trace);
	return status == NEAP_OK ? 0 : 65;
}
