/* The leak watch: looks at the steps' low-water marks and says at which step memory will end. */
#include "train/session_internal.h"

#include "analyze/leak.h"
#include "base/log.h"
#include "base/units.h"

#include <math.h>
#include <stdio.h>

/* Bytes by which the steps' peak can still grow: the device's free ones and our cache, within the limit. 0 when the
 * driver would not say. */
static uint64_t room_to_grow(struct neap_train *train)
{
	uint64_t free_bytes = 0, total_bytes = 0;
	struct neap_memory memory;

	if (neap_device_memory(neap_alloc_device(train->alloc), &free_bytes, &total_bytes, NULL) != NEAP_OK)
		return 0;
	neap_memory_read(train->alloc, &memory);
	uint64_t most = free_bytes + memory.reserved_bytes;
	double fraction = neap_get_fraction(train->alloc);
	if (fraction > 0 && fraction < 1 && fraction * (double)total_bytes < (double)most)
		most = (uint64_t)(fraction * (double)total_bytes);
	return most > train->recent_peak ? most - train->recent_peak : 0;
}

static void tell_leak(struct neap_train *train, const struct neap_leak *leak)
{
	uint64_t end = leak->steps_until_full, total = train->options.total_steps;
	char size[NEAP_UNITS_ROOM], last[120];

	end = end > UINT64_MAX - train->steps ? UINT64_MAX : train->steps + end;
	if (total && end >= total)
		snprintf(last, sizeof last, "enough memory is left for all %llu steps", (unsigned long long)total);
	else if (total)
		snprintf(last, sizeof last, "memory will end at step %llu of %llu", (unsigned long long)end,
			 (unsigned long long)total);
	else
		snprintf(last, sizeof last, "memory will end at step %llu", (unsigned long long)end);
	/* Cut, not rounded: 99.999 % is no certainty. */
	double percent = floor(leak->confidence * 10000) / 100;
	neap_log(train->options.log, NEAP_LOG_WARNING,
		 "%s: memory grows by %s per step (confidence %.2f %%, over %zu steps up to step %llu): %s",
		 train->name, neap_size_format((uint64_t)leak->bytes_per_step, size), percent, leak->steps,
		 (unsigned long long)train->steps, last);
	neap_emit(train->alloc, (struct neap_event){.kind = NEAP_EVENT_LEAK,
						    .size = (uint64_t)leak->bytes_per_step,
						    .block = (uint64_t)(leak->confidence * 1000)});
	train->summary.leak_bytes_per_step = leak->bytes_per_step;
	train->summary.leak_confidence = leak->confidence;
}

/* Looks for a leak in the newest steps. A cache that fills looks like one for a while: so it must be found at two
 * looks in a row. */
void neap_session_watch_leak(struct neap_train *train)
{
	uint64_t in_order[LOW_MARKS];
	struct neap_leak leak;
	size_t count = train->low_count < LOW_MARKS ? (size_t)train->low_count : LOW_MARKS;

	for (size_t i = 0; i < count; i++)
		in_order[i] = train->low_marks[(train->low_count - count + i) % LOW_MARKS];
	neap_leak_test(in_order, count, room_to_grow(train), &leak);
	train->recent_peak = 0;
	bool found = leak.verdict == NEAP_LEAK_FOUND;
	if (found && train->leak_suspected) {
		tell_leak(train, &leak);
		train->leak_told = true;
	}
	train->leak_suspected = found;
}
