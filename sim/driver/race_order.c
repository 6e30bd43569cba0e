/* sim/driver/race_order.c: see the header. */
#include "sim/driver/race_order.h"

#include <stdlib.h>

static void *found(const struct neap_map *map, uint64_t key)
{
	uint64_t value = 0;

	return neap_map_get(map, key, &value) ? (void *)(uintptr_t)value : NULL;
}

void race_clock_join(struct race_clock *into, const struct race_clock *from)
{
	for (uint32_t i = 0; i < RACE_LANES; i++)
		if (into->seen[i] < from->seen[i])
			into->seen[i] = from->seen[i];
}

/* Frees destroyed streams that the host has seen to their end. */
static void drop_gone(struct race_order *order)
{
	struct race_stream **link = &order->first, *stream;

	while ((stream = *link) != NULL) {
		if (stream->gone && order->host.seen[stream->lane] >= order->counts[stream->lane]) {
			*link = stream->next;
			free(stream);
		} else {
			link = &stream->next;
		}
	}
}

/* Returns a lane that no stream has, and whose work the host has seen; else the last lane, which streams share. */
static uint32_t choose_lane(struct race_order *order)
{
	bool taken[RACE_LANES] = {false};

	drop_gone(order);
	for (const struct race_stream *stream = order->first; stream; stream = stream->next)
		taken[stream->lane] = true;
	for (uint32_t lane = 0; lane < RACE_LANES; lane++)
		if (!taken[lane])
			return lane;
	order->crowded = true;
	return RACE_LANES - 1;
}

void race_order_recheck(struct race_order *order)
{
	bool taken[RACE_LANES] = {false};

	drop_gone(order);
	order->crowded = false;
	for (const struct race_stream *stream = order->first; stream; stream = stream->next) {
		order->crowded = order->crowded || taken[stream->lane];
		taken[stream->lane] = true;
	}
}

static struct race_stream *stream_create(struct race_order *order, struct sim_race_stream what)
{
	struct race_stream *stream = calloc(1, sizeof *stream);

	if (!stream || !neap_map_put(&order->streams, what.key, (uint64_t)(uintptr_t)stream)) {
		free(stream);
		order->crowded = true;
		return NULL;
	}
	stream->what = what;
	stream->lane = choose_lane(order);
	stream->number = what.null ? 0 : ++order->named;
	stream->next = order->first;
	order->first = stream;
	return stream;
}

/* Adds the order of the null stream: it comes after all blocking streams of its device, and before their later
 * work. */
static void join_legacy(struct race_order *order, struct race_stream *stream)
{
	bool null = stream->what.null;

	for (struct race_stream *other = order->first; other; other = other->next)
		if (other->what.device == stream->what.device && (null ? other->what.blocking : other->what.null))
			race_clock_join(&stream->clock, &other->clock);
}

struct race_stream *race_order_now(struct race_order *order, struct sim_race_stream what)
{
	struct race_stream *stream = found(&order->streams, what.key);

	if (!stream)
		stream = stream_create(order, what);
	if (!stream)
		return NULL;
	if (what.null || what.blocking)
		join_legacy(order, stream);
	race_clock_join(&stream->clock, &order->host);
	return stream;
}

struct race_event *race_order_event(const struct race_order *order, uint64_t event)
{
	return found(&order->events, event);
}

void race_order_record(struct race_order *order, uint64_t key, struct sim_race_stream what, bool of_allocator)
{
	const struct race_stream *stream = race_order_now(order, what);
	struct race_event *event = race_order_event(order, key);

	if (!event) {
		event = malloc(sizeof *event);
		if (!event || !neap_map_put(&order->events, key, (uint64_t)(uintptr_t)event)) {
			free(event);
			return;
		}
	}
	*event = (struct race_event){.of_allocator = of_allocator};
	if (stream) {
		event->clock = stream->clock;
		event->lane = stream->lane;
		event->of_collective = stream->collective;
	}
}

bool race_order_is_seen(const struct race_order *order, const struct race_event *event)
{
	for (uint32_t i = 0; i < RACE_LANES; i++)
		if (event->clock.seen[i] > order->host.seen[i])
			return false;
	return true;
}

bool race_order_is_awaited(const struct race_order *order, const struct race_event *event)
{
	uint64_t count = event->clock.seen[event->lane];

	if (event->awaited || order->host.seen[event->lane] >= count)
		return true;
	for (const struct race_stream *stream = order->first; stream; stream = stream->next)
		if (stream->lane != event->lane && stream->clock.seen[event->lane] >= count)
			return true;
	return false;
}

void race_order_forget(struct race_order *order, uint64_t event)
{
	uint64_t value;

	if (neap_map_remove(&order->events, event, &value))
		free((void *)(uintptr_t)value);
}

void race_order_forget_stream(struct race_order *order, uint64_t key)
{
	uint64_t value;

	if (neap_map_remove(&order->streams, key, &value))
		((struct race_stream *)(uintptr_t)value)->gone = true;
}

void race_order_host_device(struct race_order *order, uint32_t device)
{
	for (const struct race_stream *stream = order->first; stream; stream = stream->next)
		if (stream->what.device == device)
			race_clock_join(&order->host, &stream->clock);
}

void race_order_fini(struct race_order *order)
{
	const struct neap_map_slot *slot;
	size_t cursor = 0;

	while ((slot = neap_map_next(&order->events, &cursor)) != NULL)
		free((void *)(uintptr_t)slot->value);
	while (order->first) {
		struct race_stream *stream = order->first;

		order->first = stream->next;
		free(stream);
	}
	neap_map_fini(&order->events);
	neap_map_fini(&order->streams);
}
