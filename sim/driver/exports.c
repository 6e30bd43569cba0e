/* The exports of libcuda.so.1: one wrapper per driver function, generated from the one list of them, so that every
 * call is counted, delayed, failed on purpose and logged. */
#include "sim/driver/arguments.h"
#include "sim/driver/state.h"

#include <limits.h>
#include <string.h>

#define X(need, name, symbol, parameters) NEAP_API CUresult symbol parameters;
#include "device/cuda_functions.h"
#undef X
NEAP_API CUresult cuGetProcAddress_v2(const char *symbol, void **ret_function, int cuda_version, cuuint64_t flags,
				      CUdriverProcAddressQueryResult *ret_status);

#define X(need, name, symbol, parameters)                                                                            \
	CUresult symbol parameters                                                                                   \
	{                                                                                                            \
		CUresult result = sim_call_enter(SIM_CALL_##name);                                                   \
                                                                                                                     \
		if (result == CUDA_SUCCESS)                                                                          \
			result = sim_##name ARGUMENTS_##name;                                                        \
		return sim_call_leave(SIM_CALL_##name, result);                                                      \
	}
#include "device/cuda_functions.h"
#undef X

/* Some names without a version belong to functions whose versioned form has the same parameters: programs look these
 * up with dlsym (PyTorch 2.5 to 2.8: cuStreamWriteValue32). Other names without a version take CUDA 3's 32-bit
 * addresses, and are absent. */
#define PLAIN(name, symbol) NEAP_API extern __typeof__(symbol) name __attribute__((alias(#symbol)))
PLAIN(cuCtxDestroy, cuCtxDestroy_v2);
PLAIN(cuCtxPopCurrent, cuCtxPopCurrent_v2);
PLAIN(cuCtxPushCurrent, cuCtxPushCurrent_v2);
PLAIN(cuDevicePrimaryCtxRelease, cuDevicePrimaryCtxRelease_v2);
PLAIN(cuDevicePrimaryCtxReset, cuDevicePrimaryCtxReset_v2);
PLAIN(cuDevicePrimaryCtxSetFlags, cuDevicePrimaryCtxSetFlags_v2);
PLAIN(cuEventDestroy, cuEventDestroy_v2);
PLAIN(cuIpcOpenMemHandle, cuIpcOpenMemHandle_v2);
PLAIN(cuMemHostRegister, cuMemHostRegister_v2);
PLAIN(cuStreamDestroy, cuStreamDestroy_v2);
PLAIN(cuStreamWaitValue32, cuStreamWaitValue32_v2);
PLAIN(cuStreamWaitValue64, cuStreamWaitValue64_v2);
PLAIN(cuStreamWriteValue32, cuStreamWriteValue32_v2);
PLAIN(cuStreamWriteValue64, cuStreamWriteValue64_v2);

NEAP_API CUresult cuGetProcAddress(const char *symbol, void **ret_function, int cuda_version, cuuint64_t flags);

typedef void (*entry)(void);

/* Functions whose parameters changed: programs built against CUDA `since` or newer get this one. Newest first. */
static const struct {
	const char *name;
	int since;
	entry function;
} changed[] = {
	{"cuCtxCreate", 12050, (entry)cuCtxCreate_v4},
	{"cuCtxCreate", 11040, (entry)cuCtxCreate_v3},
	{"cuCtxGetDevice", 13000, (entry)cuCtxGetDevice_v2},
	{"cuCtxSynchronize", 13000, (entry)cuCtxSynchronize_v2},
	{"cuGetProcAddress", 12000, (entry)cuGetProcAddress_v2},
	{"cuGetProcAddress", 0, (entry)cuGetProcAddress},
	{"cuGraphAddNode", 12030, (entry)cuGraphAddNode_v2},
	{"cuGraphExecUpdate", 12000, (entry)cuGraphExecUpdate_v2},
	{"cuGraphGetEdges", 12030, (entry)cuGraphGetEdges_v2},
	{"cuGraphGetEdges", 0, (entry)cuGraphGetEdges},
	{"cuGraphInstantiate", 0, (entry)cuGraphInstantiate_v2},
	{"cuGraphNodeGetDependencies", 12030, (entry)cuGraphNodeGetDependencies_v2},
	{"cuGraphNodeGetDependencies", 0, (entry)cuGraphNodeGetDependencies},
	{"cuGraphNodeGetDependentNodes", 12030, (entry)cuGraphNodeGetDependentNodes_v2},
	{"cuGraphNodeGetDependentNodes", 0, (entry)cuGraphNodeGetDependentNodes},
	{"cuMemAdvise", 12020, (entry)cuMemAdvise_v2},
	{"cuMemAdvise", 0, (entry)cuMemAdvise},
	{"cuMemPrefetchAsync", 12020, (entry)cuMemPrefetchAsync_v2},
	{"cuMemPrefetchAsync", 0, (entry)cuMemPrefetchAsync},
	{"cuStreamGetCaptureInfo", 12030, (entry)cuStreamGetCaptureInfo_v3},
	{"cuStreamGetCaptureInfo", 11030, (entry)cuStreamGetCaptureInfo_v2},
	{"cuStreamUpdateCaptureDependencies", 12030, (entry)cuStreamUpdateCaptureDependencies_v2},
	{"cuStreamUpdateCaptureDependencies", 0, (entry)cuStreamUpdateCaptureDependencies},
};

/* All other functions, by the name without a version. Names that end in _v1, _v2, ... are not in introduced.h. */
static const struct {
	const char *name;
	entry function;
} functions[] = {
#define X(need, name, symbol, parameters) {#name, (entry)symbol},
#include "device/cuda_functions.h"
#undef X
};

static const struct {
	int version;
	const char *names; /* separated by spaces */
} introduced[] = {
#include "sim/driver/introduced.h"
};

/* Returns the version of CUDA that introduced the function; INT_MAX: no such function. */
static int introduced_in(const char *name)
{
	size_t length = strlen(name);

	for (size_t i = 0; i < sizeof introduced / sizeof introduced[0]; i++)
		for (const char *at = introduced[i].names; *at; at += strcspn(at, " "), at += *at == ' ')
			if (strcspn(at, " ") == length && strncmp(at, name, length) == 0)
				return introduced[i].version;
	return INT_MAX;
}

/* Returns the function; NULL: a program built against this version cannot get it. */
static entry find(const char *name, int cuda_version)
{
	size_t i;

	if (cuda_version < introduced_in(name))
		return NULL;
	for (i = 0; i < sizeof changed / sizeof changed[0]; i++)
		if (cuda_version >= changed[i].since && strcmp(changed[i].name, name) == 0)
			return changed[i].function;
	for (i = 0; i < sizeof functions / sizeof functions[0]; i++)
		if (strcmp(functions[i].name, name) == 0)
			return functions[i].function;
	return NULL;
}

/* Finds a function. It treats stream 0 as the legacy stream, even if the flags ask for a default stream per thread:
 * then the order is stricter than the program asked for. */
static CUresult find_for(const char *symbol, void **ret_function, int cuda_version, cuuint64_t flags,
			 CUdriverProcAddressQueryResult *ret_status, const void *caller)
{
	CUdriverProcAddressQueryResult status = CU_GET_PROC_ADDRESS_SUCCESS;
	entry function;

	if (!symbol || !ret_function || flags > CU_GET_PROC_ADDRESS_PER_THREAD_DEFAULT_STREAM)
		return CUDA_ERROR_INVALID_VALUE;
	*ret_function = NULL;
	function = find(symbol, cuda_version);
	if (strcmp(symbol, "cuGetExportTable") == 0)
		sim_note_foreign_runtime(caller);
	if (!function)
		status = introduced_in(symbol) < INT_MAX ? CU_GET_PROC_ADDRESS_VERSION_NOT_SUFFICIENT
							 : CU_GET_PROC_ADDRESS_SYMBOL_NOT_FOUND;
	else
		memcpy(ret_function, &function, sizeof *ret_function);
	if (ret_status)
		*ret_status = status;
	return status == CU_GET_PROC_ADDRESS_SUCCESS ? CUDA_SUCCESS : CUDA_ERROR_NOT_FOUND;
}

CUresult cuGetProcAddress_v2(const char *symbol, void **ret_function, int cuda_version, cuuint64_t flags,
			     CUdriverProcAddressQueryResult *ret_status)
{
	return find_for(symbol, ret_function, cuda_version, flags, ret_status, __builtin_return_address(0));
}

CUresult cuGetProcAddress(const char *symbol, void **ret_function, int cuda_version, cuuint64_t flags)
{
	return find_for(symbol, ret_function, cuda_version, flags, NULL, __builtin_return_address(0));
}
