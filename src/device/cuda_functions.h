/* device/cuda_functions.h: the CUDA driver functions neap uses, once. No include guard: include it with X defined.
 *
 *   X(need, name, symbol, (parameters))
 *
 *   need    REQUIRED: without it the driver is unusable.  OPTIONAL: the pointer may be NULL
 *   name    what cuGetProcAddress_v2 is asked for, and the member of struct neap_cuda
 *   symbol  the versioned name that the library exports, the fallback, and what the simulator exports
 *
 * Source: CUDA driver API reference, 12.0 to 13.0. A test compares each prototype with cuda.h where that is installed.
 */
X(REQUIRED, cuInit, cuInit, (unsigned int flags))
X(REQUIRED, cuDriverGetVersion, cuDriverGetVersion, (int *version))
X(REQUIRED, cuDeviceGetCount, cuDeviceGetCount, (int *count))
X(REQUIRED, cuDeviceGet, cuDeviceGet, (CUdevice * device, int ordinal))
X(REQUIRED, cuDeviceGetName, cuDeviceGetName, (char *name, int length, CUdevice device))
X(REQUIRED, cuDeviceGetUuid, cuDeviceGetUuid_v2, (CUuuid * uuid, CUdevice device))
X(REQUIRED, cuDeviceTotalMem, cuDeviceTotalMem_v2, (size_t *bytes, CUdevice device))
X(REQUIRED, cuDeviceGetAttribute, cuDeviceGetAttribute, (int *value, CUdevice_attribute attribute, CUdevice device))
X(OPTIONAL, cuDeviceGetPCIBusId, cuDeviceGetPCIBusId, (char *id, int length, CUdevice device))
X(REQUIRED, cuDevicePrimaryCtxRetain, cuDevicePrimaryCtxRetain, (CUcontext * context, CUdevice device))
X(REQUIRED, cuDevicePrimaryCtxRelease, cuDevicePrimaryCtxRelease_v2, (CUdevice device))
X(REQUIRED, cuDevicePrimaryCtxGetState, cuDevicePrimaryCtxGetState, (CUdevice device, unsigned int *flags, int *active))
X(REQUIRED, cuCtxGetCurrent, cuCtxGetCurrent, (CUcontext * context))
X(REQUIRED, cuCtxSetCurrent, cuCtxSetCurrent, (CUcontext context))
X(REQUIRED, cuCtxPushCurrent, cuCtxPushCurrent_v2, (CUcontext context))
X(REQUIRED, cuCtxPopCurrent, cuCtxPopCurrent_v2, (CUcontext * context))
X(REQUIRED, cuCtxGetDevice, cuCtxGetDevice, (CUdevice * device))
X(REQUIRED, cuCtxSynchronize, cuCtxSynchronize, (void))
X(REQUIRED, cuMemGetInfo, cuMemGetInfo_v2, (size_t *free_bytes, size_t *total_bytes))
X(REQUIRED, cuMemAlloc, cuMemAlloc_v2, (CUdeviceptr * address, size_t bytes))
X(REQUIRED, cuMemFree, cuMemFree_v2, (CUdeviceptr address))
X(REQUIRED, cuMemGetAddressRange, cuMemGetAddressRange_v2, (CUdeviceptr * base, size_t *bytes, CUdeviceptr address))
X(REQUIRED, cuMemHostAlloc, cuMemHostAlloc, (void **pointer, size_t bytes, unsigned int flags))
X(REQUIRED, cuMemFreeHost, cuMemFreeHost, (void *pointer))
X(OPTIONAL, cuMemAddressReserve, cuMemAddressReserve,
  (CUdeviceptr * address, size_t bytes, size_t alignment, CUdeviceptr wanted, unsigned long long flags))
X(OPTIONAL, cuMemAddressFree, cuMemAddressFree, (CUdeviceptr address, size_t bytes))
X(OPTIONAL, cuMemCreate, cuMemCreate,
  (CUmemGenericAllocationHandle * handle, size_t bytes, const CUmemAllocationProp *properties, unsigned long long flags))
X(OPTIONAL, cuMemRelease, cuMemRelease, (CUmemGenericAllocationHandle handle))
X(OPTIONAL, cuMemMap, cuMemMap,
  (CUdeviceptr address, size_t bytes, size_t offset, CUmemGenericAllocationHandle handle, unsigned long long flags))
X(OPTIONAL, cuMemUnmap, cuMemUnmap, (CUdeviceptr address, size_t bytes))
X(OPTIONAL, cuMemSetAccess, cuMemSetAccess,
  (CUdeviceptr address, size_t bytes, const CUmemAccessDesc *access, size_t count))
X(OPTIONAL, cuMemGetAllocationGranularity, cuMemGetAllocationGranularity,
  (size_t *bytes, const CUmemAllocationProp *properties, CUmemAllocationGranularity_flags option))
X(OPTIONAL, cuMemAllocAsync, cuMemAllocAsync, (CUdeviceptr * address, size_t bytes, CUstream stream))
X(OPTIONAL, cuMemFreeAsync, cuMemFreeAsync, (CUdeviceptr address, CUstream stream))
X(OPTIONAL, cuDeviceGetDefaultMemPool, cuDeviceGetDefaultMemPool, (CUmemoryPool * pool, CUdevice device))
X(OPTIONAL, cuMemPoolTrimTo, cuMemPoolTrimTo, (CUmemoryPool pool, size_t bytes_to_keep))
X(OPTIONAL, cuMemPoolSetAttribute, cuMemPoolSetAttribute,
  (CUmemoryPool pool, CUmemPool_attribute attribute, void *value))
X(OPTIONAL, cuMemPoolGetAttribute, cuMemPoolGetAttribute,
  (CUmemoryPool pool, CUmemPool_attribute attribute, void *value))
X(REQUIRED, cuMemcpyHtoD, cuMemcpyHtoD_v2, (CUdeviceptr to, const void *from, size_t bytes))
X(REQUIRED, cuMemcpyDtoH, cuMemcpyDtoH_v2, (void *to, CUdeviceptr from, size_t bytes))
X(REQUIRED, cuMemcpyDtoD, cuMemcpyDtoD_v2, (CUdeviceptr to, CUdeviceptr from, size_t bytes))
X(REQUIRED, cuMemcpyHtoDAsync, cuMemcpyHtoDAsync_v2,
  (CUdeviceptr to, const void *from, size_t bytes, CUstream stream))
X(REQUIRED, cuMemcpyDtoHAsync, cuMemcpyDtoHAsync_v2, (void *to, CUdeviceptr from, size_t bytes, CUstream stream))
X(REQUIRED, cuMemcpyDtoDAsync, cuMemcpyDtoDAsync_v2,
  (CUdeviceptr to, CUdeviceptr from, size_t bytes, CUstream stream))
X(REQUIRED, cuMemsetD8, cuMemsetD8_v2, (CUdeviceptr to, unsigned char value, size_t count))
X(REQUIRED, cuMemsetD32, cuMemsetD32_v2, (CUdeviceptr to, unsigned int value, size_t count))
X(REQUIRED, cuMemsetD8Async, cuMemsetD8Async, (CUdeviceptr to, unsigned char value, size_t count, CUstream stream))
X(REQUIRED, cuMemsetD32Async, cuMemsetD32Async, (CUdeviceptr to, unsigned int value, size_t count, CUstream stream))
X(REQUIRED, cuStreamCreate, cuStreamCreate, (CUstream * stream, unsigned int flags))
X(REQUIRED, cuStreamDestroy, cuStreamDestroy_v2, (CUstream stream))
X(REQUIRED, cuStreamSynchronize, cuStreamSynchronize, (CUstream stream))
X(REQUIRED, cuStreamQuery, cuStreamQuery, (CUstream stream))
X(REQUIRED, cuStreamWaitEvent, cuStreamWaitEvent, (CUstream stream, CUevent event, unsigned int flags))
X(OPTIONAL, cuStreamIsCapturing, cuStreamIsCapturing, (CUstream stream, CUstreamCaptureStatus *status))
X(OPTIONAL, cuStreamBeginCapture, cuStreamBeginCapture_v2, (CUstream stream, CUstreamCaptureMode mode))
X(OPTIONAL, cuStreamEndCapture, cuStreamEndCapture, (CUstream stream, CUgraph *graph))
X(OPTIONAL, cuGraphDestroy, cuGraphDestroy, (CUgraph graph))
X(REQUIRED, cuEventCreate, cuEventCreate, (CUevent * event, unsigned int flags))
X(REQUIRED, cuEventDestroy, cuEventDestroy_v2, (CUevent event))
X(REQUIRED, cuEventRecord, cuEventRecord, (CUevent event, CUstream stream))
X(REQUIRED, cuEventQuery, cuEventQuery, (CUevent event))
X(REQUIRED, cuEventSynchronize, cuEventSynchronize, (CUevent event))
X(OPTIONAL, cuLaunchHostFunc, cuLaunchHostFunc, (CUstream stream, CUhostFn function, void *data))
X(OPTIONAL, cuPointerGetAttribute, cuPointerGetAttribute,
  (void *data, CUpointer_attribute attribute, CUdeviceptr address))
X(REQUIRED, cuGetErrorName, cuGetErrorName, (CUresult error, const char **name))
X(REQUIRED, cuGetErrorString, cuGetErrorString, (CUresult error, const char **text))
