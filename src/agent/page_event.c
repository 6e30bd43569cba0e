/* agent/page_event.c: records what the page shows. If a process ends between two samples of its supervisor, its page
 * is gone, and only the recording has its figures. */
#include "agent/agent.h"

#include "base/clock.h"
#include "device/loader.h"

#include <string.h>

void agent_emit_page(const struct neap_observer *target, const struct neap_published *slot)
{
	static const unsigned char none[sizeof slot->device_uuid];
	struct neap_published shown;
	char uuid[48];
	/* Skip a slot that another thread is writing: exit does not wait for that thread. */
	if (!target || neap_published_read(slot, &shown) != NEAP_OK || !memcmp(shown.device_uuid, none, sizeof none))
		return;
	neap_uuid_format(shown.device_uuid, uuid);
	const struct neap_stat(*metric)[NEAP_CLASS_COUNT] = shown.stats.metric;
	struct neap_event event = neap_event_of_page(
		0, (struct neap_event_page){
			   .device_uuid = target->name(target->context, uuid),
			   .context_bytes = shown.context_bytes,
			   .peak_allocated_bytes = (uint64_t)metric[NEAP_METRIC_ALLOCATED_BYTES][NEAP_CLASS_ALL].peak,
			   .peak_reserved_bytes = (uint64_t)metric[NEAP_METRIC_RESERVED_BYTES][NEAP_CLASS_ALL].peak,
		   });
	event.time_ns = neap_clock_now(neap_clock_system());
	target->event(target->context, &event);
}

void agent_emit_pages(const struct neap_observer *target, const struct neap_page *page)
{
	for (uint64_t i = 0; page && i < page->device_count && i < NEAP_PAGE_DEVICES; i++)
		agent_emit_page(target, &page->devices[i]);
}
