/* Ranks that never come, die while they join, do not fit together, or find the file damaged: the others get an error,
 * and no file stays. */
#include "nccl_test.h"

#include "sim/libraries/nccl/segment_layout.h"

#include <fcntl.h>
#include <signal.h>
#include <stdlib.h>
#include <string.h>
#include <sys/stat.h>
#include <sys/wait.h>
#include <unistd.h>

static bool exists(const char *path) { return access(path, F_OK) == 0; }

/* The file of a waiting rank, once `arrived` ranks are in it. */
static void file_of_waiting(const struct ranks *ranks, int rank, unsigned int arrived, char *path, size_t capacity)
{
	struct segment_header header = {0};
	int fd;

	do {
		communicator_file(ranks->pids[rank], path, capacity);
		fd = path[0] ? open(path, O_RDWR | O_CLOEXEC) : -1;
		if (fd < 0)
			continue;
		assert_true(pread(fd, &header, sizeof header, 0) >= 0);
		close(fd);
	} while (header.arrived < arrived);
}

/* -- initialisation ---------------------------------------------------------------------------------------------- */

static void wait_in_vain(struct rank *rank)
{
	ncclComm_t comm = (ncclComm_t)rank;

	ncclResult_t result;

	check(setenv("NEAP_NCCL_TIMEOUT", "0.3", 1) == 0);
	result = ncclCommInitRank(&comm, 4, rank->id, 2 * rank->rank);
	check(comm == NULL && (result == ncclSystemError || result == ncclRemoteError));
	check(strstr(ncclGetLastError(NULL), "missing 1, 3") !=
	      NULL); /* the second rank learns that the first gave up */
}

static void ranks_that_never_come(void **state)
{
	struct ranks ranks;
	char path[512];

	(void)state;
	start_ranks(&ranks, 2, wait_in_vain, NULL);
	file_of_waiting(&ranks, 0, 1, path, sizeof path);
	assert_int_equal(wait_rank(&ranks, 0) | wait_rank(&ranks, 1), 0);
	assert_false(exists(path));
}

static void wait_alone(struct rank *rank)
{
	ncclComm_t comm;

	check(setenv("NEAP_NCCL_TIMEOUT", "0.2", 1) == 0);
	check_answer(ncclCommInitRank(&comm, 3, rank->id, 1), ncclSystemError);
	check(strstr(ncclGetLastError(NULL), "missing 0, 2 (NEAP_NCCL_TIMEOUT") != NULL);
}

static void a_rank_alone(void **state)
{
	struct ranks ranks;

	(void)state;
	start_ranks(&ranks, 1, wait_alone, NULL);
	assert_int_equal(wait_rank(&ranks, 0), 0);
}

static void wait_for_more(struct rank *rank)
{
	ncclComm_t comm;

	check_answer(ncclCommInitRank(&comm, 3, rank->id, rank->rank), ncclRemoteError);
}

static void a_rank_dies_before_all_came(void **state)
{
	struct ranks ranks;
	char path[512];

	(void)state;
	start_ranks(&ranks, 2, wait_for_more, NULL);
	file_of_waiting(&ranks, 0, 2, path, sizeof path);
	kill(ranks.pids[1], SIGKILL);
	assert_int_equal(wait_rank(&ranks, 0), 0);
	(void)wait_rank(&ranks, 1);
	assert_false(exists(path));
}

/* No rank is left to remove the file: the next program does. */
static void all_die_before_all_came(void **state)
{
	struct ranks ranks;
	ncclUniqueId id;
	char path[512];

	(void)state;
	start_ranks(&ranks, 1, wait_for_more, NULL);
	file_of_waiting(&ranks, 0, 1, path, sizeof path);
	assert_int_equal(ncclGetUniqueId(&id), ncclSuccess);
	assert_true(exists(path)); /* it is in use */
	kill(ranks.pids[0], SIGKILL);
	(void)wait_rank(&ranks, 0);
	assert_int_equal(ncclGetUniqueId(&id), ncclSuccess);
	assert_false(exists(path));
}

static void on_one_device(struct rank *rank)
{
	ncclComm_t comm;

	fake.same_device = 1;
	check_answer(ncclCommInitRank(&comm, rank->ranks, rank->id, rank->rank), ncclInvalidUsage);
	check(strstr(ncclGetLastError(NULL),
		     "Duplicate GPU detected : rank 0 and rank 1 both on CUDA device 0000:01:00.0") != NULL);
}

static void two_ranks_on_one_device(void **state)
{
	struct ranks ranks;

	(void)state;
	start_ranks(&ranks, 2, on_one_device, NULL);
	assert_int_equal(wait_rank(&ranks, 0) | wait_rank(&ranks, 1), 0);
}

static void same_rank(struct rank *rank)
{
	ncclComm_t comm;
	ncclResult_t result;

	check(setenv("NEAP_NCCL_TIMEOUT", "0.5", 1) == 0);
	result = ncclCommInitRank(&comm, 2, rank->id, 0);
	check(result == ncclInvalidUsage || result == ncclSystemError);
	rank_report(rank, result == ncclInvalidUsage ? 'u' : 's');
}

static void a_rank_that_is_taken(void **state)
{
	struct ranks ranks;
	char first, second;

	(void)state;
	start_ranks(&ranks, 2, same_rank, NULL);
	first = hear_rank(&ranks, 0);
	second = hear_rank(&ranks, 1);
	assert_true((first == 'u') + (second == 'u') == 1);
	assert_int_equal(wait_rank(&ranks, 0) | wait_rank(&ranks, 1), 0);
}

static void other_count(struct rank *rank)
{
	ncclComm_t comm;
	ncclResult_t result;

	check(setenv("NEAP_NCCL_TIMEOUT", "0.5", 1) == 0);
	result = ncclCommInitRank(&comm, 2 + rank->rank, rank->id, rank->rank);
	rank_report(rank, result == ncclInvalidArgument ? 'a' : 's');
}

static void ranks_of_another_count(void **state)
{
	struct ranks ranks;
	char first, second;

	(void)state;
	start_ranks(&ranks, 2, other_count, NULL);
	first = hear_rank(&ranks, 0);
	second = hear_rank(&ranks, 1);
	assert_true((first == 'a') + (second == 'a') == 1);
	assert_int_equal(wait_rank(&ranks, 0) | wait_rank(&ranks, 1), 0);
}

/* -- the file, damaged before the second rank comes -------------------------------------------------------------- */

static void second_fails(struct rank *rank)
{
	ncclResult_t wanted = rank->rank == 0 ? ncclRemoteError : ncclSystemError, result;
	ncclComm_t comm;
	char word;

	if (rank->rank == 1)
		check(read(*(int *)rank->argument, &word, 1) == 1);
	check(setenv("NEAP_NCCL_TIMEOUT", "1", 1) == 0);
	result = ncclCommInitRank(&comm, 2, rank->id, rank->rank);
	check(rank->rank == 0 ? result != ncclSuccess : result == wanted);
}

static void damage(void (*how)(int fd))
{
	struct ranks ranks;
	char path[512];
	int ends[2], fd;

	assert_int_equal(pipe(ends), 0);
	start_ranks(&ranks, 2, second_fails, ends);
	file_of_waiting(&ranks, 0, 1, path, sizeof path);
	fd = open(path, O_RDWR | O_CLOEXEC);
	assert_true(fd >= 0);
	how(fd);
	close(fd);
	assert_int_equal(write(ends[1], "g", 1), 1);
	assert_int_equal(wait_rank(&ranks, 1), 0);
	assert_int_equal(wait_rank(&ranks, 0), 0);
	close(ends[0]);
	close(ends[1]);
	unlink(path);
}

static void spoil_magic(int fd) { assert_int_equal(pwrite(fd, "nonsense", 8, 0), 8); }
static void spoil_size(int fd)
{
	struct stat info;

	assert_int_equal(fstat(fd, &info), 0);
	assert_int_equal(ftruncate(fd, info.st_size + 4096), 0);
}
static void spoil_mode(int fd) { assert_int_equal(fchmod(fd, 0666), 0); }

static void damaged_files(void **state)
{
	(void)state;
	damage(spoil_magic);
	damage(spoil_size);
	damage(spoil_mode);
}

int main(void)
{
	const struct CMUnitTest tests[] = {
		cmocka_unit_test(ranks_that_never_come),       cmocka_unit_test(a_rank_alone),
		cmocka_unit_test(a_rank_dies_before_all_came), cmocka_unit_test(all_die_before_all_came),
		cmocka_unit_test(two_ranks_on_one_device),     cmocka_unit_test(a_rank_that_is_taken),
		cmocka_unit_test(ranks_of_another_count),      cmocka_unit_test(damaged_files),
	};

	return cmocka_run_group_tests(tests, NULL, NULL);
}
