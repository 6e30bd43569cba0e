#include "sim_test.h"

#include "base/error.h"

#include <dlfcn.h>
#include <errno.h>
#include <signal.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/wait.h>
#include <unistd.h>

struct sim_test t;

static void *open_library(const char *name)
{
	const char *folder = getenv("NEAP_SIM_PATH");
	char path[4096];
	void *library;

	snprintf(path, sizeof path, "%s/%s", folder ? folder : ".", name);
	library = dlopen(path, RTLD_NOW | RTLD_LOCAL);
	if (!library) {
		fprintf(stderr, "%s\n", dlerror());
		exit(99);
	}
	return library;
}

static void find(void *library, const char *name, void *ret_function)
{
	void *found = dlsym(library, name);

	if (!found) {
		fprintf(stderr, "no symbol %s\n", name);
		exit(99);
	}
	memcpy(ret_function, &found, sizeof found);
}

void sim_load(void)
{
	const struct neap_sim_calls *(*get_calls)(void);
	void *library;

	if (t.sim)
		return;
	library = open_library("libcuda.so.1");
#define X(need, name, symbol, parameters) find(library, #symbol, &t.cuda.name);
#include "device/cuda_functions.h"
#undef X
	find(library, "neap_sim_get_calls", &get_calls);
	t.sim = get_calls();
	find(library, "neap_sim_get_loaded_launches", &t.loaded_launches);
	library = open_library("libnvidia-ml.so.1");
#define X(need, type, name, newest, older, parameters) find(library, #newest, &t.nvml.name);
#include "device/nvml_functions.h"
#undef X
}

void sim_name_world(const char *name, const char *options)
{
	sim_load();
	snprintf(t.spec, sizeof t.spec, "%s%sworld=test-%s-%d", options, *options ? "," : "", name, (int)getpid());
	setenv("NEAP_SIM", t.spec, 1);
	unsetenv("CUDA_VISIBLE_DEVICES");
	unsetenv("NEAP_SIM_FAULT");
	unsetenv("NEAP_SIM_LATENCY");
	unsetenv("NEAP_SIM_LOG");
	unsetenv("NEAP_SIM_HIDDEN");
	unsetenv("NEAP_SIM_NVML");
	unsetenv("NEAP_SIM_KERNEL");
}

void sim_begin(const char *name, const char *options)
{
	sim_name_world(name, options);
	assert_ok(t.cuda.cuInit(0));
	assert_ok(t.cuda.cuDevicePrimaryCtxRetain(&t.context, 0));
	assert_ok(t.cuda.cuCtxSetCurrent(t.context));
}

void sim_end(void)
{
	struct sim_view view;
	uint32_t device;

	t.sim->hold(0);
	t.sim->fault(NULL, 0, 0, 0);
	assert_ok(t.cuda.cuCtxSetCurrent(NULL));
	assert_ok(t.cuda.cuDevicePrimaryCtxRelease(0));
	sim_read(&view);
	for (device = 0; device < view.device_count; device++)
		assert_int_equal(view.devices[device].used_bytes, 0);
}

void sim_read(struct sim_view *view)
{
	struct sim_spec spec;
	struct neap_error err = {0};

	assert_int_equal(sim_spec_parse(t.spec, &spec, &err), NEAP_OK);
	if (sim_world_read(&spec, view, &err) != NEAP_OK)
		fail_msg("%s", err.message);
}

uint64_t sim_free_bytes(void)
{
	size_t free_bytes = 0, total = 0;

	assert_ok(t.cuda.cuMemGetInfo(&free_bytes, &total));
	return free_bytes;
}

static const CUmemAllocationProp pinned = {.type = CU_MEM_ALLOCATION_TYPE_PINNED,
					   .location = {CU_MEM_LOCATION_TYPE_DEVICE, 0}};

CUmemGenericAllocationHandle sim_make(uint64_t bytes)
{
	CUmemGenericAllocationHandle handle = 0;

	assert_ok(t.cuda.cuMemCreate(&handle, bytes, &pinned, 0));
	return handle;
}

CUdeviceptr sim_reserve_range(uint64_t bytes)
{
	CUdeviceptr address = 0;

	assert_ok(t.cuda.cuMemAddressReserve(&address, bytes, 0, 0, 0));
	return address;
}

CUresult sim_access(CUdeviceptr address, uint64_t bytes, CUmemAccess_flags flags)
{
	CUmemAccessDesc access = {{CU_MEM_LOCATION_TYPE_DEVICE, 0}, flags};

	return t.cuda.cuMemSetAccess(address, bytes, &access, 1);
}

void sim_map_at(CUdeviceptr address, uint64_t bytes, CUmemGenericAllocationHandle handle)
{
	assert_ok(t.cuda.cuMemMap(address, bytes, 0, handle, 0));
	assert_ok(sim_access(address, bytes, CU_MEM_ACCESS_FLAGS_PROT_READWRITE));
}

CUresult sim_kernel(CUstream stream, const char *name, CUdeviceptr address, uint64_t bytes, int write)
{
	struct neap_sim_range range = {address, bytes, write};
	struct neap_sim_kernel kernel = {.name = name, .duration_ns = 5000, .ranges = &range, .range_count = 1};

	return t.sim->launch(stream, &kernel);
}

/* -- children ---------------------------------------------------------------------------------------------------- */

#define CHILD_IN  200 /* the child's ends of the pipes */
#define CHILD_OUT 201

struct sim_child sim_spawn(const char *role)
{
	int to[2], from[2];
	struct sim_child child = {0};

	assert_int_equal(pipe2(to, 0x80000 /* O_CLOEXEC */), 0);
	assert_int_equal(pipe2(from, 0x80000), 0);
	child.pid = fork();
	assert_true(child.pid >= 0);
	if (child.pid == 0) {
		dup2(to[0], CHILD_IN);
		dup2(from[1], CHILD_OUT);
		execl("/proc/self/exe", "child", role, (char *)NULL);
		_exit(98);
	}
	close(to[0]);
	close(from[1]);
	child.to = to[1];
	child.from = from[0];
	return child;
}

char sim_child_reports(struct sim_child *child)
{
	char byte = 0;
	ssize_t got;

	do
		got = read(child->from, &byte, 1);
	while (got < 0 && errno == EINTR);
	return got == 1 ? byte : 0;
}

void sim_child_report(struct sim_child *child) { assert_int_equal(write(child->to, "g", 1), 1); }

int sim_child_wait(struct sim_child *child)
{
	int status = 0;

	close(child->to);
	close(child->from);
	while (waitpid(child->pid, &status, 0) < 0 && errno == EINTR)
		;
	return status;
}

void sim_child_kill(struct sim_child *child)
{
	kill(child->pid, SIGKILL);
	sim_child_wait(child);
}

void sim_report(char byte)
{
	if (write(CHILD_OUT, &byte, 1) != 1)
		_exit(97);
}

void sim_listen(void)
{
	char byte;

	if (read(CHILD_IN, &byte, 1) != 1)
		_exit(96); /* the parent is gone */
}

void sim_roles(int argc, char **argv, const struct sim_role *roles, size_t count)
{
	size_t i;

	if (argc != 2 || strcmp(argv[0], "child") != 0)
		return;
	sim_load();
	snprintf(t.spec, sizeof t.spec, "%s", getenv("NEAP_SIM") ? getenv("NEAP_SIM") : "");
	for (i = 0; i < count; i++)
		if (strcmp(roles[i].name, argv[1]) == 0)
			exit(roles[i].run());
	exit(95);
}
