/* Every collective, data type and reduction against a reference that each rank computes for itself. */
#include "nccl_test.h"

#include "sim/libraries/nccl/number.h"
#include "sim/libraries/nccl/sparse.h"

#include <stdio.h>
#include <stdlib.h>
#include <string.h>

enum { TYPES = 12, PART_LIMIT = 3 * NCCL_BLOCK, RANK_LIMIT = 5 };

static const size_t sizes[TYPES] = {1, 1, 4, 4, 8, 8, 2, 4, 8, 2, 1, 1};

struct books {
	struct rank *rank;
	uint64_t random; /* the same in all ranks */
	/* The contents of each rank's source, and the old contents of its destination. */
	unsigned char sources[RANK_LIMIT][RANK_LIMIT * PART_LIMIT], befores[RANK_LIMIT * PART_LIMIT];
	unsigned char wanted[RANK_LIMIT * PART_LIMIT], got[RANK_LIMIT * PART_LIMIT];
	ncclRedOp_t scaled; /* made for one data type */
	unsigned char scalars[RANK_LIMIT][8];
};

/* Small numbers of every type, so that sums neither wrap nor round in most elements. */
static void set_element(int type, unsigned char *to, uint64_t random, bool positive)
{
	union nccl_wide wide;
	int small = (int)(random % 9);

	if (type != ncclUint8 && type != ncclUint32 && type != ncclUint64 && !positive)
		small -= 4;

	if (type <= ncclUint64)
		wide.whole = (uint64_t)(int64_t)small;
	else
		wide.real = small / 4.0;
	nccl_narrow(type, NCCL_REDUCE_SUM, 1, 1, &wide, to);
}

/* Some blocks stay unwritten: they are zeros, and are not stored. */
static void fill(struct books *books, int type, size_t bytes)
{
	int rank;
	size_t at, i;

	memset(books->sources, 0, sizeof books->sources);
	for (rank = 0; rank < books->rank->ranks; rank++) {
		set_element(type, books->scalars[rank], next_random(&books->random), true); /* no -0 */
		for (at = 0; at < bytes; at += NCCL_BLOCK) {
			size_t end = at + NCCL_BLOCK < bytes ? at + NCCL_BLOCK : bytes;
			bool hole = random_below(&books->random, 3) == 0;

			for (i = at; i < end && !hole; i += sizes[type])
				set_element(type, &books->sources[rank][i], next_random(&books->random), false);
			if (rank == books->rank->rank && !hole)
				fake_store(SOURCE + at, &books->sources[rank][at], end - at);
		}
	}
}

static void clear_device(void)
{
	const struct runtime_services *services = runtime_services();

	services->forget(SOURCE, RANK_LIMIT * PART_LIMIT);
	services->forget(DESTINATION, RANK_LIMIT * PART_LIMIT);
}

static void reference(const struct books *books, int type, int reduction, size_t offset, size_t bytes,
		      unsigned char *ret_to)
{
	size_t count = bytes / sizes[type], i;
	union nccl_wide sum, next;
	unsigned char element[8];
	int rank;

	for (i = 0; i < count; i++) {
		for (rank = 0; rank < books->rank->ranks; rank++) {
			memcpy(element, &books->sources[rank][offset + i * sizes[type]], sizes[type]);
			if (reduction == NCCL_REDUCE_PREMULTIPLIED)
				nccl_multiply(type, 1, element, books->scalars[rank]);
			nccl_widen(type, element, 1, &next);
			if (rank == 0)
				sum = next;
			else
				nccl_combine(type, (enum nccl_reduction)reduction, 1, &sum, &next);
		}
		nccl_narrow(type, (enum nccl_reduction)reduction, books->rank->ranks, 1, &sum,
			    ret_to + i * sizes[type]);
	}
}

static void expect(struct books *books, uint64_t address, size_t bytes, const char *what, int type, int reduction)
{
	size_t i;

	fake_load(address, books->got, bytes);
	for (i = 0; i < bytes; i++) {
		if (books->got[i] == books->wanted[i])
			continue;
		fprintf(stderr, "%s of type %d, reduction %d, %zu bytes: rank %d: byte %zu is %02x, not %02x\n", what,
			type, reduction, bytes, books->rank->rank, i, books->got[i], books->wanted[i]);
		check(!"equal");
	}
}

static ncclRedOp_t op_of(struct books *books, int type, int reduction)
{
	ncclRedOp_t op = (ncclRedOp_t)reduction;

	if (reduction == NCCL_REDUCE_PREMULTIPLIED)
		check_ok(ncclRedOpCreatePreMulSum(&op, books->scalars[books->rank->rank], (ncclDataType_t)type,
						  ncclScalarHostImmediate, books->rank->comm));
	return op;
}

static void done_with(struct books *books, ncclRedOp_t op)
{
	if (op >= ncclNumOps)
		check_ok(ncclRedOpDestroy(op, books->rank->comm));
}

/* -- each collective --------------------------------------------------------------------------------------------- */

static void reductions(struct books *books, int type, int reduction, size_t count, bool in_place)
{
	ncclComm_t comm = books->rank->comm;
	ncclDataType_t data = (ncclDataType_t)type;
	size_t part = count * sizes[type];
	int own = books->rank->rank, ranks = books->rank->ranks,
	    root = (int)random_below(&books->random, (uint32_t)ranks);
	uint64_t to = in_place ? SOURCE : DESTINATION;
	ncclRedOp_t op;

	clear_device();
	fill(books, type, part);
	op = op_of(books, type, reduction);
	check_ok(ncclAllReduce((void *)SOURCE, (void *)to, count, data, op, comm, STREAM(0)));
	reference(books, type, reduction, 0, part, books->wanted);
	expect(books, to, part, "AllReduce", type, reduction);
	done_with(books, op);

	clear_device();
	fill(books, type, part);
	op = op_of(books, type, reduction);
	check_ok(ncclReduce((void *)SOURCE, (void *)to, count, data, op, root, comm, STREAM(1)));
	reference(books, type, reduction, 0, part, books->wanted);
	if (own == root)
		expect(books, to, part, "Reduce", type, reduction);
	done_with(books, op);

	clear_device();
	fill(books, type, part * (size_t)ranks);
	op = op_of(books, type, reduction);
	to = in_place ? SOURCE + part * (size_t)own : DESTINATION;
	check_ok(ncclReduceScatter((void *)SOURCE, (void *)to, count, data, op, comm, NULL));
	reference(books, type, reduction, part * (size_t)own, part, books->wanted);
	expect(books, to, part, "ReduceScatter", type, reduction);
	done_with(books, op);
}

/* The destination keeps its bytes where a collective does not write. */
static void hold_before(struct books *books, size_t bytes)
{
	size_t i;

	for (i = 0; i < bytes; i++)
		books->befores[i] = (unsigned char)next_random(&books->random);
	fake_store(DESTINATION, books->befores, bytes);
	memcpy(books->wanted, books->befores, bytes);
}

static void rooted_moves(struct books *books, int type, size_t count, bool in_place)
{
	ncclComm_t comm = books->rank->comm;
	ncclDataType_t data = (ncclDataType_t)type;
	size_t part = count * sizes[type];
	int own = books->rank->rank, ranks = books->rank->ranks,
	    root = (int)random_below(&books->random, (uint32_t)ranks), i;
	uint64_t to;

	clear_device();
	fill(books, type, part);
	to = in_place ? SOURCE : DESTINATION;
	check_ok(ncclBroadcast((void *)SOURCE, (void *)to, count, data, root, comm, STREAM(2)));
	memcpy(books->wanted, books->sources[root], part);
	expect(books, to, part, "Broadcast", type, -1);

	clear_device();
	fill(books, type, part);
	check_ok(ncclBcast((void *)SOURCE, count, data, root, comm, STREAM(2)));
	memcpy(books->wanted, books->sources[root], part);
	expect(books, SOURCE, part, "Bcast", type, -1);

	clear_device();
	hold_before(books, part * (size_t)ranks);
	fill(books, type, part);
	to = DESTINATION;
	check_ok(ncclGather((void *)SOURCE, (void *)to, count, data, root, comm, STREAM(2)));
	for (i = 0; i < ranks && own == root; i++)
		memcpy(books->wanted + (size_t)i * part, books->sources[i], part);
	expect(books, to, part * (size_t)ranks, "Gather", type, -1);
}

static void moves(struct books *books, int type, size_t count, bool in_place)
{
	ncclComm_t comm = books->rank->comm;
	ncclDataType_t data = (ncclDataType_t)type;
	size_t part = count * sizes[type];
	int own = books->rank->rank, ranks = books->rank->ranks, next = (own + 1) % ranks,
	    last = (own + ranks - 1) % ranks, i;
	uint64_t from = in_place ? DESTINATION + part * (size_t)own : SOURCE;

	clear_device();
	if (!in_place)
		hold_before(books, part * (size_t)ranks);
	fill(books, type, part);
	if (in_place && part)
		fake_store(from, books->sources[own], part);
	check_ok(ncclAllGather((void *)from, (void *)DESTINATION, count, data, comm, STREAM(3)));
	for (i = 0; i < ranks; i++)
		memcpy(books->wanted + (size_t)i * part, books->sources[i], part);
	expect(books, DESTINATION, part * (size_t)ranks, "AllGather", type, -1);

	clear_device();
	fill(books, type, part * (size_t)ranks);
	check_ok(ncclAlltoAll((void *)SOURCE, (void *)DESTINATION, count, data, comm, STREAM(3)));
	for (i = 0; i < ranks; i++)
		memcpy(books->wanted + (size_t)i * part, books->sources[i] + (size_t)own * part, part);
	expect(books, DESTINATION, part * (size_t)ranks, "AlltoAll", type, -1);

	clear_device();
	hold_before(books, part);
	fill(books, type, part);
	check_ok(ncclGroupStart());
	check_ok(ncclSend((void *)SOURCE, count, data, next, comm, STREAM(4)));
	check_ok(ncclRecv((void *)DESTINATION, count, data, last, comm, STREAM(4)));
	check_ok(ncclGroupEnd());
	memcpy(books->wanted, books->sources[last], part);
	expect(books, DESTINATION, part, "Send and Recv", type, -1);
}

static void everything(struct rank *rank)
{
	static const size_t counts[] = {0, 1, 7, 513, 1531};
	struct books *books = calloc(1, sizeof *books);
	int type, reduction;
	size_t i;

	check(books != NULL);
	books->rank = rank;
	books->random = *(uint64_t *)rank->argument;
	for (type = 0; type < TYPES; type++) {
		for (i = 0; i < sizeof counts / sizeof counts[0]; i++) {
			for (reduction = 0; reduction <= NCCL_REDUCE_PREMULTIPLIED; reduction++)
				reductions(books, type, reduction, counts[i], (i + (size_t)reduction) % 2);
			rooted_moves(books, type, counts[i], i % 2);
			moves(books, type, counts[i], i % 2);
		}
	}
	check(fake.tallies[GAP_TRANSFER] == 0);
	free(books);
}

static void with_ranks(int ranks)
{
	uint64_t seed = test_seed();

	run_ranks(ranks, everything, &seed);
}

static void one_rank(void **state)
{
	(void)state;
	with_ranks(1);
}
static void two_ranks(void **state)
{
	(void)state;
	with_ranks(2);
}
static void three_ranks(void **state)
{
	(void)state;
	with_ranks(3);
}
static void five_ranks(void **state)
{
	(void)state;
	with_ranks(5);
}

/* -- sizes ------------------------------------------------------------------------------------------------------- */

/* Gradients were never computed: a buffer of any size costs nothing. */
static void nothing_to_move(struct rank *rank)
{
	size_t count = 1ull << 34;

	check_ok(ncclAllReduce((void *)SOURCE, (void *)SOURCE, count, ncclFloat32, ncclSum, rank->comm, STREAM(0)));
	check_ok(ncclAllGather((void *)SOURCE, (void *)DESTINATION, count, ncclFloat32, rank->comm, STREAM(0)));
	fake_synchronize(STREAM(0));
	check(!runtime_services()->holds(DESTINATION, count * 4 * (size_t)rank->ranks));
	check(fake.tallies[GAP_TRANSFER] == 0);
}

static void no_bytes_no_cost(void **state)
{
	(void)state;
	run_ranks(2, nothing_to_move, NULL);
}

/* Stored bytes may be anywhere in a large buffer. */
static void needle(struct rank *rank)
{
	uint64_t at = (3ull << 32) + 40 * (uint64_t)rank->rank + 4;
	float one = 1.25f, got[64];
	int i;

	fake_store(SOURCE + at, &one, sizeof one);
	check_ok(ncclAllReduce((void *)SOURCE, (void *)SOURCE, 1ull << 32, ncclFloat32, ncclSum, rank->comm,
			       STREAM(0)));
	fake_load(SOURCE + (3ull << 32), got, sizeof got);
	for (i = 0; i < 64; i++)
		check(got[i] == (i % 10 == 1 && i / 10 < rank->ranks ? 1.25f : 0));
}

static void a_needle_in_a_haystack(void **state)
{
	(void)state;
	run_ranks(3, needle, NULL);
}

/* Up to the limit all bytes arrive; above it none do, and the rank that drops them counts it. */
static void limits(struct rank *rank)
{
	size_t bytes = NCCL_PACKED_LIMIT, i, turn;
	unsigned char *block = malloc(bytes + NCCL_BLOCK), *got = malloc(bytes + NCCL_BLOCK);

	check(block && got);
	for (i = 0; i < bytes + NCCL_BLOCK; i++)
		block[i] = (unsigned char)(i % 251 + 1);
	for (turn = 0; turn < 5; turn++) { /* more than the ring of one rank has room for */
		if (rank->rank == 0)
			fake_store(SOURCE, block, bytes);
		check_ok(ncclBroadcast((void *)SOURCE, (void *)(SOURCE + turn), bytes, ncclUint8, 0, rank->comm,
				       STREAM(turn)));
		if (rank->rank == 0)
			continue; /* it runs ahead */
		fake_load(SOURCE + turn, got, bytes);
		check(memcmp(got, block, bytes) == 0);
	}
	check(fake.tallies[GAP_TRANSFER] == 0);
	runtime_services()->forget(SOURCE, bytes + NCCL_BLOCK);
	fake_store(DESTINATION, block, bytes + NCCL_BLOCK);
	if (rank->rank == 0)
		fake_store(SOURCE, block, bytes + NCCL_BLOCK);
	check_ok(ncclAllReduce((void *)SOURCE, (void *)DESTINATION, bytes + NCCL_BLOCK, ncclUint8, ncclSum,
			       rank->comm, NULL));
	check(fake.tallies[GAP_TRANSFER] == (rank->rank == 0));
	fake_synchronize(NULL);
	check(!runtime_services()->holds(DESTINATION, bytes + NCCL_BLOCK));
	fake_store(DESTINATION, block, bytes + NCCL_BLOCK);
	check_ok(ncclAllGather((void *)SOURCE, (void *)DESTINATION, bytes + NCCL_BLOCK, ncclUint8, rank->comm, NULL));
	fake_synchronize(NULL);
	check(!runtime_services()->holds(DESTINATION, (bytes + NCCL_BLOCK) * (size_t)rank->ranks));
	free(block);
	free(got);
}

static void the_limit(void **state)
{
	(void)state;
	run_ranks(2, limits, NULL);
}

/* A single rank sends to nobody: everything that it holds stays, however much it is. */
static void alone(struct rank *rank)
{
	size_t bytes = NCCL_PACKED_LIMIT + NCCL_BLOCK, i;
	unsigned char *block = malloc(bytes), *got = malloc(bytes);

	check(block && got);
	for (i = 0; i < bytes; i++)
		block[i] = (unsigned char)(i % 251 + 1);
	fake_store(SOURCE, block, bytes);
	check_ok(ncclAllReduce((void *)SOURCE, (void *)SOURCE, bytes, ncclUint8, ncclSum, rank->comm, STREAM(0)));
	check_ok(ncclAllGather((void *)SOURCE, (void *)DESTINATION, bytes, ncclUint8, rank->comm, STREAM(0)));
	fake_synchronize(STREAM(0));
	fake_load(SOURCE, got, bytes);
	check(memcmp(got, block, bytes) == 0);
	fake_load(DESTINATION, got, bytes);
	check(memcmp(got, block, bytes) == 0);
	check(fake.tallies[GAP_TRANSFER] == 0);
	free(block);
	free(got);
}

static void no_limit_alone(void **state)
{
	(void)state;
	run_ranks(1, alone, NULL);
}

/* A rank may be far ahead: operations queue in its own memory, and it waits when the log is full. */
static void many(struct rank *rank)
{
	int i, turns = 5000, value = rank->rank + 1, got = 0;

	for (i = 0; i < turns; i++) {
		fake_store(SOURCE + 8 * (uint64_t)i, &value, sizeof value);
		check_ok(ncclAllReduce((void *)(SOURCE + 8 * (uint64_t)i), (void *)(DESTINATION + 8 * (uint64_t)i), 1,
				       ncclInt32, ncclSum, rank->comm, STREAM(i % 7)));
	}
	for (i = 0; i < turns; i++) {
		fake_load(DESTINATION + 8 * (uint64_t)i, &got, sizeof got);
		check(got == rank->ranks * (rank->ranks + 1) / 2);
	}
}

static void far_ahead(void **state)
{
	(void)state;
	run_ranks(2, many, NULL);
}

int main(void)
{
	const struct CMUnitTest tests[] = {
		cmocka_unit_test(one_rank),         cmocka_unit_test(two_ranks),
		cmocka_unit_test(three_ranks),      cmocka_unit_test(five_ranks),
		cmocka_unit_test(no_bytes_no_cost), cmocka_unit_test(a_needle_in_a_haystack),
		cmocka_unit_test(the_limit),        cmocka_unit_test(no_limit_alone),
		cmocka_unit_test(far_ahead),
	};

	return cmocka_run_group_tests(tests, NULL, NULL);
}
