/* sim/driver/race_order.h: the clocks of races.c: streams, events and the host. Nothing here locks. */
#ifndef NEAP_SIM_RACE_ORDER_H
#define NEAP_SIM_RACE_ORDER_H

#include "base/map.h"
#include "sim/driver/races.h"

/* A stream's work is counted on its lane. If there are more streams than lanes, the rest share the last lane, and
 * their work counts as ordered. */
enum { RACE_LANES = 64, RACE_ASKERS = 4 };

struct race_clock {
	uint64_t seen[RACE_LANES]; /* how much work of each lane comes before */
};

struct race_event {
	struct race_clock clock; /* of its stream when it was recorded */
	uint32_t lane;           /* of its stream */
	bool of_allocator;       /* an allocator recorded it for a block that was freed */
	bool of_collective;      /* the stream's work right before it is NCCL's */
	bool awaited;            /* a stream has waited for it */
	struct {
		uint64_t thread; /* 0: no thread has asked. Further threads share the last place */
		uint32_t times;  /* how often it asked since the event was recorded */
	} askers[RACE_ASKERS];
};

struct race_stream {
	struct race_stream *next; /* of order->first */
	struct sim_race_stream what;
	struct race_clock clock;
	uint32_t lane;
	uint32_t number; /* as reports name it */
	uint32_t asked;  /* how often a query asked whether it has finished, while some of its work was late */
	bool collective; /* its last work is NCCL's */
	bool gone;       /* the program destroyed it. It stays here until the host has seen its work */
};

struct race_order {
	struct neap_map streams, events; /* key -> struct race_stream, struct race_event */
	struct race_stream *first;
	struct race_clock host;
	struct race_clock watchdogs; /* the work that threads other than the program's know to be finished */
	uint64_t counts[RACE_LANES]; /* work so far */
	uint32_t named;
	bool crowded; /* streams share a lane, or the host was out of memory for one: races may be missed */
};

void race_order_fini(struct race_order *order);
void race_clock_join(struct race_clock *into, const struct race_clock *from);
/* Returns the stream, with a clock that includes all that comes before its next work. NULL: host out of memory. */
struct race_stream *race_order_now(struct race_order *order, struct sim_race_stream stream);
/* The work that the event stands for; NULL: none. */
struct race_event *race_order_event(const struct race_order *order, uint64_t event);
void race_order_record(struct race_order *order, uint64_t event, struct sim_race_stream stream, bool of_allocator);
/* Whether the host waited for all work before the event. */
bool race_order_is_seen(const struct race_order *order, const struct race_event *event);
/* Whether a stream has waited for the event; or a stream, or the host, for later work of the event's stream. */
bool race_order_is_awaited(const struct race_order *order, const struct race_event *event);
void race_order_forget(struct race_order *order, uint64_t event);
void race_order_forget_stream(struct race_order *order, uint64_t stream);
/* Sets `crowded` again: whether streams still share a lane. */
void race_order_recheck(struct race_order *order);
/* Notes that the host waited for all of a device's streams. */
void race_order_host_device(struct race_order *order, uint32_t device);

#endif
