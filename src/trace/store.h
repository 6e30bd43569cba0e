/* trace/store.h: the packed events and the texts of a trace: a part of struct neap_trace.
 *
 * An event is packed against the one before it: a tag byte, then only what differs, in variable-length numbers.
 *
 *   tag      bits 0-3 kind | 4 same address and size | 5 address counted in 512 bytes | 6 same stack | 7 same stream
 *   address  difference, zigzag        unless bit 4      time    difference, zigzag
 *   size     see pack_size             unless bit 4      stack   unless bit 6      stream  unless bit 7
 *
 * Every 64th event is packed against zero, and its place is kept, so that a cursor can start there. The 64 events of
 * such a group lie in one chunk. The kinds of event in each group are kept, too, so that a search for rare ones skips
 * whole groups. Invariant: group_count = (count + 63) / 64.
 */
#ifndef NEAP_TRACE_STORE_H
#define NEAP_TRACE_STORE_H

#include "trace/trace.h"

#define NEAP_STORE_GROUP 64u /* events */

struct neap_trace_store {
	unsigned char **chunks;
	size_t chunk_count, chunk_capacity;
	size_t chunk_used; /* bytes of the last chunk */
	const unsigned char **groups;
	uint16_t *kinds; /* by group: a bit (1 << kind) for each kind of event that it has */
	size_t group_count, group_capacity;
	uint64_t count;
	struct neap_trace_event last;
	char *texts; /* one after the other, each terminated; the first is "" */
	size_t texts_length, texts_capacity;
	uint32_t *text_offsets;
	size_t text_count, text_capacity;
};

/* Appends one event. Does not keep `device`; cuts sizes above INT64_MAX. False: out of host memory. */
bool neap_store_add(struct neap_trace_store *store, const struct neap_trace_event *event);
/* Gives back the memory that growth left unused. */
void neap_store_trim(struct neap_trace_store *store);

#endif
