/* report/pieces.h: reserved memory as pieces of the address space, each with the events between which it was there.
 * Pure.
 *
 * A piece is a segment, or a range of an expandable one that was mapped at once and unmapped at once. A piece that
 * was there before the first event is known from its release, or from the final state.
 */
#ifndef NEAP_REPORT_PIECES_H
#define NEAP_REPORT_PIECES_H

#include "analyze/lives.h"

#define NEAP_PIECES_AT_ONCE 32768 /* more are left out, and counted: no allocator has so many */

struct neap_piece {
	uint64_t address, size; /* address + size does not wrap */
	uint64_t begin, end;    /* as in lives: NEAP_LIFE_BEFORE, NEAP_LIFE_AFTER */
	uint32_t stack;         /* where it was reserved; 0: unknown */
	uint16_t stream;
	bool expandable;
};

struct neap_pieces {
	struct neap_piece *items; /* in no order */
	size_t count;
	uint64_t left_out;
};

/* Errors: NEAP_ENOMEM. None for a trace that knows no segments. */
enum neap_status neap_pieces_find(const struct neap_trace *trace, size_t device, struct neap_pieces *ret_pieces,
				  struct neap_error *err);
void neap_pieces_fini(struct neap_pieces *pieces);

#endif
