/* Memory: device, host, managed; pools; attributes of pointers.
 *
 * The driver does all of it. Before a free, contents.c forgets the bytes: the next owner of the address reads zeros.
 */
#include "sim/runtime/runtime.h"

static CUdeviceptr number(const void *pointer) { return (CUdeviceptr)(uintptr_t)pointer; }

int runtime_cudaMalloc(void **pointer, size_t bytes)
{
	CUdeviceptr address = 0;
	int result = runtime_ready();

	if (result != CUDA_SUCCESS)
		return result;
	if (!pointer)
		return CUDA_ERROR_INVALID_VALUE;
	if (bytes > 0)
		result = runtime_cuda.cuMemAlloc(&address, bytes);
	if (result == CUDA_SUCCESS)
		*pointer = (void *)(uintptr_t)address;
	return result;
}

/* Drops the contents of the whole allocation that starts here. */
static void release_allocation(const void *pointer)
{
	CUdeviceptr start = 0;
	size_t bytes = 0;

	if (runtime_cuda.cuMemGetAddressRange(&start, &bytes, number(pointer)) != CUDA_SUCCESS)
		return;
	gate_free_range(start, bytes);
	contents_release(start, bytes);
}

int runtime_cudaFree(void *pointer)
{
	int result = runtime_ready();

	if (result != CUDA_SUCCESS || !pointer) /* programs create a context with cudaFree(NULL) */
		return result;
	gate_open_stream(NULL);
	release_allocation(pointer);
	return runtime_cuda.cuMemFree(number(pointer));
}

int runtime_cudaMallocPitch(void **pointer, size_t *pitch, size_t width, size_t height)
{
	CUdeviceptr address = 0;
	int result = runtime_ready();

	if (result != CUDA_SUCCESS)
		return result;
	if (!pointer || !pitch)
		return CUDA_ERROR_INVALID_VALUE;
	result = runtime_cuda.cuMemAllocPitch(&address, pitch, width, height, 16);
	if (result == CUDA_SUCCESS)
		*pointer = (void *)(uintptr_t)address;
	return result;
}

int runtime_cudaMalloc3D(struct cudaPitchedPtr *pitched, struct cudaExtent extent)
{
	void *pointer = NULL;
	size_t pitch = 0;
	int result;

	if (!pitched)
		return CUDA_ERROR_INVALID_VALUE;
	result = runtime_cudaMallocPitch(&pointer, &pitch, extent.width, extent.height * extent.depth);
	if (result == CUDA_SUCCESS)
		*pitched = (struct cudaPitchedPtr){pointer, pitch, extent.width, extent.height};
	return result;
}

int runtime_cudaMallocManaged(void **pointer, size_t bytes, unsigned int flags)
{
	CUdeviceptr address = 0;
	int result = runtime_ready();

	if (result != CUDA_SUCCESS)
		return result;
	if (!pointer)
		return CUDA_ERROR_INVALID_VALUE;
	result = runtime_cuda.cuMemAllocManaged(&address, bytes, flags);
	if (result == CUDA_SUCCESS)
		*pointer = (void *)(uintptr_t)address;
	return result;
}

int runtime_cudaMemGetInfo(size_t *free_bytes, size_t *total_bytes)
{
	int result = runtime_ready();

	return result == CUDA_SUCCESS ? runtime_cuda.cuMemGetInfo(free_bytes, total_bytes) : result;
}

/* -- host memory ------------------------------------------------------------------------------------------------- */

int runtime_cudaHostAlloc(void **pointer, size_t bytes, unsigned int flags)
{
	int result = runtime_ready();

	if (result != CUDA_SUCCESS)
		return result;
	if (!pointer)
		return CUDA_ERROR_INVALID_VALUE;
	if (bytes == 0) {
		*pointer = NULL;
		return CUDA_SUCCESS;
	}
	return runtime_cuda.cuMemHostAlloc(pointer, bytes, flags);
}

int runtime_cudaMallocHost(void **pointer, size_t bytes) { return runtime_cudaHostAlloc(pointer, bytes, 0); }

int runtime_cudaFreeHost(void *pointer)
{
	int result = runtime_ready();

	return result != CUDA_SUCCESS || !pointer ? result : runtime_cuda.cuMemFreeHost(pointer);
}

int runtime_cudaHostRegister(void *pointer, size_t bytes, unsigned int flags)
{
	int result = runtime_ready();

	return result == CUDA_SUCCESS ? runtime_cuda.cuMemHostRegister(pointer, bytes, flags) : result;
}

int runtime_cudaHostUnregister(void *pointer)
{
	int result = runtime_ready();

	return result == CUDA_SUCCESS ? runtime_cuda.cuMemHostUnregister(pointer) : result;
}

int runtime_cudaHostGetDevicePointer(void **device_pointer, void *pointer, unsigned int flags)
{
	CUdeviceptr address = 0;
	int result = runtime_ready();

	if (result != CUDA_SUCCESS)
		return result;
	if (!device_pointer)
		return CUDA_ERROR_INVALID_VALUE;
	result = runtime_cuda.cuMemHostGetDevicePointer(&address, pointer, flags);
	if (result == CUDA_SUCCESS)
		*device_pointer = (void *)(uintptr_t)address;
	return result;
}

int runtime_cudaHostGetFlags(unsigned int *flags, void *pointer)
{
	int result = runtime_ready();

	return result == CUDA_SUCCESS ? runtime_cuda.cuMemHostGetFlags(flags, pointer) : result;
}

/* -- attributes of pointers -------------------------------------------------------------------------------------- */

static int ask(CUpointer_attribute attribute, const void *pointer, void *ret_value)
{
	return runtime_cuda.cuPointerGetAttribute(ret_value, attribute, number(pointer));
}

/* An unknown pointer is not an error: it points to ordinary host memory. */
int runtime_cudaPointerGetAttributes(struct cudaPointerAttributes *attributes, const void *pointer)
{
	unsigned int type = 0, managed = 0;
	int result = runtime_ready();

	if (result != CUDA_SUCCESS)
		return result;
	if (!attributes)
		return CUDA_ERROR_INVALID_VALUE;
	memset(attributes, 0, sizeof *attributes);
	if (ask(CU_POINTER_ATTRIBUTE_MEMORY_TYPE, pointer, &type) != CUDA_SUCCESS) {
		attributes->type = cudaMemoryTypeUnregistered;
		attributes->device = -2; /* as documented for memory of no device: cudaInvalidDeviceId */
		attributes->hostPointer = (void *)(uintptr_t)pointer;
		return CUDA_SUCCESS;
	}
	(void)ask(CU_POINTER_ATTRIBUTE_DEVICE_ORDINAL, pointer, &attributes->device);
	(void)ask(CU_POINTER_ATTRIBUTE_IS_MANAGED, pointer, &managed);
	attributes->type = managed ? cudaMemoryTypeManaged : (int)type;
	attributes->devicePointer = (void *)(uintptr_t)pointer;
	attributes->hostPointer = attributes->type == cudaMemoryTypeDevice ? NULL : (void *)(uintptr_t)pointer;
	return CUDA_SUCCESS;
}

/* -- stream-ordered allocation ----------------------------------------------------------------------------------- */

/* Refuses the call in a capture, where it would become a memory node. How much memory a graph of the real driver
 * takes for such nodes is not documented. */
static int refuse_in_capture(const char *function)
{
	tally_count(GAP_REFUSED, "cudart", function, 0, 0);
	runtime_explain(
		"operation not supported: neap's simulator has no memory nodes, so cudaMallocAsync and "
		"cudaFreeAsync fail while a CUDA graph is captured. In PyTorch, leave out backend:cudaMallocAsync "
		"or the graphs");
	return CUDA_ERROR_NOT_SUPPORTED;
}

int runtime_cudaMallocAsync(void **pointer, size_t bytes, CUstream stream)
{
	CUdeviceptr address = 0;
	int result = runtime_ready();

	if (result != CUDA_SUCCESS)
		return result;
	if (!pointer)
		return CUDA_ERROR_INVALID_VALUE;
	if (runtime_capturing(stream))
		return refuse_in_capture("cudaMallocAsync(capture)");
	if (bytes > 0)
		result = runtime_cuda.cuMemAllocAsync(&address, bytes, stream);
	if (result == CUDA_SUCCESS)
		*pointer = (void *)(uintptr_t)address;
	return result;
}

int runtime_cudaMallocFromPoolAsync(void **pointer, size_t bytes, CUmemoryPool pool, CUstream stream)
{
	CUdeviceptr address = 0;
	int result = runtime_ready();

	if (result != CUDA_SUCCESS)
		return result;
	if (!pointer)
		return CUDA_ERROR_INVALID_VALUE;
	if (runtime_capturing(stream))
		return refuse_in_capture("cudaMallocFromPoolAsync(capture)");
	if (bytes > 0)
		result = runtime_cuda.cuMemAllocFromPoolAsync(&address, bytes, pool, stream);
	if (result == CUDA_SUCCESS)
		*pointer = (void *)(uintptr_t)address;
	return result;
}

int runtime_cudaFreeAsync(void *pointer, CUstream stream)
{
	int result = runtime_ready();

	if (result != CUDA_SUCCESS || !pointer)
		return result;
	if (runtime_capturing(stream))
		return refuse_in_capture("cudaFreeAsync(capture)");
	release_allocation(pointer);
	return runtime_cuda.cuMemFreeAsync(number(pointer), stream);
}

int runtime_cudaDeviceGetDefaultMemPool(CUmemoryPool *pool, int device)
{
	int result = runtime_open();

	return result == CUDA_SUCCESS ? runtime_cuda.cuDeviceGetDefaultMemPool(pool, device) : result;
}

int runtime_cudaDeviceGetMemPool(CUmemoryPool *pool, int device)
{
	int result = runtime_open();

	return result == CUDA_SUCCESS ? runtime_cuda.cuDeviceGetMemPool(pool, device) : result;
}

int runtime_cudaDeviceSetMemPool(int device, CUmemoryPool pool)
{
	int result = runtime_open();

	return result == CUDA_SUCCESS ? runtime_cuda.cuDeviceSetMemPool(device, pool) : result;
}

int runtime_cudaMemPoolCreate(CUmemoryPool *pool, const void *properties)
{
	int result = runtime_open();

	return result == CUDA_SUCCESS ? runtime_cuda.cuMemPoolCreate(pool, properties) : result;
}

int runtime_cudaMemPoolDestroy(CUmemoryPool pool)
{
	int result = runtime_open();

	return result == CUDA_SUCCESS ? runtime_cuda.cuMemPoolDestroy(pool) : result;
}

int runtime_cudaMemPoolSetAttribute(CUmemoryPool pool, int attribute, void *value)
{
	int result = runtime_open();

	return result == CUDA_SUCCESS ? runtime_cuda.cuMemPoolSetAttribute(pool, attribute, value) : result;
}

int runtime_cudaMemPoolGetAttribute(CUmemoryPool pool, int attribute, void *value)
{
	int result = runtime_open();

	return result == CUDA_SUCCESS ? runtime_cuda.cuMemPoolGetAttribute(pool, attribute, value) : result;
}

int runtime_cudaMemPoolTrimTo(CUmemoryPool pool, size_t bytes_to_keep)
{
	int result = runtime_open();

	return result == CUDA_SUCCESS ? runtime_cuda.cuMemPoolTrimTo(pool, bytes_to_keep) : result;
}

int runtime_cudaMemPoolSetAccess(CUmemoryPool pool, const CUmemAccessDesc *access, size_t count)
{
	int result = runtime_open();

	return result == CUDA_SUCCESS ? runtime_cuda.cuMemPoolSetAccess(pool, access, count) : result;
}

int runtime_cudaDeviceGetGraphMemAttribute(int device, int attribute, void *value)
{
	int result = runtime_open();

	return result == CUDA_SUCCESS ? runtime_cuda.cuDeviceGetGraphMemAttribute(device, attribute, value) : result;
}

int runtime_cudaDeviceSetGraphMemAttribute(int device, int attribute, void *value)
{
	int result = runtime_open();

	return result == CUDA_SUCCESS ? runtime_cuda.cuDeviceSetGraphMemAttribute(device, attribute, value) : result;
}

/* -- other processes --------------------------------------------------------------------------------------------- */

int runtime_cudaIpcGetMemHandle(cudaIpcHandle_t *handle, void *pointer)
{
	int result = runtime_ready();

	return result == CUDA_SUCCESS ? runtime_cuda.cuIpcGetMemHandle((void *)handle, number(pointer)) : result;
}

int runtime_cudaIpcOpenMemHandle(void **pointer, cudaIpcHandle_t handle, unsigned int flags)
{
	CUdeviceptr address = 0;
	CUipcMemHandle of_driver;
	int result = runtime_ready();

	if (result != CUDA_SUCCESS)
		return result;
	if (!pointer)
		return CUDA_ERROR_INVALID_VALUE;
	memcpy(&of_driver, &handle, sizeof of_driver);
	result = runtime_cuda.cuIpcOpenMemHandle(&address, of_driver, flags);
	if (result == CUDA_SUCCESS)
		*pointer = (void *)(uintptr_t)address;
	return result;
}

int runtime_cudaIpcCloseMemHandle(void *pointer)
{
	int result = runtime_ready();

	return result == CUDA_SUCCESS ? runtime_cuda.cuIpcCloseMemHandle(number(pointer)) : result;
}

int runtime_cudaIpcGetEventHandle(cudaIpcHandle_t *handle, CUevent event)
{
	int result = runtime_ready();

	return result == CUDA_SUCCESS ? runtime_cuda.cuIpcGetEventHandle((void *)handle, event) : result;
}

int runtime_cudaIpcOpenEventHandle(CUevent *event, cudaIpcHandle_t handle)
{
	CUipcEventHandle of_driver;
	int result = runtime_ready();

	memcpy(&of_driver, &handle, sizeof of_driver);
	return result == CUDA_SUCCESS ? runtime_cuda.cuIpcOpenEventHandle(event, of_driver) : result;
}

/* -- managed memory ---------------------------------------------------------------------------------------------- */

/* Managed memory is host memory here, so there is nothing to prefetch. On a GPU as well, the ledger would not show
 * how much of it is on the device. */
static int managed_hint(const void *pointer)
{
	struct cudaPointerAttributes attributes;
	int result = runtime_cudaPointerGetAttributes(&attributes, pointer);

	if (result != CUDA_SUCCESS)
		return result;
	return attributes.type == cudaMemoryTypeManaged ? CUDA_SUCCESS : CUDA_ERROR_INVALID_VALUE;
}

#if RUNTIME_MAJOR == 12
int runtime_cudaMemPrefetchAsync(const void *pointer, size_t bytes, int device, CUstream stream)
{
	(void)bytes, (void)device, (void)stream;
	return managed_hint(pointer);
}

int runtime_cudaMemPrefetchAsync_v2(const void *pointer, size_t bytes, CUmemLocation location, unsigned int flags,
				    CUstream stream)
{
	(void)bytes, (void)location, (void)flags, (void)stream;
	return managed_hint(pointer);
}

int runtime_cudaMemAdvise(const void *pointer, size_t bytes, int advice, int device)
{
	(void)bytes, (void)advice, (void)device;
	return managed_hint(pointer);
}
#else
int runtime_cudaMemPrefetchAsync(const void *pointer, size_t bytes, CUmemLocation location, unsigned int flags,
				 CUstream stream)
{
	(void)bytes, (void)location, (void)flags, (void)stream;
	return managed_hint(pointer);
}

int runtime_cudaMemAdvise(const void *pointer, size_t bytes, int advice, CUmemLocation location)
{
	(void)bytes, (void)advice, (void)location;
	return managed_hint(pointer);
}
#endif
