/* libcudart over the simulator, as a compiled program uses it: registration and launches, memory, copies, variables,
 * errors, the driver's entry points. Both sonames: the program's argument is the path of one. */
#include "neap/sim.h"
#include "sim/runtime/api.h"
#include "sim/runtime/services.h"
#include "support/test.h"

#include <dlfcn.h>
#include <limits.h>
#include <pthread.h>
#include <stdio.h>
#include <stdlib.h>
#include <unistd.h>

/* The functions under test, from the library. */
#define FUNCTIONS                                                                                                    \
	F(int, cudaGetDeviceCount, (int *count))                                                                     \
	F(int, cudaSetDevice, (int device))                                                                          \
	F(int, cudaGetDevice, (int *device))                                                                         \
	F(int, cudaRuntimeGetVersion, (int *version))                                                                \
	F(int, cudaMalloc, (void **pointer, size_t bytes))                                                           \
	F(int, cudaFree, (void *pointer))                                                                            \
	F(int, cudaHostAlloc, (void **pointer, size_t bytes, unsigned int flags))                                    \
	F(int, cudaFreeHost, (void *pointer))                                                                        \
	F(int, cudaHostRegister, (void *pointer, size_t bytes, unsigned int flags))                                  \
	F(int, cudaHostUnregister, (void *pointer))                                                                  \
	F(int, cudaPointerGetAttributes, (struct cudaPointerAttributes * attributes, const void *pointer))           \
	F(int, cudaMemGetInfo, (size_t * free_bytes, size_t * total_bytes))                                          \
	F(int, cudaMemcpy, (void *to, const void *from, size_t bytes, int kind))                                     \
	F(int, cudaMemcpy2D,                                                                                         \
	  (void *to, size_t to_pitch, const void *from, size_t from_pitch, size_t width, size_t height, int kind))   \
	F(int, cudaMemset, (void *to, int value, size_t bytes))                                                      \
	F(int, cudaMemcpyToSymbol, (const void *symbol, const void *from, size_t bytes, size_t offset, int kind))    \
	F(int, cudaMemcpyFromSymbol, (void *to, const void *symbol, size_t bytes, size_t offset, int kind))          \
	F(int, cudaGetSymbolAddress, (void **pointer, const void *symbol))                                           \
	F(int, cudaGetLastError, (void))                                                                             \
	F(int, cudaPeekAtLastError, (void))                                                                          \
	F(const char *, cudaGetErrorString, (int error))                                                             \
	F(int, cudaFuncGetAttributes, (void *attributes, const void *kernel))                                        \
	F(int, cudaMemcpyAsync, (void *to, const void *from, size_t bytes, int kind, void *stream))                  \
	F(int, cudaGraphInstantiate, (void **exec, void *graph, unsigned long long flags))                           \
	F(int, cudaGraphLaunch, (void *exec, void *stream))                                                          \
	F(int, cudaGraphExecDestroy, (void *exec))                                                                   \
	F(int, cudaGraphAddEmptyNode, (void **node, void *graph, const void *dependencies, size_t count))            \
	F(int, cudaGraphClone, (void **clone, void *graph))                                                          \
	F(int, cudaStreamCreate, (void **stream))                                                                    \
	F(int, cudaStreamDestroy, (void *stream))                                                                    \
	F(int, cudaStreamBeginCapture, (void *stream, int mode))                                                     \
	F(int, cudaStreamEndCapture, (void *stream, void **graph))                                                   \
	F(int, cudaGraphDestroy, (void *graph))                                                                      \
	F(int, cudaMallocAsync, (void **pointer, size_t bytes, void *stream))                                        \
	F(int, cudaFreeAsync, (void *pointer, void *stream))                                                         \
	F(const char *, cudaGetErrorName, (int error))                                                               \
	F(int, cudaDeviceSynchronize, (void))                                                                        \
	F(int, cudaMallocArray, (void **array, const void *format, size_t width, size_t height, unsigned int flags)) \
	F(int, cudaGetDriverEntryPointByVersion,                                                                     \
	  (const char *symbol, void **function, unsigned int version, unsigned long long flags, int *status))        \
	F(int, cudaLaunchKernel,                                                                                     \
	  (const void *kernel, dim3 grid, dim3 block, void **arguments, size_t shared_bytes, void *stream))          \
	F(int, cudaFuncGetName, (const char **name, const void *kernel))                                             \
	F(const struct neap_sim_values *, neap_sim_get_values, (void))                                               \
	F(void **, __cudaRegisterFatBinary, (void *binary))                                                          \
	F(void, __cudaUnregisterFatBinary, (void **handle))                                                          \
	F(void, __cudaRegisterFunction,                                                                              \
	  (void **handle, const char *host, char *device, const char *name, int thread_limit, void *thread,          \
	   void *block, dim3 *block_size, dim3 *grid_size, int *warp_size))                                          \
	F(void, __cudaRegisterVar,                                                                                   \
	  (void **handle, char *host, char *device, const char *name, int external, size_t bytes, int constant,      \
	   int global))                                                                                              \
	F(unsigned int, __cudaPushCallConfiguration, (dim3 grid, dim3 block, size_t shared_bytes, void *stream))     \
	F(int, __cudaPopCallConfiguration, (dim3 * grid, dim3 * block, size_t * shared_bytes, void *stream))

#define F(type, name, parameters) static type(*name) parameters;
FUNCTIONS
#undef F

static void *library;
static const char *library_path;

static void load(void)
{
	library = dlopen(library_path, RTLD_NOW | RTLD_GLOBAL);
	if (!library) {
		fprintf(stderr, "%s\n", dlerror());
		exit(1);
	}
#define F(type, name, parameters)                                                                                    \
	{                                                                                                            \
		void *symbol = dlsym(library, #name);                                                                \
                                                                                                                     \
		assert_non_null(symbol);                                                                             \
		memcpy(&name, &symbol, sizeof symbol);                                                               \
	}
	FUNCTIONS
#undef F
}

#define TO_DEVICE 1
#define TO_HOST   2
#define ON_DEVICE 3
#define EITHER    4

static void devices(void **unused)
{
	int count = 0, device = 7, version = 0;

	(void)unused;
	assert_int_equal(cudaGetDeviceCount(&count), 0);
	assert_int_equal(count, 2);
	assert_int_equal(cudaGetDevice(&device), 0);
	assert_int_equal(device, 0);
	assert_int_equal(cudaSetDevice(2), 101);
	assert_int_equal(cudaGetLastError(), 101);
	assert_int_equal(cudaSetDevice(1), 0);
	assert_int_equal(cudaGetDevice(&device), 0);
	assert_int_equal(device, 1);
	assert_int_equal(cudaSetDevice(0), 0);
	assert_int_equal(cudaRuntimeGetVersion(&version), 0);
	assert_int_equal(version / 1000, strstr(library_path, ".so.12") ? 12 : 13);
}

static void memory_is_the_devices(void **unused)
{
	size_t before, after, total;
	void *pointer = NULL;

	(void)unused;
	assert_int_equal(cudaMemGetInfo(&before, &total), 0);
	assert_int_equal(cudaMalloc(&pointer, 4 << 20), 0);
	assert_int_equal(cudaMemGetInfo(&after, &total), 0);
	assert_int_equal(before - after, 4 << 20);
	assert_int_equal(cudaFree(pointer), 0);
	assert_int_equal(cudaMemGetInfo(&after, &total), 0);
	assert_int_equal(before, after);
	assert_int_equal(cudaMalloc(&pointer, total), 2);
	assert_int_equal(cudaPeekAtLastError(), 2);
	assert_string_equal(cudaGetErrorName(cudaGetLastError()), "cudaErrorMemoryAllocation");
	assert_int_equal(cudaGetLastError(), 0); /* asked for once */
	assert_int_equal(cudaFree((char *)NULL + 4096), 1);
	(void)cudaGetLastError();
}

static void copies_bring_back_what_was_sent(void **unused)
{
	char sent[1000], got[1000], zeros[1000] = {0};
	void *pointer = NULL, *other = NULL;
	size_t i;

	(void)unused;
	for (i = 0; i < sizeof sent; i++)
		sent[i] = (char)(i * 7);
	assert_int_equal(cudaMalloc(&pointer, 4096), 0);
	assert_int_equal(cudaMalloc(&other, 4096), 0);
	memset(got, 1, sizeof got);
	assert_int_equal(cudaMemcpy(got, pointer, sizeof got, TO_HOST), 0);
	assert_memory_equal(got, zeros, sizeof got); /* never stored */
	assert_int_equal(cudaMemcpy((char *)pointer + 100, sent, sizeof sent, TO_DEVICE), 0);
	assert_int_equal(cudaMemcpy(other, (char *)pointer + 100, sizeof sent, EITHER), 0);
	assert_int_equal(cudaMemcpy(got, other, sizeof got, EITHER), 0);
	assert_memory_equal(got, sent, sizeof got);
	assert_int_equal(cudaMemset(other, 3, 10), 0);
	assert_int_equal(cudaMemcpy(got, other, 11, TO_HOST), 0);
	assert_int_equal(got[9], 3);
	assert_int_equal(got[10], sent[10]);
	assert_int_equal(cudaMemcpy(got, other, 4, 9), 21);       /* no such direction */
	assert_int_equal(cudaMemcpy(got, sent, 4, TO_DEVICE), 1); /* not the device's */
	assert_int_equal(cudaMemcpy(NULL, sent, 4, TO_DEVICE), 1);
	(void)cudaGetLastError();
	assert_int_equal(cudaFree(pointer), 0);
	assert_int_equal(cudaFree(other), 0);
}

/* The next owner of an address does not see the bytes of the last one. */
static void freed_memory_is_forgotten(void **unused)
{
	const struct runtime_services *services = runtime_services();
	void *pointer = NULL;

	(void)unused;
	assert_non_null(services);
	assert_int_equal(cudaMalloc(&pointer, 4096), 0);
	assert_int_equal(cudaMemcpy(pointer, "secret", 6, TO_DEVICE), 0);
	assert_true(services->holds((uint64_t)(uintptr_t)pointer, 6));
	assert_int_equal(cudaFree(pointer), 0);
	assert_false(services->holds((uint64_t)(uintptr_t)pointer, 6));
}

/* Memory that a blind call writes is computed next. */
static void a_blind_thread_forgets_nothing(void **unused)
{
	const struct neap_sim_values *values = neap_sim_get_values();
	void *pointer = NULL;
	char got[6] = "";

	(void)unused;
	assert_int_equal(cudaMalloc(&pointer, 4096), 0);
	assert_int_equal(cudaMemcpy(pointer, "values", 6, TO_DEVICE), 0);
	(void)values->blind(1);
	runtime_services()->forget((uint64_t)(uintptr_t)pointer, 4096);
	(void)values->blind(0);
	assert_int_equal(cudaMemcpy(got, pointer, 6, TO_HOST), 0);
	assert_memory_equal(got, "values", 6);
	runtime_services()->forget((uint64_t)(uintptr_t)pointer, 4096);
	assert_int_equal(cudaMemcpy(got, pointer, 6, TO_HOST), 0);
	assert_memory_equal(got, "\0\0\0\0\0", 6);
	assert_int_equal(cudaFree(pointer), 0);
}

static void rows_have_pitches(void **unused)
{
	char sent[] = "abcXdefXghiX", got[9];
	void *pointer = NULL;

	(void)unused;
	assert_int_equal(cudaMalloc(&pointer, 4096), 0);
	assert_int_equal(cudaMemcpy2D(pointer, 512, sent, 4, 3, 3, TO_DEVICE), 0);
	assert_int_equal(cudaMemcpy2D(got, 3, pointer, 512, 3, 3, TO_HOST), 0);
	assert_memory_equal(got, "abcdefghi", 9);
	assert_int_equal(cudaMemcpy2D(got, 2, pointer, 512, 3, 3, TO_HOST), 12); /* a row is wider than its pitch */
	(void)cudaGetLastError();
	assert_int_equal(cudaFree(pointer), 0);
}

/* A program asks whether a pointer is pinned: memory that no device knows is not pinned, and belongs to no device. */
static void pointers_have_types(void **unused)
{
	struct cudaPointerAttributes attributes = {.type = 77, .device = 77};
	void *pointer = NULL;
	char *pages = aligned_alloc(4096, 8192);

	(void)unused;
	assert_non_null(pages);
	assert_int_equal(cudaPointerGetAttributes(&attributes, pages), 0);
	assert_int_equal(attributes.type, cudaMemoryTypeUnregistered);
	assert_int_equal(attributes.device, -2);
	assert_null(attributes.devicePointer);
	assert_ptr_equal(attributes.hostPointer, pages);
	assert_int_equal(cudaHostRegister(pages, 8192, 0), 0);
	assert_int_equal(cudaPointerGetAttributes(&attributes, pages + 1), 0);
	assert_int_equal(attributes.type, cudaMemoryTypeHost);
	assert_int_equal(attributes.device, 0);
	assert_ptr_equal(attributes.devicePointer, pages + 1);
	assert_int_equal(cudaMemset(pages, 5, 8192), 0);
	assert_int_equal(cudaDeviceSynchronize(), 0);
	assert_int_equal(pages[8191], 5);
	assert_int_equal(cudaHostUnregister(pages), 0);
	assert_int_equal(cudaPointerGetAttributes(&attributes, pages), 0);
	assert_int_equal(attributes.type, cudaMemoryTypeUnregistered);
	free(pages);
	assert_int_equal(cudaMalloc(&pointer, 4096), 0);
	assert_int_equal(cudaPointerGetAttributes(&attributes, pointer), 0);
	assert_int_equal(attributes.type, cudaMemoryTypeDevice);
	assert_null(attributes.hostPointer);
	/* A device's address cannot be registered as host memory, neither while it is allocated nor after that. */
	assert_int_equal(cudaHostRegister(pointer, 4096, 0), 1);
	assert_int_equal(cudaFree(pointer), 0);
	assert_int_equal(cudaHostRegister(pointer, 4096, 0), 1);
	assert_int_equal(cudaMemset(pointer, 1, 4096), 1);
	assert_int_equal(cudaGetLastError(), 1);
}

static char kernel_stub, variable_stub;
static void *stranger[3];

static void registered_kernels_launch(void **unused)
{
	void **handle = __cudaRegisterFatBinary(stranger);
	dim3 one = {1, 1, 1}, large = {2048, 1, 1}, grid, block;
	const char *name = NULL;
	size_t shared_bytes = 0;
	void *stream = NULL;
	struct cudaFuncAttributes attributes;

	(void)unused;
	__cudaRegisterFunction(handle, &kernel_stub, NULL, "kernel(int)", -1, NULL, NULL, NULL, NULL, NULL);
	assert_int_equal(cudaFuncGetName(&name, &kernel_stub), 0);
	assert_string_equal(name, "kernel(int)");
	assert_int_equal(__cudaPushCallConfiguration(large, one, 48, &stranger), 0);
	assert_int_equal(__cudaPopCallConfiguration(&grid, &block, &shared_bytes, &stream), 0);
	assert_int_equal(grid.x, 2048);
	assert_int_equal(shared_bytes, 48);
	assert_ptr_equal(stream, &stranger);
	assert_int_equal(__cudaPopCallConfiguration(&grid, &block, &shared_bytes, &stream), 52);
	assert_int_equal(cudaLaunchKernel(&kernel_stub, large, one, NULL, 0, NULL), 0);
	assert_int_equal(cudaLaunchKernel(&kernel_stub, one, large, NULL, 0, NULL), 9); /* too many threads */
	assert_int_equal(cudaFuncGetAttributes(&attributes, &kernel_stub), 0);
	assert_int_equal(attributes.numRegs, 32); /* of any kernel */
	assert_int_equal(attributes.sharedSizeBytes + attributes.localSizeBytes, 0);
	assert_int_equal(cudaLaunchKernel(&stranger, one, one, NULL, 0, NULL), 98);
	assert_int_equal(cudaLaunchKernel(&kernel_stub, one, one, NULL, 0, &stranger), 400); /* no stream */
	(void)cudaGetLastError();
	__cudaUnregisterFatBinary(handle);
}

/* The whole file NEAP_RUN_DIR/code.PID. */
static void read_code(char *text, size_t capacity)
{
	char path[256];
	FILE *file;
	size_t length;

	snprintf(path, sizeof path, "%s/code.%d", getenv("NEAP_RUN_DIR"), (int)getpid());
	file = fopen(path, "r");
	assert_non_null(file);
	length = fread(text, 1, capacity - 1, file);
	text[length] = '\0';
	fclose(file);
}

/* Under `neap estimate`: where the code of each used kernel is. */
static void used_kernels_are_named(void **unused)
{
	static const char image[] = "a fat binary";
	static struct {
		unsigned int magic, version;
		const void *data, *more;
	} wrapper = {0x466243b1, 1, image, NULL};
	static char used, another;
	void **handle = __cudaRegisterFatBinary(&wrapper);
	char line[2 * PATH_MAX], module[2 * PATH_MAX], text[16384], self[PATH_MAX];
	dim3 one = {1, 1, 1};
	Dl_info info;

	(void)unused;
	__cudaRegisterFunction(handle, &used, NULL, "used", -1, NULL, NULL, NULL, NULL, NULL);
	__cudaRegisterFunction(handle, &another, NULL, "another", -1, NULL, NULL, NULL, NULL, NULL);
	assert_int_equal(cudaLaunchKernel(&used, one, one, NULL, 0, NULL), 0);
	assert_int_equal(cudaLaunchKernel(&used, one, one, NULL, 0, NULL), 0);
	setenv("CUDA_MODULE_LOADING", "EAGER", 1);
	__cudaUnregisterFatBinary(__cudaRegisterFatBinary(&wrapper));
	unsetenv("CUDA_MODULE_LOADING");
	__cudaUnregisterFatBinary(handle);

	assert_int_not_equal(dladdr(image, &info), 0);
	assert_non_null(realpath("/proc/self/exe", self));
	snprintf(line, sizeof line, "\nkernel %llx %s\tused\n",
		 (unsigned long long)(image - (const char *)info.dli_fbase), self);
	snprintf(module, sizeof module, "\nmodule %llx %s\n",
		 (unsigned long long)(image - (const char *)info.dli_fbase), self);
	read_code(text, sizeof text);
	assert_int_equal(strncmp(text, "device 90\nkernel 0 -\tkernel(int)\n", 33), 0);
	assert_non_null(strstr(text, line));
	assert_null(strstr(strstr(text, "\tused\n") + 1, "\tused\n"));
	assert_null(strstr(text, "another"));
	assert_non_null(strstr(text, module));
	snprintf(line, sizeof line, "%s/code.%d", getenv("NEAP_RUN_DIR"), (int)getpid());
	unlink(line);
}

static void variables_hold_what_is_copied(void **unused)
{
	void **handle = __cudaRegisterFatBinary(stranger);
	void *address = NULL;
	char got[4];

	(void)unused;
	__cudaRegisterVar(handle, &variable_stub, NULL, "variable", 0, 8, 0, 0);
	assert_int_equal(cudaMemcpyToSymbol(&variable_stub, "abcd", 4, 4, TO_DEVICE), 0);
	assert_int_equal(cudaMemcpyFromSymbol(got, &variable_stub, 4, 4, TO_HOST), 0);
	assert_memory_equal(got, "abcd", 4);
	assert_int_equal(cudaGetSymbolAddress(&address, &variable_stub), 0);
	assert_int_equal(cudaMemcpy(got, (char *)address + 5, 3, TO_HOST), 0);
	assert_memory_equal(got, "bcd", 3);
	assert_int_equal(cudaMemcpyToSymbol(&variable_stub, "abcd", 4, 5, TO_DEVICE), 1); /* beyond its end */
	assert_int_equal(cudaMemcpyToSymbol(&stranger, "abcd", 4, 0, TO_DEVICE), 13);
	(void)cudaGetLastError();
	__cudaUnregisterFatBinary(handle);
}

static void *fails_alone(void *unused)
{
	(void)unused;
	(void)cudaSetDevice(99);
	return (void *)(intptr_t)cudaPeekAtLastError();
}

static void errors_are_the_threads(void **unused)
{
	pthread_t thread;
	void *error = NULL;

	(void)unused;
	assert_int_equal(cudaGetLastError(), 0);
	assert_int_equal(pthread_create(&thread, NULL, fails_alone, NULL), 0);
	pthread_join(thread, &error);
	assert_int_equal((int)(intptr_t)error, 101);
	assert_int_equal(cudaPeekAtLastError(), 0);
}

/* A driver function, as a program gets it from the runtime. */
static void find_driver(const char *name, unsigned int version, void *ret_function)
{
	void *function = NULL;
	int status = -1;

	assert_int_equal(cudaGetDriverEntryPointByVersion(name, &function, version, 0, &status), 0);
	assert_non_null(function);
	memcpy(ret_function, &function, sizeof function);
}

static void *allocates_in_its_own(void *ret_owner)
{
	CUresult (*create)(CUcontext * context, unsigned int flags, CUdevice device);
	CUresult (*destroy)(CUcontext context);
	CUresult (*get)(void *data, CUpointer_attribute attribute, CUdeviceptr address);
	CUcontext context, owner = NULL;
	void *address = NULL;
	int device = -1;

	find_driver("cuCtxCreate", 4000, &create);
	find_driver("cuCtxDestroy", 4000, &destroy);
	find_driver("cuPointerGetAttribute", 4000, &get);
	assert_int_equal(create(&context, 0, 1), 0);
	assert_int_equal(cudaMalloc(&address, 100), 0);
	assert_int_equal(get(&owner, CU_POINTER_ATTRIBUTE_CONTEXT, (CUdeviceptr)(uintptr_t)address), 0);
	*(bool *)ret_owner = owner == context && !cudaGetDevice(&device) && device == 1;
	assert_int_equal(destroy(context), 0);
	return (void *)(intptr_t)cudaMalloc(&address, 100); /* nothing is current any more */
}

static void a_context_of_the_program_is_worked_in(void **unused)
{
	pthread_t thread;
	bool own = false;
	void *after;

	(void)unused;
	assert_int_equal(pthread_create(&thread, NULL, allocates_in_its_own, &own), 0);
	pthread_join(thread, &after);
	assert_true(own);
	assert_int_equal((intptr_t)after, 201);
}

static void what_is_not_there_is_refused(void **unused)
{
	void *function = NULL;
	int status = -1;

	(void)unused;
	assert_int_equal(cudaMallocArray(&function, NULL, 1, 1, 0), 801);
	assert_int_equal(cudaGetLastError(), 801);
	assert_int_equal(cudaGetDriverEntryPointByVersion("cuMemCreate", &function, 12000, 0, &status), 0);
	assert_non_null(function);
	assert_int_equal(status, 0);
	assert_int_equal(cudaGetDriverEntryPointByVersion("cuNoSuchThing", &function, 12000, 0, &status), 0);
	assert_int_equal(status, 1);
	assert_null(dlsym(library, "cudaGetExportTable")); /* no private tables */
}

/* A copy in a capture becomes a node that moves nothing: its destination reads as zeros. Programs compiled for a null
 * stream per thread get the same functions. */
static void a_copy_in_a_graph_moves_nothing(void **unused)
{
	void *stream = NULL, *graph = NULL, *exec = NULL, *from = NULL, *to = NULL, *host = NULL, *other;
	char byte = 5;

	(void)unused;
	assert_int_equal(cudaStreamCreate(&stream), 0);
	assert_int_equal(cudaMalloc(&from, 100), 0);
	assert_int_equal(cudaMalloc(&to, 100), 0);
	assert_int_equal(cudaMemcpy(from, &byte, 1, TO_DEVICE), 0);
	assert_int_equal(cudaMemcpy(to, &byte, 1, TO_DEVICE), 0);
	assert_int_equal(cudaHostAlloc(&host, 1, 0), 0);
	assert_int_equal(cudaMemcpyAsync(host, from, 1, TO_HOST, stream), 0);
	assert_int_equal(*(char *)host, 5); /* at the call, outside of a capture */
	assert_int_equal(cudaFreeHost(host), 0);
	assert_int_equal(cudaStreamBeginCapture(stream, 0), 0);
	assert_int_equal(cudaMemcpyAsync(to, from, 100, ON_DEVICE, stream), 0);
	assert_int_equal(cudaStreamEndCapture(stream, &graph), 0);
	assert_int_equal(cudaGraphInstantiate(&exec, graph, 0), 0);
	assert_int_equal(cudaGraphLaunch(exec, stream), 0);
	assert_int_equal(cudaMemcpy(&byte, to, 1, TO_HOST), 0);
	assert_int_equal(byte, 0);
	assert_int_equal(cudaGraphAddEmptyNode(&other, graph, NULL, 0), 801); /* graphs come from captures */
	assert_int_equal(cudaGraphClone(&other, graph), 801);
	assert_int_equal(cudaGetLastError(), 801);
	assert_int_equal(cudaGraphExecDestroy(exec), 0);
	assert_int_equal(cudaGraphDestroy(graph), 0);
	assert_int_equal(cudaFree(from), 0);
	assert_int_equal(cudaFree(to), 0);
	assert_int_equal(cudaStreamDestroy(stream), 0);
	assert_non_null(dlsym(library, "cudaMemcpyAsync_ptsz"));
	assert_ptr_equal(dlsym(library, "cudaMemcpyAsync_ptsz"), dlsym(library, "cudaMemcpyAsync"));
}

/* No memory nodes: the error gives this reason, and existing memory keeps its bytes. */
static void a_pool_is_refused_in_a_capture(void **unused)
{
	void *stream = NULL, *graph = NULL, *memory = NULL, *other = NULL;
	char byte = 5;

	(void)unused;
	assert_int_equal(cudaStreamCreate(&stream), 0);
	assert_int_equal(cudaMallocAsync(&memory, 100, stream), 0);
	assert_int_equal(cudaMemcpy(memory, &byte, 1, TO_DEVICE), 0);
	assert_int_equal(cudaStreamBeginCapture(stream, 0), 0);
	assert_int_equal(cudaMallocAsync(&other, 100, stream), 801);
	assert_non_null(strstr(cudaGetErrorString(801), "no memory nodes"));
	assert_int_equal(cudaFreeAsync(memory, stream), 801);
	assert_int_equal(cudaStreamEndCapture(stream, &graph), 0);
	assert_int_equal(cudaGraphDestroy(graph), 0);
	assert_int_equal(cudaMallocArray(&other, NULL, 1, 1, 0), 801);
	assert_string_equal(cudaGetErrorString(801), "operation not supported"); /* another one */
	assert_int_equal(cudaGetLastError(), 801);
	byte = 0;
	assert_int_equal(cudaMemcpy(&byte, memory, 1, TO_HOST), 0);
	assert_int_equal(byte, 5);
	assert_int_equal(cudaFreeAsync(memory, stream), 0);
	assert_int_equal(cudaStreamDestroy(stream), 0);
}

/* The refused call above and others are in the file that `neap run` reads. */
static void the_tally_is_written(void **unused)
{
	char path[512], line[256];
	bool found = false, in_capture = false;
	FILE *file;

	(void)unused;
	snprintf(path, sizeof path, "%s/simulated.%d", getenv("NEAP_RUN_DIR"), (int)getpid());
	file = fopen(path, "r");
	assert_non_null(file);
	while (fgets(line, sizeof line, file)) {
		found = found || strcmp(line, "refused cudart cudaMallocArray 1 0 0\n") == 0;
		in_capture = in_capture || strcmp(line, "refused cudart cudaMallocAsync(capture) 1 0 0\n") == 0;
	}
	fclose(file);
	unlink(path);
	assert_true(found);
	assert_true(in_capture);
}

int main(int argc, char **argv)
{
	const struct CMUnitTest tests[] = {
		cmocka_unit_test(a_context_of_the_program_is_worked_in), /* before there are primary ones */
		cmocka_unit_test(devices),
		cmocka_unit_test(memory_is_the_devices),
		cmocka_unit_test(copies_bring_back_what_was_sent),
		cmocka_unit_test(freed_memory_is_forgotten),
		cmocka_unit_test(a_blind_thread_forgets_nothing),
		cmocka_unit_test(rows_have_pitches),
		cmocka_unit_test(pointers_have_types),
		cmocka_unit_test(registered_kernels_launch),
		cmocka_unit_test(used_kernels_are_named),
		cmocka_unit_test(variables_hold_what_is_copied),
		cmocka_unit_test(errors_are_the_threads),
		cmocka_unit_test(what_is_not_there_is_refused),
		cmocka_unit_test(a_copy_in_a_graph_moves_nothing),
		cmocka_unit_test(a_pool_is_refused_in_a_capture),
		cmocka_unit_test(the_tally_is_written),
	};
	char spec[128], folder[] = "/tmp/neap-cudart-XXXXXX";
	int failed;

	if (argc != 2 || !mkdtemp(folder))
		return 1;
	library_path = argv[1];
	snprintf(spec, sizeof spec, "mem=256MiB,gpus=2,world=test-cudart-%d", (int)getpid());
	setenv("NEAP_SIM", spec, 1);
	setenv("NEAP_RUN_DIR", folder, 1);
	setenv("NEAP_ESTIMATE", "1", 1); /* a file of used kernels, and one of the driver's peaks */
	unsetenv("CUDA_MODULE_LOADING");
	unsetenv("CUDA_VISIBLE_DEVICES");
	load();
	failed = cmocka_run_group_tests(tests, NULL, NULL);
	snprintf(spec, sizeof spec, "%s/driver.%d", folder, (int)getpid());
	unlink(spec);
	rmdir(folder);
	return failed;
}
