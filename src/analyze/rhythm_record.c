/* analyze/rhythm_record.c: finds the rhythm of a recording's newest steps. */
#include "analyze/rhythm.h"
#include "analyze/saturate.h"

#include <stdlib.h>

#define RHYTHMS 32 /* how many steps are examined */

static int by_value(const void *left, const void *right)
{
	uint64_t a = *(const uint64_t *)left, b = *(const uint64_t *)right;

	return a < b ? -1 : a > b;
}

/* Returns the rhythm of the step that begins at `begin_ns` and ends with the journal's event `end`. */
static uint64_t rhythm_of(const struct neap_record *record, uint64_t begin_ns, const struct neap_event *end,
			  struct neap_beat *beats)
{
	const struct neap_event_held *held;
	uint64_t level = 0;
	size_t low = 0, high = record->allocation_count, count = 0;

	while (low < high) {
		size_t middle = low + (high - low) / 2;
		if (record->allocations[middle].time_ns <= begin_ns)
			low = middle + 1;
		else
			high = middle;
	}
	for (size_t i = low; i < record->allocation_count && record->allocations[i].time_ns <= end->time_ns; i++) {
		const struct neap_event *event = &record->allocations[i];
		if (event->device != end->device)
			continue;
		held = neap_event_as_held(event);
		level = held ? held->allocated_bytes : 0;
		if (event->kind != NEAP_EVENT_ALLOC || !event->allocation.requested_bytes)
			continue;
		if (count > NEAP_RHYTHM_BEATS)
			return 1;
		beats[count++] = (struct neap_beat){event->allocation.requested_bytes,
						    neap_less(level, event->allocation.bytes)};
	}
	return neap_rhythm_find(beats, count, level);
}

uint64_t neap_rhythm_recorded(const struct neap_record *record, const struct neap_lanes *lanes, size_t lane)
{
	uint64_t found[RHYTHMS], first_ns = record->allocation_count ? record->allocations[0].time_ns : UINT64_MAX;
	struct neap_beat *beats = malloc((NEAP_RHYTHM_BEATS + 1) * sizeof *beats);
	const struct neap_event *later = NULL;
	size_t count = 0;

	for (size_t i = record->journal_count; beats && i-- > 0 && count < RHYTHMS;) {
		const struct neap_event *event = &record->journal[i];
		if (lanes->of[i] != lane)
			continue;
		bool whole = !record->allocations_lost || event->time_ns >= first_ns;
		if (later && whole && later->step.number == event->step.number + 1)
			found[count++] = rhythm_of(record, event->time_ns, later, beats);
		later = event;
	}
	free(beats);
	qsort(found, count, sizeof *found, by_value);
	return count ? found[count / 2] : 1;
}
