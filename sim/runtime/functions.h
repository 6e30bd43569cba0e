/* sim/runtime/functions.h: the Runtime API that is implemented, once. No include guard: include it with X defined.
 *
 *   X(name, (parameters), (arguments))
 *
 * runtime.h declares runtime_NAME for each, exports.c exports NAME. The rest of the API is in refused.h. Source: CUDA
 * Runtime API reference, 12.9 and 13.2; names that begin with two underscores are what compiled programs call.
 */
/* device.c */
X(cudaGetDeviceCount, (int *count), (count))
X(cudaGetDevice, (int *device), (device))
X(cudaSetDevice, (int device), (device))
X(cudaInitDevice, (int device, unsigned int device_flags, unsigned int flags), (device, device_flags, flags))
X(cudaDeviceSynchronize, (void), ())
X(cudaDeviceReset, (void), ())
X(cudaDriverGetVersion, (int *version), (version))
X(cudaRuntimeGetVersion, (int *version), (version))
X(cudaDeviceGetPCIBusId, (char *id, int length, int device), (id, length, device))
X(cudaDeviceGetByPCIBusId, (int *device, const char *id), (device, id))
X(cudaDeviceCanAccessPeer, (int *can, int device, int peer), (can, device, peer))
X(cudaDeviceEnablePeerAccess, (int peer, unsigned int flags), (peer, flags))
X(cudaDeviceDisablePeerAccess, (int peer), (peer))
X(cudaDeviceGetStreamPriorityRange, (int *least, int *greatest), (least, greatest))
X(cudaDeviceGetLimit, (size_t * value, int limit), (value, limit))
X(cudaDeviceSetLimit, (int limit, size_t value), (limit, value))
X(cudaSetDeviceFlags, (unsigned int flags), (flags))
X(cudaGetDeviceFlags, (unsigned int *flags), (flags))
X(cudaDeviceGetCacheConfig, (int *config), (config))
X(cudaDeviceSetCacheConfig, (int config), (config))
X(cudaProfilerStart, (void), ())
X(cudaProfilerStop, (void), ())
X(cudaGetDriverEntryPointByVersion,
  (const char *symbol, void **function, unsigned int version, unsigned long long flags, int *status),
  (symbol, function, version, flags, status))
X(cudaGetDriverEntryPoint, (const char *symbol, void **function, unsigned long long flags, int *status),
  (symbol, function, flags, status))
/* properties.c */
X(cudaDeviceGetAttribute, (int *value, int attribute, int device), (value, attribute, device))
#if RUNTIME_MAJOR == 12
X(cudaGetDeviceProperties_v2, (struct cudaDeviceProp * properties, int device), (properties, device))
#else
X(cudaGetDeviceProperties, (struct cudaDeviceProp * properties, int device), (properties, device))
#endif
/* memory.c */
X(cudaMalloc, (void **pointer, size_t bytes), (pointer, bytes))
X(cudaFree, (void *pointer), (pointer))
X(cudaMallocPitch, (void **pointer, size_t *pitch, size_t width, size_t height), (pointer, pitch, width, height))
X(cudaMalloc3D, (struct cudaPitchedPtr * pitched, struct cudaExtent extent), (pitched, extent))
X(cudaMallocManaged, (void **pointer, size_t bytes, unsigned int flags), (pointer, bytes, flags))
X(cudaMemGetInfo, (size_t * free_bytes, size_t *total_bytes), (free_bytes, total_bytes))
X(cudaHostAlloc, (void **pointer, size_t bytes, unsigned int flags), (pointer, bytes, flags))
X(cudaMallocHost, (void **pointer, size_t bytes), (pointer, bytes))
X(cudaFreeHost, (void *pointer), (pointer))
X(cudaHostRegister, (void *pointer, size_t bytes, unsigned int flags), (pointer, bytes, flags))
X(cudaHostUnregister, (void *pointer), (pointer))
X(cudaHostGetDevicePointer, (void **device_pointer, void *pointer, unsigned int flags),
  (device_pointer, pointer, flags))
X(cudaHostGetFlags, (unsigned int *flags, void *pointer), (flags, pointer))
X(cudaPointerGetAttributes, (struct cudaPointerAttributes * attributes, const void *pointer), (attributes, pointer))
X(cudaMallocAsync, (void **pointer, size_t bytes, CUstream stream), (pointer, bytes, stream))
X(cudaMallocFromPoolAsync, (void **pointer, size_t bytes, CUmemoryPool pool, CUstream stream),
  (pointer, bytes, pool, stream))
X(cudaFreeAsync, (void *pointer, CUstream stream), (pointer, stream))
X(cudaDeviceGetDefaultMemPool, (CUmemoryPool * pool, int device), (pool, device))
X(cudaDeviceGetMemPool, (CUmemoryPool * pool, int device), (pool, device))
X(cudaDeviceSetMemPool, (int device, CUmemoryPool pool), (device, pool))
X(cudaMemPoolCreate, (CUmemoryPool * pool, const void *properties), (pool, properties))
X(cudaMemPoolDestroy, (CUmemoryPool pool), (pool))
X(cudaMemPoolSetAttribute, (CUmemoryPool pool, int attribute, void *value), (pool, attribute, value))
X(cudaMemPoolGetAttribute, (CUmemoryPool pool, int attribute, void *value), (pool, attribute, value))
X(cudaMemPoolTrimTo, (CUmemoryPool pool, size_t bytes_to_keep), (pool, bytes_to_keep))
X(cudaMemPoolSetAccess, (CUmemoryPool pool, const CUmemAccessDesc *access, size_t count), (pool, access, count))
X(cudaDeviceGetGraphMemAttribute, (int device, int attribute, void *value), (device, attribute, value))
X(cudaDeviceSetGraphMemAttribute, (int device, int attribute, void *value), (device, attribute, value))
X(cudaIpcGetMemHandle, (cudaIpcHandle_t * handle, void *pointer), (handle, pointer))
X(cudaIpcOpenMemHandle, (void **pointer, cudaIpcHandle_t handle, unsigned int flags), (pointer, handle, flags))
X(cudaIpcCloseMemHandle, (void *pointer), (pointer))
X(cudaIpcGetEventHandle, (cudaIpcHandle_t * handle, CUevent event), (handle, event))
X(cudaIpcOpenEventHandle, (CUevent * event, cudaIpcHandle_t handle), (event, handle))
#if RUNTIME_MAJOR == 12
X(cudaMemPrefetchAsync, (const void *pointer, size_t bytes, int device, CUstream stream),
  (pointer, bytes, device, stream))
X(cudaMemPrefetchAsync_v2,
  (const void *pointer, size_t bytes, CUmemLocation location, unsigned int flags, CUstream stream),
  (pointer, bytes, location, flags, stream))
X(cudaMemAdvise, (const void *pointer, size_t bytes, int advice, int device), (pointer, bytes, advice, device))
#else
X(cudaMemPrefetchAsync,
  (const void *pointer, size_t bytes, CUmemLocation location, unsigned int flags, CUstream stream),
  (pointer, bytes, location, flags, stream))
X(cudaMemAdvise, (const void *pointer, size_t bytes, int advice, CUmemLocation location),
  (pointer, bytes, advice, location))
#endif
/* copy.c */
X(cudaMemcpy, (void *to, const void *from, size_t bytes, int kind), (to, from, bytes, kind))
X(cudaMemcpyAsync, (void *to, const void *from, size_t bytes, int kind, CUstream stream),
  (to, from, bytes, kind, stream))
X(cudaMemcpyPeer, (void *to, int to_device, const void *from, int from_device, size_t bytes),
  (to, to_device, from, from_device, bytes))
X(cudaMemcpyPeerAsync, (void *to, int to_device, const void *from, int from_device, size_t bytes, CUstream stream),
  (to, to_device, from, from_device, bytes, stream))
X(cudaMemcpy2D,
  (void *to, size_t to_pitch, const void *from, size_t from_pitch, size_t width, size_t height, int kind),
  (to, to_pitch, from, from_pitch, width, height, kind))
X(cudaMemcpy2DAsync,
  (void *to, size_t to_pitch, const void *from, size_t from_pitch, size_t width, size_t height, int kind,
   CUstream stream),
  (to, to_pitch, from, from_pitch, width, height, kind, stream))
X(cudaMemcpyToSymbol, (const void *symbol, const void *from, size_t bytes, size_t offset, int kind),
  (symbol, from, bytes, offset, kind))
X(cudaMemcpyToSymbolAsync,
  (const void *symbol, const void *from, size_t bytes, size_t offset, int kind, CUstream stream),
  (symbol, from, bytes, offset, kind, stream))
X(cudaMemcpyFromSymbol, (void *to, const void *symbol, size_t bytes, size_t offset, int kind),
  (to, symbol, bytes, offset, kind))
X(cudaMemcpyFromSymbolAsync, (void *to, const void *symbol, size_t bytes, size_t offset, int kind, CUstream stream),
  (to, symbol, bytes, offset, kind, stream))
X(cudaMemset, (void *to, int value, size_t count), (to, value, count))
X(cudaMemsetAsync, (void *to, int value, size_t count, CUstream stream), (to, value, count, stream))
X(cudaMemset2D, (void *to, size_t pitch, int value, size_t width, size_t height), (to, pitch, value, width, height))
X(cudaMemset2DAsync, (void *to, size_t pitch, int value, size_t width, size_t height, CUstream stream),
  (to, pitch, value, width, height, stream))
/* stream.c */
X(cudaStreamCreateWithPriority, (CUstream * stream, unsigned int flags, int priority), (stream, flags, priority))
X(cudaStreamCreateWithFlags, (CUstream * stream, unsigned int flags), (stream, flags))
X(cudaStreamCreate, (CUstream * stream), (stream))
X(cudaStreamDestroy, (CUstream stream), (stream))
X(cudaStreamSynchronize, (CUstream stream), (stream))
X(cudaStreamQuery, (CUstream stream), (stream))
X(cudaStreamWaitEvent, (CUstream stream, CUevent event, unsigned int flags), (stream, event, flags))
X(cudaStreamGetPriority, (CUstream stream, int *priority), (stream, priority))
X(cudaStreamGetFlags, (CUstream stream, unsigned int *flags), (stream, flags))
X(cudaStreamGetId, (CUstream stream, unsigned long long *id), (stream, id))
X(cudaStreamGetDevice, (CUstream stream, int *device), (stream, device))
X(cudaLaunchHostFunc, (CUstream stream, CUhostFn function, void *data), (stream, function, data))
X(cudaStreamAddCallback, (CUstream stream, cudaStreamCallback_t function, void *data, unsigned int flags),
  (stream, function, data, flags))
X(cudaEventCreateWithFlags, (CUevent * event, unsigned int flags), (event, flags))
X(cudaEventCreate, (CUevent * event), (event))
X(cudaEventDestroy, (CUevent event), (event))
X(cudaEventRecordWithFlags, (CUevent event, CUstream stream, unsigned int flags), (event, stream, flags))
X(cudaEventRecord, (CUevent event, CUstream stream), (event, stream))
X(cudaEventQuery, (CUevent event), (event))
X(cudaEventSynchronize, (CUevent event), (event))
X(cudaEventElapsedTime, (float *milliseconds, CUevent start, CUevent end), (milliseconds, start, end))
/* graph.c */
X(cudaStreamIsCapturing, (CUstream stream, int *status), (stream, status))
X(cudaStreamBeginCapture, (CUstream stream, int mode), (stream, mode))
X(cudaStreamBeginCaptureToGraph,
  (CUstream stream, CUgraph graph, const CUgraphNode *dependencies, const CUgraphEdgeData *edges, size_t count,
   int mode),
  (stream, graph, dependencies, edges, count, mode))
X(cudaStreamEndCapture, (CUstream stream, CUgraph *graph), (stream, graph))
X(cudaThreadExchangeStreamCaptureMode, (int *mode), (mode))
#if RUNTIME_MAJOR == 12
X(cudaStreamGetCaptureInfo, (CUstream stream, int *status, unsigned long long *id), (stream, status, id))
X(cudaStreamGetCaptureInfo_v2,
  (CUstream stream, int *status, unsigned long long *id, CUgraph *graph, const CUgraphNode **dependencies,
   size_t *count),
  (stream, status, id, graph, dependencies, count))
X(cudaStreamGetCaptureInfo_v3,
  (CUstream stream, int *status, unsigned long long *id, CUgraph *graph, const CUgraphNode **dependencies,
   const CUgraphEdgeData **edges, size_t *count),
  (stream, status, id, graph, dependencies, edges, count))
X(cudaStreamUpdateCaptureDependencies, (CUstream stream, CUgraphNode *dependencies, size_t count, unsigned int flags),
  (stream, dependencies, count, flags))
X(cudaGraphNodeGetDependencies, (CUgraphNode node, CUgraphNode *dependencies, size_t *count),
  (node, dependencies, count))
#else
X(cudaStreamGetCaptureInfo,
  (CUstream stream, int *status, unsigned long long *id, CUgraph *graph, const CUgraphNode **dependencies,
   const CUgraphEdgeData **edges, size_t *count),
  (stream, status, id, graph, dependencies, edges, count))
X(cudaStreamUpdateCaptureDependencies,
  (CUstream stream, CUgraphNode *dependencies, const CUgraphEdgeData *edges, size_t count, unsigned int flags),
  (stream, dependencies, edges, count, flags))
X(cudaGraphNodeGetDependencies, (CUgraphNode node, CUgraphNode *dependencies, CUgraphEdgeData *edges, size_t *count),
  (node, dependencies, edges, count))
#endif
X(cudaGraphCreate, (CUgraph * graph, unsigned int flags), (graph, flags))
X(cudaGraphDestroy, (CUgraph graph), (graph))
X(cudaGraphGetNodes, (CUgraph graph, CUgraphNode *nodes, size_t *count), (graph, nodes, count))
X(cudaGraphNodeGetType, (CUgraphNode node, int *type), (node, type))
X(cudaGraphDebugDotPrint, (CUgraph graph, const char *path, unsigned int flags), (graph, path, flags))
X(cudaGraphInstantiateWithFlags, (CUgraphExec * executable, CUgraph graph, unsigned long long flags),
  (executable, graph, flags))
X(cudaGraphInstantiate, (CUgraphExec * executable, CUgraph graph, unsigned long long flags),
  (executable, graph, flags))
X(cudaGraphLaunch, (CUgraphExec executable, CUstream stream), (executable, stream))
X(cudaGraphUpload, (CUgraphExec executable, CUstream stream), (executable, stream))
X(cudaGraphExecDestroy, (CUgraphExec executable), (executable))
X(cudaUserObjectCreate,
  (CUuserObject * object, void *pointer, CUhostFn destroy, unsigned int count, unsigned int flags),
  (object, pointer, destroy, count, flags))
X(cudaUserObjectRetain, (CUuserObject object, unsigned int count), (object, count))
X(cudaUserObjectRelease, (CUuserObject object, unsigned int count), (object, count))
X(cudaGraphRetainUserObject, (CUgraph graph, CUuserObject object, unsigned int count, unsigned int flags),
  (graph, object, count, flags))
X(cudaGraphReleaseUserObject, (CUgraph graph, CUuserObject object, unsigned int count), (graph, object, count))
/* kernel.c */
X(cudaGetSymbolAddress, (void **pointer, const void *symbol), (pointer, symbol))
X(cudaGetSymbolSize, (size_t * bytes, const void *symbol), (bytes, symbol))
X(cudaLaunchKernel,
  (const void *kernel, dim3 grid, dim3 block, void **arguments, size_t shared_bytes, CUstream stream),
  (kernel, grid, block, arguments, shared_bytes, stream))
X(cudaLaunchCooperativeKernel,
  (const void *kernel, dim3 grid, dim3 block, void **arguments, size_t shared_bytes, CUstream stream),
  (kernel, grid, block, arguments, shared_bytes, stream))
X(cudaLaunchKernelExC, (const cudaLaunchConfig_t *config, const void *kernel, void **arguments),
  (config, kernel, arguments))
X(__cudaGetKernel, (void **handle, const void *kernel), (handle, kernel))
X(__cudaLaunchKernel,
  (const void *kernel, dim3 grid, dim3 block, void **arguments, size_t shared_bytes, CUstream stream),
  (kernel, grid, block, arguments, shared_bytes, stream))
X(cudaGetFuncBySymbol, (void **function, const void *symbol), (function, symbol))
X(cudaGetKernel, (void **kernel, const void *symbol), (kernel, symbol))
X(cudaFuncGetName, (const char **name, const void *kernel), (name, kernel))
X(__cudaPopCallConfiguration, (dim3 * grid, dim3 *block, size_t *shared_bytes, void *stream),
  (grid, block, shared_bytes, stream))
X(cudaFuncGetAttributes, (struct cudaFuncAttributes * attributes, const void *kernel), (attributes, kernel))
X(cudaFuncSetAttribute, (const void *kernel, int attribute, int value), (kernel, attribute, value))
X(cudaKernelSetAttributeForDevice, (const void *kernel, int attribute, int value, int device),
  (kernel, attribute, value, device))
X(cudaFuncSetCacheConfig, (const void *kernel, int config), (kernel, config))
X(cudaOccupancyMaxActiveBlocksPerMultiprocessorWithFlags,
  (int *blocks, const void *kernel, int block_size, size_t shared_bytes, unsigned int flags),
  (blocks, kernel, block_size, shared_bytes, flags))
X(cudaOccupancyMaxActiveBlocksPerMultiprocessor,
  (int *blocks, const void *kernel, int block_size, size_t shared_bytes), (blocks, kernel, block_size, shared_bytes))
