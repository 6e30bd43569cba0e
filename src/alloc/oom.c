/* alloc/oom.c: the message and the events of a request that failed after everything was tried.
 *
 *   device total = free + reserved here + this context + others      others: other processes
 *   reserved     = allocated + pending + cached
 */
#include "alloc/core/cache.h"
#include "alloc/request.h"
#include "base/error.h"
#include "base/units.h"

#include <stdio.h>

struct oom {
	uint64_t total, free, context, others, reserved, allocated, pending, cached, largest;
	bool free_known;
	struct neap_asked asked; /* the other processes asked for this request */
};

static void oom_gather(struct neap_alloc *alloc, struct oom *ret_oom)
{
	struct oom oom = {.total = neap_device_info(alloc->device)->total_bytes};
	oom.context = neap_device_context_bytes(alloc->device);
	oom.reserved = metric_now(alloc, NEAP_METRIC_RESERVED_BYTES);
	oom.allocated = metric_now(alloc, NEAP_METRIC_ALLOCATED_BYTES);
	oom.pending = metric_now(alloc, NEAP_METRIC_ACTIVE_BYTES) - oom.allocated;
	oom.cached = oom.reserved - oom.allocated - oom.pending;
	oom.largest = neap_largest_free(alloc);
	oom.free_known = neap_device_memory(alloc->device, &oom.free, &oom.total, NULL) == NEAP_OK;
	uint64_t known = oom.free + oom.reserved + oom.context;
	oom.others = oom.free_known && oom.total > known ? oom.total - known : 0;
	*ret_oom = oom;
}

static void oom_record(struct neap_alloc *alloc, const struct neap_request *request, const struct oom *oom)
{
	if (!alloc->observer)
		return;
	struct neap_event out_of_memory = neap_event_of_oom(0, (struct neap_event_oom){
								       .held = {oom->allocated, oom->reserved},
								       .tag = neap_tag_number(alloc, request->tag),
								       .device_free_bytes = oom->free,
								       .requested_bytes = request->bytes,
								       .bytes = request->rounded,
							       });
	struct neap_event limits = neap_event_of_oom_limits(0, (struct neap_event_oom_limits){
								       .context_bytes = oom->context,
								       .device_total_bytes = oom->total,
								       .limit_bytes = alloc->limit_bytes,
								       .largest_free_bytes = oom->largest,
								       .others_bytes = oom->others + oom->context,
								       .pending_bytes = oom->pending,
							       });
	struct neap_event asked =
		neap_event_of_oom_asked(0, (struct neap_event_oom_asked){.processes = oom->asked.processes,
									 .answered = oom->asked.answered,
									 .freed_bytes = oom->asked.freed_bytes});
	neap_event_send(alloc, &out_of_memory);
	neap_event_send(alloc, &limits);
	if (oom->asked.processes)
		neap_event_send(alloc, &asked);
	for (uint8_t i = 0; i <= TAG_OTHER; i++) {
		const struct neap_tag *tag = &alloc->tags[i];
		struct neap_event event =
			neap_event_of_tag_bytes(0, (struct neap_event_tag_bytes){.tag = neap_tag_number(alloc, i),
										 .live_blocks = tag->live_blocks,
										 .live_bytes = tag->live_bytes,
										 .peak_bytes = tag->peak_bytes});
		if (tag->peak_bytes)
			neap_event_send(alloc, &event);
	}
}

static void oom_report(struct neap_alloc *alloc, const struct neap_request *request, const struct oom *oom,
		       struct neap_error *err)
{
	char wanted[NEAP_UNITS_CAPACITY], total[NEAP_UNITS_CAPACITY], free_text[NEAP_UNITS_CAPACITY],
		limit[NEAP_UNITS_CAPACITY];
	char allocated[NEAP_UNITS_CAPACITY], cached[NEAP_UNITS_CAPACITY], largest[NEAP_UNITS_CAPACITY],
		pending[NEAP_UNITS_CAPACITY];
	char others[NEAP_UNITS_CAPACITY], context[NEAP_UNITS_CAPACITY], given[NEAP_UNITS_CAPACITY], asked[64] = "";
	const char *tag = alloc->tags[request->tag].text;
	if (oom->asked.processes)
		snprintf(asked, sizeof asked, " (asked: gave back %s)",
			 neap_size_format(oom->asked.freed_bytes, given));
	neap_fail(err, NEAP_EOOM,
		  "CUDA out of memory. Tried to allocate %s%s%.20s. GPU %d: %s total, %s free, limit %s. "
		  "Here: %s allocated, %s cached (largest free block %s), %s pending, %s context; others %s%s.",
		  neap_size_format(request->bytes, wanted), *tag ? " for " : "", tag,
		  neap_device_info(alloc->device)->ordinal, neap_size_format(oom->total, total),
		  oom->free_known ? neap_size_format(oom->free, free_text) : "unknown",
		  alloc->limit_bytes == UINT64_MAX ? "none" : neap_size_format(alloc->limit_bytes, limit),
		  neap_size_format(oom->allocated, allocated), neap_size_format(oom->cached, cached),
		  neap_size_format(oom->largest, largest), neap_size_format(oom->pending, pending),
		  neap_size_format(oom->context, context),
		  oom->free_known ? neap_size_format(oom->others, others) : "unknown", asked);
}

enum neap_status neap_oom_report(struct neap_alloc *alloc, const struct neap_request *request,
				 const struct neap_asked *asked, struct neap_error *err)
{
	struct oom oom = {0};
	neap_counter_add(alloc, &alloc->stats.num_ooms, 1);
	neap_published_close(alloc);
	oom_gather(alloc, &oom);
	oom.asked = *asked;
	oom_report(alloc, request, &oom, err);
	oom_record(alloc, request, &oom);
	return NEAP_EOOM;
}
