/* tests/alloc/harness.h: a simulated world of this process's own, and the operations that the allocator's tests
 * share. */
#ifndef NEAP_TESTS_ALLOC_HARNESS_H
#define NEAP_TESTS_ALLOC_HARNESS_H

#include "base/units.h"
#include "device/driver.h"
#include "neap/alloc.h"
#include "neap/sim.h"
#include "support/test.h"

#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <unistd.h>

#define EVENTS_KEPT 8192

struct events {
	struct neap_event list[EVENTS_KEPT];
	size_t count;
	char names[64][48];
	uint16_t name_count; /* names[0] is "" */
};

struct world {
	struct neap_driver *driver;
	struct neap_device *device;
	const struct neap_cuda *cuda;
	const struct neap_sim_calls *sim;
	struct neap_alloc *alloc;
	struct events events;
	struct neap_observer observer;
	struct neap_device_guard guard;
};

/* Opens device 0 of a world with `spec` ("mem=256MiB,..."), with this thread's context current. */
void world_open(struct world *world, const char *spec);
/* Fails the test when the simulator has detected a race or an illegal access. */
void world_close(struct world *world);
void world_alloc(struct world *world, double fraction); /* creates the allocator, with the events' observer */
/* Checks the invariants and that no error was detected: as things are, and again after emptying the bins. */
void world_check(struct world *world);
/* Only as things are: the next request finds the bins as they were. */
void world_look(struct world *world);

uint64_t take(struct world *world, size_t bytes, void *stream);
void give(struct world *world, uint64_t address);
void *stream_new(struct world *world);
/* A kernel that writes (or reads) [address, address + bytes) on the stream. */
void touch(struct world *world, void *stream, uint64_t address, uint64_t bytes, int write, uint64_t duration_ns);
int64_t metric(struct world *world, enum neap_metric which);
const struct neap_event *event_find(const struct events *events, enum neap_event_kind kind, size_t skip);

uint64_t random_next(uint64_t *state);

/* For a test that has its own world of 256 MiB with an allocator. */
int world_setup(void **state);
int world_teardown(void **state);

#endif
