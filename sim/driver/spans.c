/* sim/driver/spans.c: see the header. A span is on level 0, on level 1 with a chance of a half, and so on. */
#include "sim/driver/spans.h"

#include <stddef.h>

struct sim_span *sim_spans_from(const struct sim_spans *spans, uint64_t address)
{
	const struct sim_span *at = &spans->head;

	for (uint32_t level = SIM_SPAN_LEVELS; level-- > 0;)
		while (at->next[level] && at->next[level]->end <= address)
			at = at->next[level];
	return at->next[0];
}

static uint32_t draw_levels(struct sim_spans *spans)
{
	uint32_t levels = 1;

	spans->random = spans->random * 6364136223846793005u + 1442695040888963407u;
	for (uint64_t bits = spans->random >> 40; (bits & 1) && levels < SIM_SPAN_LEVELS; bits >>= 1)
		levels++;
	return levels;
}

void sim_spans_add(struct sim_spans *spans, struct sim_span *span)
{
	struct sim_span *at = &spans->head;

	span->levels = draw_levels(spans);
	for (uint32_t level = SIM_SPAN_LEVELS; level-- > 0;) {
		while (at->next[level] && at->next[level]->begin < span->begin)
			at = at->next[level];
		if (level < span->levels) {
			span->next[level] = at->next[level];
			at->next[level] = span;
		}
	}
}

void sim_spans_remove(struct sim_spans *spans, struct sim_span *span)
{
	struct sim_span *at = &spans->head;

	for (uint32_t level = SIM_SPAN_LEVELS; level-- > 0;) {
		while (at->next[level] && at->next[level]->begin < span->begin)
			at = at->next[level];
		if (at->next[level] == span)
			at->next[level] = span->next[level];
	}
}
