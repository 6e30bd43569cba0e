/* tests/replay/workload.h: made-up training; a seed gives the same each time. */
#ifndef TESTS_REPLAY_WORKLOAD_H
#define TESTS_REPLAY_WORKLOAD_H

#include <stddef.h>
#include <stdint.h>

enum workload_kind {
	WORKLOAD_RANDOM,  /* any size, any order, four streams, recorded streams, now and then an emptied cache */
	WORKLOAD_STEPS,   /* parameters that stay; activations of varying length, freed in reverse */
	WORKLOAD_GROWING, /* a few buffers that are replaced by larger ones, among small ones that stay */
	WORKLOAD_KINDS
};

struct workload_op {
	char verb; /* a, f, r, e as in a text trace */
	uint32_t id;
	uint64_t size;
	uint32_t stream;
};

struct workload {
	struct workload_op *ops;
	size_t count;
	uint32_t ids; /* all ids are below this */
};

/* About `count` operations. free() the ops. */
struct workload workload_make(enum workload_kind kind, uint64_t seed, size_t count);

/* splitmix64 */
uint64_t workload_random(uint64_t *state);

#endif
