/* Communicators made from another one: split, shrink, grow, with several ids; also without blocking. */
#include "nccl_test.h"

#include <signal.h>
#include <sys/stat.h>
#include <sys/wait.h>

/* -- made of another one ----------------------------------------------------------------------------------------- */

static void split(struct rank *rank)
{
	ncclComm_t child, none = (ncclComm_t)rank;
	int value, round;

	for (round = 0; round < 3; round++) {
		check_ok(ncclCommSplit(rank->comm, rank->rank % 2, -rank->rank, &child, NULL));
		check_ok(ncclCommUserRank(child, &value));
		check(value == (rank->rank < 2 ? 1 : 0)); /* the larger rank has the smaller key */
		check(sum_over(child, 1 << rank->rank) == (rank->rank % 2 ? 2 + 8 : 1 + 4));
		check_ok(ncclCommDestroy(child));
	}
	check_ok(ncclCommSplit(rank->comm, rank->rank == 3 ? NCCL_SPLIT_NOCOLOR : 5, 0, &none, NULL));
	check(rank->rank == 3 ? none == NULL : sum_over(none, 1) == 3);
	check_ok(ncclCommDestroy(none));
	check_answer(ncclCommSplit(rank->comm, -7, 0, &child, NULL), ncclInvalidArgument);
	check(sum_over(rank->comm, 1) == 4);
}

static void splits(void **state)
{
	(void)state;
	run_ranks(4, split, NULL);
}

static void shrink(struct rank *rank)
{
	int excluded[2] = {1, 2}, round, value;
	ncclComm_t child;

	check_answer(ncclCommShrink(rank->comm, NULL, 0, &child, NULL, 0), ncclInvalidArgument);
	if (rank->rank == 1 || rank->rank == 2) {
		check_answer(ncclCommShrink(rank->comm, excluded, 2, &child, NULL, NCCL_SHRINK_DEFAULT),
			     ncclInvalidUsage);
		return;
	}
	for (round = 0; round < 2; round++) {
		check_ok(ncclCommShrink(rank->comm, excluded, 2, &child, NULL, NCCL_SHRINK_DEFAULT));
		check_ok(ncclCommUserRank(child, &value));
		check(value == (rank->rank == 0 ? 0 : rank->rank - 2));
		check(sum_over(child, rank->rank) == 0 + 3 + 4);
		check_ok(ncclCommDestroy(child));
	}
}

static void shrinks(void **state)
{
	(void)state;
	run_ranks(5, shrink, NULL);
}

static void grow(struct rank *rank)
{
	ncclUniqueId *id = rank->argument;
	ncclComm_t old = NULL, wide;
	int value;

	if (rank->rank < 2) {
		check_ok(ncclCommInitRank(&old, 2, rank->id, rank->rank));
		check_ok(ncclCommGrow(old, 3, rank->rank == 1 ? id : NULL, -1, &wide, NULL));
	} else {
		check_ok(ncclCommGrow(NULL, 3, id, 2, &wide, NULL));
	}
	check_ok(ncclCommUserRank(wide, &value));
	check(value == rank->rank && sum_over(wide, 1 << rank->rank) == 7);
	check_ok(ncclCommDestroy(wide));
	check_ok(ncclCommDestroy(old));
}

static void grows(void **state)
{
	struct ranks ranks;
	ncclUniqueId id;
	int i;

	(void)state;
	fake_reset();
	assert_int_equal(ncclGetUniqueId(&id), ncclSuccess);
	start_ranks(&ranks, 3, grow, &id);
	for (i = 0; i < 3; i++)
		assert_int_equal(wait_rank(&ranks, i), 0);
}

static void ask_for_ids(struct rank *rank)
{
	ncclUniqueId id;

	check_ok(ncclCommGetUniqueId(rank->comm, &id));
	check_answer(ncclCommGetUniqueId(rank->comm, &id), ncclInvalidUsage);
}

static void one_id_at_a_time(void **state)
{
	(void)state;
	run_ranks(1, ask_for_ids, NULL);
}

static void with_many_ids(struct rank *rank)
{
	ncclUniqueId ids[2] = {rank->id, rank->id};

	ids[1].internal[5] ^= 1;
	check_ok(ncclCommInitRankScalable(&rank->comm, rank->ranks, rank->rank, 2, ids, NULL));
	check(sum_over(rank->comm, 1) == rank->ranks);
	check_ok(ncclCommDestroy(rank->comm));
}

static void many_ids(void **state)
{
	struct ranks ranks;

	(void)state;
	start_ranks(&ranks, 2, with_many_ids, NULL);
	assert_int_equal(wait_rank(&ranks, 0) | wait_rank(&ranks, 1), 0);
}

/* -- without blocking -------------------------------------------------------------------------------------------- */

static void no_blocking(struct rank *rank)
{
	ncclConfig_t config = configuration(0);
	ncclResult_t state = ncclSuccess;
	ncclComm_t child = NULL;

	check_answer(ncclCommInitRankConfig(&rank->comm, rank->ranks, rank->id, rank->rank, &config), ncclInProgress);
	check(rank->comm != NULL);
	check(settle(rank->comm) == ncclSuccess);
	check_answer(ncclCommSplit(rank->comm, rank->rank % 2, 0, &child, NULL), ncclInProgress);
	check(settle(rank->comm) == ncclSuccess && child != NULL && settle(child) == ncclSuccess);
	check(sum_over(child, 1 << rank->rank) == (rank->rank % 2 ? 2 + 8 : 1 + 4));
	check_ok(ncclAllReduce((void *)SOURCE, (void *)DESTINATION, 1, ncclInt32, ncclSum, rank->comm, STREAM(0)));
	state = ncclCommFinalize(rank->comm);
	check(state == ncclSuccess || state == ncclInProgress);
	check(settle(rank->comm) == ncclSuccess);
	check_answer(ncclAllReduce((void *)SOURCE, (void *)DESTINATION, 1, ncclInt32, ncclSum, rank->comm, STREAM(0)),
		     ncclInvalidUsage);
	check_answer(ncclCommFinalize(rank->comm), ncclInvalidUsage);
	check_ok(ncclCommDestroy(rank->comm));
	check_ok(ncclCommDestroy(child));
	fake_synchronize_device();
}

static void communicators_that_do_not_block(void **state)
{
	struct ranks ranks;
	int i, failed = 0;

	(void)state;
	start_ranks(&ranks, 4, no_blocking, NULL);
	for (i = 0; i < 4; i++)
		failed |= wait_rank(&ranks, i);
	assert_int_equal(failed, 0);
}

int main(void)
{
	const struct CMUnitTest tests[] = {
		cmocka_unit_test(splits),   cmocka_unit_test(shrinks),
		cmocka_unit_test(grows),    cmocka_unit_test(one_id_at_a_time),
		cmocka_unit_test(many_ids), cmocka_unit_test(communicators_that_do_not_block),
	};

	return cmocka_run_group_tests(tests, NULL, NULL);
}
