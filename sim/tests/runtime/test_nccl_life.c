/* Communicators: create, query and end; wrong arguments; groups; captures. */
#include "nccl_test.h"

#include <fcntl.h>
#include <pthread.h>
#include <string.h>
#include <unistd.h>

/* -- without ranks ----------------------------------------------------------------------------------------------- */

static void versions_and_texts(void **state)
{
	int version = 0, i;
	ncclUniqueId one, other;

	(void)state;
	fake_reset();
	assert_int_equal(ncclGetVersion(&version), ncclSuccess);
	assert_true(version >= 21000 && version < 30000);
	assert_int_equal(ncclGetVersion(NULL), ncclInvalidArgument);
	for (i = 0; i <= ncclInProgress; i++)
		assert_string_not_equal(ncclGetErrorString((ncclResult_t)i), "unknown result code");
	assert_string_equal(ncclGetErrorString((ncclResult_t)8), "unknown result code");
	assert_int_equal(ncclGetUniqueId(NULL), ncclInvalidArgument);
	assert_non_null(strstr(ncclGetLastError(NULL), "ncclGetUniqueId"));
	assert_int_equal(ncclGetUniqueId(&one), ncclSuccess);
	assert_int_equal(ncclGetUniqueId(&other), ncclSuccess);
	assert_memory_not_equal(&one, &other, sizeof one);
}

static void wrong_arguments(void **state)
{
	ncclConfig_t config = configuration(1);
	ncclUniqueId id;
	ncclComm_t comm = NULL;

	(void)state;
	fake_reset();
	assert_int_equal(ncclGetUniqueId(&id), ncclSuccess);
	assert_int_equal(ncclCommInitRank(NULL, 1, id, 0), ncclInvalidArgument);
	assert_int_equal(ncclCommInitRank(&comm, 0, id, 0), ncclInvalidArgument);
	assert_int_equal(ncclCommInitRank(&comm, 2, id, 2), ncclInvalidArgument);
	assert_int_equal(ncclCommInitRank(&comm, 2, id, -1), ncclInvalidArgument);
	config.magic = 0;
	assert_int_equal(ncclCommInitRankConfig(&comm, 1, id, 0, &config), ncclInvalidArgument);
	config = configuration(2);
	assert_int_equal(ncclCommInitRankConfig(&comm, 1, id, 0, &config), ncclInvalidArgument);
	config = configuration(1);
	config.minCTAs = 4;
	config.maxCTAs = 2;
	assert_int_equal(ncclCommInitRankConfig(&comm, 1, id, 0, &config), ncclInvalidArgument);
	assert_null(comm);
	assert_int_equal(ncclAllReduce(NULL, NULL, 1, ncclInt32, ncclSum, NULL, NULL), ncclInvalidArgument);
	assert_int_equal(ncclCommCount(NULL, NULL), ncclInvalidArgument);
	assert_int_equal(ncclGroupEnd(), ncclInvalidUsage);
	assert_int_equal(ncclCommDestroy(NULL), ncclSuccess);
}

static void memory(void **state)
{
	void *pointer = NULL;

	(void)state;
	fake_reset();
	assert_int_equal(ncclMemAlloc(&pointer, 1 << 20), ncclSuccess);
	assert_int_equal(fake.allocated, 1);
	assert_int_equal(ncclMemFree(pointer), ncclSuccess);
	assert_int_equal(fake.allocated, 0);
	assert_int_equal(ncclMemFree(NULL), ncclSuccess);
	assert_int_equal(ncclMemAlloc(&pointer, 0), ncclInvalidArgument);
	assert_int_equal(ncclMemAlloc(&pointer, 1ull << 60), ncclUnhandledCudaError);
}

/* -- one communicator -------------------------------------------------------------------------------------------- */

static void ask(struct rank *rank)
{
	ncclResult_t error = ncclInternalError;
	ncclWindow_t window = (ncclWindow_t)rank;
	void *handle = NULL;
	int value = -1;

	check_ok(ncclCommCount(rank->comm, &value));
	check(value == rank->ranks);
	check_ok(ncclCommUserRank(rank->comm, &value));
	check(value == rank->rank);
	check_ok(ncclCommCuDevice(rank->comm, &value));
	check(value == rank->rank);
	check_ok(ncclCommGetAsyncError(rank->comm, &error));
	check(error == ncclSuccess);
	check_answer(ncclCommGetAsyncError(rank->comm, NULL), ncclInvalidArgument);
	check_ok(ncclCommRegister(rank->comm, (void *)SOURCE, 4096, &handle));
	check(handle != NULL);
	check_ok(ncclCommDeregister(rank->comm, handle));
	check(fake.tallies[GAP_WORKSPACE] == 1 && fake.high == (768 + 384 + 32 * 12 * (rank->ranks - 1ull)) << 20);
	check(fake.tallies[GAP_REFUSED] == 0);
	check_ok(ncclCommWindowRegister(rank->comm, (void *)SOURCE, 4096, &window, 0));
	check(window == NULL && fake.tallies[GAP_REFUSED] == 1);
	check_answer(ncclCommSuspend(rank->comm, 1), ncclInvalidUsage);
	check(fake.tallies[GAP_REFUSED] == 2 && strcmp(fake.function, "ncclCommSuspend") == 0);
	check_answer(ncclScatter((void *)SOURCE, (void *)SOURCE, 1, ncclInt8, 0, rank->comm, NULL), ncclInvalidUsage);
	check(fake.tallies[GAP_REFUSED] == 3 && strcmp(fake.function, "ncclScatter") == 0);
	check_answer(ncclBroadcast(NULL, NULL, 1, ncclInt8, rank->ranks, rank->comm, NULL), ncclInvalidArgument);
	check_answer(ncclSend(NULL, 1, ncclInt8, -1, rank->comm, NULL), ncclInvalidArgument);
	check_answer(ncclAllReduce(NULL, NULL, 1, (ncclDataType_t)12, ncclSum, rank->comm, NULL),
		     ncclInvalidArgument);
	check_answer(ncclAllReduce(NULL, NULL, 1, ncclInt8, (ncclRedOp_t)5, rank->comm, NULL), ncclInvalidArgument);
	check_answer(ncclAllReduce(NULL, NULL, SIZE_MAX / 2, ncclInt8, ncclSum, rank->comm, NULL),
		     ncclInvalidArgument);
	check(sum_over(rank->comm, 1) == rank->ranks);
	check(fake.launches == 1);
}

static void questions(void **state)
{
	(void)state;
	run_ranks(3, ask, NULL);
}

static void scale(struct rank *rank)
{
	ncclRedOp_t op, second;
	float scalar = (float)(rank->rank + 1), one = 1, got;
	double wide = 2;

	check_ok(ncclRedOpCreatePreMulSum(&op, &scalar, ncclFloat32, ncclScalarHostImmediate, rank->comm));
	fake_store(SOURCE + 64, &scalar, sizeof scalar);
	check_ok(ncclRedOpCreatePreMulSum(&second, (void *)(SOURCE + 64), ncclFloat32, ncclScalarDevice, rank->comm));
	check(op != second && (int)op >= ncclNumOps);
	scalar = 99; /* the first was read, the second is read when it is used */
	fake_store(SOURCE + 64, &(float){(float)(rank->rank + 2)}, sizeof(float));
	fake_store(SOURCE, &one, sizeof one);
	check_ok(ncclAllReduce((void *)SOURCE, (void *)DESTINATION, 1, ncclFloat32, op, rank->comm, STREAM(0)));
	fake_load(DESTINATION, &got, sizeof got);
	check(got == 1 + 2 + 3);
	check_ok(ncclAllReduce((void *)SOURCE, (void *)DESTINATION, 1, ncclFloat32, second, rank->comm, STREAM(0)));
	fake_load(DESTINATION, &got, sizeof got);
	check(got == 2 + 3 + 4);
	check_answer(ncclAllReduce((void *)SOURCE, (void *)DESTINATION, 1, ncclFloat64, op, rank->comm, NULL),
		     ncclInvalidArgument);
	check_ok(ncclRedOpDestroy(op, rank->comm));
	check_answer(ncclRedOpDestroy(op, rank->comm), ncclInvalidArgument);
	check_answer(ncclRedOpDestroy(ncclSum, rank->comm), ncclInvalidArgument);
	check_answer(ncclAllReduce((void *)SOURCE, (void *)DESTINATION, 1, ncclFloat32, op, rank->comm, NULL),
		     ncclInvalidArgument);
	check_answer(ncclRedOpCreatePreMulSum(&op, &wide, (ncclDataType_t)77, ncclScalarHostImmediate, rank->comm),
		     ncclInvalidArgument);
	fake.capability = 80;
	check_answer(ncclAllReduce((void *)SOURCE, (void *)DESTINATION, 1, ncclFloat8e4m3, ncclSum, rank->comm, NULL),
		     ncclInvalidArgument);
	check_ok(ncclBroadcast((void *)SOURCE, (void *)SOURCE, 1, ncclFloat8e4m3, 0, rank->comm, NULL));
}

static void reductions_of_ones_own(void **state)
{
	(void)state;
	run_ranks(3, scale, NULL);
}

/* A gate blocks the stream of a rank until its peers have called: a barrier does that. */
static void *wait_for_stream(void *done)
{
	fake_synchronize(STREAM(0));
	__atomic_store_n((int *)done, 1, __ATOMIC_SEQ_CST);
	return NULL;
}

static void hold_the_stream(struct rank *rank)
{
	int done = 0, value = 7, i;
	pthread_t thread;

	if (rank->rank == 1) {
		char word;

		rank_report(rank, 'h');
		check(read(*(int *)rank->argument, &word, 1) == 1);
		check(sum_over(rank->comm, 1) == 8);
		return;
	}
	fake_store(SOURCE, &value, sizeof value);
	check_ok(ncclAllReduce((void *)SOURCE, (void *)DESTINATION, 1, ncclInt32, ncclSum, rank->comm, STREAM(0)));
	check(fake_closed() == 1); /* the call returned, the other rank has not called yet */
	check(!fake_query(STREAM(0)) && fake_query(STREAM(1)) && fake_closed() == 1);
	check(pthread_create(&thread, NULL, wait_for_stream, &done) == 0);
	for (i = 0; i < 1000; i++) {
		ncclResult_t error;

		check_ok(ncclCommGetAsyncError(rank->comm, &error)); /* another thread queries meanwhile */
		check(error == ncclSuccess && !__atomic_load_n(&done, __ATOMIC_SEQ_CST));
	}
	check(write(((int *)rank->argument)[1], "g", 1) == 1);
	check(pthread_join(thread, NULL) == 0 && done);
	fake_load(DESTINATION, &value, sizeof value);
	check(value == 8);
}

static void a_gate_waits(void **state)
{
	int ends[2];

	(void)state;
	assert_int_equal(pipe(ends), 0);
	run_ranks(2, hold_the_stream, ends);
	close(ends[0]);
	close(ends[1]);
}

/* A program that writes to the destination after the call keeps its bytes. */
static void overwrite(struct rank *rank)
{
	int value = 5, got = 0;
	ncclResult_t state;

	check_ok(ncclAllReduce((void *)SOURCE, (void *)DESTINATION, 1, ncclInt32, ncclSum, rank->comm, STREAM(0)));
	fake_store(DESTINATION, &value, sizeof value);
	check_ok(ncclAllReduce((void *)SOURCE, (void *)(DESTINATION + 4096), 1, ncclInt32, ncclSum, rank->comm,
			       STREAM(0)));
	while (!fake_query(STREAM(0)))
		check_ok(ncclCommGetAsyncError(rank->comm, &state));
	check(fake_closed() == 0);
	fake_load(DESTINATION, &got, sizeof got);
	check(got == 5);
}

static void an_overwritten_destination(void **state)
{
	(void)state;
	run_ranks(2, overwrite, NULL);
}

/* -- groups ------------------------------------------------------------------------------------------------------ */

static void group_errors(struct rank *rank)
{
	int value = 1, got = 0;

	fake_store(SOURCE, &value, sizeof value);
	check_ok(ncclGroupStart());
	check_ok(ncclAllReduce((void *)SOURCE, (void *)DESTINATION, 1, ncclInt32, ncclSum, rank->comm, STREAM(0)));
	check_answer(
		ncclAllReduce((void *)SOURCE, (void *)DESTINATION, 1, (ncclDataType_t)50, ncclSum, rank->comm, NULL),
		ncclInvalidArgument);
	check_answer(ncclGroupEnd(), ncclInvalidArgument);
	check(fake.gates == 0 && fake.launches == 0); /* no part of it happened */
	check_ok(ncclGroupStart());
	check_ok(ncclAllReduce((void *)SOURCE, (void *)DESTINATION, 1, ncclInt32, ncclSum, rank->comm, STREAM(0)));
	check_answer(ncclGroupSimulateEnd(NULL), ncclInvalidUsage);
	check(fake.gates == 0);
	check_ok(ncclGroupStart());
	check_ok(ncclGroupEnd());
	check_ok(ncclAllReduce((void *)SOURCE, (void *)DESTINATION, 1, ncclInt32, ncclSum, rank->comm, STREAM(0)));
	fake_load(DESTINATION, &got, sizeof got);
	check(got == rank->ranks);
}

static void groups_that_fail(void **state)
{
	(void)state;
	run_ranks(2, group_errors, NULL);
}

/* More than the log has room for, in one group. */
static void large_group(struct rank *rank)
{
	int i, other, count = 3000, value, got;

	check_ok(ncclGroupStart());
	for (i = 0; i < count; i++) {
		value = i * 10 + rank->rank;
		fake_store(SOURCE + 4 * (uint64_t)i, &value, sizeof value);
		for (other = 0; other < rank->ranks; other++) {
			check_ok(ncclSend((void *)(SOURCE + 4 * (uint64_t)i), 1, ncclInt32, other, rank->comm,
					  STREAM(0)));
			check_ok(ncclRecv((void *)(DESTINATION + 4 * (uint64_t)(i * rank->ranks + other)), 1,
					  ncclInt32, other, rank->comm, STREAM(0)));
		}
	}
	check_ok(ncclGroupEnd());
	for (i = 0; i < count; i++)
		for (other = 0; other < rank->ranks; other++) {
			fake_load(DESTINATION + 4 * (uint64_t)(i * rank->ranks + other), &got, sizeof got);
			check(got == i * 10 + other);
		}
}

static void a_large_group(void **state)
{
	(void)state;
	run_ranks(3, large_group, NULL);
}

/* -- one process, several devices -------------------------------------------------------------------------------- */

enum { DEVICES = 4 };

static uint64_t on_device(int device) { return SOURCE + (uint64_t)device * 0x1000000; }

static void one_process(void **state)
{
	const int devices[DEVICES] = {2, 0, 3, 1}, twice[2] = {1, 1};
	ncclComm_t comms[DEVICES];
	int i, value, round;

	(void)state;
	fake_reset();
	fake.device = 5;
	assert_int_equal(ncclCommInitAll(comms, 2, twice), ncclInvalidUsage);
	assert_int_equal(ncclCommInitAll(comms, DEVICES, devices), ncclSuccess);
	assert_int_equal(fake.device, 5);
	for (i = 0; i < DEVICES; i++) {
		assert_int_equal(ncclCommCuDevice(comms[i], &value), ncclSuccess);
		assert_int_equal(value, devices[i]);
	}
	for (round = 0; round < 2000; round++) { /* more than a log has room for */
		assert_int_equal(ncclGroupStart(), ncclSuccess);
		for (i = 0; i < DEVICES; i++) {
			value = i + round;
			fake_store(on_device(i), &value, sizeof value);
			assert_int_equal(ncclAllReduce((void *)on_device(i), (void *)(on_device(i) + 64), 1,
						       ncclInt32, ncclSum, comms[i], STREAM(i)),
					 ncclSuccess);
		}
		assert_int_equal(ncclGroupEnd(), ncclSuccess);
	}
	assert_int_equal(fake.device, 5);
	for (i = 0; i < DEVICES; i++) {
		fake_load(on_device(i) + 64, &value, sizeof value);
		assert_int_equal(value, 0 + 1 + 2 + 3 + 4 * (2000 - 1));
	}
	for (i = 0; i < DEVICES; i++)
		assert_int_equal(ncclCommDestroy(comms[i]), ncclSuccess);
	fake_synchronize_device();
	fake_reset();
}

/* All operations of one device, then all of the next: no call may wait before all are issued. */
static void device_by_device(void **state)
{
	ncclComm_t comms[DEVICES], children[DEVICES];
	int i, round, value;

	(void)state;
	fake_reset();
	assert_int_equal(ncclCommInitAll(comms, DEVICES, NULL), ncclSuccess);
	assert_int_equal(ncclGroupStart(), ncclSuccess);
	for (i = 0; i < DEVICES; i++)
		assert_int_equal(ncclCommSplit(comms[i], i % 2, -i, &children[i], NULL), ncclSuccess);
	assert_int_equal(ncclGroupEnd(), ncclSuccess);
	assert_int_equal(ncclCommUserRank(children[0], &value), ncclSuccess);
	assert_int_equal(value, 1);
	assert_int_equal(ncclGroupStart(), ncclSuccess);
	for (i = 0; i < DEVICES; i++) {
		value = 1 << i;
		fake_store(on_device(i), &value, sizeof value);
		for (round = 0; round < 1500; round++)
			assert_int_equal(ncclAllReduce((void *)on_device(i), (void *)(on_device(i) + 64), 1,
						       ncclInt32, ncclSum, children[i], STREAM(i)),
					 ncclSuccess);
	}
	assert_int_equal(ncclGroupEnd(), ncclSuccess);
	for (i = 0; i < DEVICES; i++) {
		fake_load(on_device(i) + 64, &value, sizeof value);
		assert_int_equal(value, i % 2 ? 2 + 8 : 1 + 4);
		assert_int_equal(ncclCommDestroy(children[i]), ncclSuccess);
		assert_int_equal(ncclCommDestroy(comms[i]), ncclSuccess);
	}
	fake_synchronize_device();
	fake_reset();
}

/* -- captures ---------------------------------------------------------------------------------------------------- */

static void capture(struct rank *rank)
{
	fake.capturing = 1;
	check_ok(ncclAllReduce((void *)SOURCE, (void *)DESTINATION, 1 << 20, ncclFloat32, ncclSum, rank->comm,
			       STREAM(0)));
	check(fake.tallies[GAP_TRANSFER] == 1 && fake.launches == 1 && fake.gates == 0);
	fake.capturing = 0;
	check(sum_over(rank->comm, 1) == rank->ranks); /* the captured call does not wait */
}

static void captures(void **state)
{
	(void)state;
	run_ranks(2, capture, NULL);
}

/* A gate that is dropped after all: the peers still get this rank's part. */
static void dropped_gate(struct rank *rank)
{
	int value = 3, got = 0;

	fake_store(SOURCE, &value, sizeof value);
	check_ok(ncclAllReduce((void *)SOURCE, (void *)DESTINATION, 1, ncclInt32, ncclSum, rank->comm, STREAM(0)));
	if (rank->rank == 0)
		_exit(0); /* without a read and without ending the communicator */
	fake_load(DESTINATION, &got, sizeof got);
	check(got == 6);
	rank->comm = NULL;
}

static void a_rank_that_exits(void **state)
{
	(void)state;
	run_ranks(2, dropped_gate, NULL);
}

/* A program that has closed its standard input: a communicator's file does not take that number. */
static void without_input(struct rank *rank)
{
	close(STDIN_FILENO);
	init_rank(rank);
	check(sum_over(rank->comm, 1) == rank->ranks);
	check(fcntl(STDIN_FILENO, F_GETFD) < 0);
	check_ok(ncclCommDestroy(rank->comm));
	fake_synchronize_device();
}

static void a_closed_descriptor(void **state)
{
	struct ranks ranks;
	int i, failed = 0;

	(void)state;
	start_ranks(&ranks, 2, without_input, NULL);
	for (i = 0; i < 2; i++)
		failed |= wait_rank(&ranks, i);
	assert_int_equal(failed, 0);
}

int main(void)
{
	const struct CMUnitTest tests[] = {
		cmocka_unit_test(versions_and_texts),
		cmocka_unit_test(wrong_arguments),
		cmocka_unit_test(memory),
		cmocka_unit_test(questions),
		cmocka_unit_test(reductions_of_ones_own),
		cmocka_unit_test(a_gate_waits),
		cmocka_unit_test(an_overwritten_destination),
		cmocka_unit_test(groups_that_fail),
		cmocka_unit_test(a_large_group),
		cmocka_unit_test(one_process),
		cmocka_unit_test(device_by_device),
		cmocka_unit_test(captures),
		cmocka_unit_test(a_rank_that_exits),
		cmocka_unit_test(a_closed_descriptor),
	};

	return cmocka_run_group_tests(tests, NULL, NULL);
}
