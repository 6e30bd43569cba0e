/* queue/decide.h: which entries of a queue may start, and on which devices. Pure: no files, no processes, no clock.
 *
 * The entries are served in order: the first one that fits starts, and later ones may start beside it. Memory that a
 * lease promises and its holder does not use yet is not free:
 *
 *   available(device) = free(device) - sum over its leases of max(0, promised - used)
 *
 *   invariant: the leases of a device never exceed its memory together, and one of a whole device is alone on it
 *
 * Later entries may pass an entry that does not fit, or devices would stay idle. Nobody knows how long a run takes,
 * so nobody can tell which of them would not delay that entry. Instead their number is bounded: entry e passes entry
 * h only if order(e) - order(h) <= NEAP_QUEUE_PASSES. Orders are numbers that each arrival takes one after another.
 * So at most that many entries pass an entry that waits; then its devices empty until it fits.
 */
#ifndef NEAP_QUEUE_DECIDE_H
#define NEAP_QUEUE_DECIDE_H

#include "machine/gpus.h"
#include "run/drain.h"

#define NEAP_QUEUE_PASSES 8

/* A set of devices: bit i is the device at index i of the caller's array. */
_Static_assert(NEAP_GPUS <= 32, "a set of devices has 32 bits");

struct neap_queue_device {
	uint64_t total_bytes; /* that programs may use */
	uint64_t free_bytes;
	bool empty; /* no process uses it, as "the whole device" requires */
};

struct neap_queue_entry {
	uint64_t order;
	bool holds; /* it has a lease; else it waits */
	bool aside; /* it waits, but cannot start now: paused, stopped, without a process. It blocks no other entry */
	struct neap_needs needs; /* what it needs of each of its devices; not NEAP_NEEDS_NONE */
	uint32_t gpus;           /* how many devices it needs, at least 1 */
	/* The devices that it may use; if it holds a lease, the devices of the lease */
	uint32_t devices;
	/* How much of each device its processes use, if it holds a lease; a figure that is too low is safe */
	uint64_t used_bytes[NEAP_GPUS];
};

enum neap_queue_verdict {
	NEAP_QUEUE_HOLDS,
	NEAP_QUEUE_START,  /* it starts now, on `devices` */
	NEAP_QUEUE_LEASED, /* leases of others are in its way */
	NEAP_QUEUE_BEHIND, /* it would fit, but must not pass `behind` */
	NEAP_QUEUE_USED,   /* memory that no lease covers is in its way */
	NEAP_QUEUE_ASIDE,
	NEAP_QUEUE_NEVER, /* the devices that it may use are too small */
};

struct neap_queue_answer {
	enum neap_queue_verdict verdict;
	uint32_t devices; /* START */
	size_t behind;    /* index of the entry that must go first, or that holds what it waits for; `count`: none */
	size_t position;  /* from 1, among those that wait for devices that it may use */
};

/* `entries` come in ascending order of `order`; each gets one answer. An entry that starts counts as holding a lease
 * for the entries after it. */
void neap_queue_decide(const struct neap_queue_device *devices, size_t device_count,
		       const struct neap_queue_entry *entries, size_t count, struct neap_queue_answer *ret_answers);

#endif
