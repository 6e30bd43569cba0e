/* sim/driver/engine_heap.c: see the header. A binary heap in an array: the children of i are 2i + 1 and 2i + 2. */
#include "sim/driver/engine_heap.h"

#include <stdlib.h>

enum { ROOM_FIRST = 64 };

static bool before(const struct sim_pending *a, const struct sim_pending *b)
{
	return a->end_ns != b->end_ns ? a->end_ns < b->end_ns : a->submission < b->submission;
}

bool sim_heap_reserve(struct sim_heap *heap)
{
	if (heap->count < heap->capacity)
		return true;

	size_t capacity = heap->capacity ? 2 * heap->capacity : ROOM_FIRST;
	struct sim_pending *works = realloc(heap->works, capacity * sizeof *works);

	if (!works)
		return false;
	heap->works = works;
	heap->capacity = capacity;
	return true;
}

void sim_heap_push(struct sim_heap *heap, struct sim_pending work)
{
	size_t at = heap->count++;

	for (; at && before(&work, &heap->works[(at - 1) / 2]); at = (at - 1) / 2)
		heap->works[at] = heap->works[(at - 1) / 2];
	heap->works[at] = work;
}

const struct sim_pending *sim_heap_head(const struct sim_heap *heap) { return heap->count ? heap->works : NULL; }

struct sim_pending sim_heap_pop(struct sim_heap *heap)
{
	struct sim_pending *works = heap->works, head = works[0], last = works[--heap->count];
	size_t at = 0;

	for (size_t child; (child = 2 * at + 1) < heap->count; at = child) {
		if (child + 1 < heap->count && before(&works[child + 1], &works[child]))
			child++;
		if (!before(&works[child], &last))
			break;
		works[at] = works[child];
	}
	works[at] = last;
	return head;
}

void sim_heap_fini(struct sim_heap *heap)
{
	free(heap->works);
	*heap = (struct sim_heap){0};
}
