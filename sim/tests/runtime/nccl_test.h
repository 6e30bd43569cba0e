/* sim/tests/runtime/nccl_test.h: ranks as processes, each over its own services in place of libcudart.
 *
 * A device here is an endless address space of zeros until bytes are stored. Gates wait on numbered streams; a read
 * opens those over its range, fake_synchronize those of a stream. So a rank behaves like a real program.
 */
#ifndef NEAP_TESTS_NCCL_TEST_H
#define NEAP_TESTS_NCCL_TEST_H

#include "sim/libraries/nccl/api.h"
#include "sim/runtime/services.h"
#include "support/test.h"

#include <sys/types.h>

/* Each function of NCCL, as a program calls it. */
#define X(name, parameters, arguments) ncclResult_t name parameters;
#define REFUSED(name, parameters)      ncclResult_t name parameters;
#include "sim/libraries/nccl/functions.h"
#undef X
#undef REFUSED
const char *ncclGetLastError(ncclComm_t comm);
const char *ncclGetErrorString(ncclResult_t result);

/* In a rank: prints the place and ends the process. */
#define check(condition) check_at(condition, #condition, __FILE__, __LINE__)
void check_at(int holds, const char *text, const char *file, int line);
#define check_ok(call)             check_result(call, ncclSuccess, #call, __FILE__, __LINE__)
#define check_answer(call, result) check_result(call, result, #call, __FILE__, __LINE__)
void check_result(ncclResult_t result, ncclResult_t wanted, const char *text, const char *file, int line);

/* -- the device of this process ---------------------------------------------------------------------------------- */

struct fake {
	int device, capability, launches, gates, dropped;
	int capturing;     /* streams are: gates are dropped */
	int same_device;   /* all devices have one UUID */
	int tallies[4];    /* by enum runtime_gap */
	uint64_t high;     /* of the last workspace */
	char function[64]; /* of the last tally */
	size_t allocated;  /* cudaMalloc'ed, not freed */

	enum runtime_known known;     /* of all its bytes; KNOWN_NOTHING_COMPUTED at first */
	enum runtime_known marked[8]; /* the last marks */
	int marks;
};
extern struct fake fake;

void fake_reset(void);
/* As cudaMemcpy to the device: supersedes the gates that write within the range. */
void fake_store(uint64_t address, const void *from, size_t bytes);
/* With gates, as cudaMemcpy to the host. */
void fake_load(uint64_t address, void *to, size_t bytes);
void fake_synchronize(void *stream);
void fake_synchronize_device(void);
/* Whether the stream's gates open without blocking; opens them if so. */
int fake_query(void *stream);
/* Gates that have not opened. */
int fake_closed(void);
#define STREAM(number) ((void *)(uintptr_t)(0x100 + (number)))

/* Where a rank's bytes are, for most tests. */
#define SOURCE      0x7f0000000000ull
#define DESTINATION 0x7f1000000000ull

/* -- ranks ------------------------------------------------------------------------------------------------------- */

struct rank {
	int rank, ranks;
	ncclUniqueId id;
	ncclComm_t comm; /* initialised on device `rank`, unless the test does that */
	void *argument;
	int to_parent; /* rank_report */
};

/* Runs `body` in a process for each rank, with a communicator, and fails the test if one fails. Afterwards no file of
 * the communicator may have a name. */
void run_ranks(int ranks, void (*body)(struct rank *rank), void *argument);

/* The same in separate steps, without a communicator. */
struct ranks {
	int count;
	pid_t pids[16];
	int from[16]; /* bytes from each rank */
};
void start_ranks(struct ranks *ranks, int count, void (*body)(struct rank *rank), void *argument);
void rank_report(const struct rank *rank, char byte);
/* The next byte of a rank; 0: it ended. */
char hear_rank(const struct ranks *ranks, int rank);
/* The wait status. */
int wait_rank(struct ranks *ranks, int rank);
void init_rank(struct rank *rank);

/* The file of the communicator that process `pid` holds open; "": none. A removed one ends in " (deleted)". */
void communicator_file(pid_t pid, char *path, size_t capacity);

uint32_t random_below(uint64_t *state, uint32_t limit);

/* -- communicators ----------------------------------------------------------------------------------------------- */

/* The sum of a value of each rank. */
int sum_over(ncclComm_t comm, int value);
ncclConfig_t configuration(int blocking);
/* Waits for the end of what is in progress. */
ncclResult_t settle(ncclComm_t comm);

#endif
