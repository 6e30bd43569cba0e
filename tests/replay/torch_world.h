/* tests/replay/torch_world.h: PyTorch's policy on a device of its own, and a log of its segments. Addresses are
 * counted from the first segment's. */
#ifndef NEAP_TESTS_TORCH_WORLD_H
#define NEAP_TESTS_TORCH_WORLD_H

#include "base/units.h"
#include "replay/torch_policy.h"
#include "support/test.h"

#define BASE 0x100000000ull

/* A policy, and what it did since the log was last read: "A+20M" a segment of 20 MiB, "-20M" freed, "m+"/"m-" mapped
 * and unmapped. */
struct world {
	struct neap_policy *policy;
	char log[512];
	uint64_t falling; /* the lowest segment's address; 0: they rise */
};

/* As PyTorch 2.`minor`; `falling`: addresses fall. */
void open_as(struct world *world, unsigned minor, const char *settings, uint64_t device_mib, bool falling);
void open_world(struct world *world, const char *settings, uint64_t device_mib);
void close_world(struct world *world);
void *take_on(struct world *world, uint64_t bytes, uint64_t stream);
void *take(struct world *world, uint64_t bytes);
void give(struct world *world, void *block);
void refuse(struct world *world, uint64_t bytes);
void expect_log(struct world *world, const char *wanted);
uint64_t at(const void *block);
struct neap_policy_usage usage(struct world *world);

#endif
