/* The exported functions. Each calls its implementation and keeps its error for cudaGetLastError.
 *
 * Per thread: the last error stays until the program asks for it. The driver returns a sticky one (an illegal
 * address) from every call. A refused call may give a reason, which then is the error's text.
 */
#include "sim/runtime/runtime.h"

static _Thread_local __attribute__((tls_model("initial-exec"))) cudaError_t last_error;
static _Thread_local __attribute__((tls_model("initial-exec"))) const char *reason, *next_reason;

void runtime_explain(const char *text) { next_reason = text; }

static cudaError_t keep(int result)
{
	if (result != CUDA_SUCCESS) {
		last_error = result;
		reason = next_reason;
		next_reason = NULL;
	}
	return result;
}

#define X(name, parameters, arguments) NEAP_API cudaError_t name parameters;
#include "sim/runtime/functions.h"
#undef X
#define X(name, parameters, arguments)                                                                               \
	cudaError_t name parameters { return keep(runtime_##name arguments); }
#include "sim/runtime/functions.h"
#undef X

/* The rest of the documented API: exported so that programs load, but refused. Their arguments are ignored. */
#define R(name) NEAP_API cudaError_t name(void);
#include "sim/runtime/refused.h"
#undef R
#define R(name)                                                                                                      \
	cudaError_t name(void) { return keep(tally_refuse(#name)); }
#include "sim/runtime/refused.h"
#undef R

#define P(name, alias_name) NEAP_API extern __typeof__(name) alias_name __attribute__((alias(#name)));
#include "sim/runtime/per_thread.h"
#undef P

/* -- errors ------------------------------------------------------------------------------------------------------ */

NEAP_API cudaError_t cudaGetLastError(void);
NEAP_API cudaError_t cudaPeekAtLastError(void);
NEAP_API const char *cudaGetErrorName(cudaError_t error);
NEAP_API const char *cudaGetErrorString(cudaError_t error);

cudaError_t cudaGetLastError(void)
{
	cudaError_t error = last_error;

	last_error = CUDA_SUCCESS;
	return error;
}

cudaError_t cudaPeekAtLastError(void) { return last_error; }

static const struct {
	cudaError_t error;
	const char *name, *text;
} errors[] = {
	{0, "cudaSuccess", "no error"},
	{1, "cudaErrorInvalidValue", "invalid argument"},
	{2, "cudaErrorMemoryAllocation", "out of memory"},
	{3, "cudaErrorInitializationError", "initialization error"},
	{4, "cudaErrorCudartUnloading", "driver shutting down"},
	{9, "cudaErrorInvalidConfiguration", "invalid configuration argument"},
	{12, "cudaErrorInvalidPitchValue", "invalid pitch argument"},
	{13, "cudaErrorInvalidSymbol", "invalid device symbol"},
	{21, "cudaErrorInvalidMemcpyDirection", "invalid copy direction for memcpy"},
	{35, "cudaErrorInsufficientDriver", "CUDA driver version is insufficient for CUDA runtime version"},
	{46, "cudaErrorDevicesUnavailable", "CUDA-capable device(s) is/are busy or unavailable"},
	{52, "cudaErrorMissingConfiguration", "__global__ function call is not configured"},
	{98, "cudaErrorInvalidDeviceFunction", "invalid device function"},
	{100, "cudaErrorNoDevice", "no CUDA-capable device is detected"},
	{101, "cudaErrorInvalidDevice", "invalid device ordinal"},
	{201, "cudaErrorDeviceUninitialized", "invalid device context"},
	{214, "cudaErrorECCUncorrectable", "uncorrectable ECC error encountered"},
	{217, "cudaErrorPeerAccessUnsupported", "peer access is not supported between these two devices"},
	{220, "cudaErrorNvlinkUncorrectable", "uncorrectable NVLink error detected during the execution"},
	{400, "cudaErrorInvalidResourceHandle", "invalid resource handle"},
	{500, "cudaErrorSymbolNotFound", "named symbol not found"},
	{600, "cudaErrorNotReady", "device not ready"},
	{700, "cudaErrorIllegalAddress", "an illegal memory access was encountered"},
	{704, "cudaErrorPeerAccessAlreadyEnabled", "peer access is already enabled"},
	{705, "cudaErrorPeerAccessNotEnabled", "peer access has not been enabled"},
	{712, "cudaErrorHostMemoryAlreadyRegistered", "part or all of the requested memory range is already mapped"},
	{713, "cudaErrorHostMemoryNotRegistered", "pointer does not correspond to a registered memory region"},
	{719, "cudaErrorLaunchFailure", "unspecified launch failure"},
	{800, "cudaErrorNotPermitted", "operation not permitted"},
	{801, "cudaErrorNotSupported", "operation not supported"},
	{900, "cudaErrorStreamCaptureUnsupported", "operation not permitted when stream is capturing"},
	{901, "cudaErrorStreamCaptureInvalidated", "operation failed due to a previous error during capture"},
	{902, "cudaErrorStreamCaptureMerge", "operation would result in a merge of separate capture sequences"},
	{903, "cudaErrorStreamCaptureUnmatched", "capture was not ended in the same stream as it began"},
	{904, "cudaErrorStreamCaptureUnjoined", "capturing stream has unjoined work"},
	{905, "cudaErrorStreamCaptureIsolation", "dependency created on uncaptured work in another stream"},
	{906, "cudaErrorStreamCaptureImplicit",
	 "operation would make the legacy stream depend on a capturing stream"},
	{907, "cudaErrorCapturedEvent", "operation not permitted on an event last recorded in a capturing stream"},
	{908, "cudaErrorStreamCaptureWrongThread",
	 "attempt to terminate a thread-local capture sequence from another thread"},
	{999, "cudaErrorUnknown", "unknown error"},
};

const char *cudaGetErrorName(cudaError_t error)
{
	for (size_t i = 0; i < sizeof errors / sizeof errors[0]; i++)
		if (errors[i].error == error)
			return errors[i].name;
	return "unrecognized error code";
}

/* After a failed cuInit the driver's text describes the mistake in the simulator's settings. */
const char *cudaGetErrorString(cudaError_t error)
{
	const char *text = NULL;

	if (error == CUDA_ERROR_NOT_SUPPORTED && reason)
		return reason;
	if (runtime_cuda.cuGetErrorString && runtime_cuda.cuGetErrorString(error, &text) == CUDA_SUCCESS && text)
		return text;
	for (size_t i = 0; i < sizeof errors / sizeof errors[0]; i++)
		if (errors[i].error == error)
			return errors[i].text;
	return "unrecognized error code";
}
