/* Memory shared between processes: its bytes, its accounting, and refusals. */
#include "sim_test.h"

#include <fcntl.h>
#include <signal.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <unistd.h>

static const CUmemAllocationProp exportable = {.type = CU_MEM_ALLOCATION_TYPE_PINNED,
					       .requestedHandleTypes = CU_MEM_HANDLE_TYPE_POSIX_FILE_DESCRIPTOR,
					       .location = {CU_MEM_LOCATION_TYPE_DEVICE, 0}};

/* Binary data for a child, through its environment. */
static void pass(const char *name, const void *bytes, size_t count)
{
	char text[2 * 64 + 1];

	for (size_t i = 0; i < count; i++)
		snprintf(text + 2 * i, 3, "%02x", ((const unsigned char *)bytes)[i]);
	setenv(name, text, 1);
}

static void receive(const char *name, void *bytes, size_t count)
{
	const char *text = getenv(name);

	for (size_t i = 0; i < count; i++) {
		unsigned int byte = 0;

		if (!text || sscanf(text + 2 * i, "%2x", &byte) != 1)
			_exit(90);
		((unsigned char *)bytes)[i] = (unsigned char)byte;
	}
}

/* In a child: a step that must succeed. */
#define STEP(call)                                                                                                   \
	do {                                                                                                         \
		CUresult answer = (call);                                                                            \
		if (answer != CUDA_SUCCESS) {                                                                        \
			fprintf(stderr, "%s: %d\n", #call, answer);                                                  \
			return 1;                                                                                    \
		}                                                                                                    \
	} while (0)

static int child_begin(void)
{
	STEP(t.cuda.cuInit(0));
	STEP(t.cuda.cuDevicePrimaryCtxRetain(&t.context, 0));
	STEP(t.cuda.cuCtxSetCurrent(t.context));
	return 0;
}

/* Opens the memory by its 64 bytes, reads one byte, writes another; keeps it until the parent's signal. */
static int open_by_name(void)
{
	CUdeviceptr address, again, base;
	CUipcMemHandle handle;
	CUipcEventHandle name;
	CUevent event;
	size_t bytes;

	receive("TEST_HANDLE", &handle, sizeof handle);
	receive("TEST_EVENT", &name, sizeof name);
	if (child_begin() != 0)
		return 1;
	if (t.cuda.cuIpcOpenMemHandle(&address, handle, 0) != CUDA_ERROR_INVALID_VALUE)
		return 2;
	STEP(t.cuda.cuIpcOpenMemHandle(&address, handle, CU_IPC_MEM_LAZY_ENABLE_PEER_ACCESS));
	STEP(t.cuda.cuIpcOpenMemHandle(&again, handle, CU_IPC_MEM_LAZY_ENABLE_PEER_ACCESS));
	if (again != address)
		return 3;
	STEP(t.cuda.cuMemGetAddressRange(&base, &bytes, address));
	if (bytes != 5000 || ((unsigned char *)(uintptr_t)address)[4999] != 0x5a)
		return 4;
	STEP(t.cuda.cuIpcOpenEventHandle(&event, name));
	STEP(t.cuda.cuStreamWaitEvent(NULL, event, 0));
	STEP(t.cuda.cuEventSynchronize(event));
	STEP(t.cuda.cuMemsetD8(address, 0xa5, 10));
	if (t.cuda.cuMemFree(address) != CUDA_ERROR_INVALID_VALUE)
		return 5;
	STEP(t.cuda.cuIpcCloseMemHandle(address)); /* once for each open */
	sim_report('o');
	sim_listen();
	if (((unsigned char *)(uintptr_t)address)[0] != 0xa5)
		return 6;
	STEP(t.cuda.cuIpcCloseMemHandle(address));
	if (t.cuda.cuIpcCloseMemHandle(address) != CUDA_ERROR_INVALID_VALUE)
		return 7;
	STEP(t.cuda.cuDevicePrimaryCtxRelease(0));
	return 0;
}

/* Maps the share of the inherited descriptor; keeps it until the parent's signal. */
static int open_by_descriptor(void)
{
	CUmemAccessDesc access = {{CU_MEM_LOCATION_TYPE_DEVICE, 0}, CU_MEM_ACCESS_FLAGS_PROT_READWRITE};
	CUmemGenericAllocationHandle handle;
	CUdeviceptr address;
	int fd;

	receive("TEST_FD", &fd, sizeof fd);
	if (child_begin() != 0)
		return 1;
	STEP(t.cuda.cuMemImportFromShareableHandle(&handle, (void *)(intptr_t)fd, 1));
	close(fd);
	STEP(t.cuda.cuMemAddressReserve(&address, 2 * PAGE, 0, 0, 0));
	STEP(t.cuda.cuMemMap(address, 2 * PAGE, 0, handle, 0));
	STEP(t.cuda.cuMemSetAccess(address, 2 * PAGE, &access, 1));
	if (getenv("TEST_DIE"))
		raise(SIGKILL);
	if (*(unsigned char *)(uintptr_t)(address + PAGE) != 0x77)
		return 2;
	STEP(t.cuda.cuMemsetD8(address, 0x66, 10));
	STEP(t.cuda.cuCtxSynchronize());
	sim_report('o');
	sim_listen();
	if (*(unsigned char *)(uintptr_t)address != 0x66)
		return 3;
	STEP(t.cuda.cuMemUnmap(address, 2 * PAGE));
	STEP(t.cuda.cuMemRelease(handle));
	STEP(t.cuda.cuMemAddressFree(address, 2 * PAGE));
	sim_report('d');
	sim_listen();
	return 0;
}

static const struct sim_role roles[] = {{"name", open_by_name}, {"descriptor", open_by_descriptor}};

static uint64_t memory_of(pid_t pid)
{
	static struct sim_view view;

	sim_read(&view);
	for (size_t i = 0; i < view.process_count; i++)
		if (view.processes[i].pid == pid)
			return view.processes[i].memory_bytes[0];
	return 0;
}

static void an_allocation_is_opened_by_its_name(void **state)
{
	static struct sim_view view;
	CUipcEventHandle event_name;
	CUdeviceptr address, other;
	CUipcMemHandle handle, same;
	CUevent event, plain;

	(void)state;
	sim_begin("ipc", "mem=256MiB,context=10MiB");
	assert_ok(t.cuda.cuMemAlloc(&address, 5000));
	assert_ok(t.cuda.cuEventCreate(&event, CU_EVENT_INTERPROCESS | CU_EVENT_DISABLE_TIMING));
	assert_ok(t.cuda.cuEventCreate(&plain, CU_EVENT_DISABLE_TIMING));
	assert_ok(t.cuda.cuMemsetD8(address, 0x5a, 5000));
	assert_ok(t.cuda.cuEventRecord(event, NULL));
	assert_ok(t.cuda.cuCtxSynchronize());
	assert_ok(t.cuda.cuIpcGetMemHandle(&handle, address));
	assert_ok(t.cuda.cuIpcGetMemHandle(&same, address + 100));
	assert_memory_equal(&handle, &same, sizeof handle);
	assert_answer(t.cuda.cuIpcGetMemHandle(&same, 4096), CUDA_ERROR_INVALID_VALUE);
	assert_answer(t.cuda.cuIpcGetEventHandle(&event_name, plain), CUDA_ERROR_INVALID_HANDLE);
	assert_ok(t.cuda.cuIpcGetEventHandle(&event_name, event));
	assert_answer(t.cuda.cuIpcOpenMemHandle(&other, handle, CU_IPC_MEM_LAZY_ENABLE_PEER_ACCESS),
		      CUDA_ERROR_INVALID_CONTEXT); /* its own */
	memset(&same, 0x11, sizeof same);
	assert_answer(t.cuda.cuIpcOpenMemHandle(&other, same, CU_IPC_MEM_LAZY_ENABLE_PEER_ACCESS),
		      CUDA_ERROR_INVALID_VALUE);
	assert_int_equal(memory_of(getpid()), PAGE);

	pass("TEST_HANDLE", &handle, sizeof handle);
	pass("TEST_EVENT", &event_name, sizeof event_name);
	struct sim_child child = sim_spawn("name");
	assert_int_equal(sim_child_reports(&child), 'o');
	assert_int_equal(((unsigned char *)(uintptr_t)address)[9], 0xa5);
	sim_read(&view);
	assert_int_equal(view.devices[0].used_bytes, PAGE + 2 * 10 * MIB); /* charged once */
	assert_int_equal(memory_of(getpid()), PAGE);
	assert_int_equal(memory_of(child.pid), 0);
	assert_ok(t.cuda.cuMemFree(address)); /* the other process still has it */
	sim_read(&view);
	assert_int_equal(view.devices[0].used_bytes, PAGE + 2 * 10 * MIB);
	assert_int_equal(memory_of(getpid()), 0);
	assert_int_equal(memory_of(child.pid), PAGE);
	sim_child_report(&child);
	assert_int_equal(sim_child_wait(&child), 0);
	sim_read(&view);
	assert_int_equal(view.devices[0].used_bytes, 10 * MIB);
	assert_ok(t.cuda.cuEventDestroy(event));
	assert_ok(t.cuda.cuEventDestroy(plain));
	sim_end();
}

static CUmemGenericAllocationHandle make_exportable(uint64_t bytes, int *ret_fd)
{
	CUmemGenericAllocationHandle handle = 0;
	int fd = -1;

	assert_ok(t.cuda.cuMemCreate(&handle, bytes, &exportable, 0));
	assert_ok(t.cuda.cuMemExportToShareableHandle(&fd, handle, CU_MEM_HANDLE_TYPE_POSIX_FILE_DESCRIPTOR, 0));
	*ret_fd = dup(fd); /* a child inherits it */
	close(fd);
	return handle;
}

static void virtual_memory_is_opened_by_a_descriptor(void **state)
{
	static struct sim_view view;
	CUmemGenericAllocationHandle handle, again;
	CUdeviceptr range;
	int fd;

	(void)state;
	sim_begin("export", "mem=256MiB,context=10MiB");
	handle = make_exportable(2 * PAGE, &fd);
	range = sim_reserve_range(4 * PAGE);
	sim_map_at(range, 2 * PAGE, handle);
	assert_ok(t.cuda.cuMemsetD8(range + PAGE, 0x77, 1));
	assert_ok(t.cuda.cuCtxSynchronize());
	/* In the same process it is one more handle of the same bytes. */
	assert_ok(t.cuda.cuMemImportFromShareableHandle(&again, (void *)(intptr_t)fd, 1));
	sim_map_at(range + 2 * PAGE, 2 * PAGE, again);
	assert_int_equal(*(unsigned char *)(uintptr_t)(range + 3 * PAGE), 0x77);
	CUstream stream;
	assert_ok(t.cuda.cuStreamCreate(&stream, CU_STREAM_NON_BLOCKING));
	assert_ok(sim_kernel(stream, "one", range, 64, 1));
	assert_answer(sim_kernel(NULL, "other", range + 2 * PAGE, 64, 1), CUDA_ERROR_ILLEGAL_ADDRESS); /* a race */
	t.sim->forgive();
	assert_ok(t.cuda.cuStreamSynchronize(stream));
	assert_ok(t.cuda.cuStreamDestroy(stream));
	assert_int_equal(memory_of(getpid()), 2 * PAGE);

	pass("TEST_FD", &fd, sizeof fd);
	struct sim_child child = sim_spawn("descriptor");
	assert_int_equal(sim_child_reports(&child), 'o');
	assert_int_equal(*(unsigned char *)(uintptr_t)range, 0x66);
	assert_ok(t.cuda.cuMemUnmap(range, 4 * PAGE));
	assert_ok(t.cuda.cuMemRelease(handle));
	assert_ok(t.cuda.cuMemRelease(again));
	sim_read(&view);
	assert_int_equal(view.devices[0].used_bytes, 2 * PAGE + 2 * 10 * MIB);
	assert_int_equal(memory_of(child.pid), 2 * PAGE);
	sim_child_report(&child);
	assert_int_equal(sim_child_reports(&child), 'd');
	sim_read(&view);
	assert_int_equal(view.devices[0].used_bytes, 2 * 10 * MIB); /* the last one let go */
	sim_child_report(&child);
	assert_int_equal(sim_child_wait(&child), 0);
	/* A descriptor alone keeps nothing alive. */
	assert_answer(t.cuda.cuMemImportFromShareableHandle(&again, (void *)(intptr_t)fd, 1),
		      CUDA_ERROR_INVALID_VALUE);
	close(fd);
	assert_ok(t.cuda.cuMemAddressFree(range, 4 * PAGE));
	sim_end();
}

/* The accounting stays right whenever a holder dies, even by SIGKILL. */
static void a_dead_holder_lets_go(void **state)
{
	static struct sim_view view;
	CUmemGenericAllocationHandle handle;
	CUdeviceptr range;
	int fd;

	(void)state;
	sim_begin("deadholder", "mem=256MiB,context=10MiB,backing=none");
	assert_answer(t.cuda.cuMemCreate(&handle, PAGE, &exportable, 1), CUDA_ERROR_INVALID_VALUE);
	handle = make_exportable(2 * PAGE, &fd);
	range = sim_reserve_range(2 * PAGE);
	sim_map_at(range, 2 * PAGE, handle);
	pass("TEST_FD", &fd, sizeof fd);
	setenv("TEST_DIE", "1", 1);
	struct sim_child child = sim_spawn("descriptor");
	unsetenv("TEST_DIE");
	assert_true(sim_child_reports(&child) == 0);
	assert_true(sim_child_wait(&child) != 0);
	assert_int_equal(memory_of(getpid()), 2 * PAGE);
	assert_ok(t.cuda.cuMemUnmap(range, 2 * PAGE));
	assert_ok(t.cuda.cuMemRelease(handle));
	sim_read(&view);
	assert_int_equal(view.devices[0].used_bytes, 10 * MIB);
	assert_ok(t.cuda.cuMemAddressFree(range, 2 * PAGE));
	close(fd);
	sim_end();

	sim_begin("killedholder", "mem=256MiB,context=10MiB");
	handle = make_exportable(2 * PAGE, &fd);
	range = sim_reserve_range(2 * PAGE);
	sim_map_at(range, 2 * PAGE, handle);
	*(unsigned char *)(uintptr_t)(range + PAGE) = 0x77;
	pass("TEST_FD", &fd, sizeof fd);
	child = sim_spawn("descriptor");
	assert_int_equal(sim_child_reports(&child), 'o');
	assert_ok(t.cuda.cuMemUnmap(range, 2 * PAGE));
	assert_ok(t.cuda.cuMemRelease(handle));
	assert_int_equal(memory_of(child.pid), 2 * PAGE);
	sim_child_kill(&child);
	sim_read(&view);
	assert_int_equal(view.devices[0].used_bytes, 10 * MIB);
	assert_ok(t.cuda.cuMemAddressFree(range, 2 * PAGE));
	close(fd);
	sim_end();
}

/* Shares held only by dead processes drain like the rest of their memory. */
static void shared_memory_drains(void **state)
{
	static struct sim_view view;
	CUmemGenericAllocationHandle handle;
	char path[256];
	int fd;

	(void)state;
	sim_begin("shareddrain", "mem=256MiB,context=10MiB,release_delay=1h");
	handle = make_exportable(2 * PAGE, &fd);
	pass("TEST_FD", &fd, sizeof fd);
	setenv("TEST_DIE", "1", 1);
	struct sim_child child = sim_spawn("descriptor");
	unsetenv("TEST_DIE");
	assert_true(sim_child_wait(&child) != 0);
	assert_ok(t.cuda.cuMemRelease(handle));
	sim_read(&view);
	assert_int_equal(view.devices[0].used_bytes, 2 * PAGE + 2 * 10 * MIB);
	assert_int_equal(view.devices[0].draining_bytes, 2 * PAGE + 10 * MIB);
	close(fd);
	snprintf(path, sizeof path, "/dev/shm/neap-sim-%lu-%s", (unsigned long)geteuid(), view.world);
	assert_ok(t.cuda.cuDevicePrimaryCtxRelease(0));
	setenv("NEAP_SIM", "mem=64MiB,world=test-shareddrain-elsewhere", 1);
	assert_ok(t.cuda.cuInit(0)); /* leaves the first world, which stays because its memory still drains */
	assert_int_equal(unlink(path), 0);
}

/* Every value from a descriptor is checked before use. */
static void other_descriptors_are_refused(void **state)
{
	CUmemGenericAllocationHandle handle, plain, again;
	char path[] = "/tmp/neap-share-XXXXXX", bytes[4096];
	int fd, file = mkstemp(path), other, shareable;

	(void)state;
	assert_true(file >= 0);
	unlink(path);
	sim_begin("refused", "mem=256MiB");
	handle = make_exportable(PAGE, &fd);
	plain = sim_make(PAGE);
	assert_answer(t.cuda.cuMemExportToShareableHandle(&shareable, plain, 1, 0), CUDA_ERROR_INVALID_VALUE);
	assert_answer(t.cuda.cuMemExportToShareableHandle(&shareable, handle, CU_MEM_HANDLE_TYPE_FABRIC, 0),
		      CUDA_ERROR_NOT_SUPPORTED);
	assert_answer(t.cuda.cuMemImportFromShareableHandle(&again, (void *)(intptr_t)file, 1),
		      CUDA_ERROR_INVALID_VALUE);
	assert_answer(t.cuda.cuMemImportFromShareableHandle(&again, (void *)(intptr_t)-1, 1),
		      CUDA_ERROR_INVALID_VALUE);
	/* A copy of the entry in our own file, with other sizes: the world's record contradicts it. */
	off_t place = lseek(fd, 0, SEEK_CUR);
	assert_int_equal(pread(fd, bytes, sizeof bytes, place), sizeof bytes);
	for (int field = 2; field < 4; field++) {
		char copy[sizeof bytes];
		uint64_t wrong = field == 2 ? 1ull << 40 : 2 * PAGE;

		memcpy(copy, bytes, sizeof copy);
		memcpy(copy + field * 8, &wrong, sizeof wrong);
		assert_int_equal(ftruncate(file, 0), 0);
		assert_int_equal(ftruncate(file, (off_t)(64 * PAGE)), 0);
		assert_int_equal(pwrite(file, copy, sizeof copy, 4096), sizeof copy);
		assert_int_equal(lseek(file, 4096, SEEK_SET), 4096);
		assert_answer(t.cuda.cuMemImportFromShareableHandle(&again, (void *)(intptr_t)file, 1),
			      CUDA_ERROR_INVALID_VALUE);
	}
	other = open("/dev/null", O_RDONLY);
	assert_answer(t.cuda.cuMemImportFromShareableHandle(&again, (void *)(intptr_t)other, 1),
		      CUDA_ERROR_INVALID_VALUE);
	close(other);
	close(file);
	close(fd);
	assert_ok(t.cuda.cuMemRelease(handle));
	assert_ok(t.cuda.cuMemRelease(plain));
	sim_end();
}

int main(int argc, char **argv)
{
	const struct CMUnitTest tests[] = {
		cmocka_unit_test(an_allocation_is_opened_by_its_name),
		cmocka_unit_test(virtual_memory_is_opened_by_a_descriptor),
		cmocka_unit_test(a_dead_holder_lets_go),
		cmocka_unit_test(other_descriptors_are_refused),
		cmocka_unit_test(shared_memory_drains),
	};

	sim_roles(argc, argv, roles, sizeof roles / sizeof roles[0]);
	return cmocka_run_group_tests(tests, NULL, NULL);
}
