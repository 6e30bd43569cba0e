/* Kernels and variables that a compiled program registers, and launches.
 *
 * Static constructors compiled by nvcc call these entry points: __cudaRegisterFatBinary for each object file, and
 * __cudaRegisterFunction for each kernel (PyTorch: tens of thousands). A launch calls __cudaPushCallConfiguration and
 * __cudaPopCallConfiguration. The address of its host stub identifies a kernel. A launch queues work that does
 * nothing.
 */
#include "base/map.h"
#include "sim/runtime/code.h"
#include "sim/runtime/extension.h"
#include "sim/runtime/runtime.h"

#include <pthread.h>
#include <stdlib.h>
#include <string.h>
#include <sys/mman.h>

/* Room for all registered variables: simulated addresses, no memory. */
#define VARIABLE_CAPACITY (1ull << 30)
#define VARIABLE_ALIGN    256

#define KERNELS_AT_ONCE 256

/* An object file, by its handle. */
struct binary {
	const void *code;                /* the fat binary; NULL: not known */
	char library[EXTENSION_LIBRARY]; /* if its kernels are counted: the short name; else "" */
};

struct variable {
	uint64_t address;
	size_t bytes;
};

static struct {
	pthread_mutex_t lock;
	struct neap_map kernels;    /* host stub -> struct code_kernel, kept to the end */
	struct code_kernel *unused; /* free entries of the last array that was allocated */
	size_t unused_count;
	struct neap_map extensions; /* host stub -> struct extension_kernel, kept to the end: the tally names it */
	bool has_extensions;
	struct neap_map variables; /* host variable -> struct variable */
	uint64_t area, used;       /* of the variables' addresses */
} registered = {.lock = PTHREAD_MUTEX_INITIALIZER};

NEAP_API void **__cudaRegisterFatBinary(void *binary);
NEAP_API void __cudaRegisterFatBinaryEnd(void **handle);
NEAP_API void __cudaUnregisterFatBinary(void **handle);
NEAP_API char __cudaInitModule(void **handle);
NEAP_API void __cudaRegisterFunction(void **handle, const char *host, char *device, const char *name,
				     int thread_limit, void *thread, void *block, dim3 *block_size, dim3 *grid_size,
				     int *warp_size);
NEAP_API void __cudaRegisterVar(void **handle, char *host, char *device, const char *name, int external, size_t bytes,
				int constant, int global);
NEAP_API unsigned int __cudaPushCallConfiguration(dim3 grid, dim3 block, size_t shared_bytes, CUstream stream);

void **__cudaRegisterFatBinary(void *binary)
{
	struct binary *handle = calloc(1, sizeof *handle);

	if (handle) {
		handle->code = code_binary(binary);
		(void)extension_library(binary, handle->library);
		code_registered(handle->code);
	}
	return (void **)(void *)handle;
}

void __cudaRegisterFatBinaryEnd(void **handle) { (void)handle; }
void __cudaUnregisterFatBinary(void **handle) { free(handle); }
char __cudaInitModule(void **handle) { return handle != NULL; }

/* Adds an extension's kernel, to count its launches. If the host is out of memory, they are not counted. Lock
 * held. */
static void add_extension(const char *library, const char *host, const char *name)
{
	struct extension_kernel *kernel = calloc(1, sizeof *kernel);

	if (!kernel)
		return;
	strcpy(kernel->library, library);
	extension_kernel_name(name, kernel->name);
	if (neap_map_put(&registered.extensions, (uint64_t)(uintptr_t)host, (uint64_t)(uintptr_t)kernel))
		__atomic_store_n(&registered.has_extensions, true, __ATOMIC_RELAXED);
	else
		free(kernel);
}

/* If the host is out of memory, the kernel stays unregistered, and its use is an error. Lock held. */
static void add_kernel(const struct binary *binary, const char *host, const char *name)
{
	struct code_kernel *kernel;

	if (registered.unused_count == 0) {
		registered.unused = calloc(KERNELS_AT_ONCE, sizeof *kernel);
		registered.unused_count = registered.unused ? KERNELS_AT_ONCE : 0;
	}
	if (registered.unused_count == 0)
		return;
	kernel = registered.unused;
	kernel->name = name;
	kernel->binary = binary ? binary->code : NULL;
	if (neap_map_put(&registered.kernels, (uint64_t)(uintptr_t)host, (uint64_t)(uintptr_t)kernel)) {
		registered.unused++;
		registered.unused_count--;
	}
}

void __cudaRegisterFunction(void **handle, const char *host, char *device, const char *name, int thread_limit,
			    void *thread, void *block, dim3 *block_size, dim3 *grid_size, int *warp_size)
{
	const struct binary *binary = (const void *)handle;

	(void)device, (void)thread_limit, (void)thread, (void)block;
	(void)block_size, (void)grid_size, (void)warp_size;
	pthread_mutex_lock(&registered.lock);
	add_kernel(binary, host, name);
	if (binary && *binary->library)
		add_extension(binary->library, host, name);
	pthread_mutex_unlock(&registered.lock);
}

/* Takes addresses for a variable. 0: none are left. Lock held. */
static uint64_t take_address(size_t bytes)
{
	uint64_t address;

	if (registered.area == 0) {
		void *area =
			mmap(NULL, VARIABLE_CAPACITY, PROT_NONE, MAP_PRIVATE | MAP_ANONYMOUS | MAP_NORESERVE, -1, 0);

		if (area == MAP_FAILED)
			return 0;
		registered.area = (uint64_t)(uintptr_t)area;
	}
	address = registered.area + registered.used;
	bytes = (bytes + VARIABLE_ALIGN - 1) / VARIABLE_ALIGN * VARIABLE_ALIGN;
	if (bytes > VARIABLE_CAPACITY - registered.used)
		return 0;
	registered.used += bytes;
	return address;
}

void __cudaRegisterVar(void **handle, char *host, char *device, const char *name, int external, size_t bytes,
		       int constant, int global)
{
	struct variable *variable = malloc(sizeof *variable);

	(void)handle, (void)device, (void)name, (void)external, (void)constant, (void)global;
	if (!variable)
		return;
	pthread_mutex_lock(&registered.lock);
	*variable = (struct variable){take_address(bytes), bytes};
	if (!variable->address ||
	    !neap_map_put(&registered.variables, (uint64_t)(uintptr_t)host, (uint64_t)(uintptr_t)variable))
		free(variable); /* it stays unregistered, and its use is an error */
	pthread_mutex_unlock(&registered.lock);
}

int runtime_symbol(const void *symbol, uint64_t *ret_address, size_t *ret_bytes)
{
	uint64_t value;
	bool found;

	pthread_mutex_lock(&registered.lock);
	found = neap_map_get(&registered.variables, (uint64_t)(uintptr_t)symbol, &value);
	pthread_mutex_unlock(&registered.lock);
	if (!found)
		return cudaErrorInvalidSymbol;
	*ret_address = ((struct variable *)(uintptr_t)value)->address;
	*ret_bytes = ((struct variable *)(uintptr_t)value)->bytes;
	return CUDA_SUCCESS;
}

bool runtime_is_variable(const void *pointer)
{
	uint64_t area = __atomic_load_n(&registered.area, __ATOMIC_RELAXED);

	return area && (uint64_t)(uintptr_t)pointer - area < VARIABLE_CAPACITY;
}

int runtime_cudaGetSymbolAddress(void **pointer, const void *symbol)
{
	uint64_t address;
	size_t bytes;
	int result = runtime_symbol(symbol, &address, &bytes);

	if (result == CUDA_SUCCESS)
		*pointer = (void *)(uintptr_t)address;
	return result;
}

int runtime_cudaGetSymbolSize(size_t *bytes, const void *symbol)
{
	uint64_t address;

	return runtime_symbol(symbol, &address, bytes);
}

/* Returns the name of a kernel that the caller uses; NULL: it is not registered. */
static const char *kernel_name(const void *kernel)
{
	struct code_kernel *known;
	uint64_t found_at = 0;
	bool found;

	pthread_mutex_lock(&registered.lock);
	found = neap_map_get(&registered.kernels, (uint64_t)(uintptr_t)kernel, &found_at);
	pthread_mutex_unlock(&registered.lock);
	if (!found)
		return NULL;
	known = (struct code_kernel *)(uintptr_t)found_at;
	code_used(known);
	return known->name;
}

/* -- launches ---------------------------------------------------------------------------------------------------- */

int runtime_launch(CUstream stream, const char *name, uint64_t duration_ns)
{
	struct neap_sim_kernel kernel = {.name = name, .duration_ns = duration_ns};

	return runtime_sim->launch(stream, &kernel);
}

/* Limits that every device checks at a launch. */
static bool launchable(dim3 grid, dim3 block)
{
	uint64_t threads = (uint64_t)block.x * block.y * block.z;

	return grid.x && grid.y && grid.z && threads > 0 && threads <= 1024 && grid.x <= 0x7fffffffu &&
	       grid.y <= 65535 && grid.z <= 65535 && block.z <= 64;
}

/* Counts the launch of an extension's kernel. Its results are unknown. */
static void count_extension(const void *kernel, const char *symbol, void **arguments)
{
	uint64_t found = 0;

	if (!__atomic_load_n(&registered.has_extensions, __ATOMIC_RELAXED))
		return;
	pthread_mutex_lock(&registered.lock);
	if (!neap_map_get(&registered.extensions, (uint64_t)(uintptr_t)kernel, &found))
		found = 0;
	pthread_mutex_unlock(&registered.lock);
	if (found) {
		const struct extension_kernel *extension = (const struct extension_kernel *)(uintptr_t)found;

		tally_count(GAP_KERNEL, extension->library, extension->name, 0, 0);
		values_launched(symbol, arguments);
	}
}

int runtime_cudaLaunchKernel(const void *kernel, dim3 grid, dim3 block, void **arguments, size_t shared_bytes,
			     CUstream stream)
{
	const char *name = kernel_name(kernel);
	int result = runtime_ready();

	(void)shared_bytes;
	if (result != CUDA_SUCCESS)
		return result;
	if (!name)
		return cudaErrorInvalidDeviceFunction;
	if (!launchable(grid, block))
		return cudaErrorInvalidConfiguration;
	count_extension(kernel, name, arguments);
	return runtime_launch(stream, name, 0);
}

int runtime_cudaLaunchCooperativeKernel(const void *kernel, dim3 grid, dim3 block, void **arguments,
					size_t shared_bytes, CUstream stream)
{
	return runtime_cudaLaunchKernel(kernel, grid, block, arguments, shared_bytes, stream);
}

int runtime_cudaLaunchKernelExC(const cudaLaunchConfig_t *config, const void *kernel, void **arguments)
{
	if (!config)
		return CUDA_ERROR_INVALID_VALUE;
	return runtime_cudaLaunchKernel(kernel, config->gridDim, config->blockDim, arguments,
					config->dynamicSmemBytes, config->stream);
}

/* Since CUDA 12 a kernel also has a handle: here its stub. */
int runtime___cudaGetKernel(void **handle, const void *kernel)
{
	if (!handle)
		return CUDA_ERROR_INVALID_VALUE;
	if (!kernel_name(kernel))
		return cudaErrorInvalidDeviceFunction;
	*handle = (void *)(uintptr_t)kernel;
	return CUDA_SUCCESS;
}

int runtime___cudaLaunchKernel(const void *kernel, dim3 grid, dim3 block, void **arguments, size_t shared_bytes,
			       CUstream stream)
{
	return runtime_cudaLaunchKernel(kernel, grid, block, arguments, shared_bytes, stream);
}

int runtime_cudaGetFuncBySymbol(void **function, const void *symbol)
{
	return runtime___cudaGetKernel(function, symbol);
}
int runtime_cudaGetKernel(void **kernel, const void *symbol) { return runtime___cudaGetKernel(kernel, symbol); }

int runtime_cudaFuncGetName(const char **name, const void *kernel)
{
	if (!name)
		return CUDA_ERROR_INVALID_VALUE;
	*name = kernel_name(kernel);
	return *name ? CUDA_SUCCESS : cudaErrorInvalidDeviceFunction;
}

/* kernel<<<grid, block, shared, stream>>>: pushed by the caller, popped by the stub. */
struct configuration {
	dim3 grid, block;
	size_t shared_bytes;
	CUstream stream;
};

#define CONFIGURATION_LIMIT 8

static _Thread_local __attribute__((tls_model("initial-exec"))) struct {
	struct configuration pushed[CONFIGURATION_LIMIT];
	unsigned int count;
} configurations;

unsigned int __cudaPushCallConfiguration(dim3 grid, dim3 block, size_t shared_bytes, CUstream stream)
{
	if (configurations.count == CONFIGURATION_LIMIT)
		return cudaErrorMissingConfiguration;
	configurations.pushed[configurations.count++] = (struct configuration){grid, block, shared_bytes, stream};
	return CUDA_SUCCESS;
}

int runtime___cudaPopCallConfiguration(dim3 *grid, dim3 *block, size_t *shared_bytes, void *stream)
{
	struct configuration configuration;

	if (configurations.count == 0)
		return cudaErrorMissingConfiguration;
	configuration = configurations.pushed[--configurations.count];
	*grid = configuration.grid;
	*block = configuration.block;
	*shared_bytes = configuration.shared_bytes;
	memcpy(stream, &configuration.stream, sizeof configuration.stream);
	return CUDA_SUCCESS;
}

/* -- resources of kernels ---------------------------------------------------------------------------------------- */

/* A kernel's registers and shared memory are in its machine code, which is not read here. These are the figures of a
 * small kernel. Programs derive launch sizes from them; a few derive the size of a scratch buffer. */
#define REGISTERS 32

/* Returns the architecture for which a kernel is compiled, derived from the device's. PyTorch is compiled for 8.6,
 * and a device of 8.9 runs that code. CUB asks for this number, and only has kernels for architectures that it was
 * compiled for. */
static int compiled_for(int capability) { return capability == 89 ? 86 : capability; }

int runtime_cudaFuncGetAttributes(struct cudaFuncAttributes *attributes, const void *kernel)
{
	int device = runtime_device(), capability, result = runtime_open();

	if (result != CUDA_SUCCESS)
		return result;
	if (!attributes)
		return CUDA_ERROR_INVALID_VALUE;
	if (!kernel_name(kernel))
		return cudaErrorInvalidDeviceFunction;
	capability = runtime_attribute(CU_DEVICE_ATTRIBUTE_COMPUTE_CAPABILITY_MAJOR, device) * 10 +
		     runtime_attribute(CU_DEVICE_ATTRIBUTE_COMPUTE_CAPABILITY_MINOR, device);
	memset(attributes, 0, sizeof *attributes);
	attributes->maxThreadsPerBlock = runtime_attribute(1, device);
	attributes->numRegs = REGISTERS;
	attributes->ptxVersion = attributes->binaryVersion = compiled_for(capability);
	attributes->maxDynamicSharedSizeBytes = runtime_attribute(8, device);
	attributes->preferredShmemCarveout = -1;
	return CUDA_SUCCESS;
}

/* Hints, and limits that matter only to a running kernel. */
int runtime_cudaFuncSetAttribute(const void *kernel, int attribute, int value)
{
	(void)attribute, (void)value;
	return kernel_name(kernel) ? CUDA_SUCCESS : cudaErrorInvalidDeviceFunction;
}

int runtime_cudaKernelSetAttributeForDevice(const void *kernel, int attribute, int value, int device)
{
	(void)device;
	return runtime_cudaFuncSetAttribute(kernel, attribute, value);
}

int runtime_cudaFuncSetCacheConfig(const void *kernel, int config)
{
	return runtime_cudaFuncSetAttribute(kernel, 0, config);
}

static int least(int a, int b) { return a < b ? a : b; }

/* Returns how many blocks fit on a multiprocessor at once: the least that its threads, registers, shared memory and
 * slots allow. */
int runtime_cudaOccupancyMaxActiveBlocksPerMultiprocessorWithFlags(int *blocks, const void *kernel, int block_size,
								   size_t shared_bytes, unsigned int flags)
{
	int device = runtime_device(), threads, most, result = runtime_open();

	(void)flags;
	if (result != CUDA_SUCCESS)
		return result;
	if (!blocks || block_size <= 0)
		return CUDA_ERROR_INVALID_VALUE;
	if (!kernel_name(kernel))
		return cudaErrorInvalidDeviceFunction;
	threads = (block_size + 31) / 32 * 32;
	most = least(runtime_attribute(39, device) / threads, runtime_attribute(106, device));
	most = least(most, runtime_attribute(82, device) / (threads * REGISTERS));
	if (shared_bytes > 0)
		most = least(most, (int)((size_t)runtime_attribute(81, device) / shared_bytes));
	*blocks = most;
	return CUDA_SUCCESS;
}

int runtime_cudaOccupancyMaxActiveBlocksPerMultiprocessor(int *blocks, const void *kernel, int block_size,
							  size_t shared_bytes)
{
	return runtime_cudaOccupancyMaxActiveBlocksPerMultiprocessorWithFlags(blocks, kernel, block_size,
									      shared_bytes, 0);
}
