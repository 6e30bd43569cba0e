/* replay/torch_events.c: frees that wait for other streams, by events. Requests poll these events; flushes wait for
 * them.
 *
 * An event completes event_delay events of the trace after it was recorded. A recording shows when a free completed;
 * there, the event is held until then.
 */
#include "replay/torch_internal.h"

#include "base/array.h"

#include <stdlib.h>

struct queue *queue_find(struct torch *torch, uint64_t stream)
{
	for (size_t i = 0; i < torch->queue_count; i++)
		if (torch->queues[i].stream == stream)
			return &torch->queues[i];
	if (!neap_array_grow(&torch->queues, torch->queue_count, sizeof *torch->queues))
		return NULL;
	struct queue *queue = &torch->queues[torch->queue_count++];
	*queue = (struct queue){.stream = stream};
	return queue;
}

bool event_add(struct torch *torch, struct block *block, struct queue *queue)
{
	struct event *event = queue ? malloc(sizeof *event) : NULL;
	if (!event) {
		torch->starved = true;
		return false;
	}
	*event = (struct event){
		.block = block, .ready = torch->event + torch->options.event_delay, .prev = queue->last};
	*(queue->last ? &queue->last->next : &queue->first) = event;
	queue->last = event;
	block->events++;
	torch->usage.events_recorded++;
	return true;
}

/* Called when the event is over: frees its block if it was the last one. */
static void event_end(struct torch *torch, struct queue *queue, struct event *event)
{
	struct block *block = event->block;
	*(event->prev ? &event->prev->next : &queue->first) = event->next;
	*(event->next ? &event->next->prev : &queue->last) = event->prev;
	free(event);
	if (--block->events == 0)
		free_block(torch, block);
}

void poll_events(struct torch *torch)
{
	size_t kept = 0;
	for (size_t i = 0; i < torch->queue_count; i++) {
		struct queue *queue = &torch->queues[i];
		while (queue->first && queue->first->ready <= torch->event)
			event_end(torch, queue, queue->first);
		if (queue->first)
			torch->queues[kept++] = *queue;
	}
	torch->queue_count = kept;
}

bool block_hold(struct torch *torch, struct block *block, uint64_t token)
{
	if (!neap_map_put(&torch->held_tokens, token, (uint64_t)(uintptr_t)block)) {
		torch->starved = true;
		return false;
	}
	if (!event_add(torch, block, &torch->held)) {
		neap_map_remove(&torch->held_tokens, token, NULL);
		return false;
	}
	torch->held.last->token = token;
	block->held = torch->held.last;
	return true;
}

static void held_end(struct torch *torch, struct event *event)
{
	uint64_t found = 0;
	if (neap_map_get(&torch->held_tokens, event->token, &found) && found == (uint64_t)(uintptr_t)event->block)
		neap_map_remove(&torch->held_tokens, event->token, NULL);
	event->block->held = NULL;
	event_end(torch, &torch->held, event);
}

static bool is_of(const struct event *event, const struct pool *large)
{
	return !large || event->block->pool->number == large->number;
}

void complete_all_events(struct torch *torch, const struct pool *large)
{
	size_t kept = 0;
	torch->usage.stats.num_sync_all_streams++;
	for (size_t i = 0; i < torch->queue_count; i++) {
		struct queue *queue = &torch->queues[i];
		for (struct event *event = queue->first, *next = NULL; event; event = next) {
			next = event->next;
			if (!is_of(event, large))
				continue;
			torch->usage.synchronizations++;
			event_end(torch, queue, event);
		}
		if (queue->first)
			torch->queues[kept++] = *queue;
	}
	torch->queue_count = kept;
	for (struct event *event = torch->held.first, *next = NULL; event; event = next) {
		next = event->next;
		if (!is_of(event, large))
			continue;
		torch->usage.synchronizations++;
		held_end(torch, event);
	}
}

void torch_complete(struct neap_policy *policy, uint64_t token)
{
	struct torch *torch = torch_of(policy);
	uint64_t found = 0;
	if (neap_map_get(&torch->held_tokens, token, &found))
		held_end(torch, ((struct block *)(uintptr_t)found)->held);
}

static void queue_fini(struct queue *queue)
{
	while (queue->first) {
		struct event *next = queue->first->next;
		free(queue->first);
		queue->first = next;
	}
}

void events_fini(struct torch *torch)
{
	for (size_t i = 0; i < torch->queue_count; i++)
		queue_fini(&torch->queues[i]);
	queue_fini(&torch->held);
	neap_map_fini(&torch->held_tokens);
	free(torch->queues);
}
