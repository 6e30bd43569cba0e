/* Entering and leaving a driver call.
 *
 *   enter: count -> alive? -> the clock moves by the call's latency -> injected fault? -> a context, no sticky error,
 *          no capture that forbids it -> the call itself
 *   leave: one line of the log
 *
 * One table holds the conditions of all calls.
 */
#include "sim/driver/state.h"

#include "base/descriptor.h"
#include "base/error.h"
#include "base/units.h"

#include <errno.h>
#include <fcntl.h>
#include <stdarg.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <unistd.h>

#define DEFAULT_LATENCY_NS 1000
#define FAULT_LIMIT        32

enum {
	NEEDS_CONTEXT = 0,  /* the usual case: cuInit, a current context, no sticky error */
	NEEDS_NOTHING = 1,  /* works at any time, also in a forked child */
	NEEDS_INIT = 2,     /* no context */
	NEEDS_DRIVER = 4,   /* NEEDS_INIT, but refused after a detected error */
	NOT_IN_CAPTURE = 8, /* may be unsafe in a capture: synchronises, or changes memory outside it */
};

static const unsigned char needs[SIM_CALL_COUNT] = {
	[SIM_CALL_cuInit] = NEEDS_NOTHING,
	[SIM_CALL_cuDriverGetVersion] = NEEDS_NOTHING,
	[SIM_CALL_cuGetErrorName] = NEEDS_NOTHING,
	[SIM_CALL_cuGetErrorString] = NEEDS_NOTHING,
	[SIM_CALL_cuDeviceGetCount] = NEEDS_INIT,
	[SIM_CALL_cuDeviceGet] = NEEDS_INIT,
	[SIM_CALL_cuDeviceGetName] = NEEDS_INIT,
	[SIM_CALL_cuDeviceGetUuid] = NEEDS_INIT,
	[SIM_CALL_cuDeviceTotalMem] = NEEDS_INIT,
	[SIM_CALL_cuDeviceGetAttribute] = NEEDS_INIT,
	[SIM_CALL_cuDeviceGetPCIBusId] = NEEDS_INIT,
	[SIM_CALL_cuDeviceGetUuid_v1] = NEEDS_INIT,
	[SIM_CALL_cuDeviceGetByPCIBusId] = NEEDS_INIT,
	[SIM_CALL_cuDeviceComputeCapability] = NEEDS_INIT,
	[SIM_CALL_cuDeviceGetExecAffinitySupport] = NEEDS_INIT,
	[SIM_CALL_cuDeviceCanAccessPeer] = NEEDS_INIT,
	[SIM_CALL_cuDeviceGetP2PAttribute] = NEEDS_INIT,
	[SIM_CALL_cuDevicePrimaryCtxSetFlags] = NEEDS_INIT,
	[SIM_CALL_cuDevicePrimaryCtxReset] = NEEDS_INIT,
	[SIM_CALL_cuDevicePrimaryCtxRetain] = NEEDS_INIT,
	[SIM_CALL_cuDevicePrimaryCtxRelease] = NEEDS_INIT,
	[SIM_CALL_cuDevicePrimaryCtxGetState] = NEEDS_INIT,
	[SIM_CALL_cuCtxCreate] = NEEDS_INIT,
	[SIM_CALL_cuCtxCreate_v3] = NEEDS_INIT,
	[SIM_CALL_cuCtxCreate_v4] = NEEDS_INIT,
	[SIM_CALL_cuCtxDestroy] = NEEDS_INIT,
	[SIM_CALL_cuCtxGetCurrent] = NEEDS_INIT,
	[SIM_CALL_cuCtxSetCurrent] = NEEDS_INIT,
	[SIM_CALL_cuCtxPushCurrent] = NEEDS_INIT,
	[SIM_CALL_cuCtxPopCurrent] = NEEDS_INIT,
	[SIM_CALL_cuCtxGetDevice] = NEEDS_INIT,
	[SIM_CALL_cuCtxGetDevice_v2] = NEEDS_INIT,
	[SIM_CALL_cuCtxGetId] = NEEDS_INIT,
	[SIM_CALL_cuCtxGetApiVersion] = NEEDS_INIT,
	[SIM_CALL_cuThreadExchangeStreamCaptureMode] = NEEDS_INIT,
	[SIM_CALL_cuGraphCreate] = NEEDS_DRIVER,
	[SIM_CALL_cuGraphDestroy] = NEEDS_DRIVER,
	[SIM_CALL_cuGraphClone] = NEEDS_DRIVER,
	[SIM_CALL_cuGraphAddEmptyNode] = NEEDS_DRIVER,
	[SIM_CALL_cuGraphGetNodes] = NEEDS_DRIVER,
	[SIM_CALL_cuGraphGetRootNodes] = NEEDS_DRIVER,
	[SIM_CALL_cuGraphGetEdges_v1] = NEEDS_DRIVER,
	[SIM_CALL_cuGraphGetEdges_v2] = NEEDS_DRIVER,
	[SIM_CALL_cuGraphNodeGetType] = NEEDS_DRIVER,
	[SIM_CALL_cuGraphNodeGetDependencies_v1] = NEEDS_DRIVER,
	[SIM_CALL_cuGraphNodeGetDependencies_v2] = NEEDS_DRIVER,
	[SIM_CALL_cuGraphNodeGetDependentNodes_v1] = NEEDS_DRIVER,
	[SIM_CALL_cuGraphNodeGetDependentNodes_v2] = NEEDS_DRIVER,
	[SIM_CALL_cuGraphDebugDotPrint] = NEEDS_DRIVER,
	[SIM_CALL_cuGraphExecDestroy] = NEEDS_DRIVER,
	[SIM_CALL_cuGraphExecGetFlags] = NEEDS_DRIVER,
	[SIM_CALL_cuUserObjectCreate] = NEEDS_DRIVER,
	[SIM_CALL_cuUserObjectRetain] = NEEDS_DRIVER,
	[SIM_CALL_cuUserObjectRelease] = NEEDS_DRIVER,
	[SIM_CALL_cuGraphRetainUserObject] = NEEDS_DRIVER,
	[SIM_CALL_cuGraphReleaseUserObject] = NEEDS_DRIVER,
	[SIM_CALL_cuModuleGetLoadingMode] = NEEDS_DRIVER,
	[SIM_CALL_cuLibraryLoadData] = NEEDS_DRIVER,
	[SIM_CALL_cuLibraryLoadFromFile] = NEEDS_DRIVER,
	[SIM_CALL_cuLibraryUnload] = NEEDS_DRIVER,
	[SIM_CALL_cuLibraryGetKernel] = NEEDS_DRIVER,
	[SIM_CALL_cuLibraryGetKernelCount] = NEEDS_DRIVER,
	[SIM_CALL_cuLibraryEnumerateKernels] = NEEDS_DRIVER,
	[SIM_CALL_cuKernelGetName] = NEEDS_DRIVER,
	[SIM_CALL_cuKernelGetLibrary] = NEEDS_DRIVER,
	[SIM_CALL_cuKernelGetAttribute] = NEEDS_DRIVER,
	[SIM_CALL_cuKernelSetAttribute] = NEEDS_DRIVER,
	[SIM_CALL_cuKernelSetCacheConfig] = NEEDS_DRIVER,
	[SIM_CALL_cuMemAddressReserve] = NEEDS_DRIVER,
	[SIM_CALL_cuMemAddressFree] = NEEDS_DRIVER,
	[SIM_CALL_cuMemGetAllocationGranularity] = NEEDS_DRIVER,
	[SIM_CALL_cuDeviceGetDefaultMemPool] = NEEDS_DRIVER,
	[SIM_CALL_cuMemPoolSetAttribute] = NEEDS_DRIVER,
	[SIM_CALL_cuMemPoolGetAttribute] = NEEDS_DRIVER,
	[SIM_CALL_cuMemCreate] = NEEDS_DRIVER,
	[SIM_CALL_cuMemRelease] = NEEDS_DRIVER,
	[SIM_CALL_cuMemMap] = NEEDS_DRIVER,
	[SIM_CALL_cuMemUnmap] = NEEDS_DRIVER | NOT_IN_CAPTURE,
	[SIM_CALL_cuMemSetAccess] = NEEDS_DRIVER,
	[SIM_CALL_cuMemPoolTrimTo] = NEEDS_DRIVER | NOT_IN_CAPTURE,
	[SIM_CALL_cuDeviceGetMemPool] = NEEDS_DRIVER,
	[SIM_CALL_cuDeviceSetMemPool] = NEEDS_DRIVER,
	[SIM_CALL_cuMemPoolCreate] = NEEDS_DRIVER,
	[SIM_CALL_cuMemPoolDestroy] = NEEDS_DRIVER,
	[SIM_CALL_cuMemPoolSetAccess] = NEEDS_DRIVER,
	[SIM_CALL_cuMemPoolGetAccess] = NEEDS_DRIVER,
	[SIM_CALL_cuMemGetAccess] = NEEDS_DRIVER,
	[SIM_CALL_cuMemExportToShareableHandle] = NEEDS_DRIVER,
	[SIM_CALL_cuMemImportFromShareableHandle] = NEEDS_DRIVER,
	[SIM_CALL_cuMemRetainAllocationHandle] = NEEDS_DRIVER,
	[SIM_CALL_cuMemGetAllocationPropertiesFromHandle] = NEEDS_DRIVER,
	[SIM_CALL_cuDeviceGetGraphMemAttribute] = NEEDS_DRIVER,
	[SIM_CALL_cuDeviceSetGraphMemAttribute] = NEEDS_DRIVER,
	[SIM_CALL_cuDeviceGraphMemTrim] = NEEDS_DRIVER,
	[SIM_CALL_cuMemAlloc] = NOT_IN_CAPTURE,
	[SIM_CALL_cuMemFree] = NOT_IN_CAPTURE,
	[SIM_CALL_cuMemHostAlloc] = NOT_IN_CAPTURE,
	[SIM_CALL_cuMemAllocHost] = NOT_IN_CAPTURE,
	[SIM_CALL_cuMemAllocManaged] = NOT_IN_CAPTURE,
	[SIM_CALL_cuMemAllocPitch] = NOT_IN_CAPTURE,
	[SIM_CALL_cuMemHostRegister] = NOT_IN_CAPTURE,
	[SIM_CALL_cuMemHostUnregister] = NOT_IN_CAPTURE,
	[SIM_CALL_cuMemFreeHost] = NOT_IN_CAPTURE,
	[SIM_CALL_cuCtxSynchronize] = NOT_IN_CAPTURE,
	[SIM_CALL_cuCtxSynchronize_v2] = NOT_IN_CAPTURE,
	[SIM_CALL_cuStreamSynchronize] = NOT_IN_CAPTURE,
	[SIM_CALL_cuStreamQuery] = NOT_IN_CAPTURE,
	[SIM_CALL_cuEventQuery] = NOT_IN_CAPTURE,
	[SIM_CALL_cuEventSynchronize] = NOT_IN_CAPTURE,
	[SIM_CALL_cuMemcpy] = NOT_IN_CAPTURE,
	[SIM_CALL_cuMemcpyPeer] = NOT_IN_CAPTURE,
	[SIM_CALL_cuMemcpy2D] = NOT_IN_CAPTURE,
	[SIM_CALL_cuMemcpy2DUnaligned] = NOT_IN_CAPTURE,
	[SIM_CALL_cuMemcpy3D] = NOT_IN_CAPTURE,
	[SIM_CALL_cuMemsetD16] = NOT_IN_CAPTURE,
	[SIM_CALL_cuMemsetD2D8] = NOT_IN_CAPTURE,
	[SIM_CALL_cuMemsetD2D16] = NOT_IN_CAPTURE,
	[SIM_CALL_cuMemsetD2D32] = NOT_IN_CAPTURE,
	[SIM_CALL_cuMemcpyHtoD] = NOT_IN_CAPTURE,
	[SIM_CALL_cuMemcpyDtoH] = NOT_IN_CAPTURE,
	[SIM_CALL_cuMemcpyDtoD] = NOT_IN_CAPTURE,
	[SIM_CALL_cuMemsetD8] = NOT_IN_CAPTURE,
	[SIM_CALL_cuMemsetD32] = NOT_IN_CAPTURE,
};

static const char *const names[SIM_CALL_COUNT] = {
#define X(need, name, symbol, parameters) #name,
#include "device/cuda_functions.h"
#undef X
};

static const char *const symbols[SIM_CALL_COUNT] = {
#define X(need, name, symbol, parameters) #symbol,
#include "device/cuda_functions.h"
#undef X
};

struct fault {
	int call;            /* -1: any */
	uint64_t skip, left; /* left: how many calls fail after the skipped ones; 0: every one */
	int code;
};

static struct {
	atomic_ullong counts[SIM_CALL_COUNT], latencies[SIM_CALL_COUNT]; /* latency 0: the default */
	atomic_ullong all_latency_ns;
	atomic_uint fault_count;
	struct fault faults[FAULT_LIMIT]; /* sim.lock */
	atomic_int log;                   /* descriptor + 1; 0: none */
	char lost[512];                   /* NEAP_SIM_LOST: devices are lost while this file exists; "" none */
} calls;

/* -1 for "*", -2 for an unknown name. */
static int call_by_name(const char *name)
{
	int i;

	if (strcmp(name, "*") == 0)
		return -1;
	for (i = 0; i < SIM_CALL_COUNT; i++)
		if (strcmp(names[i], name) == 0 || strcmp(symbols[i], name) == 0)
			return i;
	return -2;
}

int sim_fault_add(const char *name, uint64_t skip, uint64_t count, int code)
{
	int call = name ? call_by_name(name) : -1;
	unsigned int used;
	int result = CUDA_SUCCESS;

	if (name && (call < -1 || code == CUDA_SUCCESS))
		return CUDA_ERROR_INVALID_VALUE;
	pthread_mutex_lock(&sim.lock);
	used = atomic_load(&calls.fault_count);
	if (!name) {
		atomic_store(&calls.fault_count, 0);
	} else if (used == FAULT_LIMIT) {
		result = CUDA_ERROR_OUT_OF_MEMORY;
	} else {
		calls.faults[used] =
			(struct fault){.call = call, .skip = skip, .left = count ? count : UINT64_MAX, .code = code};
		atomic_store(&calls.fault_count, used + 1);
	}
	pthread_mutex_unlock(&sim.lock);
	return result;
}

bool sim_latency_set(const char *name, uint64_t ns)
{
	int call = call_by_name(name);

	if (call < -1)
		return false;
	if (call == -1)
		atomic_store(&calls.all_latency_ns, ns + 1);
	else
		atomic_store(&calls.latencies[call], ns + 1); /* + 1: 0 is "not set" */
	return true;
}

uint64_t sim_call_total(const char *name)
{
	int call = name ? call_by_name(name) : -1;
	uint64_t total = 0;
	int i;

	for (i = 0; i < SIM_CALL_COUNT; i++)
		if (call == -1 || call == i)
			total += atomic_load(&calls.counts[i]);
	return total;
}

CUresult sim_fault_take(enum sim_call call)
{
	CUresult result = CUDA_SUCCESS;
	unsigned int i;

	if (atomic_load(&calls.fault_count) == 0)
		return CUDA_SUCCESS;
	pthread_mutex_lock(&sim.lock);
	for (i = 0; i < atomic_load(&calls.fault_count) && result == CUDA_SUCCESS; i++) {
		struct fault *fault = &calls.faults[i];

		if ((fault->call != -1 && fault->call != (int)call) || fault->left == 0)
			continue;
		if (fault->skip > 0) {
			fault->skip--;
			continue;
		}
		if (fault->left != UINT64_MAX)
			fault->left--;
		result = fault->code;
		sim.report.injected++;
	}
	pthread_mutex_unlock(&sim.lock);
	return result;
}

static uint64_t latency_of(enum sim_call call)
{
	uint64_t set = atomic_load(&calls.latencies[call]);

	if (set == 0)
		set = atomic_load(&calls.all_latency_ns);
	return set ? set - 1 : DEFAULT_LATENCY_NS;
}

CUresult sim_call_enter(enum sim_call call)
{
	unsigned int need = needs[call];
	uint32_t device;
	CUresult result;

	atomic_fetch_add(&calls.counts[call], 1);
	if (need & NEEDS_NOTHING)
		return CUDA_SUCCESS; /* cuInit reads the faults first, then applies its own */
	if (atomic_load(&sim.forked) || !atomic_load(&sim.initialized))
		return CUDA_ERROR_NOT_INITIALIZED;
	if (atomic_load(&sim.ended))
		return CUDA_ERROR_DEINITIALIZED;
	if (calls.lost[0] && access(calls.lost, F_OK) == 0)
		return CUDA_ERROR_UNKNOWN; /* a driver whose device has fallen off the bus answers this */
	sim_engine_advance(sim.engine, latency_of(call));
	result = sim_fault_take(call);
	if (result != CUDA_SUCCESS || (need & NEEDS_INIT))
		return result;
	if (atomic_load(&sim.sticky) != CUDA_SUCCESS)
		return atomic_load(&sim.sticky);
	if (!(need & NEEDS_DRIVER) && !sim_current_device(&device))
		return sim_context_missing();
	return (need & NOT_IN_CAPTURE) ? sim_capture_check_unsafe() : CUDA_SUCCESS;
}

CUresult sim_call_leave(enum sim_call call, CUresult result)
{
	int log = atomic_load(&calls.log);

	if (log > 0 && !atomic_load(&sim.forked)) {
		uint64_t now = atomic_load(&sim.initialized) ? sim_engine_now(sim.engine) : 0;
		char line[160];
		int length = snprintf(line, sizeof line, "%llu %d.%d %s %s\n", (unsigned long long)now, (int)sim.pid,
				      (int)gettid(), names[call], sim_error_name(result));

		if (write(log - 1, line, (size_t)length) < 0)
			return result; /* a log that fails must not change the call's result */
	}
	return result;
}

CUresult sim_detect_locked(const char *format, ...)
{
	va_list args;

	if (!sim.report.text[0]) {
		va_start(args, format);
		vsnprintf(sim.report.text, sizeof sim.report.text, format, args);
		va_end(args);
	}
	sim.report.illegal_addresses++;
	atomic_store(&sim.sticky, CUDA_ERROR_ILLEGAL_ADDRESS);
	return CUDA_ERROR_ILLEGAL_ADDRESS;
}

/* Parses "NAME:key=number:key=number". Replaces in `values` the value of each key that is given, in the order of
 * `keys`. */
static bool parse_entry(char *entry, const char *const *keys, uint64_t *values, size_t count)
{
	char *rest = NULL, *part = strtok_r(entry, ":", &rest);
	size_t i;

	if (!part)
		return false;
	while ((part = strtok_r(NULL, ":", &rest)) != NULL) {
		char *value = strchr(part, '=');

		if (!value)
			return false;
		*value++ = '\0';
		for (i = 0; i < count && strcmp(part, keys[i]) != 0; i++)
			;
		if (i == count || neap_u64_parse(value, &values[i], NULL) != NEAP_OK)
			return false;
	}
	return true;
}

static bool add_fault(char *entry)
{
	static const char *const keys[] = {"skip", "count", "code"};
	uint64_t values[3] = {0, 0, 0};

	return parse_entry(entry, keys, values, 3) && values[2] > 0 && values[2] < 1000 &&
	       sim_fault_add(entry, values[0], values[1], (int)values[2]) == CUDA_SUCCESS;
}

static bool add_latency(char *entry)
{
	static const char *const keys[] = {"ns"};
	uint64_t values[1] = {UINT64_MAX};

	return parse_entry(entry, keys, values, 1) && values[0] < UINT64_MAX && sim_latency_set(entry, values[0]);
}

/* Each entry of a list separated by commas or semicolons. */
static enum neap_status each_entry(const char *variable, bool (*add)(char *entry), const char *form,
				   struct neap_error *err)
{
	const char *text = getenv(variable);
	enum neap_status status = NEAP_OK;
	char *copy, *rest = NULL, *entry;

	if (!text || !*text)
		return NEAP_OK;
	copy = strdup(text);
	if (!copy)
		return neap_fail(err, NEAP_ENOMEM, "%s: host out of memory", variable);
	for (entry = strtok_r(copy, ",;", &rest); entry && !status; entry = strtok_r(NULL, ",;", &rest)) {
		uint32_t column = (uint32_t)(entry - copy) + 1;

		if (!add(entry))
			status = neap_fail_at(err, 1, column, "%s: '%s' at column %u: expected %s", variable, entry,
					      column, form);
	}
	free(copy);
	return status;
}

enum neap_status sim_calls_configure(struct neap_error *err)
{
	const char *log = getenv("NEAP_SIM_LOG"), *lost = getenv("NEAP_SIM_LOST"),
		   *kernel = getenv("NEAP_SIM_KERNEL");
	enum neap_status status;
	int old, fd = -1;

	status = each_entry("NEAP_SIM_FAULT", add_fault, "FUNCTION:skip=N:count=N:code=N", err);
	if (!status)
		status = each_entry("NEAP_SIM_LATENCY", add_latency, "FUNCTION:ns=N", err);
	if (status)
		return status;
	if ((size_t)snprintf(calls.lost, sizeof calls.lost, "%s", lost ? lost : "") >= sizeof calls.lost)
		return neap_fail(err, NEAP_EINVAL, "NEAP_SIM_LOST: the path is too long");
	sim.kernel_ns = 0;
	if (kernel && *kernel && neap_duration_parse(kernel, &sim.kernel_ns, NULL) != NEAP_OK)
		return neap_fail(err, NEAP_EPARSE, "NEAP_SIM_KERNEL: '%.100s': expected a time such as 5us", kernel);
	if (log && *log) {
		fd = neap_fd_above_standard(open(log, O_WRONLY | O_APPEND | O_CREAT | O_CLOEXEC, 0600));
		if (fd < 0)
			return neap_fail_errno(err, errno, "NEAP_SIM_LOG: cannot open %s", log);
	}
	old = atomic_exchange(&calls.log, fd + 1);
	if (old > 0)
		close(old - 1);
	return NEAP_OK;
}

void sim_calls_reset(void)
{
	size_t i;
	int old = atomic_exchange(&calls.log, 0);

	if (old > 0)
		close(old - 1);
	for (i = 0; i < SIM_CALL_COUNT; i++) {
		atomic_store(&calls.counts[i], 0);
		atomic_store(&calls.latencies[i], 0);
	}
	atomic_store(&calls.all_latency_ns, 0);
	atomic_store(&calls.fault_count, 0);
}
