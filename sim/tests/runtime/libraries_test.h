/* sim/tests/runtime/libraries_test.h: a stand-in loaded by path, over services of this program that record its calls.
 *
 * The program exports neap_runtime_get_services, as neap's libcudart does. It simulates no memory: it only records
 * the last writes and forgets.
 */
#ifndef NEAP_TESTS_LIBRARIES_TEST_H
#define NEAP_TESTS_LIBRARIES_TEST_H

#include "sim/runtime/services.h"
#include "support/test.h"

struct fake_services {
	bool absent;    /* simulates a process without neap's libcudart */
	int capability; /* 0: no device */
	int launch_result;
	int launches;
	void *launch_stream; /* of the last launch */
	int tallies[4];      /* by enum runtime_gap */
	const char *library; /* of the last tally */
	const char *function;
	uint64_t low; /* of the last unknown size */
	uint64_t high;
	int forgets;
	uint64_t forgotten; /* bytes, of all of them */
	uint64_t forgotten_at;
	uint64_t written; /* address of the last write, and its first bytes */
	size_t written_bytes;
	unsigned char content[16];
};
extern struct fake_services fake;

/* Clears the records; sets a device of compute capability 8.0. */
void fake_begin(void);

/* The library `soname` in $NEAP_RUNTIME_PATH. Exits with a message if it is missing. */
void *library_open(const char *soname);
/* Stores its function `name` in the function pointer at `ret_function`. Fails the test if it is missing. */
void library_function(void *library, const char *name, void *ret_function);

#endif
