/* Which task may run an attempt, and its instructions. */
#include "base/file.h"
#include "slurm/call.h"
#include "slurm/claim.h"
#include "support/test.h"

#include <pthread.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/stat.h>
#include <unistd.h>

static char folder[TEST_FOLDER_CAPACITY];

static int set_up(void **state)
{
	(void)state;
	return make_folder(folder, "claim");
}

static int tear_down(void **state)
{
	(void)state;
	return remove_folder(folder);
}

static const char *path_of(const char *name)
{
	static char path[256];
	snprintf(path, sizeof path, "%s/%s", folder, name);
	return path;
}

static void test_once(void **state)
{
	(void)state;
	struct neap_slurm_claim claim = {12, 3, 1, "n17", "20261121-093000-12345-012345678"}, read = {0};
	struct neap_error err = {0};
	assert_int_equal(neap_slurm_claim_read(path_of("e-1"), &read, &err), NEAP_ENOENT);
	assert_int_equal(neap_slurm_claim_make(path_of("e-1"), &claim, &err), NEAP_OK);
	claim.job = 13;
	assert_int_equal(neap_slurm_claim_make(path_of("e-1"), &claim, &err), NEAP_EEXIST);
	assert_int_equal(neap_slurm_claim_read(path_of("e-1"), &read, &err), NEAP_OK);
	assert_int_equal(read.job, 12);
	assert_int_equal(read.task, 3);
	assert_int_equal(read.restarts, 1);
	assert_string_equal(read.node, "n17");
	assert_string_equal(read.run_id, "20261121-093000-12345-012345678");
	struct stat info; /* nothing else is left there */
	assert_int_equal(stat(path_of("e-1/claim"), &info), 0);
	assert_int_equal(info.st_nlink, 1);
}

#define CLAIMANTS 16
static pthread_barrier_t barrier;

static char race[256];

static void *claim_one(void *argument)
{
	struct neap_slurm_claim claim = {1, 0, 0, "n", "r"};
	claim.task = (uint32_t)(uintptr_t)argument;
	pthread_barrier_wait(&barrier);
	return (void *)(uintptr_t)neap_slurm_claim_make(race, &claim, NULL);
}

static void test_race(void **state)
{
	(void)state;
	pthread_t threads[CLAIMANTS];
	unsigned won = 0, winner = CLAIMANTS;
	struct neap_slurm_claim read = {0};
	strcpy(race, path_of("race"));
	pthread_barrier_init(&barrier, NULL, CLAIMANTS);
	for (uintptr_t i = 0; i < CLAIMANTS; i++)
		assert_int_equal(pthread_create(&threads[i], NULL, claim_one, (void *)i), 0);
	for (unsigned i = 0; i < CLAIMANTS; i++) {
		void *status;
		pthread_join(threads[i], &status);
		if ((uintptr_t)status == NEAP_OK) {
			won++;
			winner = i;
		} else {
			assert_int_equal((uintptr_t)status, NEAP_EEXIST);
		}
	}
	pthread_barrier_destroy(&barrier);
	assert_int_equal(won, 1);
	assert_int_equal(neap_slurm_claim_read(path_of("race"), &read, NULL), NEAP_OK);
	assert_int_equal(read.task, winner);
}

static void test_damaged(void **state)
{
	(void)state;
	static const char *const texts[] = {"",
					    "x",
					    "job 1 task 2 restart 0 node n run r",
					    "job 0 task 2 restart 0 node n run r\n",
					    "job 1 task 2 restart 0 node n m run r\n",
					    "job 1 task 2 restart 0 node n run r\nx",
					    "job 1 task 2 restart 0 node n run \n"};
	assert_int_equal(mkdir(path_of("bad"), 0700), 0);
	for (size_t i = 0; i < sizeof texts / sizeof *texts; i++) {
		struct neap_slurm_claim read = {.job = 77};
		assert_int_equal(neap_file_write(path_of("bad/claim"), texts[i], strlen(texts[i]), NULL), NEAP_OK);
		if (neap_slurm_claim_read(path_of("bad"), &read, NULL) != NEAP_EPARSE || read.job != 77)
			fail_msg("taken: '%s'", texts[i]);
	}
}

static void test_call(void **state)
{
	(void)state;
	struct neap_buffer output = {0};
	struct neap_error err = {0};
	char complaint[200];
	setenv("SQUEUE_PARTITION", "p", 1);
	setenv("SBATCH_WAIT", "1", 1);
	setenv("SBATCH_PARTITION", "mine", 1);
	assert_int_equal(neap_slurm_call((char *[]){"sh", "-c",
						    "echo \"$SQUEUE_PARTITION$SBATCH_WAIT$SBATCH_PARTITION $1\"; "
						    "echo 'sbatch: error: Bad' >&2; exit 3",
						    "sh", "$(x); y", NULL},
					 &output, complaint, &err),
			 NEAP_OK);
	assert_string_equal(neap_buffer_string(&output), "mine $(x); y\n"); /* only the intended shell expands it */
	assert_string_equal(complaint, "Bad");
	neap_buffer_clear(&output);
	assert_int_equal(
		neap_slurm_call((char *[]){"sh", "-c", "echo a warning >&2", NULL}, &output, complaint, &err),
		NEAP_OK);
	assert_string_equal(complaint, "");
	/* more than a pipe holds, on both */
	assert_int_equal(
		neap_slurm_call(
			(char *[]){"sh", "-c", "yes | head -c 300000; yes '' | head -c 300000 >&2; kill -9 $$", NULL},
			&output, complaint, &err),
		NEAP_OK);
	assert_string_equal(complaint, "exit status 137");
	assert_int_equal(output.length, 300000);
	assert_int_equal(neap_slurm_call((char *[]){"neap-no-such-command", NULL}, &output, complaint, &err),
			 NEAP_ENOTSUP);
	assert_non_null(strstr(err.message, "neap-no-such-command is not on PATH"));
	neap_buffer_fini(&output);
}

int main(void)
{
	const struct CMUnitTest tests[] = {cmocka_unit_test(test_once), cmocka_unit_test(test_race),
					   cmocka_unit_test(test_damaged), cmocka_unit_test(test_call)};
	return cmocka_run_group_tests(tests, set_up, tear_down);
}
