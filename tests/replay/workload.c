#include "workload.h"

#include <stdlib.h>

#define KIB 1024ull
#define MIB (1024 * KIB)

uint64_t workload_random(uint64_t *state)
{
	uint64_t x = (*state += 0x9e3779b97f4a7c15ull);
	x = (x ^ (x >> 30)) * 0xbf58476d1ce4e5b9ull;
	x = (x ^ (x >> 27)) * 0x94d049bb133111ebull;
	return x ^ (x >> 31);
}

struct maker {
	struct workload work;
	size_t wanted;
	uint64_t state;
	uint32_t *live;
	size_t live_count;
};

static uint64_t below(struct maker *maker, uint64_t bound) { return workload_random(&maker->state) % bound; }

static void add(struct maker *maker, struct workload_op op)
{
	if (maker->work.count < maker->wanted)
		maker->work.ops[maker->work.count++] = op;
}

static uint32_t alloc(struct maker *maker, uint64_t size, uint32_t stream)
{
	uint32_t id = maker->work.ids++;
	add(maker, (struct workload_op){'a', id, size, stream});
	return id;
}

static void release(struct maker *maker, uint32_t id) { add(maker, (struct workload_op){.verb = 'f', .id = id}); }

/* Sizes as in training: mostly small, some of each larger class, some exactly at the classes' edges. */
static uint64_t any_size(struct maker *maker)
{
	switch (below(maker, 8)) {
	case 0:
		return 1 + below(maker, 512);
	case 1:
	case 2:
		return 1 + below(maker, 64 * KIB);
	case 3:
		return 1 + below(maker, MIB + 4 * KIB);
	case 4:
		return MIB + 1 + below(maker, 9 * MIB);
	case 5:
		return 9 * MIB + below(maker, 3 * MIB);
	case 6:
		return 10 * MIB + below(maker, 40 * MIB);
	default:
		return (1 + below(maker, 40)) * MIB;
	}
}

static void make_random(struct maker *maker)
{
	while (maker->work.count < maker->wanted) {
		uint64_t turn = below(maker, 100);
		size_t pick = maker->live_count ? (size_t)below(maker, maker->live_count) : 0;
		if (turn < 52 || !maker->live_count) {
			uint32_t stream = below(maker, 3) ? 0 : (uint32_t)below(maker, 4);
			maker->live[maker->live_count++] = alloc(maker, any_size(maker), stream);
		} else if (turn < 60) {
			add(maker, (struct workload_op){.verb = 'r',
							.id = maker->live[pick],
							.stream = (uint32_t)below(maker, 4)});
		} else if (turn == 99 && below(maker, 4) == 0) {
			add(maker, (struct workload_op){.verb = 'e'});
		} else {
			release(maker, maker->live[pick]);
			maker->live[pick] = maker->live[--maker->live_count];
		}
		while (maker->live_count > 150)
			release(maker, maker->live[--maker->live_count]);
	}
}

static void make_steps(struct maker *maker)
{
	for (int i = 0; i < 30; i++)
		alloc(maker, i % 3 ? 4 * KIB : (2 + below(maker, 20)) * MIB, 0);
	while (maker->work.count < maker->wanted) {
		uint64_t length = 64 + below(maker, 64);
		for (int layer = 0; layer < 24; layer++) {
			maker->live[maker->live_count++] = alloc(maker, length * 96 * KIB, 0);
			maker->live[maker->live_count++] = alloc(maker, length * 20 * KIB, layer % 4 == 3);
			uint32_t temporary = alloc(maker, length * 300 * KIB, 0);
			maker->live[maker->live_count++] = alloc(maker, 1 + below(maker, 4 * KIB), 0);
			if (layer % 4 == 3)
				add(maker, (struct workload_op){.verb = 'r', .id = temporary, .stream = 1});
			release(maker, temporary);
		}
		while (maker->live_count)
			release(maker, maker->live[--maker->live_count]);
	}
}

static void make_growing(struct maker *maker)
{
	uint64_t size[8];
	for (int i = 0; i < 8; i++) {
		size[i] = MIB;
		maker->live[i] = alloc(maker, size[i], 0);
	}
	while (maker->work.count < maker->wanted) {
		size_t i = (size_t)below(maker, 8);
		uint32_t old = maker->live[i];
		size[i] = size[i] > 60 * MIB ? MIB : size[i] + below(maker, 2 * MIB);
		maker->live[i] = alloc(maker, size[i], 0);
		release(maker, old);
		if (below(maker, 4) == 0)
			alloc(maker, 1 + below(maker, 32 * KIB), 0);
	}
}

struct workload workload_make(enum workload_kind kind, uint64_t seed, size_t count)
{
	struct maker maker = {.wanted = count, .state = seed};
	maker.work.ops = calloc(count, sizeof *maker.work.ops);
	maker.live = calloc(count + 256, sizeof *maker.live);
	if (!maker.work.ops || !maker.live)
		abort();
	if (kind == WORKLOAD_RANDOM)
		make_random(&maker);
	else if (kind == WORKLOAD_STEPS)
		make_steps(&maker);
	else
		make_growing(&maker);
	free(maker.live);
	return maker.work;
}
