/* Devices, and the calling thread's device and context.
 *
 * Each thread has a current device, 0 at first. Its context is the device's primary context. The first call that
 * needs one, or cudaSetDevice (as since CUDA 12), creates it; it lives until cudaDeviceReset or the end of the
 * process. If a thread's first call finds a context of cuCtxCreate current, and the device has no primary context,
 * the thread stays in that context, as documented.
 */
#include "sim/runtime/code.h"
#include "sim/runtime/runtime.h"

#include <pthread.h>

#define DEVICE_LIMIT 64

/* In the static block of each thread: no allocation at the first use. */
static _Thread_local __attribute__((tls_model("initial-exec"))) struct {
	int device;
	unsigned int epoch; /* contexts.epoch when this thread made its context current; 0: it never did */
} own;

static struct {
	pthread_mutex_t lock;
	CUcontext retained[DEVICE_LIMIT];
	unsigned int epoch; /* increases when a context ends */
} contexts = {.lock = PTHREAD_MUTEX_INITIALIZER, .epoch = 1};

int runtime_device(void) { return own.device; }

static int retain(int device, CUcontext *ret_context)
{
	int result = CUDA_SUCCESS;

	pthread_mutex_lock(&contexts.lock);
	if (!contexts.retained[device])
		result = runtime_cuda.cuDevicePrimaryCtxRetain(&contexts.retained[device], device);
	*ret_context = contexts.retained[device];
	pthread_mutex_unlock(&contexts.lock);
	return result;
}

static int make_current(int device)
{
	CUcontext context;
	int result = runtime_open();

	if (result == CUDA_SUCCESS && (device < 0 || device >= DEVICE_LIMIT))
		result = CUDA_ERROR_INVALID_DEVICE;
	if (result == CUDA_SUCCESS)
		result = retain(device, &context);
	if (result == CUDA_SUCCESS)
		result = runtime_cuda.cuCtxSetCurrent(context);
	if (result == CUDA_SUCCESS) {
		own.device = device;
		own.epoch = __atomic_load_n(&contexts.epoch, __ATOMIC_RELAXED);
		code_begin();
	}
	return result;
}

/* Whether the thread's current context is one of cuCtxCreate: the runtime then works in it. */
static bool uses_own_context(int *ret_device)
{
	unsigned int flags;
	int active = 1;

	return !runtime_open() && !runtime_cuda.cuCtxGetDevice(ret_device) &&
	       !runtime_cuda.cuDevicePrimaryCtxGetState(*ret_device, &flags, &active) && !active;
}

int runtime_ready(void)
{
	int device;

	if (own.epoch == __atomic_load_n(&contexts.epoch, __ATOMIC_RELAXED))
		return CUDA_SUCCESS;
	if (!uses_own_context(&device))
		return make_current(own.device);
	own.device = device;
	own.epoch = __atomic_load_n(&contexts.epoch, __ATOMIC_RELAXED);
	code_begin();
	return CUDA_SUCCESS;
}

int runtime_cudaGetDeviceCount(int *count)
{
	int result = runtime_open();

	if (count)
		*count = 0;
	return result == CUDA_SUCCESS ? runtime_cuda.cuDeviceGetCount(count) : result;
}

int runtime_cudaGetDevice(int *device)
{
	int result = runtime_open();

	if (!device)
		return CUDA_ERROR_INVALID_VALUE;
	if (result == CUDA_SUCCESS)
		*device = own.device;
	return result;
}

int runtime_cudaSetDevice(int device)
{
	if (device == own.device && own.epoch == __atomic_load_n(&contexts.epoch, __ATOMIC_RELAXED))
		return CUDA_SUCCESS;
	return make_current(device);
}

/* Creates the device's context. The thread's current device stays as it was; the flags have no effect. */
int runtime_cudaInitDevice(int device, unsigned int device_flags, unsigned int flags)
{
	int previous = own.device, result;

	(void)device_flags;
	(void)flags;
	result = make_current(device);
	if (result == CUDA_SUCCESS && previous != device)
		result = make_current(previous);
	return result;
}

int runtime_cudaDeviceSynchronize(void)
{
	int result = runtime_ready();

	if (result == CUDA_SUCCESS)
		result = runtime_cuda.cuCtxSynchronize();
	if (result == CUDA_SUCCESS)
		gate_open_stream(NULL);
	return result;
}

int runtime_cudaDeviceReset(void)
{
	int result = runtime_ready();

	if (result != CUDA_SUCCESS)
		return result;
	pthread_mutex_lock(&contexts.lock);
	if (contexts.retained[own.device]) {
		result = runtime_cuda.cuDevicePrimaryCtxRelease(own.device);
		if (result == CUDA_SUCCESS) {
			contexts.retained[own.device] = NULL;
			__atomic_add_fetch(&contexts.epoch, 1, __ATOMIC_RELAXED);
		}
	}
	pthread_mutex_unlock(&contexts.lock);
	return result;
}

int runtime_cudaDriverGetVersion(int *version)
{
	int result = runtime_open();

	return result == CUDA_SUCCESS ? runtime_cuda.cuDriverGetVersion(version) : result;
}

int runtime_cudaRuntimeGetVersion(int *version)
{
	if (!version)
		return CUDA_ERROR_INVALID_VALUE;
	*version = RUNTIME_VERSION;
	return CUDA_SUCCESS;
}

int runtime_cudaDeviceGetPCIBusId(char *id, int length, int device)
{
	int result = runtime_open();

	return result == CUDA_SUCCESS ? runtime_cuda.cuDeviceGetPCIBusId(id, length, device) : result;
}

int runtime_cudaDeviceGetByPCIBusId(int *device, const char *id)
{
	int result = runtime_open();

	return result == CUDA_SUCCESS ? runtime_cuda.cuDeviceGetByPCIBusId(device, id) : result;
}

int runtime_cudaDeviceCanAccessPeer(int *can, int device, int peer)
{
	int result = runtime_open();

	return result == CUDA_SUCCESS ? runtime_cuda.cuDeviceCanAccessPeer(can, device, peer) : result;
}

/* Peer access belongs to the peer's context: create it if missing. */
int runtime_cudaDeviceEnablePeerAccess(int peer, unsigned int flags)
{
	CUcontext context = NULL;
	int result = runtime_ready();

	if (result == CUDA_SUCCESS && (peer < 0 || peer >= DEVICE_LIMIT))
		result = CUDA_ERROR_INVALID_DEVICE;
	if (result == CUDA_SUCCESS)
		result = retain(peer, &context);
	return result == CUDA_SUCCESS ? runtime_cuda.cuCtxEnablePeerAccess(context, flags) : result;
}

int runtime_cudaDeviceDisablePeerAccess(int peer)
{
	CUcontext context = NULL;
	int result = runtime_ready();

	if (result == CUDA_SUCCESS && (peer < 0 || peer >= DEVICE_LIMIT))
		result = CUDA_ERROR_INVALID_DEVICE;
	if (result == CUDA_SUCCESS)
		result = retain(peer, &context);
	return result == CUDA_SUCCESS ? runtime_cuda.cuCtxDisablePeerAccess(context) : result;
}

int runtime_cudaDeviceGetStreamPriorityRange(int *least, int *greatest)
{
	int result = runtime_ready();

	return result == CUDA_SUCCESS ? runtime_cuda.cuCtxGetStreamPriorityRange(least, greatest) : result;
}

int runtime_cudaDeviceGetLimit(size_t *value, int limit)
{
	int result = runtime_ready();

	return result == CUDA_SUCCESS ? runtime_cuda.cuCtxGetLimit(value, limit) : result;
}

int runtime_cudaDeviceSetLimit(int limit, size_t value)
{
	int result = runtime_ready();

	return result == CUDA_SUCCESS ? runtime_cuda.cuCtxSetLimit(limit, value) : result;
}

/* Scheduling and cache settings have no effect here. */
int runtime_cudaSetDeviceFlags(unsigned int flags)
{
	(void)flags;
	return runtime_open();
}

int runtime_cudaGetDeviceFlags(unsigned int *flags)
{
	if (!flags)
		return CUDA_ERROR_INVALID_VALUE;
	*flags = 0;
	return runtime_open();
}

int runtime_cudaDeviceGetCacheConfig(int *config)
{
	if (!config)
		return CUDA_ERROR_INVALID_VALUE;
	*config = 0; /* no preference */
	return runtime_open();
}

int runtime_cudaDeviceSetCacheConfig(int config) { return config >= 0 && config <= 3 ? 0 : CUDA_ERROR_INVALID_VALUE; }
int runtime_cudaProfilerStart(void) { return CUDA_SUCCESS; }
int runtime_cudaProfilerStop(void) { return CUDA_SUCCESS; }

/* Returns driver functions; PyTorch manages expandable segments with them. 0: found, 1: no such symbol, 2: the driver
 * is too old. */
int runtime_cudaGetDriverEntryPointByVersion(const char *symbol, void **function, unsigned int version,
					     unsigned long long flags, int *status)
{
	int result = runtime_open(), found = CU_GET_PROC_ADDRESS_SYMBOL_NOT_FOUND;

	if (result != CUDA_SUCCESS)
		return result;
	if (!symbol || !function)
		return CUDA_ERROR_INVALID_VALUE;
	result = runtime_get_proc_address(symbol, function, (int)version, flags, &found);
	if (status)
		*status = found;
	return result == CUDA_ERROR_NOT_FOUND && status ? CUDA_SUCCESS : result;
}

int runtime_cudaGetDriverEntryPoint(const char *symbol, void **function, unsigned long long flags, int *status)
{
	return runtime_cudaGetDriverEntryPointByVersion(symbol, function, RUNTIME_VERSION, flags, status);
}
