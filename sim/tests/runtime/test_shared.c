/* Memory shared by two processes: one reads the bytes that the other stored, through libcudart's 64 bytes and through
 * the driver's descriptors. With backing=none it reads zeros, and the tally counts it. The program's argument is the
 * path of a libcudart; it starts itself again as the other process. */
#include "neap/sim.h"
#include "sim/runtime/runtime.h"
#include "support/test.h"

#include <errno.h>
#include <fcntl.h>
#include <stdio.h>
#include <stdlib.h>
#include <sys/wait.h>
#include <unistd.h>

#define PAGE  (2u << 20)
#define BYTES (3 * PAGE)

/* From the library under test. */
#define FUNCTIONS                                                                                                    \
	F(cudaMalloc, (void **pointer, size_t bytes))                                                                \
	F(cudaFree, (void *pointer))                                                                                 \
	F(cudaMemcpy, (void *to, const void *from, size_t bytes, int kind))                                          \
	F(cudaMemset, (void *to, int value, size_t bytes))                                                           \
	F(cudaDeviceSynchronize, (void))                                                                             \
	F(cudaIpcGetMemHandle, (cudaIpcHandle_t * handle, void *pointer))                                            \
	F(cudaIpcOpenMemHandle, (void **pointer, cudaIpcHandle_t handle, unsigned int flags))                        \
	F(cudaIpcCloseMemHandle, (void *pointer))                                                                    \
	F(cudaGetDriverEntryPointByVersion,                                                                          \
	  (const char *symbol, void **function, unsigned int version, unsigned long long flags, int *status))

#define F(name, parameters) static int(*name) parameters;
FUNCTIONS
#undef F

static const char *library_path;
static struct neap_cuda cuda;

static void *driver_function(const char *name)
{
	void *function = NULL;
	int status;

	if (cudaGetDriverEntryPointByVersion(name, &function, 13000, 0, &status) != 0 || !function)
		exit(90);
	return function;
}

static void load(void)
{
	void *library = dlopen(library_path, RTLD_NOW | RTLD_GLOBAL), *symbol;

	if (!library)
		exit(91);
#define F(name, parameters)                                                                                          \
	symbol = dlsym(library, #name);                                                                              \
	memcpy(&name, &symbol, sizeof symbol);
	FUNCTIONS
#undef F
#define D(name)                                                                                                      \
	symbol = driver_function(#name);                                                                             \
	memcpy(&cuda.name, &symbol, sizeof symbol);
	D(cuMemCreate)
	D(cuMemRelease)
	D(cuMemAddressReserve)
	D(cuMemMap)
	D(cuMemSetAccess)
	D(cuMemUnmap)
	D(cuMemExportToShareableHandle)
	D(cuMemImportFromShareableHandle)
#undef D
}

/* -- two processes, which talk over pipes ------------------------------------------------------------------------ */

#define OTHER_IN  200
#define OTHER_OUT 201

static int to_other, from_other;
static pid_t other;

static void start_other(const char *role)
{
	int to[2], from[2];

	assert_int_equal(pipe2(to, O_CLOEXEC) | pipe2(from, O_CLOEXEC), 0);
	other = fork();
	assert_true(other >= 0);
	if (other == 0) {
		dup2(to[0], OTHER_IN);
		dup2(from[1], OTHER_OUT);
		execl("/proc/self/exe", "other", library_path, role, (char *)NULL);
		_exit(92);
	}
	close(to[0]);
	close(from[1]);
	to_other = to[1];
	from_other = from[0];
}

static void send_bytes(int fd, const void *bytes, size_t count)
{
	if (write(fd, bytes, count) != (ssize_t)count)
		exit(93);
}

static void receive_bytes(int fd, void *bytes, size_t count)
{
	if (read(fd, bytes, count) != (ssize_t)count)
		exit(94);
}

static void await_other(void)
{
	char byte;

	receive_bytes(from_other, &byte, 1);
}

static void your_turn(void)
{
	send_bytes(to_other, "g", 1);
	await_other();
}

static void end_other(void)
{
	int status = -1;

	send_bytes(to_other, "e", 1);
	while (waitpid(other, &status, 0) < 0 && errno == EINTR)
		;
	assert_int_equal(status, 0);
	close(to_other);
	close(from_other);
}

static void my_turn_ends(void)
{
	char byte;

	send_bytes(OTHER_OUT, "d", 1);
	receive_bytes(OTHER_IN, &byte, 1);
}

/* In the other process, where cmocka's checks do not work. */
#define CHECK(condition)                                                                                             \
	do {                                                                                                         \
		if (!(condition)) {                                                                                  \
			fprintf(stderr, "other process, line %d: %s\n", __LINE__, #condition);                       \
			exit(1);                                                                                     \
		}                                                                                                    \
	} while (0)

static unsigned char byte_at(const void *memory, size_t offset)
{
	unsigned char byte = 0xee;

	CHECK(cudaMemcpy(&byte, (const char *)memory + offset, 1, cudaMemcpyDeviceToHost) == 0);
	return byte;
}

static void put(void *memory, size_t offset, unsigned char byte)
{
	CHECK(cudaMemcpy((char *)memory + offset, &byte, 1, cudaMemcpyHostToDevice) == 0);
}

/* -- 64 bytes ---------------------------------------------------------------------------------------------------- */

static void other_by_name(void)
{
	cudaIpcHandle_t handle;
	void *memory = NULL;

	receive_bytes(OTHER_IN, &handle, sizeof handle);
	CHECK(cudaIpcOpenMemHandle(&memory, handle, 1) == 0);
	CHECK(byte_at(memory, 5) == 7 && byte_at(memory, 6) == 0 && byte_at(memory, BYTES - 1) == 9);
	put(memory, 6, 11);
	CHECK(cudaMemset((char *)memory + PAGE, 0x33, 5000) == 0);
	my_turn_ends();
	CHECK(byte_at(memory, 5) == 8);                                         /* stored after it was shared */
	CHECK(byte_at(memory, PAGE) == 0x33 && byte_at(memory, PAGE + 1) == 0); /* set to zero there */
	CHECK(byte_at(memory, PAGE + 4097) == 0);
	my_turn_ends();
	CHECK(byte_at(memory, 5) == 8); /* freed there */
	CHECK(cudaIpcCloseMemHandle(memory) == 0);
}

static void what_one_process_stored_the_other_reads(void **unused)
{
	unsigned char data[] = {7}, last = 9;
	cudaIpcHandle_t handle;
	void *memory = NULL;

	(void)unused;
	assert_int_equal(cudaMalloc(&memory, BYTES), 0);
	assert_int_equal(cudaMemcpy((char *)memory + 5, data, 1, cudaMemcpyHostToDevice), 0);
	assert_int_equal(cudaMemcpy((char *)memory + BYTES - 1, &last, 1, cudaMemcpyHostToDevice), 0);
	assert_int_equal(cudaIpcGetMemHandle(&handle, memory), 0);
	start_other("name");
	send_bytes(to_other, &handle, sizeof handle);
	await_other();
	assert_int_equal(byte_at(memory, 5), 7);
	assert_int_equal(byte_at(memory, 6), 11);
	assert_int_equal(byte_at(memory, PAGE + 4999), 0x33);
	assert_int_equal(byte_at(memory, PAGE + 5000), 0);
	put(memory, 5, 8);
	assert_int_equal(cudaMemset((char *)memory + PAGE + 1, 0, 4999), 0);
	your_turn();
	assert_int_equal(cudaFree(memory), 0);
	end_other();
}

/* -- descriptors ------------------------------------------------------------------------------------------------- */

static const CUmemAccessDesc access_all = {{CU_MEM_LOCATION_TYPE_DEVICE, 0}, CU_MEM_ACCESS_FLAGS_PROT_READWRITE};

static char *reserve(void)
{
	CUdeviceptr address = 0;

	CHECK(cuda.cuMemAddressReserve(&address, BYTES, 0, 0, 0) == 0);
	return (char *)(uintptr_t)address;
}

static void map(char *at, CUmemGenericAllocationHandle handle)
{
	CHECK(cuda.cuMemMap((CUdeviceptr)(uintptr_t)at, PAGE, 0, handle, 0) == 0);
	CHECK(cuda.cuMemSetAccess((CUdeviceptr)(uintptr_t)at, PAGE, &access_all, 1) == 0);
}

/* Its range: the first page, the third. */
static void other_by_descriptor(void)
{
	CUmemGenericAllocationHandle handle;
	unsigned char data[20], got[20];
	char *memory;
	int files[2];

	receive_bytes(OTHER_IN, files, sizeof files);
	CHECK(cudaFree(NULL) == 0);
	memory = reserve();
	for (int i = 0; i < 2; i++) {
		CHECK(cuda.cuMemImportFromShareableHandle(&handle, (void *)(intptr_t)files[i], 1) == 0);
		map(memory + i * PAGE, handle);
		close(files[i]);
	}
	CHECK(cudaMemcpy(got, memory + PAGE - 10, 20, cudaMemcpyDeviceToHost) == 0);
	for (int i = 0; i < 10; i++)
		CHECK(got[i] == i + 1 && got[i + 10] == 0);
	CHECK(byte_at(memory, PAGE + 10) == 77);
	memset(data, 0x44, sizeof data);
	CHECK(cudaMemcpy(memory + PAGE - 10, data, 20, cudaMemcpyHostToDevice) == 0);
}

static void a_range_may_be_shared_in_parts(void **unused)
{
	CUmemAllocationProp property = {.type = CU_MEM_ALLOCATION_TYPE_PINNED,
					.requestedHandleTypes = CU_MEM_HANDLE_TYPE_POSIX_FILE_DESCRIPTOR,
					.location = {CU_MEM_LOCATION_TYPE_DEVICE, 0}};
	CUmemGenericAllocationHandle handles[3];
	unsigned char data[20], got[20];
	int files[2];
	char *memory;

	(void)unused;
	assert_int_equal(cudaFree(NULL), 0);
	memory = reserve();
	for (int i = 0; i < 3; i++) {
		assert_int_equal(cuda.cuMemCreate(&handles[i], PAGE, &property, 0), 0);
		map(memory + i * PAGE, handles[i]);
	}
	for (int i = 0; i < 20; i++)
		data[i] = (unsigned char)(i + 1);
	/* Across the end of the first page, before sharing the first and the third page. */
	assert_int_equal(cudaMemcpy(memory + PAGE - 10, data, 20, cudaMemcpyHostToDevice), 0);
	for (int i = 0; i < 2; i++) {
		int fd = -1;

		assert_int_equal(cuda.cuMemExportToShareableHandle(&fd, handles[2 * i], 1, 0), 0);
		files[i] = dup(fd); /* the other process inherits it */
		close(fd);
	}
	put(memory, 2 * PAGE + 10, 77);
	start_other("descriptor");
	send_bytes(to_other, files, sizeof files);
	end_other();
	assert_int_equal(cudaMemcpy(got, memory + PAGE - 10, 20, cudaMemcpyDeviceToHost), 0);
	for (int i = 0; i < 20; i++) /* the second page is this process's own */
		assert_int_equal(got[i], i < 10 ? 0x44 : i + 1);
	assert_int_equal(byte_at(memory, 2 * PAGE + 9), 0x44);
	assert_int_equal(cuda.cuMemUnmap((CUdeviceptr)(uintptr_t)memory, BYTES), 0);
	for (int i = 0; i < 3; i++)
		assert_int_equal(cuda.cuMemRelease(handles[i]), 0);
	close(files[0]);
	close(files[1]);
}

/* -- no backing -------------------------------------------------------------------------------------------------- */

static void other_without_backing(void)
{
	cudaIpcHandle_t handle;
	void *memory = NULL;
	char path[512], line[256] = "";
	FILE *file;

	receive_bytes(OTHER_IN, &handle, sizeof handle);
	CHECK(cudaIpcOpenMemHandle(&memory, handle, 1) == 0);
	CHECK(byte_at(memory, 5) == 0);
	snprintf(path, sizeof path, "%s/simulated.%d", getenv("NEAP_RUN_DIR"), (int)getpid());
	file = fopen(path, "r");
	CHECK(file && fgets(line, sizeof line, file));
	CHECK(strcmp(line, "transfer libcuda cuIpcOpenMemHandle 1 0 0\n") == 0);
	fclose(file);
	CHECK(cudaIpcCloseMemHandle(memory) == 0);
}

/* In a separate process, as one process has one device. */
static void without_backing(void)
{
	cudaIpcHandle_t handle;
	void *memory = NULL;

	setenv("NEAP_SIM", getenv("TEST_UNBACKED"), 1);
	load();
	CHECK(cudaMalloc(&memory, BYTES) == 0);
	put(memory, 5, 7);
	CHECK(cudaIpcGetMemHandle(&handle, memory) == 0);
	start_other("unbacked");
	send_bytes(to_other, &handle, sizeof handle);
	end_other();
	CHECK(byte_at(memory, 5) == 7);
}

static void without_backing_the_tally_says_so(void **unused)
{
	char command[64];

	(void)unused;
	start_other("without");
	end_other();
	snprintf(command, sizeof command, "rm -f %.40s/simulated.*", getenv("NEAP_RUN_DIR"));
	assert_int_equal(system(command), 0);
}

/* -- main -------------------------------------------------------------------------------------------------------- */

static int be_other(const char *role)
{
	if (strcmp(role, "without") == 0) {
		without_backing();
		return 0;
	}
	load();
	if (strcmp(role, "name") == 0)
		other_by_name();
	else if (strcmp(role, "descriptor") == 0)
		other_by_descriptor();
	else
		other_without_backing();
	return 0;
}

int main(int argc, char **argv)
{
	const struct CMUnitTest tests[] = {
		cmocka_unit_test(what_one_process_stored_the_other_reads),
		cmocka_unit_test(a_range_may_be_shared_in_parts),
		cmocka_unit_test(without_backing_the_tally_says_so),
	};
	char spec[128], folder[] = "/tmp/neap-shared-XXXXXX";
	int failed;

	if (argc < 2)
		return 1;
	library_path = argv[1];
	if (argc == 3)
		return be_other(argv[2]);
	if (!mkdtemp(folder))
		return 1;
	setenv("NEAP_RUN_DIR", folder, 1);
	snprintf(spec, sizeof spec, "mem=256MiB,backing=none,world=test-unbacked-%d", (int)getpid());
	setenv("TEST_UNBACKED", spec, 1);
	snprintf(spec, sizeof spec, "mem=256MiB,world=test-shared-%d", (int)getpid());
	setenv("NEAP_SIM", spec, 1);
	unsetenv("CUDA_VISIBLE_DEVICES");
	load();
	failed = cmocka_run_group_tests(tests, NULL, NULL);
	rmdir(folder);
	return failed;
}
