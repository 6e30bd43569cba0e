/* sim/driver/engine_event.c: the engine's events. A recorded event is a copy of its stream's clock, with the time
 * when all work that this clock counts has run. */
#include "sim/driver/engine_private.h"

#include <stdlib.h>
#include <string.h>

struct event *sim_event_find(struct sim_engine *engine, uint32_t event)
{
	return sim_table_find(&engine->event_table, event);
}

void sim_event_free(struct event *event)
{
	if (!event)
		return;
	free(event->clock);
	free(event);
}

enum sim_order sim_event_create(struct sim_engine *engine, uint32_t *ret_event)
{
	enum sim_order order = SIM_ORDER_NO_MEMORY;
	struct event *event = calloc(1, sizeof *event);

	if (!event)
		return SIM_ORDER_NO_MEMORY;
	pthread_mutex_lock(&engine->lock);
	if (sim_table_put(&engine->event_table, engine->next_event, event)) {
		*ret_event = engine->next_event++;
		event = NULL;
		order = SIM_ORDER_OK;
	}
	pthread_mutex_unlock(&engine->lock);
	sim_event_free(event);
	return order;
}

enum sim_order sim_event_destroy(struct sim_engine *engine, uint32_t number)
{
	pthread_mutex_lock(&engine->lock);
	struct event *event = sim_table_take(&engine->event_table, number);
	pthread_mutex_unlock(&engine->lock);
	sim_event_free(event);
	return event ? SIM_ORDER_OK : SIM_ORDER_BAD_HANDLE;
}

enum sim_order sim_event_record(struct sim_engine *engine, uint32_t number, uint32_t stream_number)
{
	enum sim_order order = SIM_ORDER_BAD_HANDLE;

	pthread_mutex_lock(&engine->lock);
	struct stream *stream = sim_stream_find(engine, stream_number);
	struct event *event = sim_event_find(engine, number);
	if (!stream || !event)
		goto out;
	if (event->capacity < engine->capacity) {
		order = SIM_ORDER_NO_MEMORY;
		if (!sim_clock_grow(&event->clock, event->capacity, engine->capacity))
			goto out;
		event->capacity = engine->capacity;
	}
	stream->end_ns = sim_stream_action(engine, stream, stream->clock);
	memcpy(event->clock, stream->clock, event->capacity * sizeof *event->clock);
	event->end_ns = stream->end_ns > engine->now_ns ? stream->end_ns : engine->now_ns;
	order = SIM_ORDER_OK;
out:
	pthread_mutex_unlock(&engine->lock);
	return order;
}

static enum sim_order event_settle(struct sim_engine *engine, uint32_t number, bool wait)
{
	enum sim_order order = SIM_ORDER_BAD_HANDLE;

	pthread_mutex_lock(&engine->lock);
	struct event *event = sim_event_find(engine, number);
	if (event)
		order = event->clock ? sim_clock_settle(engine, event->clock, event->capacity, event->end_ns, wait)
				     : SIM_ORDER_OK;
	pthread_mutex_unlock(&engine->lock);
	return order;
}

enum sim_order sim_event_query(struct sim_engine *engine, uint32_t event)
{
	return event_settle(engine, event, false);
}

enum sim_order sim_event_synchronize(struct sim_engine *engine, uint32_t event)
{
	return event_settle(engine, event, true);
}

enum sim_order sim_event_elapsed(struct sim_engine *engine, uint32_t start_number, uint32_t end_number,
				 int64_t *ret_ns)
{
	enum sim_order order = SIM_ORDER_BAD_HANDLE;

	pthread_mutex_lock(&engine->lock);
	const struct event *start = sim_event_find(engine, start_number), *end = sim_event_find(engine, end_number);
	if (start && end && start->clock && end->clock) {
		uint64_t start_ns = start->end_ns, end_ns = end->end_ns;

		order = start_ns <= engine->now_ns && end_ns <= engine->now_ns ? SIM_ORDER_OK : SIM_ORDER_NOT_READY;
		*ret_ns = (int64_t)(end_ns - start_ns);
	}
	pthread_mutex_unlock(&engine->lock);
	return order;
}
