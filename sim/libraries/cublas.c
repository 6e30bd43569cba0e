/* cuBLAS: handles and their settings. The products themselves are plain functions of cublas.txt.
 *
 * PyTorch keeps a workspace of its own for each (handle, stream) and passes it to cublasSetWorkspace, so handles are
 * distinct while they live, and nothing here allocates device memory. NVIDIA's library also creates a default
 * workspace pool with the handle. The documentation of cublasSetWorkspace gives its size by architecture, but not
 * when it is allocated. So cublasCreate counts an interval from 0.
 */
#include "sim/libraries/cublas_common.h"
#include "sim/libraries/stand_in.h"

#include <pthread.h>
#include <stdlib.h>

#define MAGIC 0x6e63626c61733031ull

enum {
	NOT_INITIALIZED = CUBLAS_NOT_INITIALIZED,
	ALLOC_FAILED = CUBLAS_ALLOC_FAILED,
	INVALID_VALUE = CUBLAS_INVALID_VALUE
};

struct handle {
	uint64_t magic;
	void *stream;
	int pointer_mode; /* 0: host */
	int atomics_mode;
	int math_mode;
	int sm_count_target;
	int emulation_strategy;
	int emulation_special_values;
	int mantissa_control;
	int mantissa_max_bits;
	int mantissa_bit_offset;
	int *mantissa_bits;
};

#include "sim/libraries/handle.h"

intptr_t cublas_stream(uintptr_t first, void **ret_stream) { return handle_stream(first, ret_stream); }

bool cublas_host(uintptr_t first) { return handle_of(first)->pointer_mode == 0; }

/* The default workspace pool: 4 MiB, 32 MiB on compute capability 9.0 and 10.x, 12 MiB on 12.x. */
static uint64_t pool_bytes(int capability)
{
	if (capability == 90 || capability / 10 == 10)
		return 32ull << 20;
	return (capability / 10 == 12 ? 12ull : 4ull) << 20;
}

int cublasCreate_v2(struct handle **ret_handle)
{
	int capability = 0, status = handle_create(ret_handle, &capability);

	if (status)
		return status;
	(*ret_handle)->emulation_special_values = 0xffff;
	stand_in_workspace("cublasCreate_v2", 0, pool_bytes(capability));
	return 0;
}

int cublasDestroy_v2(struct handle *handle) { return handle_destroy(handle); }

int cublasSetWorkspace_v2(struct handle *handle, void *workspace, size_t bytes)
{
	if (!handle_of((uintptr_t)handle))
		return CUBLAS_NOT_INITIALIZED;
	return (uintptr_t)workspace % 256 == 0 || bytes == 0 ? 0 : CUBLAS_INVALID_VALUE;
}

HANDLE_FIELD(cublasSetStream_v2, cublasGetStream_v2, void *, stream)
HANDLE_FIELD(cublasSetPointerMode_v2, cublasGetPointerMode_v2, int, pointer_mode)
HANDLE_FIELD(cublasSetAtomicsMode, cublasGetAtomicsMode, int, atomics_mode)
HANDLE_FIELD(cublasSetMathMode, cublasGetMathMode, int, math_mode)
HANDLE_FIELD(cublasSetSmCountTarget, cublasGetSmCountTarget, int, sm_count_target)
HANDLE_FIELD(cublasSetEmulationStrategy, cublasGetEmulationStrategy, int, emulation_strategy)
HANDLE_FIELD(cublasSetEmulationSpecialValuesSupport, cublasGetEmulationSpecialValuesSupport, int,
	     emulation_special_values)
HANDLE_FIELD(cublasSetFixedPointEmulationMantissaControl, cublasGetFixedPointEmulationMantissaControl, int,
	     mantissa_control)
HANDLE_FIELD(cublasSetFixedPointEmulationMaxMantissaBitCount, cublasGetFixedPointEmulationMaxMantissaBitCount, int,
	     mantissa_max_bits)
HANDLE_FIELD(cublasSetFixedPointEmulationMantissaBitOffset, cublasGetFixedPointEmulationMantissaBitOffset, int,
	     mantissa_bit_offset)
HANDLE_FIELD(cublasSetFixedPointEmulationMantissaBitCountPointer, cublasGetFixedPointEmulationMantissaBitCountPointer,
	     int *, mantissa_bits)

static pthread_mutex_t log_lock = PTHREAD_MUTEX_INITIALIZER;
static void (*log_callback)(const char *message);

int cublasSetLoggerCallback(void (*callback)(const char *message))
{
	pthread_mutex_lock(&log_lock);
	log_callback = callback;
	pthread_mutex_unlock(&log_lock);
	return 0;
}

int cublasGetLoggerCallback(void (**ret_callback)(const char *message))
{
	if (!ret_callback)
		return CUBLAS_INVALID_VALUE;
	pthread_mutex_lock(&log_lock);
	*ret_callback = log_callback;
	pthread_mutex_unlock(&log_lock);
	return 0;
}
