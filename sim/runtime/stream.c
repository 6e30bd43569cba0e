/* Streams and events: the driver's, and their gates (gate.c). */
#include "sim/runtime/runtime.h"

#include <stdlib.h>

int runtime_cudaStreamCreateWithPriority(CUstream *stream, unsigned int flags, int priority)
{
	int result = runtime_ready();

	return result == CUDA_SUCCESS ? runtime_cuda.cuStreamCreateWithPriority(stream, flags, priority) : result;
}

int runtime_cudaStreamCreateWithFlags(CUstream *stream, unsigned int flags)
{
	int result = runtime_ready();

	return result == CUDA_SUCCESS ? runtime_cuda.cuStreamCreate(stream, flags) : result;
}

int runtime_cudaStreamCreate(CUstream *stream) { return runtime_cudaStreamCreateWithFlags(stream, 0); }

int runtime_cudaStreamDestroy(CUstream stream)
{
	int result = runtime_ready();

	if (result == CUDA_SUCCESS)
		result = runtime_cuda.cuStreamDestroy(stream);
	if (result == CUDA_SUCCESS)
		gate_forget_stream(stream);
	return result;
}

int runtime_cudaStreamSynchronize(CUstream stream)
{
	int result = runtime_ready();

	if (result == CUDA_SUCCESS)
		result = runtime_cuda.cuStreamSynchronize(stream);
	if (result == CUDA_SUCCESS)
		gate_open_stream(stream);
	return result;
}

int runtime_cudaStreamQuery(CUstream stream)
{
	int result = runtime_ready();

	if (result == CUDA_SUCCESS)
		result = runtime_cuda.cuStreamQuery(stream);
	return result == CUDA_SUCCESS && !gate_try_stream(stream) ? CUDA_ERROR_NOT_READY : result;
}

int runtime_cudaStreamWaitEvent(CUstream stream, CUevent event, unsigned int flags)
{
	int result = runtime_ready();

	if (result == CUDA_SUCCESS)
		result = runtime_cuda.cuStreamWaitEvent(stream, event, flags);
	if (result == CUDA_SUCCESS)
		gate_waited(stream, event);
	return result;
}

int runtime_cudaStreamGetPriority(CUstream stream, int *priority)
{
	int result = runtime_ready();

	return result == CUDA_SUCCESS ? runtime_cuda.cuStreamGetPriority(stream, priority) : result;
}

int runtime_cudaStreamGetFlags(CUstream stream, unsigned int *flags)
{
	int result = runtime_ready();

	return result == CUDA_SUCCESS ? runtime_cuda.cuStreamGetFlags(stream, flags) : result;
}

int runtime_cudaStreamGetId(CUstream stream, unsigned long long *id)
{
	int result = runtime_ready();

	return result == CUDA_SUCCESS ? runtime_cuda.cuStreamGetId(stream, id) : result;
}

int runtime_cudaStreamGetDevice(CUstream stream, int *device)
{
	int result = runtime_ready();

	return result == CUDA_SUCCESS ? runtime_cuda.cuStreamGetDevice(stream, device) : result;
}

/* -- functions of the host --------------------------------------------------------------------------------------- */

int runtime_cudaLaunchHostFunc(CUstream stream, CUhostFn function, void *data)
{
	int result = runtime_ready();

	return result == CUDA_SUCCESS ? runtime_cuda.cuLaunchHostFunc(stream, function, data) : result;
}

struct callback {
	cudaStreamCallback_t function;
	CUstream stream;
	void *data;
};

static void call_back(void *argument)
{
	struct callback callback = *(struct callback *)argument;

	free(argument);
	callback.function(callback.stream, CUDA_SUCCESS, callback.data);
}

int runtime_cudaStreamAddCallback(CUstream stream, cudaStreamCallback_t function, void *data, unsigned int flags)
{
	struct callback *callback;
	int result;

	if (!function || flags != 0)
		return CUDA_ERROR_INVALID_VALUE;
	callback = malloc(sizeof *callback);
	if (!callback)
		return CUDA_ERROR_OUT_OF_MEMORY;
	*callback = (struct callback){function, stream, data};
	result = runtime_cudaLaunchHostFunc(stream, call_back, callback);
	if (result != CUDA_SUCCESS)
		free(callback);
	return result;
}

/* -- events ------------------------------------------------------------------------------------------------------ */

int runtime_cudaEventCreateWithFlags(CUevent *event, unsigned int flags)
{
	int result = runtime_ready();

	return result == CUDA_SUCCESS ? runtime_cuda.cuEventCreate(event, flags) : result;
}

int runtime_cudaEventCreate(CUevent *event) { return runtime_cudaEventCreateWithFlags(event, 0); }

int runtime_cudaEventDestroy(CUevent event)
{
	int result = runtime_ready();

	if (result == CUDA_SUCCESS)
		result = runtime_cuda.cuEventDestroy(event);
	if (result == CUDA_SUCCESS)
		gate_forget_event(event);
	return result;
}

int runtime_cudaEventRecordWithFlags(CUevent event, CUstream stream, unsigned int flags)
{
	int result = runtime_ready();

	if (result == CUDA_SUCCESS)
		result = runtime_cuda.cuEventRecordWithFlags(event, stream, flags);
	if (result == CUDA_SUCCESS)
		gate_recorded(event, stream);
	return result;
}

int runtime_cudaEventRecord(CUevent event, CUstream stream)
{
	return runtime_cudaEventRecordWithFlags(event, stream, 0);
}

int runtime_cudaEventQuery(CUevent event)
{
	int result = runtime_ready();

	if (result == CUDA_SUCCESS)
		result = runtime_cuda.cuEventQuery(event);
	return result == CUDA_SUCCESS && !gate_try_event(event) ? CUDA_ERROR_NOT_READY : result;
}

int runtime_cudaEventSynchronize(CUevent event)
{
	int result = runtime_ready();

	if (result == CUDA_SUCCESS)
		result = runtime_cuda.cuEventSynchronize(event);
	if (result == CUDA_SUCCESS)
		gate_open_event(event);
	return result;
}

int runtime_cudaEventElapsedTime(float *milliseconds, CUevent start, CUevent end)
{
	int result = runtime_ready();

	return result == CUDA_SUCCESS ? runtime_cuda.cuEventElapsedTime(milliseconds, start, end) : result;
}
