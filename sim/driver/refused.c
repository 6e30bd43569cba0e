/* Functions that are exported but not simulated: each returns CUDA_ERROR_NOT_SUPPORTED and writes nothing. */
#include "sim/driver/state.h"

#pragma GCC diagnostic ignored "-Wunused-parameter"

#define REFUSE(name, parameters)                                                                                     \
	CUresult sim_##name parameters { return CUDA_ERROR_NOT_SUPPORTED; }

REFUSE(cuDeviceGetLuid, (char *luid, unsigned int *node_mask, CUdevice device))
REFUSE(cuDeviceGetTexture1DLinearMaxWidth,
       (size_t * elements, CUarray_format format, unsigned int channels, CUdevice device))
REFUSE(cuFlushGPUDirectRDMAWrites, (CUflushGPUDirectRDMAWritesTarget target, CUflushGPUDirectRDMAWritesScope scope))
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
REFUSE(cuStreamGetAttribute, (CUstream stream, CUstreamAttrID attribute, CUstreamAttrValue *value))
REFUSE(cuStreamSetAttribute, (CUstream stream, CUstreamAttrID attribute, const CUstreamAttrValue *value))
REFUSE(cuStreamCopyAttributes, (CUstream to, CUstream from))
REFUSE(cuStreamWriteValue32, (CUstream stream, CUdeviceptr address, uint32_t value, unsigned int flags))
REFUSE(cuStreamWaitValue32, (CUstream stream, CUdeviceptr address, uint32_t value, unsigned int flags))
REFUSE(cuStreamWriteValue64, (CUstream stream, CUdeviceptr address, cuuint64_t value, unsigned int flags))
REFUSE(cuStreamWaitValue64, (CUstream stream, CUdeviceptr address, cuuint64_t value, unsigned int flags))
REFUSE(cuGraphAddNode_v2, (CUgraphNode * node, CUgraph graph, const CUgraphNode *dependencies,
			   const CUgraphEdgeData *edges, size_t count, CUgraphNodeParams *parameters))
REFUSE(cuGraphConditionalHandleCreate,
       (CUgraphConditionalHandle * handle, CUgraph graph, CUcontext context, unsigned int value, unsigned int flags))
REFUSE(cuMemGetHandleForAddressRange,
       (void *handle, CUdeviceptr address, size_t bytes, CUmemRangeHandleType type, unsigned long long flags))
REFUSE(cuMulticastCreate, (CUmemGenericAllocationHandle * handle, const CUmulticastObjectProp *properties))
REFUSE(cuMulticastAddDevice, (CUmemGenericAllocationHandle handle, CUdevice device))
REFUSE(cuMulticastBindMem, (CUmemGenericAllocationHandle handle, size_t offset, CUmemGenericAllocationHandle memory,
			    size_t memory_offset, size_t bytes, unsigned long long flags))
REFUSE(cuMulticastUnbind, (CUmemGenericAllocationHandle handle, CUdevice device, size_t offset, size_t bytes))
REFUSE(cuMulticastGetGranularity,
       (size_t * bytes, const CUmulticastObjectProp *properties, CUmulticastGranularity_flags option))
REFUSE(cuMemPoolExportToShareableHandle,
       (void *shareable, CUmemoryPool pool, CUmemAllocationHandleType type, unsigned long long flags))
REFUSE(cuMemPoolImportFromShareableHandle,
       (CUmemoryPool * pool, void *shareable, CUmemAllocationHandleType type, unsigned long long flags))
REFUSE(cuMemPoolExportPointer, (CUmemPoolPtrExportData * data, CUdeviceptr address))
REFUSE(cuMemPoolImportPointer, (CUdeviceptr * address, CUmemoryPool pool, CUmemPoolPtrExportData *data))
