/* sim/driver/races.h: finds work that uses the same bytes as other work with no order between the two, and work that
 * still uses a block that its allocator has allocated again.
 *
 * It knows no driver and no PyTorch: streams and events are numbers, and its caller reports what happens.
 *
 *   stream s:   [work 1]--record e--[work 2]          each stream has a clock: how much work of every stream
 *   stream t:   wait e--[work 1]                      comes before its next work. An event carries a copy of it
 *
 *   bytes:      |---- cell ----|-- cell --|           each cell keeps its last uses, and of each the stream,
 *                  write s:2      read t:1            the number of the work, read or write, the block's life
 *
 * A use is *ordered* after an earlier one if its stream's clock, or the host's, includes that one. Two unordered uses
 * of a byte are a race if one of them writes. In the same life of the block it is a data race. In two lives it is a
 * lifetime race: the block was allocated again too early.
 *
 * Unlike the engine's clocks, these do not count order that is only chance. A query that finds work finished orders
 * nothing, unless the program itself asked (sim_races_host_event). A query of an allocator counts for the block that
 * it returns to its pool, a query of a watchdog for the blocks that it frees.
 *
 * No false alarms: if something is unknown, nothing is reported. Uses of unknown kind (a kernel's arguments) count
 * between lives only; sparse ones (a column of a matrix) do not race within a life.
 *
 * Threads: any; one lock, a leaf. `report` and `limited` are called without it.
 */
#ifndef NEAP_SIM_RACES_H
#define NEAP_SIM_RACES_H

#include "neap/sim.h"

#include <stdbool.h>
#include <stddef.h>
#include <stdint.h>

/* A stream. `key` is unique. The null stream of each device has a key of its own. It waits for the device's blocking
 * streams, and these wait for it. */
struct sim_race_stream {
	uint64_t key;
	uint32_t device;
	bool null, blocking;
};

struct sim_races;

/* `limited` gets a sentence, once each, about races that are not found from then on. NULL: host out of memory. */
struct sim_races *sim_races_create(void (*report)(const struct neap_sim_race *race),
				   void (*limited)(const char *what));
void sim_races_destroy(struct sim_races *races);

/* Orders. An event that was never recorded orders nothing. */
void sim_races_record(struct sim_races *races, uint64_t event, struct sim_race_stream stream, bool of_allocator);
void sim_races_wait(struct sim_races *races, struct sim_race_stream stream, uint64_t event);
/* Notes that the host waited for the event, or that the program asked for it and it was finished. */
void sim_races_host_event(struct sim_races *races, uint64_t event);
void sim_races_host_stream(struct sim_races *races, struct sim_race_stream stream);
void sim_races_host_device(struct sim_races *races, uint32_t device);
/* Called when a query finds the event finished. Returns whether the query may report that. `thread`: a thread of the
 * program; 0: another one. A thread of the program does not learn the end at its first queries: it would learn it by
 * chance, and PyTorch would leave out the wait that the program asks for. An allocator learns it; this orders the
 * blocks that wait to be reused. A watchdog, which is a thread that submits no work, learns it; this orders the
 * blocks that it frees later. But it learns late of a collective that nothing has waited for, because PyTorch leaves
 * out the wait once it knows the end. */
bool sim_races_asked(struct sim_races *races, uint64_t event, uint64_t thread);
void sim_races_forget_event(struct sim_races *races, uint64_t event);
void sim_races_forget_stream(struct sim_races *races, uint64_t key);
/* Makes later calls report again: pairs of places that were reported before, and limits that still hold. */
void sim_races_again(struct sim_races *races);

/* From now on, the work of the streams that `seed` chooses runs late (race_late.h). */
void sim_races_delay(struct sim_races *races, uint64_t seed);
bool sim_races_delays(struct sim_races *races);
void sim_races_later(struct sim_races *races, struct sim_race_stream stream, void (*function)(void *),
		     void *argument);
/* Runs the work before the stream's next work. That orders nothing. */
void sim_races_settle(struct sim_races *races, struct sim_race_stream stream);
void sim_races_settle_all(struct sim_races *races);
/* As sim_races_asked, for a query of whether the stream has finished. */
bool sim_races_asked_stream(struct sim_races *races, struct sim_race_stream stream);

/* Reports work that is submitted to the stream now. */
void sim_races_work(struct sim_races *races, struct sim_race_stream stream, const struct neap_sim_uses *uses);
/* As sim_races_work, at the launch of a graph: its blocks may be free, as a graph keeps the memory of its capture. */
void sim_races_replay(struct sim_races *races, struct sim_race_stream stream, const struct neap_sim_uses *uses);
/* Reports that the host itself reads or writes these bytes now. */
void sim_races_host(struct sim_races *races, const struct neap_sim_uses *uses);

/* Reports that an allocator allocated a block. `stack`: the caller's, for the report. `kept`: for a graph, which uses
 * the block after it is freed, as the readers of its results do. */
void sim_races_allocated(struct sim_races *races, uint64_t address, uint64_t bytes, struct sim_race_stream stream,
			 uint32_t stack, bool kept);
/* Reports that a block was freed. `by_watchdog`: by a thread that is not the program's, as NCCL's watchdog frees what
 * finished work has used. */
void sim_races_freed(struct sim_races *races, uint64_t address, uint32_t stack, bool by_watchdog);
/* Reports that the allocator may allocate the freed block again: the work that it waited for has ended. */
void sim_races_reusable(struct sim_races *races, uint64_t address);
/* Reports that these bytes lose their memory; it is a lifetime race if the host does not know that all work on them
 * has ended. */
void sim_races_unmapped(struct sim_races *races, uint64_t address, uint64_t bytes, uint32_t stack);
/* Forgets all uses of these bytes. */
void sim_races_forget(struct sim_races *races, uint64_t address, uint64_t bytes);

#endif
