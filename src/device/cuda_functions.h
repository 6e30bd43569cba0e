/* device/cuda_functions.h: the CUDA driver functions neap and its simulator know, once. No include guard: include it
 * with X defined.
 *
 *   X(need, name, symbol, (parameters))
 *
 *   need    REQUIRED: without it the driver is unusable.  OPTIONAL: the pointer may be NULL
 *   name    the name for cuGetProcAddress_v2, and the member of struct neap_cuda
 *   symbol  the versioned name that the library exports, the fallback, and the simulator's export
 *
 * libneap calls the functions of the first list. The second list is for programs that run on the simulator: neap's
 * libcudart, PyTorch, Triton. A function whose parameters changed after CUDA 12.0 has one entry for each form;
 * cuGetProcAddress does not know such a name (it ends in _v1, _v2, ...), so the loader uses the symbol.
 *
 * Source: CUDA driver API reference, 12.0 to 13.0. A test compares each prototype with cuda.h where that is
 * installed.
 */
X(REQUIRED, cuInit, cuInit, (unsigned int flags))
X(REQUIRED, cuDriverGetVersion, cuDriverGetVersion, (int *version))
X(REQUIRED, cuDeviceGetCount, cuDeviceGetCount, (int *count))
X(REQUIRED, cuDeviceGet, cuDeviceGet, (CUdevice * device, int ordinal))
X(REQUIRED, cuDeviceGetName, cuDeviceGetName, (char *name, int length, CUdevice device))
X(REQUIRED, cuDeviceGetUuid, cuDeviceGetUuid_v2, (CUuuid * uuid, CUdevice device))
X(REQUIRED, cuDeviceTotalMem, cuDeviceTotalMem_v2, (size_t * bytes, CUdevice device))
X(REQUIRED, cuDeviceGetAttribute, cuDeviceGetAttribute, (int *value, CUdevice_attribute attribute, CUdevice device))
X(OPTIONAL, cuDeviceGetPCIBusId, cuDeviceGetPCIBusId, (char *id, int length, CUdevice device))
X(REQUIRED, cuDevicePrimaryCtxRetain, cuDevicePrimaryCtxRetain, (CUcontext * context, CUdevice device))
X(REQUIRED, cuDevicePrimaryCtxRelease, cuDevicePrimaryCtxRelease_v2, (CUdevice device))
X(REQUIRED, cuDevicePrimaryCtxGetState, cuDevicePrimaryCtxGetState,
  (CUdevice device, unsigned int *flags, int *active))
X(REQUIRED, cuCtxGetCurrent, cuCtxGetCurrent, (CUcontext * context))
X(REQUIRED, cuCtxSetCurrent, cuCtxSetCurrent, (CUcontext context))
X(REQUIRED, cuCtxPushCurrent, cuCtxPushCurrent_v2, (CUcontext context))
X(REQUIRED, cuCtxPopCurrent, cuCtxPopCurrent_v2, (CUcontext * context))
X(REQUIRED, cuCtxGetDevice, cuCtxGetDevice, (CUdevice * device))
X(REQUIRED, cuCtxSynchronize, cuCtxSynchronize, (void))
X(REQUIRED, cuMemGetInfo, cuMemGetInfo_v2, (size_t * free_bytes, size_t *total_bytes))
X(REQUIRED, cuMemAlloc, cuMemAlloc_v2, (CUdeviceptr * address, size_t bytes))
X(REQUIRED, cuMemFree, cuMemFree_v2, (CUdeviceptr address))
X(REQUIRED, cuMemGetAddressRange, cuMemGetAddressRange_v2, (CUdeviceptr * base, size_t *bytes, CUdeviceptr address))
X(REQUIRED, cuMemHostAlloc, cuMemHostAlloc, (void **pointer, size_t bytes, unsigned int flags))
X(REQUIRED, cuMemFreeHost, cuMemFreeHost, (void *pointer))
X(OPTIONAL, cuMemAddressReserve, cuMemAddressReserve,
  (CUdeviceptr * address, size_t bytes, size_t alignment, CUdeviceptr wanted, unsigned long long flags))
X(OPTIONAL, cuMemAddressFree, cuMemAddressFree, (CUdeviceptr address, size_t bytes))
X(OPTIONAL, cuMemCreate, cuMemCreate,
  (CUmemGenericAllocationHandle * handle, size_t bytes, const CUmemAllocationProp *properties,
   unsigned long long flags))
X(OPTIONAL, cuMemRelease, cuMemRelease, (CUmemGenericAllocationHandle handle))
X(OPTIONAL, cuMemMap, cuMemMap,
  (CUdeviceptr address, size_t bytes, size_t offset, CUmemGenericAllocationHandle handle, unsigned long long flags))
X(OPTIONAL, cuMemUnmap, cuMemUnmap, (CUdeviceptr address, size_t bytes))
X(OPTIONAL, cuMemSetAccess, cuMemSetAccess,
  (CUdeviceptr address, size_t bytes, const CUmemAccessDesc *access, size_t count))
X(OPTIONAL, cuMemGetAllocationGranularity, cuMemGetAllocationGranularity,
  (size_t * bytes, const CUmemAllocationProp *properties, CUmemAllocationGranularity_flags option))
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

/* -- for programs on the simulator ------------------------------------------------------------------------------- */

/* Devices and contexts. */
X(OPTIONAL, cuDeviceGetUuid_v1, cuDeviceGetUuid, (CUuuid * uuid, CUdevice device))
X(OPTIONAL, cuDeviceGetLuid, cuDeviceGetLuid, (char *luid, unsigned int *node_mask, CUdevice device))
X(OPTIONAL, cuDeviceGetByPCIBusId, cuDeviceGetByPCIBusId, (CUdevice * device, const char *id))
X(OPTIONAL, cuDeviceComputeCapability, cuDeviceComputeCapability, (int *major, int *minor, CUdevice device))
X(OPTIONAL, cuDeviceGetTexture1DLinearMaxWidth, cuDeviceGetTexture1DLinearMaxWidth,
  (size_t * elements, CUarray_format format, unsigned int channels, CUdevice device))
X(OPTIONAL, cuDeviceGetExecAffinitySupport, cuDeviceGetExecAffinitySupport,
  (int *value, CUexecAffinityType type, CUdevice device))
X(OPTIONAL, cuFlushGPUDirectRDMAWrites, cuFlushGPUDirectRDMAWrites,
  (CUflushGPUDirectRDMAWritesTarget target, CUflushGPUDirectRDMAWritesScope scope))
X(OPTIONAL, cuDeviceCanAccessPeer, cuDeviceCanAccessPeer, (int *value, CUdevice device, CUdevice peer))
X(OPTIONAL, cuDeviceGetP2PAttribute, cuDeviceGetP2PAttribute,
  (int *value, CUdevice_P2PAttribute attribute, CUdevice from, CUdevice to))
X(OPTIONAL, cuDevicePrimaryCtxSetFlags, cuDevicePrimaryCtxSetFlags_v2, (CUdevice device, unsigned int flags))
X(OPTIONAL, cuDevicePrimaryCtxReset, cuDevicePrimaryCtxReset_v2, (CUdevice device))
X(OPTIONAL, cuCtxCreate, cuCtxCreate_v2, (CUcontext * context, unsigned int flags, CUdevice device))
X(OPTIONAL, cuCtxCreate_v3, cuCtxCreate_v3,
  (CUcontext * context, CUexecAffinityParam *affinity, int count, unsigned int flags, CUdevice device))
X(OPTIONAL, cuCtxCreate_v4, cuCtxCreate_v4,
  (CUcontext * context, CUctxCreateParams *parameters, unsigned int flags, CUdevice device))
X(OPTIONAL, cuCtxDestroy, cuCtxDestroy_v2, (CUcontext context))
X(OPTIONAL, cuCtxGetDevice_v2, cuCtxGetDevice_v2, (CUdevice * device, CUcontext context))
X(OPTIONAL, cuCtxSynchronize_v2, cuCtxSynchronize_v2, (CUcontext context))
X(OPTIONAL, cuCtxGetFlags, cuCtxGetFlags, (unsigned int *flags))
X(OPTIONAL, cuCtxSetFlags, cuCtxSetFlags, (unsigned int flags))
X(OPTIONAL, cuCtxGetId, cuCtxGetId, (CUcontext context, unsigned long long *id))
X(OPTIONAL, cuCtxGetApiVersion, cuCtxGetApiVersion, (CUcontext context, unsigned int *version))
X(OPTIONAL, cuCtxGetLimit, cuCtxGetLimit, (size_t * value, CUlimit limit))
X(OPTIONAL, cuCtxSetLimit, cuCtxSetLimit, (CUlimit limit, size_t value))
X(OPTIONAL, cuCtxGetCacheConfig, cuCtxGetCacheConfig, (CUfunc_cache * config))
X(OPTIONAL, cuCtxSetCacheConfig, cuCtxSetCacheConfig, (CUfunc_cache config))
X(OPTIONAL, cuCtxGetSharedMemConfig, cuCtxGetSharedMemConfig, (CUsharedconfig * config))
X(OPTIONAL, cuCtxSetSharedMemConfig, cuCtxSetSharedMemConfig, (CUsharedconfig config))
X(OPTIONAL, cuCtxGetStreamPriorityRange, cuCtxGetStreamPriorityRange, (int *least, int *greatest))
X(OPTIONAL, cuCtxResetPersistingL2Cache, cuCtxResetPersistingL2Cache, (void))
X(OPTIONAL, cuCtxEnablePeerAccess, cuCtxEnablePeerAccess, (CUcontext peer, unsigned int flags))
X(OPTIONAL, cuCtxDisablePeerAccess, cuCtxDisablePeerAccess, (CUcontext peer))
X(OPTIONAL, cuDeviceGetDevResource, cuDeviceGetDevResource,
  (CUdevice device, CUdevResource *resource, CUdevResourceType type))
X(OPTIONAL, cuDevSmResourceSplitByCount, cuDevSmResourceSplitByCount,
  (CUdevResource * parts, unsigned int *groups, const CUdevResource *input, CUdevResource *rest, unsigned int flags,
   unsigned int least))
X(OPTIONAL, cuDevResourceGenerateDesc, cuDevResourceGenerateDesc,
  (CUdevResourceDesc * description, CUdevResource *resources, unsigned int count))
X(OPTIONAL, cuGreenCtxCreate, cuGreenCtxCreate,
  (CUgreenCtx * context, CUdevResourceDesc description, CUdevice device, unsigned int flags))
X(OPTIONAL, cuGreenCtxDestroy, cuGreenCtxDestroy, (CUgreenCtx context))
X(OPTIONAL, cuCtxFromGreenCtx, cuCtxFromGreenCtx, (CUcontext * context, CUgreenCtx green))
X(OPTIONAL, cuGreenCtxStreamCreate, cuGreenCtxStreamCreate,
  (CUstream * stream, CUgreenCtx green, unsigned int flags, int priority))
X(OPTIONAL, cuProfilerStart, cuProfilerStart, (void))
X(OPTIONAL, cuProfilerStop, cuProfilerStop, (void))
X(OPTIONAL, cuLogsRegisterCallback, cuLogsRegisterCallback,
  (CUlogsCallback function, void *data, CUlogsCallbackHandle *handle))
X(OPTIONAL, cuLogsUnregisterCallback, cuLogsUnregisterCallback, (CUlogsCallbackHandle handle))

/* Modules, functions, launches. */
X(OPTIONAL, cuModuleLoad, cuModuleLoad, (CUmodule * module, const char *path))
X(OPTIONAL, cuModuleLoadData, cuModuleLoadData, (CUmodule * module, const void *image))
X(OPTIONAL, cuModuleLoadDataEx, cuModuleLoadDataEx,
  (CUmodule * module, const void *image, unsigned int count, CUjit_option *options, void **values))
X(OPTIONAL, cuModuleLoadFatBinary, cuModuleLoadFatBinary, (CUmodule * module, const void *image))
X(OPTIONAL, cuModuleUnload, cuModuleUnload, (CUmodule module))
X(OPTIONAL, cuModuleGetLoadingMode, cuModuleGetLoadingMode, (CUmoduleLoadingMode * mode))
X(OPTIONAL, cuModuleGetFunction, cuModuleGetFunction, (CUfunction * function, CUmodule module, const char *name))
X(OPTIONAL, cuModuleGetGlobal, cuModuleGetGlobal_v2,
  (CUdeviceptr * address, size_t *bytes, CUmodule module, const char *name))
X(OPTIONAL, cuLibraryLoadData, cuLibraryLoadData,
  (CUlibrary * library, const void *code, CUjit_option *jit_options, void **jit_values, unsigned int jit_count,
   CUlibraryOption *options, void **values, unsigned int count))
X(OPTIONAL, cuLibraryLoadFromFile, cuLibraryLoadFromFile,
  (CUlibrary * library, const char *path, CUjit_option *jit_options, void **jit_values, unsigned int jit_count,
   CUlibraryOption *options, void **values, unsigned int count))
X(OPTIONAL, cuLibraryUnload, cuLibraryUnload, (CUlibrary library))
X(OPTIONAL, cuLibraryGetKernel, cuLibraryGetKernel, (CUkernel * kernel, CUlibrary library, const char *name))
X(OPTIONAL, cuLibraryGetKernelCount, cuLibraryGetKernelCount, (unsigned int *count, CUlibrary library))
X(OPTIONAL, cuLibraryEnumerateKernels, cuLibraryEnumerateKernels,
  (CUkernel * kernels, unsigned int count, CUlibrary library))
X(OPTIONAL, cuLibraryGetModule, cuLibraryGetModule, (CUmodule * module, CUlibrary library))
X(OPTIONAL, cuLibraryGetGlobal, cuLibraryGetGlobal,
  (CUdeviceptr * address, size_t *bytes, CUlibrary library, const char *name))
X(OPTIONAL, cuLibraryGetManaged, cuLibraryGetManaged,
  (CUdeviceptr * address, size_t *bytes, CUlibrary library, const char *name))
X(OPTIONAL, cuLibraryGetUnifiedFunction, cuLibraryGetUnifiedFunction,
  (void **function, CUlibrary library, const char *name))
X(OPTIONAL, cuKernelGetFunction, cuKernelGetFunction, (CUfunction * function, CUkernel kernel))
X(OPTIONAL, cuKernelGetLibrary, cuKernelGetLibrary, (CUlibrary * library, CUkernel kernel))
X(OPTIONAL, cuKernelGetName, cuKernelGetName, (const char **name, CUkernel kernel))
X(OPTIONAL, cuKernelGetAttribute, cuKernelGetAttribute,
  (int *value, CUfunction_attribute attribute, CUkernel kernel, CUdevice device))
X(OPTIONAL, cuKernelSetAttribute, cuKernelSetAttribute,
  (CUfunction_attribute attribute, int value, CUkernel kernel, CUdevice device))
X(OPTIONAL, cuKernelSetCacheConfig, cuKernelSetCacheConfig, (CUkernel kernel, CUfunc_cache config, CUdevice device))
X(OPTIONAL, cuFuncGetModule, cuFuncGetModule, (CUmodule * module, CUfunction function))
X(OPTIONAL, cuFuncGetName, cuFuncGetName, (const char **name, CUfunction function))
X(OPTIONAL, cuFuncGetAttribute, cuFuncGetAttribute, (int *value, CUfunction_attribute attribute, CUfunction function))
X(OPTIONAL, cuFuncSetAttribute, cuFuncSetAttribute, (CUfunction function, CUfunction_attribute attribute, int value))
X(OPTIONAL, cuFuncSetCacheConfig, cuFuncSetCacheConfig, (CUfunction function, CUfunc_cache config))
X(OPTIONAL, cuFuncSetSharedMemConfig, cuFuncSetSharedMemConfig, (CUfunction function, CUsharedconfig config))
X(OPTIONAL, cuFuncIsLoaded, cuFuncIsLoaded, (CUfunctionLoadingState * state, CUfunction function))
X(OPTIONAL, cuFuncLoad, cuFuncLoad, (CUfunction function))
X(OPTIONAL, cuLaunchKernel, cuLaunchKernel,
  (CUfunction function, unsigned int grid_x, unsigned int grid_y, unsigned int grid_z, unsigned int block_x,
   unsigned int block_y, unsigned int block_z, unsigned int shared_bytes, CUstream stream, void **parameters,
   void **extra))
X(OPTIONAL, cuLaunchKernelEx, cuLaunchKernelEx,
  (const CUlaunchConfig *config, CUfunction function, void **parameters, void **extra))
X(OPTIONAL, cuLaunchCooperativeKernel, cuLaunchCooperativeKernel,
  (CUfunction function, unsigned int grid_x, unsigned int grid_y, unsigned int grid_z, unsigned int block_x,
   unsigned int block_y, unsigned int block_z, unsigned int shared_bytes, CUstream stream, void **parameters))
X(OPTIONAL, cuOccupancyMaxActiveBlocksPerMultiprocessor, cuOccupancyMaxActiveBlocksPerMultiprocessor,
  (int *blocks, CUfunction function, int block_size, size_t shared_bytes))
X(OPTIONAL, cuOccupancyMaxActiveBlocksPerMultiprocessorWithFlags,
  cuOccupancyMaxActiveBlocksPerMultiprocessorWithFlags,
  (int *blocks, CUfunction function, int block_size, size_t shared_bytes, unsigned int flags))
X(OPTIONAL, cuOccupancyMaxPotentialBlockSize, cuOccupancyMaxPotentialBlockSize,
  (int *grid_size, int *block_size, CUfunction function, CUoccupancyB2DSize shared_of_block, size_t shared_bytes,
   int limit))
X(OPTIONAL, cuOccupancyMaxPotentialBlockSizeWithFlags, cuOccupancyMaxPotentialBlockSizeWithFlags,
  (int *grid_size, int *block_size, CUfunction function, CUoccupancyB2DSize shared_of_block, size_t shared_bytes,
   int limit, unsigned int flags))
X(OPTIONAL, cuOccupancyAvailableDynamicSMemPerBlock, cuOccupancyAvailableDynamicSMemPerBlock,
  (size_t * shared_bytes, CUfunction function, int blocks, int block_size))
X(OPTIONAL, cuOccupancyMaxPotentialClusterSize, cuOccupancyMaxPotentialClusterSize,
  (int *size, CUfunction function, const CUlaunchConfig *config))
X(OPTIONAL, cuOccupancyMaxActiveClusters, cuOccupancyMaxActiveClusters,
  (int *clusters, CUfunction function, const CUlaunchConfig *config))
X(OPTIONAL, cuTensorMapEncodeTiled, cuTensorMapEncodeTiled,
  (CUtensorMap * map, CUtensorMapDataType type, uint32_t rank, void *address, const cuuint64_t *sizes,
   const cuuint64_t *strides, const uint32_t *box, const uint32_t *element_strides, CUtensorMapInterleave interleave,
   CUtensorMapSwizzle swizzle, CUtensorMapL2promotion promotion, CUtensorMapFloatOOBfill fill))
X(OPTIONAL, cuLinkCreate, cuLinkCreate_v2,
  (unsigned int count, CUjit_option *options, void **values, CUlinkState *state))
X(OPTIONAL, cuLinkAddData, cuLinkAddData_v2,
  (CUlinkState state, CUjitInputType type, void *data, size_t bytes, const char *name, unsigned int count,
   CUjit_option *options, void **values))
X(OPTIONAL, cuLinkAddFile, cuLinkAddFile_v2,
  (CUlinkState state, CUjitInputType type, const char *path, unsigned int count, CUjit_option *options,
   void **values))
X(OPTIONAL, cuLinkComplete, cuLinkComplete, (CUlinkState state, void **image, size_t *bytes))
X(OPTIONAL, cuLinkDestroy, cuLinkDestroy, (CUlinkState state))

/* Streams and events. */
X(OPTIONAL, cuStreamCreateWithPriority, cuStreamCreateWithPriority,
  (CUstream * stream, unsigned int flags, int priority))
X(OPTIONAL, cuStreamGetPriority, cuStreamGetPriority, (CUstream stream, int *priority))
X(OPTIONAL, cuStreamGetFlags, cuStreamGetFlags, (CUstream stream, unsigned int *flags))
X(OPTIONAL, cuStreamGetId, cuStreamGetId, (CUstream stream, unsigned long long *id))
X(OPTIONAL, cuStreamGetCtx, cuStreamGetCtx, (CUstream stream, CUcontext *context))
X(OPTIONAL, cuStreamGetDevice, cuStreamGetDevice, (CUstream stream, CUdevice *device))
X(OPTIONAL, cuStreamAddCallback, cuStreamAddCallback,
  (CUstream stream, CUstreamCallback function, void *data, unsigned int flags))
X(OPTIONAL, cuStreamAttachMemAsync, cuStreamAttachMemAsync,
  (CUstream stream, CUdeviceptr address, size_t bytes, unsigned int flags))
X(OPTIONAL, cuStreamGetAttribute, cuStreamGetAttribute,
  (CUstream stream, CUstreamAttrID attribute, CUstreamAttrValue *value))
X(OPTIONAL, cuStreamSetAttribute, cuStreamSetAttribute,
  (CUstream stream, CUstreamAttrID attribute, const CUstreamAttrValue *value))
X(OPTIONAL, cuStreamCopyAttributes, cuStreamCopyAttributes, (CUstream to, CUstream from))
X(OPTIONAL, cuStreamWriteValue32, cuStreamWriteValue32_v2,
  (CUstream stream, CUdeviceptr address, uint32_t value, unsigned int flags))
X(OPTIONAL, cuStreamWaitValue32, cuStreamWaitValue32_v2,
  (CUstream stream, CUdeviceptr address, uint32_t value, unsigned int flags))
X(OPTIONAL, cuStreamWriteValue64, cuStreamWriteValue64_v2,
  (CUstream stream, CUdeviceptr address, cuuint64_t value, unsigned int flags))
X(OPTIONAL, cuStreamWaitValue64, cuStreamWaitValue64_v2,
  (CUstream stream, CUdeviceptr address, cuuint64_t value, unsigned int flags))
X(OPTIONAL, cuEventRecordWithFlags, cuEventRecordWithFlags, (CUevent event, CUstream stream, unsigned int flags))
X(OPTIONAL, cuEventElapsedTime, cuEventElapsedTime, (float *milliseconds, CUevent start, CUevent end))
X(OPTIONAL, cuEventElapsedTime_v2, cuEventElapsedTime_v2, (float *milliseconds, CUevent start, CUevent end))

/* Capture and graphs. */
X(OPTIONAL, cuThreadExchangeStreamCaptureMode, cuThreadExchangeStreamCaptureMode, (CUstreamCaptureMode * mode))
X(OPTIONAL, cuStreamBeginCaptureToGraph, cuStreamBeginCaptureToGraph,
  (CUstream stream, CUgraph graph, const CUgraphNode *dependencies, const CUgraphEdgeData *edges, size_t count,
   CUstreamCaptureMode mode))
X(OPTIONAL, cuStreamGetCaptureInfo_v2, cuStreamGetCaptureInfo_v2,
  (CUstream stream, CUstreamCaptureStatus *status, cuuint64_t *id, CUgraph *graph, const CUgraphNode **dependencies,
   size_t *count))
X(OPTIONAL, cuStreamGetCaptureInfo_v3, cuStreamGetCaptureInfo_v3,
  (CUstream stream, CUstreamCaptureStatus *status, cuuint64_t *id, CUgraph *graph, const CUgraphNode **dependencies,
   const CUgraphEdgeData **edges, size_t *count))
X(OPTIONAL, cuStreamUpdateCaptureDependencies_v1, cuStreamUpdateCaptureDependencies,
  (CUstream stream, CUgraphNode *dependencies, size_t count, unsigned int flags))
X(OPTIONAL, cuStreamUpdateCaptureDependencies_v2, cuStreamUpdateCaptureDependencies_v2,
  (CUstream stream, CUgraphNode *dependencies, const CUgraphEdgeData *edges, size_t count, unsigned int flags))
X(OPTIONAL, cuGraphCreate, cuGraphCreate, (CUgraph * graph, unsigned int flags))
X(OPTIONAL, cuGraphClone, cuGraphClone, (CUgraph * clone, CUgraph graph))
X(OPTIONAL, cuGraphAddEmptyNode, cuGraphAddEmptyNode,
  (CUgraphNode * node, CUgraph graph, const CUgraphNode *dependencies, size_t count))
X(OPTIONAL, cuGraphAddNode_v2, cuGraphAddNode_v2,
  (CUgraphNode * node, CUgraph graph, const CUgraphNode *dependencies, const CUgraphEdgeData *edges, size_t count,
   CUgraphNodeParams *parameters))
X(OPTIONAL, cuGraphConditionalHandleCreate, cuGraphConditionalHandleCreate,
  (CUgraphConditionalHandle * handle, CUgraph graph, CUcontext context, unsigned int value, unsigned int flags))
X(OPTIONAL, cuGraphGetNodes, cuGraphGetNodes, (CUgraph graph, CUgraphNode *nodes, size_t *count))
X(OPTIONAL, cuGraphGetRootNodes, cuGraphGetRootNodes, (CUgraph graph, CUgraphNode *nodes, size_t *count))
X(OPTIONAL, cuGraphGetEdges_v1, cuGraphGetEdges, (CUgraph graph, CUgraphNode *from, CUgraphNode *to, size_t *count))
X(OPTIONAL, cuGraphGetEdges_v2, cuGraphGetEdges_v2,
  (CUgraph graph, CUgraphNode *from, CUgraphNode *to, CUgraphEdgeData *edges, size_t *count))
X(OPTIONAL, cuGraphNodeGetType, cuGraphNodeGetType, (CUgraphNode node, CUgraphNodeType *type))
X(OPTIONAL, cuGraphNodeGetDependencies_v1, cuGraphNodeGetDependencies,
  (CUgraphNode node, CUgraphNode *dependencies, size_t *count))
X(OPTIONAL, cuGraphNodeGetDependencies_v2, cuGraphNodeGetDependencies_v2,
  (CUgraphNode node, CUgraphNode *dependencies, CUgraphEdgeData *edges, size_t *count))
X(OPTIONAL, cuGraphNodeGetDependentNodes_v1, cuGraphNodeGetDependentNodes,
  (CUgraphNode node, CUgraphNode *dependents, size_t *count))
X(OPTIONAL, cuGraphNodeGetDependentNodes_v2, cuGraphNodeGetDependentNodes_v2,
  (CUgraphNode node, CUgraphNode *dependents, CUgraphEdgeData *edges, size_t *count))
X(OPTIONAL, cuGraphDebugDotPrint, cuGraphDebugDotPrint, (CUgraph graph, const char *path, unsigned int flags))
X(OPTIONAL, cuGraphInstantiate_v2, cuGraphInstantiate_v2,
  (CUgraphExec * executable, CUgraph graph, CUgraphNode *error_node, char *log, size_t log_bytes))
X(OPTIONAL, cuGraphInstantiateWithFlags, cuGraphInstantiateWithFlags,
  (CUgraphExec * executable, CUgraph graph, unsigned long long flags))
X(OPTIONAL, cuGraphInstantiateWithParams, cuGraphInstantiateWithParams,
  (CUgraphExec * executable, CUgraph graph, CUDA_GRAPH_INSTANTIATE_PARAMS *parameters))
X(OPTIONAL, cuGraphExecGetFlags, cuGraphExecGetFlags, (CUgraphExec executable, cuuint64_t *flags))
X(OPTIONAL, cuGraphExecUpdate_v2, cuGraphExecUpdate_v2,
  (CUgraphExec executable, CUgraph graph, CUgraphExecUpdateResultInfo *outcome))
X(OPTIONAL, cuGraphUpload, cuGraphUpload, (CUgraphExec executable, CUstream stream))
X(OPTIONAL, cuGraphLaunch, cuGraphLaunch, (CUgraphExec executable, CUstream stream))
X(OPTIONAL, cuGraphExecDestroy, cuGraphExecDestroy, (CUgraphExec executable))
X(OPTIONAL, cuUserObjectCreate, cuUserObjectCreate,
  (CUuserObject * object, void *pointer, CUhostFn destroy, unsigned int references, unsigned int flags))
X(OPTIONAL, cuUserObjectRetain, cuUserObjectRetain, (CUuserObject object, unsigned int count))
X(OPTIONAL, cuUserObjectRelease, cuUserObjectRelease, (CUuserObject object, unsigned int count))
X(OPTIONAL, cuGraphRetainUserObject, cuGraphRetainUserObject,
  (CUgraph graph, CUuserObject object, unsigned int count, unsigned int flags))
X(OPTIONAL, cuGraphReleaseUserObject, cuGraphReleaseUserObject,
  (CUgraph graph, CUuserObject object, unsigned int count))
X(OPTIONAL, cuDeviceGetGraphMemAttribute, cuDeviceGetGraphMemAttribute,
  (CUdevice device, CUgraphMem_attribute attribute, void *value))
X(OPTIONAL, cuDeviceSetGraphMemAttribute, cuDeviceSetGraphMemAttribute,
  (CUdevice device, CUgraphMem_attribute attribute, void *value))
X(OPTIONAL, cuDeviceGraphMemTrim, cuDeviceGraphMemTrim, (CUdevice device))

/* Memory. */
X(OPTIONAL, cuMemAllocHost, cuMemAllocHost_v2, (void **pointer, size_t bytes))
X(OPTIONAL, cuMemAllocManaged, cuMemAllocManaged, (CUdeviceptr * address, size_t bytes, unsigned int flags))
X(OPTIONAL, cuMemAllocPitch, cuMemAllocPitch_v2,
  (CUdeviceptr * address, size_t *pitch, size_t width, size_t height, unsigned int element_bytes))
X(OPTIONAL, cuMemHostRegister, cuMemHostRegister_v2, (void *pointer, size_t bytes, unsigned int flags))
X(OPTIONAL, cuMemHostUnregister, cuMemHostUnregister, (void *pointer))
X(OPTIONAL, cuMemHostGetDevicePointer, cuMemHostGetDevicePointer_v2,
  (CUdeviceptr * address, void *pointer, unsigned int flags))
X(OPTIONAL, cuMemHostGetFlags, cuMemHostGetFlags, (unsigned int *flags, void *pointer))
X(OPTIONAL, cuPointerGetAttributes, cuPointerGetAttributes,
  (unsigned int count, CUpointer_attribute *attributes, void **data, CUdeviceptr address))
X(OPTIONAL, cuPointerSetAttribute, cuPointerSetAttribute,
  (const void *value, CUpointer_attribute attribute, CUdeviceptr address))
X(OPTIONAL, cuMemExportToShareableHandle, cuMemExportToShareableHandle,
  (void *shareable, CUmemGenericAllocationHandle handle, CUmemAllocationHandleType type, unsigned long long flags))
X(OPTIONAL, cuMemImportFromShareableHandle, cuMemImportFromShareableHandle,
  (CUmemGenericAllocationHandle * handle, void *shareable, CUmemAllocationHandleType type))
X(OPTIONAL, cuMemRetainAllocationHandle, cuMemRetainAllocationHandle,
  (CUmemGenericAllocationHandle * handle, void *address))
X(OPTIONAL, cuMemGetAllocationPropertiesFromHandle, cuMemGetAllocationPropertiesFromHandle,
  (CUmemAllocationProp * properties, CUmemGenericAllocationHandle handle))
X(OPTIONAL, cuMemGetAccess, cuMemGetAccess,
  (unsigned long long *flags, const CUmemLocation *location, CUdeviceptr address))
X(OPTIONAL, cuMemGetHandleForAddressRange, cuMemGetHandleForAddressRange,
  (void *handle, CUdeviceptr address, size_t bytes, CUmemRangeHandleType type, unsigned long long flags))
X(OPTIONAL, cuMemPrefetchAsync_v1, cuMemPrefetchAsync,
  (CUdeviceptr address, size_t bytes, CUdevice device, CUstream stream))
X(OPTIONAL, cuMemPrefetchAsync_v2, cuMemPrefetchAsync_v2,
  (CUdeviceptr address, size_t bytes, CUmemLocation location, unsigned int flags, CUstream stream))
X(OPTIONAL, cuMemAdvise_v1, cuMemAdvise, (CUdeviceptr address, size_t bytes, CUmem_advise advice, CUdevice device))
X(OPTIONAL, cuMemAdvise_v2, cuMemAdvise_v2,
  (CUdeviceptr address, size_t bytes, CUmem_advise advice, CUmemLocation location))
X(OPTIONAL, cuMemRangeGetAttribute, cuMemRangeGetAttribute,
  (void *data, size_t data_bytes, CUmem_range_attribute attribute, CUdeviceptr address, size_t bytes))
X(OPTIONAL, cuIpcGetMemHandle, cuIpcGetMemHandle, (CUipcMemHandle * handle, CUdeviceptr address))
X(OPTIONAL, cuIpcOpenMemHandle, cuIpcOpenMemHandle_v2,
  (CUdeviceptr * address, CUipcMemHandle handle, unsigned int flags))
X(OPTIONAL, cuIpcCloseMemHandle, cuIpcCloseMemHandle, (CUdeviceptr address))
X(OPTIONAL, cuIpcGetEventHandle, cuIpcGetEventHandle, (CUipcEventHandle * handle, CUevent event))
X(OPTIONAL, cuIpcOpenEventHandle, cuIpcOpenEventHandle, (CUevent * event, CUipcEventHandle handle))
X(OPTIONAL, cuMulticastCreate, cuMulticastCreate,
  (CUmemGenericAllocationHandle * handle, const CUmulticastObjectProp *properties))
X(OPTIONAL, cuMulticastAddDevice, cuMulticastAddDevice, (CUmemGenericAllocationHandle handle, CUdevice device))
X(OPTIONAL, cuMulticastBindMem, cuMulticastBindMem,
  (CUmemGenericAllocationHandle handle, size_t offset, CUmemGenericAllocationHandle memory, size_t memory_offset,
   size_t bytes, unsigned long long flags))
X(OPTIONAL, cuMulticastUnbind, cuMulticastUnbind,
  (CUmemGenericAllocationHandle handle, CUdevice device, size_t offset, size_t bytes))
X(OPTIONAL, cuMulticastGetGranularity, cuMulticastGetGranularity,
  (size_t * bytes, const CUmulticastObjectProp *properties, CUmulticastGranularity_flags option))

/* Pools. */
X(OPTIONAL, cuDeviceGetMemPool, cuDeviceGetMemPool, (CUmemoryPool * pool, CUdevice device))
X(OPTIONAL, cuDeviceSetMemPool, cuDeviceSetMemPool, (CUdevice device, CUmemoryPool pool))
X(OPTIONAL, cuMemPoolCreate, cuMemPoolCreate, (CUmemoryPool * pool, const CUmemPoolProps *properties))
X(OPTIONAL, cuMemPoolDestroy, cuMemPoolDestroy, (CUmemoryPool pool))
X(OPTIONAL, cuMemPoolSetAccess, cuMemPoolSetAccess, (CUmemoryPool pool, const CUmemAccessDesc *access, size_t count))
X(OPTIONAL, cuMemPoolGetAccess, cuMemPoolGetAccess,
  (CUmemAccess_flags * flags, CUmemoryPool pool, CUmemLocation *location))
X(OPTIONAL, cuMemAllocFromPoolAsync, cuMemAllocFromPoolAsync,
  (CUdeviceptr * address, size_t bytes, CUmemoryPool pool, CUstream stream))
X(OPTIONAL, cuMemPoolExportToShareableHandle, cuMemPoolExportToShareableHandle,
  (void *shareable, CUmemoryPool pool, CUmemAllocationHandleType type, unsigned long long flags))
X(OPTIONAL, cuMemPoolImportFromShareableHandle, cuMemPoolImportFromShareableHandle,
  (CUmemoryPool * pool, void *shareable, CUmemAllocationHandleType type, unsigned long long flags))
X(OPTIONAL, cuMemPoolExportPointer, cuMemPoolExportPointer, (CUmemPoolPtrExportData * data, CUdeviceptr address))
X(OPTIONAL, cuMemPoolImportPointer, cuMemPoolImportPointer,
  (CUdeviceptr * address, CUmemoryPool pool, CUmemPoolPtrExportData *data))

/* Copies and sets. */
X(OPTIONAL, cuMemcpy, cuMemcpy, (CUdeviceptr to, CUdeviceptr from, size_t bytes))
X(OPTIONAL, cuMemcpyAsync, cuMemcpyAsync, (CUdeviceptr to, CUdeviceptr from, size_t bytes, CUstream stream))
X(OPTIONAL, cuMemcpyPeer, cuMemcpyPeer,
  (CUdeviceptr to, CUcontext to_context, CUdeviceptr from, CUcontext from_context, size_t bytes))
X(OPTIONAL, cuMemcpyPeerAsync, cuMemcpyPeerAsync,
  (CUdeviceptr to, CUcontext to_context, CUdeviceptr from, CUcontext from_context, size_t bytes, CUstream stream))
X(OPTIONAL, cuMemcpy2D, cuMemcpy2D_v2, (const CUDA_MEMCPY2D *copy))
X(OPTIONAL, cuMemcpy2DUnaligned, cuMemcpy2DUnaligned_v2, (const CUDA_MEMCPY2D *copy))
X(OPTIONAL, cuMemcpy2DAsync, cuMemcpy2DAsync_v2, (const CUDA_MEMCPY2D *copy, CUstream stream))
X(OPTIONAL, cuMemcpy3D, cuMemcpy3D_v2, (const CUDA_MEMCPY3D *copy))
X(OPTIONAL, cuMemcpy3DAsync, cuMemcpy3DAsync_v2, (const CUDA_MEMCPY3D *copy, CUstream stream))
X(OPTIONAL, cuMemsetD16, cuMemsetD16_v2, (CUdeviceptr to, unsigned short value, size_t count))
X(OPTIONAL, cuMemsetD16Async, cuMemsetD16Async, (CUdeviceptr to, unsigned short value, size_t count, CUstream stream))
X(OPTIONAL, cuMemsetD2D8, cuMemsetD2D8_v2,
  (CUdeviceptr to, size_t pitch, unsigned char value, size_t width, size_t height))
X(OPTIONAL, cuMemsetD2D16, cuMemsetD2D16_v2,
  (CUdeviceptr to, size_t pitch, unsigned short value, size_t width, size_t height))
X(OPTIONAL, cuMemsetD2D32, cuMemsetD2D32_v2,
  (CUdeviceptr to, size_t pitch, unsigned int value, size_t width, size_t height))
X(OPTIONAL, cuMemsetD2D8Async, cuMemsetD2D8Async,
  (CUdeviceptr to, size_t pitch, unsigned char value, size_t width, size_t height, CUstream stream))
X(OPTIONAL, cuMemsetD2D16Async, cuMemsetD2D16Async,
  (CUdeviceptr to, size_t pitch, unsigned short value, size_t width, size_t height, CUstream stream))
X(OPTIONAL, cuMemsetD2D32Async, cuMemsetD2D32Async,
  (CUdeviceptr to, size_t pitch, unsigned int value, size_t width, size_t height, CUstream stream))
