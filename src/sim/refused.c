/* Functions that are exported and not simulated: each answers CUDA_ERROR_NOT_SUPPORTED, and writes nothing. */
#include "sim/state.h"

#pragma GCC diagnostic ignored "-Wunused-parameter"

#define REFUSE(name, parameters)                                                                                     \
	CUresult sim_##name parameters { return CUDA_ERROR_NOT_SUPPORTED; }

REFUSE(cuDeviceGetLuid, (char *luid, unsigned int *node_mask, CUdevice device))
REFUSE(cuDeviceGetTexture1DLinearMaxWidth,
       (size_t * elements, CUarray_format format, unsigned int channels, CUdevice device))
REFUSE(cuFlushGPUDirectRDMAWrites, (CUflushGPUDirectRDMAWritesTarget target, CUflushGPUDirectRDMAWritesScope scope))
REFUSE(cuCtxCreate, (CUcontext * context, unsigned int flags, CUdevice device))
REFUSE(cuCtxCreate_v3,
       (CUcontext * context, CUexecAffinityParam *affinity, int count, unsigned int flags, CUdevice device))
REFUSE(cuCtxCreate_v4, (CUcontext * context, CUctxCreateParams *parameters, unsigned int flags, CUdevice device))
REFUSE(cuCtxDestroy, (CUcontext context))
REFUSE(cuCtxEnablePeerAccess, (CUcontext peer, unsigned int flags))
REFUSE(cuCtxDisablePeerAccess, (CUcontext peer))
REFUSE(cuDeviceGetDevResource, (CUdevice device, CUdevResource *resource, CUdevResourceType type))
REFUSE(cuDevSmResourceSplitByCount, (CUdevResource * parts, unsigned int *groups, const CUdevResource *input,
				     CUdevResource *rest, unsigned int flags, unsigned int least))
REFUSE(cuDevResourceGenerateDesc, (CUdevResourceDesc * description, CUdevResource *resources, unsigned int count))
REFUSE(cuGreenCtxCreate, (CUgreenCtx * context, CUdevResourceDesc description, CUdevice device, unsigned int flags))
REFUSE(cuGreenCtxDestroy, (CUgreenCtx context))
REFUSE(cuCtxFromGreenCtx, (CUcontext * context, CUgreenCtx green))
REFUSE(cuGreenCtxStreamCreate, (CUstream * stream, CUgreenCtx green, unsigned int flags, int priority))
REFUSE(cuLogsRegisterCallback, (CUlogsCallback function, void *data, CUlogsCallbackHandle *handle))
REFUSE(cuLogsUnregisterCallback, (CUlogsCallbackHandle handle))
REFUSE(cuLibraryGetUnifiedFunction, (void **function, CUlibrary library, const char *name))
REFUSE(cuLinkCreate, (unsigned int count, CUjit_option *options, void **values, CUlinkState *state))
REFUSE(cuLinkAddData, (CUlinkState state, CUjitInputType type, void *data, size_t bytes, const char *name,
		       unsigned int count, CUjit_option *options, void **values))
REFUSE(cuLinkAddFile, (CUlinkState state, CUjitInputType type, const char *path, unsigned int count,
		       CUjit_option *options, void **values))
REFUSE(cuLinkComplete, (CUlinkState state, void **image, size_t *bytes))
REFUSE(cuLinkDestroy, (CUlinkState state))
REFUSE(cuStreamCreateWithPriority, (CUstream * stream, unsigned int flags, int priority))
REFUSE(cuStreamGetPriority, (CUstream stream, int *priority))
REFUSE(cuStreamGetFlags, (CUstream stream, unsigned int *flags))
REFUSE(cuStreamGetId, (CUstream stream, unsigned long long *id))
REFUSE(cuStreamGetCtx, (CUstream stream, CUcontext *context))
REFUSE(cuStreamGetDevice, (CUstream stream, CUdevice *device))
REFUSE(cuStreamAddCallback, (CUstream stream, CUstreamCallback function, void *data, unsigned int flags))
REFUSE(cuStreamAttachMemAsync, (CUstream stream, CUdeviceptr address, size_t bytes, unsigned int flags))
REFUSE(cuStreamGetAttribute, (CUstream stream, CUstreamAttrID attribute, CUstreamAttrValue *value))
REFUSE(cuStreamSetAttribute, (CUstream stream, CUstreamAttrID attribute, const CUstreamAttrValue *value))
REFUSE(cuStreamCopyAttributes, (CUstream to, CUstream from))
REFUSE(cuStreamWriteValue32, (CUstream stream, CUdeviceptr address, uint32_t value, unsigned int flags))
REFUSE(cuStreamWaitValue32, (CUstream stream, CUdeviceptr address, uint32_t value, unsigned int flags))
REFUSE(cuStreamWriteValue64, (CUstream stream, CUdeviceptr address, cuuint64_t value, unsigned int flags))
REFUSE(cuStreamWaitValue64, (CUstream stream, CUdeviceptr address, cuuint64_t value, unsigned int flags))
REFUSE(cuEventRecordWithFlags, (CUevent event, CUstream stream, unsigned int flags))
REFUSE(cuEventElapsedTime, (float *milliseconds, CUevent start, CUevent end))
REFUSE(cuEventElapsedTime_v2, (float *milliseconds, CUevent start, CUevent end))
REFUSE(cuThreadExchangeStreamCaptureMode, (CUstreamCaptureMode * mode))
REFUSE(cuStreamBeginCaptureToGraph, (CUstream stream, CUgraph graph, const CUgraphNode *dependencies,
				     const CUgraphEdgeData *edges, size_t count, CUstreamCaptureMode mode))
REFUSE(cuStreamUpdateCaptureDependencies_v1,
       (CUstream stream, CUgraphNode *dependencies, size_t count, unsigned int flags))
REFUSE(cuStreamUpdateCaptureDependencies_v2,
       (CUstream stream, CUgraphNode *dependencies, const CUgraphEdgeData *edges, size_t count, unsigned int flags))
REFUSE(cuGraphCreate, (CUgraph * graph, unsigned int flags))
REFUSE(cuGraphClone, (CUgraph * clone, CUgraph graph))
REFUSE(cuGraphAddEmptyNode, (CUgraphNode * node, CUgraph graph, const CUgraphNode *dependencies, size_t count))
REFUSE(cuGraphAddNode_v2, (CUgraphNode * node, CUgraph graph, const CUgraphNode *dependencies,
			   const CUgraphEdgeData *edges, size_t count, CUgraphNodeParams *parameters))
REFUSE(cuGraphConditionalHandleCreate,
       (CUgraphConditionalHandle * handle, CUgraph graph, CUcontext context, unsigned int value, unsigned int flags))
REFUSE(cuGraphGetNodes, (CUgraph graph, CUgraphNode *nodes, size_t *count))
REFUSE(cuGraphGetRootNodes, (CUgraph graph, CUgraphNode *nodes, size_t *count))
REFUSE(cuGraphGetEdges_v1, (CUgraph graph, CUgraphNode *from, CUgraphNode *to, size_t *count))
REFUSE(cuGraphGetEdges_v2, (CUgraph graph, CUgraphNode *from, CUgraphNode *to, CUgraphEdgeData *edges, size_t *count))
REFUSE(cuGraphNodeGetType, (CUgraphNode node, CUgraphNodeType *type))
REFUSE(cuGraphNodeGetDependencies_v1, (CUgraphNode node, CUgraphNode *dependencies, size_t *count))
REFUSE(cuGraphNodeGetDependencies_v2,
       (CUgraphNode node, CUgraphNode *dependencies, CUgraphEdgeData *edges, size_t *count))
REFUSE(cuGraphNodeGetDependentNodes_v1, (CUgraphNode node, CUgraphNode *dependents, size_t *count))
REFUSE(cuGraphNodeGetDependentNodes_v2,
       (CUgraphNode node, CUgraphNode *dependents, CUgraphEdgeData *edges, size_t *count))
REFUSE(cuGraphDebugDotPrint, (CUgraph graph, const char *path, unsigned int flags))
REFUSE(cuGraphInstantiate_v2,
       (CUgraphExec * executable, CUgraph graph, CUgraphNode *error_node, char *log, size_t log_bytes))
REFUSE(cuGraphInstantiateWithFlags, (CUgraphExec * executable, CUgraph graph, unsigned long long flags))
REFUSE(cuGraphInstantiateWithParams,
       (CUgraphExec * executable, CUgraph graph, CUDA_GRAPH_INSTANTIATE_PARAMS *parameters))
REFUSE(cuGraphExecGetFlags, (CUgraphExec executable, cuuint64_t *flags))
REFUSE(cuGraphExecUpdate_v2, (CUgraphExec executable, CUgraph graph, CUgraphExecUpdateResultInfo *outcome))
REFUSE(cuGraphUpload, (CUgraphExec executable, CUstream stream))
REFUSE(cuGraphLaunch, (CUgraphExec executable, CUstream stream))
REFUSE(cuGraphExecDestroy, (CUgraphExec executable))
REFUSE(cuUserObjectCreate,
       (CUuserObject * object, void *pointer, CUhostFn destroy, unsigned int references, unsigned int flags))
REFUSE(cuUserObjectRetain, (CUuserObject object, unsigned int count))
REFUSE(cuUserObjectRelease, (CUuserObject object, unsigned int count))
REFUSE(cuGraphRetainUserObject, (CUgraph graph, CUuserObject object, unsigned int count, unsigned int flags))
REFUSE(cuGraphReleaseUserObject, (CUgraph graph, CUuserObject object, unsigned int count))
REFUSE(cuDeviceGetGraphMemAttribute, (CUdevice device, CUgraphMem_attribute attribute, void *value))
REFUSE(cuDeviceSetGraphMemAttribute, (CUdevice device, CUgraphMem_attribute attribute, void *value))
REFUSE(cuDeviceGraphMemTrim, (CUdevice device))
REFUSE(cuMemAllocHost, (void **pointer, size_t bytes))
REFUSE(cuMemAllocManaged, (CUdeviceptr * address, size_t bytes, unsigned int flags))
REFUSE(cuMemAllocPitch,
       (CUdeviceptr * address, size_t *pitch, size_t width, size_t height, unsigned int element_bytes))
REFUSE(cuMemHostRegister, (void *pointer, size_t bytes, unsigned int flags))
REFUSE(cuMemHostUnregister, (void *pointer))
REFUSE(cuMemHostGetDevicePointer, (CUdeviceptr * address, void *pointer, unsigned int flags))
REFUSE(cuMemHostGetFlags, (unsigned int *flags, void *pointer))
REFUSE(cuPointerGetAttributes,
       (unsigned int count, CUpointer_attribute *attributes, void **data, CUdeviceptr address))
REFUSE(cuPointerSetAttribute, (const void *value, CUpointer_attribute attribute, CUdeviceptr address))
REFUSE(cuMemExportToShareableHandle, (void *shareable, CUmemGenericAllocationHandle handle,
				      CUmemAllocationHandleType type, unsigned long long flags))
REFUSE(cuMemImportFromShareableHandle,
       (CUmemGenericAllocationHandle * handle, void *shareable, CUmemAllocationHandleType type))
REFUSE(cuMemRetainAllocationHandle, (CUmemGenericAllocationHandle * handle, void *address))
REFUSE(cuMemGetAllocationPropertiesFromHandle,
       (CUmemAllocationProp * properties, CUmemGenericAllocationHandle handle))
REFUSE(cuMemGetAccess, (unsigned long long *flags, const CUmemLocation *location, CUdeviceptr address))
REFUSE(cuMemGetHandleForAddressRange,
       (void *handle, CUdeviceptr address, size_t bytes, CUmemRangeHandleType type, unsigned long long flags))
REFUSE(cuMemPrefetchAsync_v1, (CUdeviceptr address, size_t bytes, CUdevice device, CUstream stream))
REFUSE(cuMemPrefetchAsync_v2,
       (CUdeviceptr address, size_t bytes, CUmemLocation location, unsigned int flags, CUstream stream))
REFUSE(cuMemAdvise_v1, (CUdeviceptr address, size_t bytes, CUmem_advise advice, CUdevice device))
REFUSE(cuMemAdvise_v2, (CUdeviceptr address, size_t bytes, CUmem_advise advice, CUmemLocation location))
REFUSE(cuMemRangeGetAttribute,
       (void *data, size_t data_bytes, CUmem_range_attribute attribute, CUdeviceptr address, size_t bytes))
REFUSE(cuIpcGetMemHandle, (CUipcMemHandle * handle, CUdeviceptr address))
REFUSE(cuIpcOpenMemHandle, (CUdeviceptr * address, CUipcMemHandle handle, unsigned int flags))
REFUSE(cuIpcCloseMemHandle, (CUdeviceptr address))
REFUSE(cuIpcGetEventHandle, (CUipcEventHandle * handle, CUevent event))
REFUSE(cuIpcOpenEventHandle, (CUevent * event, CUipcEventHandle handle))
REFUSE(cuMulticastCreate, (CUmemGenericAllocationHandle * handle, const CUmulticastObjectProp *properties))
REFUSE(cuMulticastAddDevice, (CUmemGenericAllocationHandle handle, CUdevice device))
REFUSE(cuMulticastBindMem, (CUmemGenericAllocationHandle handle, size_t offset, CUmemGenericAllocationHandle memory,
			    size_t memory_offset, size_t bytes, unsigned long long flags))
REFUSE(cuMulticastUnbind, (CUmemGenericAllocationHandle handle, CUdevice device, size_t offset, size_t bytes))
REFUSE(cuMulticastGetGranularity,
       (size_t * bytes, const CUmulticastObjectProp *properties, CUmulticastGranularity_flags option))
REFUSE(cuDeviceGetMemPool, (CUmemoryPool * pool, CUdevice device))
REFUSE(cuDeviceSetMemPool, (CUdevice device, CUmemoryPool pool))
REFUSE(cuMemPoolCreate, (CUmemoryPool * pool, const CUmemPoolProps *properties))
REFUSE(cuMemPoolDestroy, (CUmemoryPool pool))
REFUSE(cuMemPoolSetAccess, (CUmemoryPool pool, const CUmemAccessDesc *access, size_t count))
REFUSE(cuMemPoolGetAccess, (CUmemAccess_flags * flags, CUmemoryPool pool, CUmemLocation *location))
REFUSE(cuMemAllocFromPoolAsync, (CUdeviceptr * address, size_t bytes, CUmemoryPool pool, CUstream stream))
REFUSE(cuMemPoolExportToShareableHandle,
       (void *shareable, CUmemoryPool pool, CUmemAllocationHandleType type, unsigned long long flags))
REFUSE(cuMemPoolImportFromShareableHandle,
       (CUmemoryPool * pool, void *shareable, CUmemAllocationHandleType type, unsigned long long flags))
REFUSE(cuMemPoolExportPointer, (CUmemPoolPtrExportData * data, CUdeviceptr address))
REFUSE(cuMemPoolImportPointer, (CUdeviceptr * address, CUmemoryPool pool, CUmemPoolPtrExportData *data))
REFUSE(cuMemcpy, (CUdeviceptr to, CUdeviceptr from, size_t bytes))
REFUSE(cuMemcpyAsync, (CUdeviceptr to, CUdeviceptr from, size_t bytes, CUstream stream))
REFUSE(cuMemcpyPeer, (CUdeviceptr to, CUcontext to_context, CUdeviceptr from, CUcontext from_context, size_t bytes))
REFUSE(cuMemcpyPeerAsync, (CUdeviceptr to, CUcontext to_context, CUdeviceptr from, CUcontext from_context,
			   size_t bytes, CUstream stream))
REFUSE(cuMemcpy2D, (const CUDA_MEMCPY2D *copy))
REFUSE(cuMemcpy2DUnaligned, (const CUDA_MEMCPY2D *copy))
REFUSE(cuMemcpy2DAsync, (const CUDA_MEMCPY2D *copy, CUstream stream))
REFUSE(cuMemcpy3D, (const CUDA_MEMCPY3D *copy))
REFUSE(cuMemcpy3DAsync, (const CUDA_MEMCPY3D *copy, CUstream stream))
REFUSE(cuMemsetD16, (CUdeviceptr to, unsigned short value, size_t count))
REFUSE(cuMemsetD16Async, (CUdeviceptr to, unsigned short value, size_t count, CUstream stream))
REFUSE(cuMemsetD2D8, (CUdeviceptr to, size_t pitch, unsigned char value, size_t width, size_t height))
REFUSE(cuMemsetD2D16, (CUdeviceptr to, size_t pitch, unsigned short value, size_t width, size_t height))
REFUSE(cuMemsetD2D32, (CUdeviceptr to, size_t pitch, unsigned int value, size_t width, size_t height))
REFUSE(cuMemsetD2D8Async,
       (CUdeviceptr to, size_t pitch, unsigned char value, size_t width, size_t height, CUstream stream))
REFUSE(cuMemsetD2D16Async,
       (CUdeviceptr to, size_t pitch, unsigned short value, size_t width, size_t height, CUstream stream))
REFUSE(cuMemsetD2D32Async,
       (CUdeviceptr to, size_t pitch, unsigned int value, size_t width, size_t height, CUstream stream))
