/* If values are computed every byte counts: calls of any size, in pieces, and what is known of them. */
#include "nccl_test.h"

#include "sim/libraries/nccl/sparse.h"

#include <stdlib.h>
#include <unistd.h>

#define LARGE_COUNT ((NCCL_PACKED_LIMIT + 3 * NCCL_BLOCK) / 8 + 5) /* of int64: two pieces, the last one uneven */
#define MANY_COUNT  (NCCL_PACKED_LIMIT / 8 / 2 + 1234)             /* of a part, for each of two ranks */

/* The part for rank `to`, from rank `from`. */
static int64_t number_of(int from, int to, size_t i) { return (int64_t)i * 5 + from * 3 + to; }

static void put_part(int64_t *room, uint64_t address, int from, int to, size_t count)
{
	size_t i;

	for (i = 0; i < count; i++)
		room[i] = number_of(from, to, i);
	fake_store(address, room, count * 8);
}

/* For rank `to`: the part of one rank, or the sum over all. */
static void expect_part(int64_t *room, uint64_t address, const struct rank *sum, int from, int to, size_t count)
{
	size_t i;

	fake_load(address, room, count * 8);
	for (i = 0; i < count; i++) {
		int64_t wanted = number_of(from, to, i);

		if (sum)
			wanted = sum->ranks * number_of(0, to, i) + 3 * (sum->ranks - 1) * sum->ranks / 2;
		check(room[i] == wanted);
	}
}

static void large_parts(struct rank *rank, int64_t *room)
{
	size_t bytes = LARGE_COUNT * 8;
	int own = rank->rank, i;

	put_part(room, SOURCE, own, 0, LARGE_COUNT);
	check_ok(ncclAllReduce((void *)SOURCE, (void *)DESTINATION, LARGE_COUNT, ncclInt64, ncclSum, rank->comm,
			       STREAM(0)));
	expect_part(room, DESTINATION, rank, 0, 0, LARGE_COUNT);
	put_part(room, DESTINATION + (uint64_t)own * bytes, own, 0, LARGE_COUNT);
	check_ok(ncclAllGather((void *)(DESTINATION + (uint64_t)own * bytes), (void *)DESTINATION, LARGE_COUNT,
			       ncclInt64, rank->comm, STREAM(0)));
	for (i = 0; i < rank->ranks; i++)
		expect_part(room, DESTINATION + (uint64_t)i * bytes, NULL, i, 0, LARGE_COUNT);
}

static void many_parts(struct rank *rank, int64_t *room)
{
	size_t bytes = MANY_COUNT * 8;
	int own = rank->rank, i;

	for (i = 0; i < rank->ranks; i++)
		put_part(room, SOURCE + (uint64_t)i * bytes, own, i, MANY_COUNT);
	check_ok(ncclAlltoAll((void *)SOURCE, (void *)DESTINATION, MANY_COUNT, ncclInt64, rank->comm, STREAM(0)));
	for (i = 0; i < rank->ranks; i++)
		expect_part(room, DESTINATION + (uint64_t)i * bytes, NULL, i, own, MANY_COUNT);
	check_ok(ncclReduceScatter((void *)SOURCE, (void *)(SOURCE + (uint64_t)own * bytes), MANY_COUNT, ncclInt64,
				   ncclSum, rank->comm, STREAM(0)));
	expect_part(room, SOURCE + (uint64_t)own * bytes, rank, 0, own, MANY_COUNT);
}

/* All send before they receive, and more than one rank's log has room for. */
static void large_messages(struct rank *rank, int64_t *room)
{
	size_t bytes = LARGE_COUNT * 8;
	int own = rank->rank, i;

	put_part(room, SOURCE, own, 0, LARGE_COUNT);
	check_ok(ncclGroupStart());
	for (i = 0; i < rank->ranks; i++)
		check_ok(ncclSend((void *)SOURCE, LARGE_COUNT, ncclInt64, (own + i) % rank->ranks, rank->comm,
				  STREAM(0)));
	for (i = 0; i < rank->ranks; i++)
		check_ok(ncclRecv((void *)(DESTINATION + (uint64_t)i * bytes), LARGE_COUNT, ncclInt64, i, rank->comm,
				  STREAM(0)));
	check_ok(ncclGroupEnd());
	for (i = 0; i < rank->ranks; i++)
		expect_part(room, DESTINATION + (uint64_t)i * bytes, NULL, i, 0, LARGE_COUNT);
}

static void of_any_size(struct rank *rank)
{
	int64_t *room = malloc(LARGE_COUNT * 8);

	check(room != NULL);
	fake.known = KNOWN_TRUE;
	if (rank->ranks == 2) {
		large_parts(rank, room);
		many_parts(rank, room);
	} else {
		large_messages(rank, room);
	}
	check(fake.tallies[GAP_TRANSFER] == 0);
	free(room);
}

static void every_byte_counts(void **state)
{
	(void)state;
	run_ranks(2, of_any_size, NULL);
	run_ranks(3, of_any_size, NULL);
}

/* A rank continues while the others have not called, with more than the log has room for. Bytes that it overwrites or
 * frees then are not written later by any piece. */
static void ahead(struct rank *rank)
{
	int64_t *room = malloc(LARGE_COUNT * 8);
	const int *ends = rank->argument;
	char word = 'g';

	check(room != NULL);
	fake.known = KNOWN_TRUE;
	put_part(room, SOURCE, rank->rank, 0, LARGE_COUNT);
	if (rank->rank == 1)
		check(read(ends[0], &word, 1) == 1);
	check_ok(
		ncclBroadcast((void *)SOURCE, (void *)DESTINATION, LARGE_COUNT, ncclInt64, 0, rank->comm, STREAM(0)));
	check_ok(ncclAllReduce((void *)SOURCE, (void *)SOURCE, LARGE_COUNT, ncclInt64, ncclSum, rank->comm,
			       STREAM(0)));
	if (rank->rank == 0) {
		check(fake_closed() == 2);
		put_part(room, SOURCE, 7, 0, LARGE_COUNT);
		check(write(ends[1], &word, 1) == 1);
	}
	fake_synchronize_device();
	expect_part(room, SOURCE, rank->rank == 0 ? NULL : rank, 7, 0, LARGE_COUNT);
	expect_part(room, DESTINATION, NULL, 0, 0, LARGE_COUNT);
	free(room);
}

static void a_rank_goes_ahead(void **state)
{
	int ends[2];

	(void)state;
	assert_int_equal(pipe(ends), 0);
	run_ranks(2, ahead, ends);
	close(ends[0]);
	close(ends[1]);
}

/* Received bytes are known as well as the worst of their sources; missing bytes do not move. */
static void states_of(struct rank *rank)
{
	int64_t value = 4;

	fake_store(SOURCE, &value, sizeof value);
	fake_store(DESTINATION, &value, sizeof value);
	fake.known = rank->rank == 1 ? KNOWN_LIKELY : KNOWN_TRUE;
	check_ok(ncclAllReduce((void *)SOURCE, (void *)DESTINATION, 1, ncclInt64, ncclSum, rank->comm, STREAM(0)));
	fake_load(DESTINATION, &value, sizeof value);
	check(value == 12 && fake.marks == 1 && fake.marked[0] == KNOWN_LIKELY);
	fake.known = rank->rank == 1 ? KNOWN_MISSING : KNOWN_TRUE;
	check_ok(ncclAllGather((void *)SOURCE, (void *)DESTINATION, 1, ncclInt64, rank->comm, STREAM(0)));
	fake_load(DESTINATION + 8, &value, sizeof value);
	check(value == 0 && fake.marks == 4 && fake.marked[1] == KNOWN_TRUE && fake.marked[2] == KNOWN_MISSING &&
	      fake.marked[3] == KNOWN_TRUE);
	check_ok(ncclAllReduce((void *)SOURCE, (void *)DESTINATION, 1, ncclInt64, ncclSum, rank->comm, STREAM(0)));
	fake_synchronize(STREAM(0));
	check(fake.marks == 5 && fake.marked[4] == KNOWN_MISSING && fake.tallies[GAP_TRANSFER] == 0);
}

static void states_come_along(void **state)
{
	(void)state;
	run_ranks(3, states_of, NULL);
}

int main(void)
{
	const struct CMUnitTest tests[] = {
		cmocka_unit_test(every_byte_counts),
		cmocka_unit_test(a_rank_goes_ahead),
		cmocka_unit_test(states_come_along),
	};

	return cmocka_run_group_tests(tests, NULL, NULL);
}
