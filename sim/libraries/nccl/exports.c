/* The exports of libnccl.so.2: each function under its name and its name for profilers (pNAME). */
#include "sim/libraries/nccl/exports.h"

#include "sim/libraries/nccl/fail.h"

#define EXPORT __attribute__((visibility("default")))

#pragma GCC diagnostic ignored "-Wunused-parameter"
#pragma GCC diagnostic ignored "-Wmissing-prototypes"

#define X(name, parameters, arguments)                                                                               \
	EXPORT ncclResult_t name parameters;                                                                         \
	EXPORT ncclResult_t p##name parameters;                                                                      \
	ncclResult_t name parameters { return neap_##name arguments; }                                               \
	ncclResult_t p##name parameters { return neap_##name arguments; }
#define REFUSED(name, parameters)                                                                                    \
	EXPORT ncclResult_t name parameters;                                                                         \
	EXPORT ncclResult_t p##name parameters;                                                                      \
	ncclResult_t name parameters { return nccl_refuse(#name); }                                                  \
	ncclResult_t p##name parameters { return nccl_refuse(#name); }
#include "sim/libraries/nccl/functions.h"
#undef X
#undef REFUSED

/* Functions of nccl_device.h: kernels that communicate by themselves are not simulated. Arguments do not matter. */
#define REFUSED(name)                                                                                                \
	EXPORT ncclResult_t name(void);                                                                              \
	EXPORT ncclResult_t p##name(void);                                                                           \
	ncclResult_t name(void) { return nccl_refuse(#name); }                                                       \
	ncclResult_t p##name(void) { return nccl_refuse(#name); }
REFUSED(ncclCommQueryProperties)
REFUSED(ncclDevCommCreate)
REFUSED(ncclDevCommDestroy)
REFUSED(ncclGetLsaMultimemDevicePointer)
REFUSED(ncclGetMultimemDevicePointer)
REFUSED(ncclGetLsaDevicePointer)
REFUSED(ncclGetPeerDevicePointer)

/* -- those that return no ncclResult_t --------------------------------------------------------------------------- */

static const char *error_text(ncclResult_t result)
{
	static const char *const texts[] = {
		[ncclSuccess] = "no error",
		[ncclUnhandledCudaError] = "a CUDA call failed (NCCL_DEBUG=WARN prints why)",
		[ncclSystemError] = "system error (NCCL_DEBUG=WARN prints why)",
		[ncclInternalError] = "internal error (NCCL_DEBUG=WARN prints why)",
		[ncclInvalidArgument] = "invalid argument (NCCL_DEBUG=WARN prints why)",
		[ncclInvalidUsage] = "invalid usage (NCCL_DEBUG=WARN prints why)",
		[ncclRemoteError] = "another rank failed or ended (NCCL_DEBUG=WARN prints why)",
		[ncclInProgress] = "in progress",
	};

	return (unsigned int)result < sizeof texts / sizeof texts[0] ? texts[result] : "unknown result code";
}

EXPORT const char *ncclGetErrorString(ncclResult_t result);
EXPORT const char *pncclGetErrorString(ncclResult_t result);
EXPORT const char *ncclGetLastError(ncclComm_t comm);
EXPORT const char *pncclGetLastError(ncclComm_t comm);
EXPORT void ncclResetDebugInit(void);
EXPORT void pncclResetDebugInit(void);
EXPORT void ncclParamDumpAll(void);
EXPORT void pncclParamDumpAll(void);

const char *ncclGetErrorString(ncclResult_t result) { return error_text(result); }
const char *pncclGetErrorString(ncclResult_t result) { return error_text(result); }
const char *ncclGetLastError(ncclComm_t comm) { return nccl_last_error(); }
const char *pncclGetLastError(ncclComm_t comm) { return nccl_last_error(); }
void ncclResetDebugInit(void) {} /* there is no log */
void pncclResetDebugInit(void) {}
void ncclParamDumpAll(void) {} /* there are no parameters */
void pncclParamDumpAll(void) {}
