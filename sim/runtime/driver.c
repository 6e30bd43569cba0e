/* The simulated driver: the process's libcuda.so.1, or the one beside this library.
 *
 *   installed   lib/neap/sim/runtime/libcudart.so.13    build tree   sim/runtime/libcudart.so.13
 *               lib/neap/sim/libcuda.so.1                            sim/driver/libcuda.so.1
 *
 * Only neap's simulator, recognised by neap_sim_get_calls, is accepted: this library is not a runtime for a real
 * driver.
 */
#include "sim/runtime/runtime.h"

#include <limits.h>
#include <pthread.h>
#include <stdatomic.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

struct neap_cuda runtime_cuda;
neap_get_proc_address runtime_get_proc_address;
const struct neap_sim_calls *runtime_sim;

static pthread_mutex_t opening = PTHREAD_MUTEX_INITIALIZER;
static atomic_bool opened;

static void *open_beside(const char *relative)
{
	char path[PATH_MAX];
	Dl_info info;
	char *slash;

	if (!dladdr((void *)(uintptr_t)runtime_open, &info) || !realpath(info.dli_fname, path))
		return NULL;
	slash = strrchr(path, '/');
	if (!slash || (size_t)(slash - path) + strlen(relative) + 1 > sizeof path)
		return NULL;
	strcpy(slash, relative);
	return dlopen(path, RTLD_NOW | RTLD_GLOBAL);
}

static void *open_library(void)
{
	const char *folder = getenv("NEAP_SIM_PATH");
	char path[PATH_MAX];
	void *library = dlopen("libcuda.so.1", RTLD_NOW | RTLD_NOLOAD);

	if (!library && folder && *folder &&
	    (size_t)snprintf(path, sizeof path, "%s/libcuda.so.1", folder) < sizeof path)
		library = dlopen(path, RTLD_NOW | RTLD_GLOBAL);
	if (!library)
		library = open_beside("/../libcuda.so.1");
	return library ? library : open_beside("/../driver/libcuda.so.1");
}

static const struct neap_sim_calls *simulator(void *library)
{
	const struct neap_sim_calls *(*get)(void) = NULL;
	void *symbol = dlsym(library, "neap_sim_get_calls");

	if (!symbol)
		return NULL;
	memcpy(&get, &symbol, sizeof get);
	return get();
}

/* The simulator calls this when memory becomes shared between processes. With backing=none no bytes are shared: bytes
 * that another process stored read as zeros here. */
static void became_shared(const char *call, int by_others)
{
	if (runtime_keeps_bytes())
		contents_share();
	else if (by_others)
		tally_count(GAP_TRANSFER, "libcuda", call, 0, 0);
}

/* This library may be unloaded before the simulator. */
__attribute__((destructor)) static void stop_watching(void)
{
	if (runtime_sim)
		runtime_sim->watch_shares(NULL);
}

static int load(void)
{
	void *library = open_library(), *symbol;

	if (!library)
		return cudaErrorInsufficientDriver;
	runtime_sim = simulator(library);
	if (!runtime_sim || runtime_sim->version != 1)
		return cudaErrorInsufficientDriver;
	runtime_sim->watch_shares(became_shared);
	symbol = dlsym(library, "cuGetProcAddress_v2");
	memcpy(&runtime_get_proc_address, &symbol, sizeof symbol);
#define X(need, name, driver_name, parameters)                                                                       \
	symbol = dlsym(library, #driver_name);                                                                       \
	memcpy(&runtime_cuda.name, &symbol, sizeof symbol);
#include "device/cuda_functions.h"
#undef X
	return CUDA_SUCCESS;
}

int runtime_open(void)
{
	int result = CUDA_SUCCESS;

	if (atomic_load_explicit(&opened, memory_order_acquire))
		return CUDA_SUCCESS;
	pthread_mutex_lock(&opening);
	if (!atomic_load(&opened)) {
		if (!runtime_cuda.cuInit)
			result = load();
		if (result == CUDA_SUCCESS)
			result = runtime_cuda.cuInit(0);
		atomic_store_explicit(&opened, result == CUDA_SUCCESS, memory_order_release);
	}
	pthread_mutex_unlock(&opening);
	return result;
}

bool runtime_keeps_bytes(void) { return runtime_sim->keeps_bytes(); }

bool runtime_shared(uint64_t address, uint64_t bytes, uint64_t *ret_start, uint64_t *ret_bytes)
{
	return runtime_sim && runtime_sim->shared(address, bytes, ret_start, ret_bytes);
}
