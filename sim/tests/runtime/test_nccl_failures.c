/* Ranks that die, leave, disagree or corrupt the file: the others continue with an error, and no file stays. */
#include "nccl_test.h"

#include "sim/libraries/nccl/segment_layout.h"

#include <fcntl.h>
#include <pthread.h>
#include <signal.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/stat.h>
#include <sys/wait.h>
#include <unistd.h>

/* -- death ------------------------------------------------------------------------------------------------------- */

struct killing {
	uint64_t seed;
	int victim;
	bool early; /* perhaps while the communicator is initialised */
};

/* Works until an error: collectives and messages without end. */
static void work_until_error(struct rank *rank)
{
	const struct killing *killing = rank->argument;
	uint64_t random = killing->seed; /* all ranks draw the same */
	ncclResult_t result = ncclSuccess, state = ncclSuccess;
	int i, value, kind, next = (rank->rank + 1) % rank->ranks,
			    last = (rank->rank + rank->ranks - 1) % rank->ranks;

	check(!killing->early || setenv("NEAP_NCCL_TIMEOUT", "1", 1) == 0);
	result = ncclCommInitRank(&rank->comm, rank->ranks, rank->id, rank->rank);
	if (result != ncclSuccess) {
		check(killing->early && (result == ncclRemoteError || result == ncclSystemError) && !rank->comm);
		return;
	}
	for (i = 0; result == ncclSuccess; i++) {
		uint64_t to = DESTINATION + 64 * random_below(&random, 50);

		kind = (int)random_below(&random, 3);
		value = i + 1;
		fake_store(SOURCE, &value, sizeof value);
		if (kind == 0) {
			result = ncclAllReduce((void *)SOURCE, (void *)to, 1, ncclInt32, ncclMax, rank->comm,
					       STREAM(0));
		} else if (kind == 1) {
			result = ncclBroadcast((void *)SOURCE, (void *)to, 1, ncclInt32, 0, rank->comm, STREAM(1));
		} else {
			check_ok(ncclGroupStart());
			result = ncclSend((void *)SOURCE, 1, ncclInt32, next, rank->comm, STREAM(0));
			if (result == ncclSuccess)
				result = ncclRecv((void *)to, 1, ncclInt32, last, rank->comm, STREAM(0));
			state = ncclGroupEnd();
			result = result == ncclSuccess ? state : result;
		}
		if (i < 20000 && rank->rank == killing->victim && i % 4 == 0)
			rank_report(rank, 'w');
		if (result != ncclSuccess || random_below(&random, 4) != 0)
			continue;
		fake_load(to, &value, sizeof value);
		check_ok(ncclCommGetAsyncError(rank->comm, &state));
		check(value == i + 1 || (value == 0 && state == ncclRemoteError));
	}
	check(result == ncclRemoteError);
	check(strstr(ncclGetLastError(NULL), "has died") || strstr(ncclGetLastError(NULL), "has left"));
	check_ok(ncclCommGetAsyncError(rank->comm, &state));
	check(state == ncclRemoteError);
	fake_load(DESTINATION, &value, sizeof value); /* does not wait */
	fake_synchronize_device();
	check_ok(random_below(&random, 2) ? ncclCommAbort(rank->comm) : ncclCommDestroy(rank->comm));
}

static void a_peer_is_killed(void **state)
{
	uint64_t random = test_seed();
	int round, i, words, rounds = getenv("NEAP_LONG") ? 200 : 20;

	(void)state;
	for (round = 0; round < rounds; round++) {
		int count = 2 + (int)random_below(&random, 3);
		struct killing killing = {.seed = random, .victim = (int)random_below(&random, (uint32_t)count)};
		struct ranks ranks;

		words = random_below(&random, 4) == 0 ? 0 : (int)random_below(&random, 60) + 1;
		killing.early = words == 0;
		start_ranks(&ranks, count, work_until_error, &killing);
		while (words-- > 0)
			assert_int_equal(hear_rank(&ranks, killing.victim), 'w');
		kill(ranks.pids[killing.victim], SIGKILL);
		for (i = 0; i < count; i++) {
			int status = wait_rank(&ranks, i);

			if (i == killing.victim)
				assert_true(WIFSIGNALED(status));
			else if (status !=
				 0) /* killed before all had joined: an error of the initialisation is right, too */
				assert_int_equal(status, 0);
		}
	}
}

/* A child of the dead rank, like a DataLoader's worker, does not keep the rank alive. */
static void leave_a_child(struct rank *rank)
{
	ncclResult_t state;
	int value = 1;
	pid_t child;

	init_rank(rank);
	if (rank->rank == 0) {
		child = fork();
		check(child >= 0);
		if (child == 0) {
			char path[512];

			communicator_file(getpid(), path, sizeof path);
			check(path[0] == '\0');
			check_answer(ncclCommGetAsyncError(rank->comm, &state), ncclInvalidUsage);
			check_answer(ncclAllReduce((void *)SOURCE, (void *)SOURCE, 1, ncclInt32, ncclSum, rank->comm,
						   NULL),
				     ncclInvalidUsage);
			check_ok(ncclCommAbort(rank->comm));
			rank_report(rank, 'c');
			alarm(60);
			pause();
			_exit(0);
		}
		rank_report(rank, (char)0x40);
		check(write(*(int *)rank->argument, &child, sizeof child) == (ssize_t)sizeof child);
		pause();
	}
	fake_store(SOURCE, &value, sizeof value);
	check_ok(ncclAllReduce((void *)SOURCE, (void *)SOURCE, 1, ncclInt32, ncclSum, rank->comm, STREAM(0)));
	fake_synchronize(STREAM(0));
	check_ok(ncclCommGetAsyncError(rank->comm, &state));
	check(state == ncclRemoteError);
	check_ok(ncclCommAbort(rank->comm));
}

static void a_child_outlives_its_rank(void **state)
{
	struct ranks ranks;
	int ends[2];
	pid_t child;

	(void)state;
	assert_int_equal(pipe(ends), 0);
	start_ranks(&ranks, 2, leave_a_child, &ends[1]);
	(void)hear_rank(&ranks, 0);
	(void)hear_rank(&ranks, 0); /* rank and child, in any order */
	assert_int_equal(read(ends[0], &child, sizeof child), sizeof child);
	kill(ranks.pids[0], SIGKILL);
	assert_int_equal(wait_rank(&ranks, 1), 0);
	(void)wait_rank(&ranks, 0);
	assert_int_equal(kill(child, 0), 0); /* it was alive all the time */
	kill(child, SIGKILL);
	close(ends[0]);
	close(ends[1]);
}

/* A rank that ends the communicator normally causes no error, as long as no other rank needs it. */
static void leave_early(struct rank *rank)
{
	ncclResult_t state;
	int value = rank->rank + 1, got = 0;

	init_rank(rank);
	fake_store(SOURCE, &value, sizeof value);
	check_ok(ncclAllReduce((void *)SOURCE, (void *)DESTINATION, 1, ncclInt32, ncclSum, rank->comm, STREAM(0)));
	if (rank->rank == 0) {
		check_ok(ncclCommDestroy(rank->comm));
		return;
	}
	close(((int *)rank->argument)[1]);
	check(read(*(int *)rank->argument, &value, 1) == 0); /* the parent closed its end: rank 0 has gone */
	check_ok(ncclCommGetAsyncError(rank->comm, &state));
	check(state == ncclSuccess);
	fake_load(DESTINATION, &got, sizeof got);
	check(got == 3);
	check_ok(ncclAllReduce((void *)SOURCE, (void *)DESTINATION, 1, ncclInt32, ncclSum, rank->comm, STREAM(0)));
	fake_load(DESTINATION, &got, sizeof got);
	check(got == 0);
	check_ok(ncclCommGetAsyncError(rank->comm, &state));
	check(state == ncclRemoteError && strstr(ncclGetLastError(NULL), "rank 0 has left"));
	check_answer(ncclAllReduce((void *)SOURCE, (void *)DESTINATION, 1, ncclInt32, ncclSum, rank->comm, NULL),
		     ncclRemoteError);
	check_ok(ncclCommDestroy(rank->comm));
}

static void a_rank_leaves(void **state)
{
	struct ranks ranks;
	int ends[2];

	(void)state;
	assert_int_equal(pipe(ends), 0);
	start_ranks(&ranks, 2, leave_early, ends);
	assert_int_equal(wait_rank(&ranks, 0), 0);
	close(ends[1]);
	assert_int_equal(wait_rank(&ranks, 1), 0);
	close(ends[0]);
}

/* -- abort ------------------------------------------------------------------------------------------------------- */

static void *abort_it(void *comm)
{
	check_ok(ncclCommAbort(comm));
	return NULL;
}

static void abort_while_waiting(struct rank *rank)
{
	int value = 1;
	pthread_t thread;
	char word;

	init_rank(rank);
	if (rank->rank == 1) {
		check(read(*(int *)rank->argument, &word, 1) == 1); /* never calls */
		check_ok(ncclCommAbort(rank->comm));
		return;
	}
	fake_store(SOURCE, &value, sizeof value);
	fake_store(DESTINATION, &value, sizeof value);
	check_ok(ncclAllReduce((void *)SOURCE, (void *)DESTINATION, 1, ncclInt32, ncclSum, rank->comm, STREAM(0)));
	check(pthread_create(&thread, NULL, abort_it, rank->comm) == 0);
	fake_synchronize(STREAM(0)); /* before or after: it comes back */
	check(pthread_join(thread, NULL) == 0);
	fake_load(DESTINATION, &value, sizeof value);
	check(value == 0);
	check(write(((int *)rank->argument)[1], "g", 1) == 1);
}

static void aborts(void **state)
{
	struct ranks ranks;
	int ends[2], round;

	(void)state;
	for (round = 0; round < 20; round++) {
		assert_int_equal(pipe(ends), 0);
		start_ranks(&ranks, 2, abort_while_waiting, ends);
		assert_int_equal(wait_rank(&ranks, 0) | wait_rank(&ranks, 1), 0);
		close(ends[0]);
		close(ends[1]);
	}
}

static void give_it_up(struct rank *rank)
{
	ncclResult_t state;
	ncclComm_t child;
	int value = 1, excluded = 1, got = 5;

	init_rank(rank);
	fake_store(SOURCE, &value, sizeof value);
	if (rank->rank != 1) { /* rank 1 has failed: the others go on without it */
		check_ok(ncclAllReduce((void *)SOURCE, (void *)DESTINATION, 1, ncclInt32, ncclSum, rank->comm,
				       STREAM(0)));
		check_ok(ncclCommRevoke(rank->comm, 0));
		fake_load(DESTINATION, &got, sizeof got);
		check(got == 0);
		check_ok(ncclCommGetAsyncError(rank->comm, &state));
		check(state == ncclSuccess);
		check_answer(
			ncclAllReduce((void *)SOURCE, (void *)DESTINATION, 1, ncclInt32, ncclSum, rank->comm, NULL),
			ncclInvalidUsage);
		check_answer(ncclCommFinalize(rank->comm), ncclInvalidUsage);
		check_ok(ncclCommShrink(rank->comm, &excluded, 1, &child, NULL, NCCL_SHRINK_ABORT));
		check_ok(ncclAllReduce((void *)SOURCE, (void *)DESTINATION, 1, ncclInt32, ncclSum, child, STREAM(0)));
		fake_load(DESTINATION, &got, sizeof got);
		check(got == 2);
		check_ok(ncclCommDestroy(child));
	}
	check_ok(ncclCommDestroy(rank->comm));
}

static void revokes(void **state)
{
	struct ranks ranks;
	int i, failed = 0;

	(void)state;
	start_ranks(&ranks, 3, give_it_up, NULL);
	for (i = 0; i < 3; i++)
		failed |= wait_rank(&ranks, i);
	assert_int_equal(failed, 0);
}

/* -- disagreement ------------------------------------------------------------------------------------------------ */

static void disagree(struct rank *rank)
{
	size_t count = rank->rank == 0 ? 1 : 2;
	ncclResult_t state;
	int value = 1;

	init_rank(rank);
	fake_store(SOURCE, &value, sizeof value);
	switch (*(int *)rank->argument) {
	case 0:
		check_ok(ncclAllReduce((void *)SOURCE, (void *)DESTINATION, count, ncclInt32, ncclSum, rank->comm,
				       STREAM(0)));
		break;
	case 1:
		check_ok(rank->rank == 0 ? ncclAllReduce((void *)SOURCE, (void *)DESTINATION, 1, ncclInt32, ncclSum,
							 rank->comm, STREAM(0))
					 : ncclAllGather((void *)SOURCE, (void *)DESTINATION, 1, ncclInt32,
							 rank->comm, STREAM(0)));
		break;
	case 2:
		check_ok(ncclAllReduce((void *)SOURCE, (void *)DESTINATION, 1, rank->rank ? ncclFloat32 : ncclInt32,
				       ncclSum, rank->comm, STREAM(0)));
		break;
	default:
		check_ok(ncclGroupStart());
		check_ok(ncclSend((void *)SOURCE, count, ncclInt32, 1 - rank->rank, rank->comm, STREAM(0)));
		check_ok(ncclRecv((void *)DESTINATION, count, ncclInt32, 1 - rank->rank, rank->comm, STREAM(0)));
		check_ok(ncclGroupEnd());
	}
	fake_load(DESTINATION, &value, sizeof value);
	check(value == 0);
	check_ok(ncclCommGetAsyncError(rank->comm, &state));
	check(state == ncclInvalidUsage);
	check(strstr(ncclGetLastError(NULL), "rank 0") && strstr(ncclGetLastError(NULL), "rank 1"));
	check_ok(ncclCommAbort(rank->comm));
}

static void ranks_that_disagree(void **state)
{
	struct ranks ranks;
	int kind;

	(void)state;
	for (kind = 0; kind < 4; kind++) {
		start_ranks(&ranks, 2, disagree, &kind);
		assert_int_equal(wait_rank(&ranks, 0) | wait_rank(&ranks, 1), 0);
	}
}

/* Allowed to differ: the type of data that only moves. */
static void agree(struct rank *rank)
{
	check_ok(ncclBroadcast((void *)SOURCE, (void *)DESTINATION, rank->rank ? 8 : 2,
			       rank->rank ? ncclInt8 : ncclInt32, 0, rank->comm, STREAM(0)));
	fake_synchronize(STREAM(0));
}

static void types_that_move(void **state)
{
	(void)state;
	run_ranks(2, agree, NULL);
}

/* -- harm -------------------------------------------------------------------------------------------------------- */

/* Rank 1 writes random bytes over the shared file, while rank 0 works. Rank 0 may fail, but not crash. */
static void mean_harm(struct rank *rank)
{
	uint64_t random = *(uint64_t *)rank->argument;
	ncclResult_t result = ncclSuccess, state = ncclSuccess;
	unsigned long start = 0, end = 0;
	char line[512];
	FILE *maps;
	int i, value = 1;

	init_rank(rank);
	if (rank->rank == 1) {
		maps = fopen("/proc/self/maps", "r");
		while (maps && fgets(line, sizeof line, maps) && !strstr(line, "/neap-nccl-"))
			;
		check(sscanf(line, "%lx-%lx", &start, &end) == 2);
		for (i = 0; i < 200; i++) {
			fake_store(SOURCE, &i, sizeof i);
			(void)ncclAllReduce((void *)SOURCE, (void *)DESTINATION, 64, ncclInt32, ncclSum, rank->comm,
					    STREAM(0));
		}
		/* Not the header's counters of arrivals and sleepers, else the other only waits for this one. */
		for (i = 0; i < 3000; i++) {
			uint64_t at = SEGMENT_PAGE + next_random(&random) % 0x40000;

			*(volatile unsigned char *)(start + at) = (unsigned char)next_random(&random);
		}
		_exit(0);
	}
	for (i = 0; i < 400 && result == ncclSuccess && state == ncclSuccess; i++) {
		fake_store(SOURCE, &value, sizeof value);
		result = ncclAllReduce((void *)SOURCE, (void *)DESTINATION, 64, ncclInt32, ncclSum, rank->comm,
				       STREAM(0));
		if (i % 8 == 0)
			fake_synchronize_device();
		check_ok(ncclCommGetAsyncError(rank->comm, &state));
	}
	check_ok(ncclCommAbort(rank->comm));
	fake_synchronize_device();
}

static void a_peer_that_means_harm(void **state)
{
	uint64_t seed = test_seed();
	int round, rounds = getenv("NEAP_LONG") ? 300 : 30;
	struct ranks ranks;

	(void)state;
	for (round = 0; round < rounds; round++, next_random(&seed)) {
		start_ranks(&ranks, 2, mean_harm, &seed);
		(void)wait_rank(&ranks, 1); /* it may crash itself */
		assert_int_equal(wait_rank(&ranks, 0), 0);
	}
}

int main(void)
{
	const struct CMUnitTest tests[] = {
		cmocka_unit_test(a_peer_is_killed), cmocka_unit_test(a_child_outlives_its_rank),
		cmocka_unit_test(a_rank_leaves),    cmocka_unit_test(aborts),
		cmocka_unit_test(revokes),          cmocka_unit_test(ranks_that_disagree),
		cmocka_unit_test(types_that_move),  cmocka_unit_test(a_peer_that_means_harm),
	};

	return cmocka_run_group_tests(tests, NULL, NULL);
}
