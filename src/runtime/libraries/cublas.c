/* cuBLAS: handles and their settings. The products themselves are plain functions of cublas.txt.
 *
 * PyTorch keeps a workspace of its own for each (handle, stream) and passes it to cublasSetWorkspace, so handles are
 * distinct while they live, and nothing here allocates device memory. NVIDIA's library also creates a default
 * workspace pool with the handle. The documentation of cublasSetWorkspace gives its size by architecture, but not
 * when it is allocated. So cublasCreate counts an interval from 0.
 */
#include "runtime/libraries/cublas_common.h"
#include "runtime/libraries/stand_in.h"

#include <pthread.h>
#include <stdlib.h>

#define MAGIC 0x6e63626c61733031ull

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

static struct handle *handle_of(uintptr_t first)
{
	struct handle *handle = (struct handle *)first;

	return handle && handle->magic == MAGIC ? handle : NULL;
}

intptr_t cublas_stream(uintptr_t first, void **ret_stream)
{
	const struct handle *handle = handle_of(first);

	if (!handle)
		return CUBLAS_NOT_INITIALIZED;
	*ret_stream = handle->stream;
	return 0;
}

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
	const struct runtime_services *services = stand_in_services();
	int capability = 0;
	int multiprocessors = 0;
	struct handle *handle;

	if (!ret_handle)
		return CUBLAS_INVALID_VALUE;
	*ret_handle = NULL;
	if (!services || !services->architecture(services->device(), &capability, &multiprocessors))
		return CUBLAS_NOT_INITIALIZED;
	handle = calloc(1, sizeof *handle);
	if (!handle)
		return CUBLAS_ALLOC_FAILED;
	handle->magic = MAGIC;
	handle->emulation_special_values = 0xffff;
	*ret_handle = handle;
	stand_in_workspace("cublasCreate_v2", 0, pool_bytes(capability));
	return 0;
}

int cublasDestroy_v2(struct handle *handle)
{
	if (!handle_of((uintptr_t)handle))
		return CUBLAS_NOT_INITIALIZED;
	handle->magic = 0;
	free(handle);
	return 0;
}

int cublasSetStream_v2(struct handle *handle, void *stream)
{
	if (!handle_of((uintptr_t)handle))
		return CUBLAS_NOT_INITIALIZED;
	handle->stream = stream;
	return 0;
}

int cublasGetStream_v2(struct handle *handle, void **ret_stream)
{
	if (!handle_of((uintptr_t)handle))
		return CUBLAS_NOT_INITIALIZED;
	if (!ret_stream)
		return CUBLAS_INVALID_VALUE;
	*ret_stream = handle->stream;
	return 0;
}

int cublasSetWorkspace_v2(struct handle *handle, void *workspace, size_t bytes)
{
	if (!handle_of((uintptr_t)handle))
		return CUBLAS_NOT_INITIALIZED;
	return (uintptr_t)workspace % 256 == 0 || bytes == 0 ? 0 : CUBLAS_INVALID_VALUE;
}

/* Get returns the values that were set. */
#define FIELD(set, get, type, field)                                                                                 \
	int set(struct handle *handle, type value)                                                                   \
	{                                                                                                            \
		if (!handle_of((uintptr_t)handle))                                                                   \
			return CUBLAS_NOT_INITIALIZED;                                                               \
		handle->field = value;                                                                               \
		return 0;                                                                                            \
	}                                                                                                            \
	int get(struct handle *handle, type *ret_value)                                                              \
	{                                                                                                            \
		if (!handle_of((uintptr_t)handle))                                                                   \
			return CUBLAS_NOT_INITIALIZED;                                                               \
		if (!ret_value)                                                                                      \
			return CUBLAS_INVALID_VALUE;                                                                 \
		*ret_value = handle->field;                                                                          \
		return 0;                                                                                            \
	}

FIELD(cublasSetPointerMode_v2, cublasGetPointerMode_v2, int, pointer_mode)
FIELD(cublasSetAtomicsMode, cublasGetAtomicsMode, int, atomics_mode)
FIELD(cublasSetMathMode, cublasGetMathMode, int, math_mode)
FIELD(cublasSetSmCountTarget, cublasGetSmCountTarget, int, sm_count_target)
FIELD(cublasSetEmulationStrategy, cublasGetEmulationStrategy, int, emulation_strategy)
FIELD(cublasSetEmulationSpecialValuesSupport, cublasGetEmulationSpecialValuesSupport, int, emulation_special_values)
FIELD(cublasSetFixedPointEmulationMantissaControl, cublasGetFixedPointEmulationMantissaControl, int, mantissa_control)
FIELD(cublasSetFixedPointEmulationMaxMantissaBitCount, cublasGetFixedPointEmulationMaxMantissaBitCount, int,
      mantissa_max_bits)
FIELD(cublasSetFixedPointEmulationMantissaBitOffset, cublasGetFixedPointEmulationMantissaBitOffset, int,
      mantissa_bit_offset)
FIELD(cublasSetFixedPointEmulationMantissaBitCountPointer, cublasGetFixedPointEmulationMantissaBitCountPointer, int *,
      mantissa_bits)

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
