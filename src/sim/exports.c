/* What libcuda.so.1 exports: one wrapper per driver function, made from the one list of them, so that none can escape
 * being counted, delayed, failed on purpose and logged. */
#include "sim/arguments.h"
#include "sim/state.h"

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

struct exported {
	const char *name;
	void (*function)(void);
};

static const struct exported functions[] = {
#define X(need, name, symbol, parameters) {#name, (void (*)(void))symbol},
#include "device/cuda_functions.h"
#undef X
	{"cuGetProcAddress", (void (*)(void))cuGetProcAddress_v2},
};

/* The oldest ABI on offer is CUDA 4's (the `_v2` names). */
#define OLDEST_VERSION 4000

CUresult cuGetProcAddress_v2(const char *symbol, void **ret_function, int cuda_version, cuuint64_t flags,
			     CUdriverProcAddressQueryResult *ret_status)
{
	CUdriverProcAddressQueryResult status = CU_GET_PROC_ADDRESS_SYMBOL_NOT_FOUND;
	size_t i;

	if (!symbol || !ret_function || flags > 1) /* 2: a default stream per thread, which is not there */
		return CUDA_ERROR_INVALID_VALUE;
	*ret_function = NULL;
	for (i = 0; i < sizeof(functions) / sizeof(functions[0]); i++) {
		if (strcmp(functions[i].name, symbol) != 0)
			continue;
		status = CU_GET_PROC_ADDRESS_VERSION_NOT_SUFFICIENT;
		if (cuda_version < OLDEST_VERSION)
			break;
		memcpy(ret_function, &functions[i].function, sizeof(*ret_function));
		status = CU_GET_PROC_ADDRESS_SUCCESS;
		break;
	}
	if (ret_status)
		*ret_status = status;
	return status == CU_GET_PROC_ADDRESS_SUCCESS ? CUDA_SUCCESS : CUDA_ERROR_NOT_FOUND;
}
