/* sim/tests/driver/sim_test.h: the simulated driver, loaded by path, and children that use it too.
 *
 * Each test creates its own world (its name has our PID) with sim_begin and ends it with sim_end. A child is another
 * run of this program with a role: it sends one byte when it is ready, and waits for the parent's signal to continue.
 */
#ifndef NEAP_TESTS_SIM_TEST_H
#define NEAP_TESTS_SIM_TEST_H

#include "device/cuda_api.h"
#include "device/nvml_api.h"
#include "neap/sim.h"
#include "sim/driver/world.h"
#include "support/test.h"

#include <sys/types.h>

#define PAGE SIM_PAGE_BYTES

struct sim_test {
	struct neap_cuda cuda;
	struct neap_nvml nvml;
	const struct neap_sim_calls *sim;
	uint64_t (*loaded_launches)(void);
	char spec[256]; /* NEAP_SIM */
	CUcontext context;
};

extern struct sim_test t;

#define assert_ok(call)           assert_int_equal((call), CUDA_SUCCESS)
#define assert_answer(call, code) assert_int_equal((call), (code))

/* Loads both libraries from $NEAP_SIM_PATH. Exits with a message if they are not there. */
void sim_load(void);
/* NEAP_SIM=OPTIONS,world=test-NAME-PID; no other NEAP_SIM_ variable nor CUDA_VISIBLE_DEVICES. */
void sim_name_world(const char *name, const char *options);
/* Names the world, initialises, makes device 0's context current. */
void sim_begin(const char *name, const char *options);
/* Releases the context and checks that nothing is left of the world: every test must free its memory. */
void sim_end(void);
/* The world as it is. */
void sim_read(struct sim_view *view);
uint64_t sim_free_bytes(void); /* cuMemGetInfo */

CUmemGenericAllocationHandle sim_make(uint64_t bytes);
CUdeviceptr sim_reserve_range(uint64_t bytes);
void sim_map_at(CUdeviceptr address, uint64_t bytes, CUmemGenericAllocationHandle handle); /* read and write */
CUresult sim_access(CUdeviceptr address, uint64_t bytes, CUmemAccess_flags flags);
/* A kernel over one range. */
CUresult sim_kernel(CUstream stream, const char *name, CUdeviceptr address, uint64_t bytes, int write);

struct sim_child {
	pid_t pid;
	int to, from;
};

/* Runs `role` of the table given to sim_main in a new process. */
struct sim_child sim_spawn(const char *role);
char sim_child_reports(struct sim_child *child); /* waits for its next byte; 0 at its end */
void sim_child_report(struct sim_child *child);  /* lets it continue */
int sim_child_wait(struct sim_child *child);     /* its wait status */
void sim_child_kill(struct sim_child *child);    /* SIGKILL, reaped */
/* In the child. */
void sim_report(char byte);
void sim_listen(void);

struct sim_role {
	const char *name;
	int (*run)(void);
};

/* For main: in a child, runs its role and never returns. */
void sim_roles(int argc, char **argv, const struct sim_role *roles, size_t count);

#endif
