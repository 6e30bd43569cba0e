/* sim/driver/spans.h: disjoint ranges of addresses in order: a skip list. For races.c. One thread. */
#ifndef NEAP_SIM_SPANS_H
#define NEAP_SIM_SPANS_H

#include <stdint.h>

enum { SIM_SPAN_LEVELS = 14 };

/* The first member of its struct. */
struct sim_span {
	uint64_t begin, end;
	uint32_t levels;
	struct sim_span *next[SIM_SPAN_LEVELS];
};

/* A zeroed struct is empty. */
struct sim_spans {
	struct sim_span head;
	uint64_t random;
};

/* Returns the first span that ends after `address`; NULL: there is none. */
struct sim_span *sim_spans_from(const struct sim_spans *spans, uint64_t address);
/* Adds the caller's span. It has `begin` and `end`, and overlaps no other span. */
void sim_spans_add(struct sim_spans *spans, struct sim_span *span);
void sim_spans_remove(struct sim_spans *spans, struct sim_span *span);

#endif
