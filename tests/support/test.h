/* tests/support/test.h: shared by the C tests. Include it in place of cmocka.h, which needs the four headers before
 * it.
 *
 *   static char folder[TEST_FOLDER_CAPACITY];
 *   set_up:     make_folder(folder, "journal")      /tmp/neap-test-journal-XXXXXX
 *   tear_down:  remove_folder(folder)               with everything in it
 *
 *   uint64_t random = test_seed();                  prints NEAP_SEED=N; set NEAP_SEED to repeat a failed test
 *   next_random(&random) % 10
 */
#ifndef NEAP_TESTS_SUPPORT_TEST_H
#define NEAP_TESTS_SUPPORT_TEST_H

#include <setjmp.h>
#include <stdarg.h>
#include <stddef.h>
#include <stdint.h>

#include <cmocka.h>

#include <ftw.h>
#include <stdio.h>
#include <stdlib.h>
#include <time.h>

#define COUNT(array) (sizeof array / sizeof *(array))

#define KIB (1ull << 10)
#define MIB (1ull << 20)
#define GIB (1ull << 30)

#define TEST_FOLDER_CAPACITY 64

/* Makes an empty folder for this test and writes its path to `folder`. 0, or -1 as cmocka's set-up functions. */
static inline int make_folder(char folder[TEST_FOLDER_CAPACITY], const char *name)
{
	snprintf(folder, TEST_FOLDER_CAPACITY, "/tmp/neap-test-%s-XXXXXX", name);
	return mkdtemp(folder) ? 0 : -1;
}

static inline int remove_entry(const char *path, const struct stat *info, int type, struct FTW *place)
{
	(void)info;
	(void)type;
	(void)place;
	return remove(path);
}

/* Removes the folder and everything in it, without following links. */
static inline int remove_folder(const char *folder) { return nftw(folder, remove_entry, 16, FTW_DEPTH | FTW_PHYS); }

/* The seed of this run: NEAP_SEED, otherwise from the clock. Never 0. Prints it. */
static inline uint64_t test_seed(void)
{
	const char *given = getenv("NEAP_SEED");
	struct timespec now;

	clock_gettime(CLOCK_REALTIME, &now);
	uint64_t clock = (uint64_t)now.tv_nsec * 2654435761u + (uint64_t)now.tv_sec;
	uint64_t seed = given ? strtoull(given, NULL, 0) : clock;
	seed = seed ? seed : 1;
	printf("NEAP_SEED=%llu\n", (unsigned long long)seed);
	fflush(stdout);
	return seed;
}

/* xorshift64*: the same numbers everywhere for a seed, which must not be 0. */
static inline uint64_t next_random(uint64_t *state)
{
	*state ^= *state << 13;
	*state ^= *state >> 7;
	*state ^= *state << 17;
	return *state * 0x2545f4914f6cdd1dull;
}

#endif
