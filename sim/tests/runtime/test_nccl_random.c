/* Random programs of collectives, messages, groups, streams and communicators, against a model of all ranks' memory.
 *
 * All ranks draw the same program. Each rank keeps a model of the memory of all ranks, and compares its own now and
 * then; between comparisons operations accumulate. NEAP_SEED repeats a program. */
#include "nccl_test.h"

#include "sim/libraries/nccl/number.h"

#include <stdio.h>
#include <stdlib.h>
#include <string.h>

enum { RANKS = 4, REGIONS = 12, REGION = 8192, COMMS = 4, STEPS = 600 };

#define BASE 0x600000000000ull

struct team {
	ncclComm_t comm; /* of this rank; NULL: it is not a member */
	int members[RANKS], count;
	int own; /* this rank's place in it */
};

/* The result of one split: a team for each color, of the same size, doing the same at the same time. */
struct split {
	struct team teams[2];
	int count;
};

struct program {
	struct rank *rank;
	uint64_t random;
	unsigned char memory[RANKS][REGIONS][REGION], got[REGION], input[RANKS][REGION];
	struct split splits[COMMS];
	bool used[REGIONS]; /* in the open group */
};

static uint64_t address(int region) { return BASE + (uint64_t)region * 0x100000; }

static int pick(struct program *program, int limit) { return (int)random_below(&program->random, (uint32_t)limit); }

/* A region that the open group does not use yet; -1: none. */
static int pick_region(struct program *program)
{
	int tries, region;

	for (tries = 0; tries < 20; tries++) {
		region = pick(program, REGIONS);
		if (program->used[region])
			continue;
		program->used[region] = true;
		return region;
	}
	return -1;
}

static void store(struct program *program)
{
	int rank = pick(program, RANKS), region = pick(program, REGIONS), offset = pick(program, REGION) & ~7, i;
	int bytes = 1 + pick(program, REGION - offset);

	for (i = 0; i < bytes; i++)
		program->memory[rank][region][offset + i] = (unsigned char)next_random(&program->random);
	if (rank == program->rank->rank)
		fake_store(address(region) + (uint64_t)offset, &program->memory[rank][region][offset], (size_t)bytes);
}

static void look(struct program *program, int region)
{
	int i;

	fake_load(address(region), program->got, REGION);
	for (i = 0; i < REGION; i++)
		if (program->got[i] != program->memory[program->rank->rank][region][i]) {
			fprintf(stderr, "region %d, byte %d: %02x, not %02x\n", region, i, program->got[i],
				program->memory[program->rank->rank][region][i]);
			check(!"equal");
		}
}

/* -- operations: the call, and its effect on the model ----------------------------------------------------------- */

static void reduce_model(struct program *program, const struct team *team, int offset, int bytes,
			 unsigned char *ret_to)
{
	int i, at;

	for (at = 0; at < bytes; at++) { /* uint8: sums wrap */
		ret_to[at] = 0;
		for (i = 0; i < team->count; i++)
			ret_to[at] = (unsigned char)(ret_to[at] + program->input[i][offset + at]);
	}
}

static unsigned char *model(struct program *program, const struct team *team, int member, int region)
{
	return program->memory[team->members[member]][region];
}

static void all_reduce(struct program *program, const struct team *team, int from, int to, int part, void *stream)
{
	int i;

	if (team->comm)
		check_ok(ncclAllReduce((void *)address(from), (void *)address(to), (size_t)part, ncclUint8, ncclSum,
				       team->comm, stream));
	for (i = 0; i < team->count; i++)
		reduce_model(program, team, 0, part, model(program, team, i, to));
}

static void reduce_scatter(struct program *program, const struct team *team, int from, int to, int part, void *stream)
{
	int i;

	if (team->comm)
		check_ok(ncclReduceScatter((void *)address(from), (void *)address(to), (size_t)part, ncclUint8,
					   ncclSum, team->comm, stream));
	for (i = 0; i < team->count; i++)
		reduce_model(program, team, i * part, part, model(program, team, i, to));
}

static void all_gather(struct program *program, const struct team *team, int from, int to, int part, void *stream)
{
	int i, j;

	if (team->comm)
		check_ok(ncclAllGather((void *)address(from), (void *)address(to), (size_t)part, ncclUint8,
				       team->comm, stream));
	for (i = 0; i < team->count; i++)
		for (j = 0; j < team->count; j++)
			memcpy(model(program, team, i, to) + j * part, program->input[j], (size_t)part);
}

static void all_to_all(struct program *program, const struct team *team, int from, int to, int part, void *stream)
{
	int i, j;

	if (team->comm)
		check_ok(ncclAlltoAll((void *)address(from), (void *)address(to), (size_t)part, ncclUint8, team->comm,
				      stream));
	for (i = 0; i < team->count; i++)
		for (j = 0; j < team->count; j++)
			memcpy(model(program, team, i, to) + j * part, program->input[j] + i * part, (size_t)part);
}

static void broadcast(struct program *program, const struct team *team, int from, int to, int part, void *stream)
{
	int root = pick(program, team->count), i;

	if (team->comm)
		check_ok(ncclBroadcast((void *)address(from), (void *)address(to), (size_t)part, ncclUint8, root,
				       team->comm, stream));
	for (i = 0; i < team->count; i++)
		memcpy(model(program, team, i, to), program->input[root], (size_t)part);
}

static void reduce(struct program *program, const struct team *team, int from, int to, int part, void *stream)
{
	int root = pick(program, team->count);

	if (team->comm)
		check_ok(ncclReduce((void *)address(from), (void *)address(to), (size_t)part, ncclUint8, ncclSum,
				    root, team->comm, stream));
	reduce_model(program, team, 0, part, model(program, team, root, to));
}

/* Each member sends to the next one; in a separate group, or in the open one. */
static void ring(struct program *program, const struct team *team, int from, int to, int part, void *stream)
{
	int i;

	if (team->comm) {
		check_ok(ncclGroupStart());
		check_ok(ncclSend((void *)address(from), (size_t)part, ncclUint8, (team->own + 1) % team->count,
				  team->comm, stream));
		check_ok(ncclRecv((void *)address(to), (size_t)part, ncclUint8,
				  (team->own + team->count - 1) % team->count, team->comm, stream));
		check_ok(ncclGroupEnd());
	}
	for (i = 0; i < team->count; i++)
		memcpy(model(program, team, i, to), program->input[(i + team->count - 1) % team->count],
		       (size_t)part);
}

/* One member sends to another, without a group if none is open. */
static void message(struct program *program, const struct team *team, int from, int to, int part, void *stream)
{
	int sender = pick(program, team->count),
	    receiver = (sender + 1 + pick(program, team->count - 1)) % team->count;

	if (team->comm && team->own == sender)
		check_ok(ncclSend((void *)address(from), (size_t)part, ncclUint8, receiver, team->comm, stream));
	if (team->comm && team->own == receiver)
		check_ok(ncclRecv((void *)address(to), (size_t)part, ncclUint8, sender, team->comm, stream));
	memcpy(model(program, team, receiver, to), program->input[sender], (size_t)part);
}

static void (*const kinds[])(struct program *program, const struct team *team, int from, int to, int part,
			     void *stream) = {all_reduce, reduce_scatter, all_gather, all_to_all,
					      broadcast,  reduce,         ring,       message};

static void operation(struct program *program)
{
	const struct split *split = &program->splits[pick(program, COMMS)];
	int from = pick_region(program), to = pick_region(program),
	    part = 1 + pick(program, REGION / split->teams[0].count);
	int kind = pick(program, (int)(sizeof kinds / sizeof kinds[0])), i, j;
	void *stream = STREAM(pick(program, 3));
	uint64_t random = program->random;

	for (i = 0; i < split->count && from >= 0 && to >= 0; i++) {
		const struct team *team = &split->teams[i];

		program->random = random; /* the teams draw the same */
		for (j = 0; j < team->count; j++)
			memcpy(program->input[j], model(program, team, j, from), REGION);
		kinds[kind](program, team, from, to, part, stream);
	}
}

static void group(struct program *program)
{
	int count = pick(program, 6);
	bool nested = pick(program, 2);

	check_ok(ncclGroupStart());
	if (nested)
		check_ok(ncclGroupStart());
	while (count--)
		operation(program);
	if (nested)
		check_ok(ncclGroupEnd());
	check_ok(ncclGroupEnd());
}

static void make_splits(struct program *program)
{
	static const int colors[COMMS][RANKS] = {
		{0, 0, 0, 0}, {0, 0, 1, 1}, {0, 1, 1, 0}, {0, 0, 0, NCCL_SPLIT_NOCOLOR}};
	int i, j, own = program->rank->rank;

	for (i = 0; i < COMMS; i++) {
		struct split *split = &program->splits[i];
		struct team *team = &split->teams[colors[i][own] == 1];

		for (j = 0; j < RANKS; j++)
			if (colors[i][j] != NCCL_SPLIT_NOCOLOR)
				split->teams[colors[i][j]].members[split->teams[colors[i][j]].count++] = j;
		split->count = split->teams[1].count ? 2 : 1;
		check_ok(ncclCommSplit(program->rank->comm, colors[i][own], own, &team->comm, NULL));
		if (team->comm)
			check_ok(ncclCommUserRank(team->comm, &team->own));
	}
}

static void run_program(struct rank *rank)
{
	struct program *program = calloc(1, sizeof *program);
	int step, i;

	check(program != NULL);
	program->rank = rank;
	program->random = *(uint64_t *)rank->argument;
	make_splits(program);
	for (step = 0; step < STEPS; step++) {
		memset(program->used, 0, sizeof program->used);
		switch (pick(program, 8)) {
		case 0:
		case 1:
			store(program);
			break;
		case 2:
			look(program, pick(program, REGIONS));
			break;
		case 3:
			fake_synchronize(STREAM(pick(program, 3)));
			break;
		case 4:
		case 5:
			group(program);
			break;
		default:
			operation(program);
		}
	}
	for (i = 0; i < REGIONS; i++)
		look(program, i);
	for (i = 0; i < COMMS; i++)
		check_ok(ncclCommDestroy(program->splits[i].teams[program->splits[i].teams[1].comm != NULL].comm));
	free(program);
}

static void random_programs(void **state)
{
	uint64_t seed = test_seed(), random = seed;
	int i, rounds = getenv("NEAP_LONG") ? 1000 : 60;

	(void)state;
	for (i = 0; i < rounds; i++) {
		run_ranks(RANKS, run_program, &random);
		next_random(&random);
	}
}

int main(void)
{
	const struct CMUnitTest tests[] = {cmocka_unit_test(random_programs)};

	return cmocka_run_group_tests(tests, NULL, NULL);
}
