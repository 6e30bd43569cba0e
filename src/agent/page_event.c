/* agent/page_event.c: what the page shows, into the recording: a process that ends between two looks of its
 * supervisor was never seen, and its page is gone with it. */
#include "agent/agent.h"

#include "base/clock.h"
#include "device/loader.h"

#include <string.h>

void agent_emit_page(const struct neap_observer *target, const struct neap_published *slot)
{
	static const unsigned char none[sizeof slot->device_uuid];
	struct neap_published shown;
	char uuid[48];
	/* One that is written at this moment, by a thread that our exit does not wait for, is passed over. */
	if (!target || neap_published_read(slot, &shown) != NEAP_OK || !memcmp(shown.device_uuid, none, sizeof none))
		return;
	neap_uuid_format(shown.device_uuid, uuid);
	struct neap_event event = {
		.time_ns = neap_clock_now(neap_clock_system()),
		.kind = NEAP_EVENT_PAGE,
		.tag = target->name(target->context, uuid),
		.address = shown.context_bytes,
		.size = (uint64_t)shown.stats.metric[NEAP_METRIC_ALLOCATED_BYTES][NEAP_CLASS_ALL].peak,
		.block = (uint64_t)shown.stats.metric[NEAP_METRIC_RESERVED_BYTES][NEAP_CLASS_ALL].peak,
	};
	target->event(target->context, &event);
}

void agent_emit_pages(const struct neap_observer *target, const struct neap_page *page)
{
	for (uint64_t i = 0; page && i < page->device_count && i < NEAP_PAGE_DEVICES; i++)
		agent_emit_page(target, &page->devices[i]);
}
