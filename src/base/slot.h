/* base/slot.h: how an event is stored in its slot of a recording (neap/trace.h), which a reader may copy meanwhile.
 *
 *   word     0         1                           2 ... 7
 *          | time_ns | sequence | kind | device  | payload |
 *
 * A slot whose sequence is that of its index holds that event whole: a writer invalidates the sequence first and
 * stores it last.
 */
#ifndef NEAP_BASE_SLOT_H
#define NEAP_BASE_SLOT_H

#include "neap/trace.h"

#define NEAP_SLOT_WORDS         (sizeof(struct neap_event) / sizeof(uint64_t))
#define NEAP_SLOT_SEQUENCE_WORD 1
#define NEAP_SLOT_PAYLOAD_WORD  2

_Static_assert(sizeof(struct neap_event) == 64, "an event is 64 bytes in the file");
_Static_assert(offsetof(struct neap_event, sequence) == 8, "the sequence begins word 1");
_Static_assert(offsetof(struct neap_event, kind) == 12 && offsetof(struct neap_event, device) == 14 &&
		       __BYTE_ORDER__ == __ORDER_LITTLE_ENDIAN__,
	       "kind and device follow it in word 1");
_Static_assert(offsetof(struct neap_event, payload) == NEAP_SLOT_PAYLOAD_WORD * sizeof(uint64_t),
	       "the payload is the rest");

/* The upper half of word 1. Made with shifts: if it were put together in memory, reading it back would wait until its
 * parts have left the processor's store buffer. */
static inline uint64_t neap_slot_kind(uint16_t kind, uint16_t device)
{
	return (uint64_t)kind << 32 | (uint64_t)device << 48;
}

/* `index`: the event's index in its ring. `payload`: NEAP_EVENT_PAYLOAD_WORDS words. */
static inline void neap_slot_store(uint64_t *slot, uint64_t index, uint64_t time_ns, uint64_t kind,
				   const uint64_t *payload)
{
	uint32_t sequence = (uint32_t)(index + 1);
	/* No index that a reader may look for in this slot has this sequence. The payload's stores are releases, so
	 * that no thread sees them before it (a fence would do, but thread sanitizers cannot follow fences). */
	__atomic_store_n(&slot[NEAP_SLOT_SEQUENCE_WORD], (sequence ^ 1u << 31) | kind, __ATOMIC_RELAXED);
	__atomic_store_n(&slot[0], time_ns, __ATOMIC_RELEASE);
#pragma GCC unroll 6
	for (size_t i = 0; i < NEAP_EVENT_PAYLOAD_WORDS; i++)
		__atomic_store_n(&slot[NEAP_SLOT_PAYLOAD_WORD + i], payload[i], __ATOMIC_RELEASE);
	__atomic_store_n(&slot[NEAP_SLOT_SEQUENCE_WORD], sequence | kind, __ATOMIC_RELEASE);
}

/* The slot of a source's next event; the event's index is run->next - 1 then. NULL: drop the event. */
static inline uint64_t *neap_slot_next(const struct neap_observer *observer, struct neap_event_run *run)
{
	if ((run->next == run->end || __atomic_load_n(run->claimed, __ATOMIC_RELAXED) - run->next > run->window) &&
	    !observer->run(observer->context, run))
		return NULL;
	uint64_t *slot = run->slot;
	run->slot += NEAP_SLOT_WORDS;
	run->next++;
	return slot;
}

#endif
