/* tests/device/layouts.h: sizes and offsets, as the including file sees them. Included once beside CUDA's own
 * cuda.h and once beside device/cuda_api.h, which cannot stand in one file; the test compares the two tables. */
#ifndef TESTS_DEVICE_LAYOUTS_H
#define TESTS_DEVICE_LAYOUTS_H

#include <stddef.h>

struct layout {
	const char *what;
	size_t value;
};

extern const struct layout cuda_layouts[], neap_layouts[];
extern const size_t cuda_layout_count, neap_layout_count;

#define SIZE(type)                                                                                                   \
	{                                                                                                            \
		"sizeof " #type, sizeof(type)                                                                        \
	}
#define OFFSET(type, member)                                                                                         \
	{                                                                                                            \
		"offset of " #type "." #member, offsetof(type, member)                                               \
	}

#define LAYOUTS                                                                                                      \
	SIZE(CUresult), SIZE(CUdevice), SIZE(CUdeviceptr), SIZE(CUmemGenericAllocationHandle), SIZE(CUcontext),      \
		SIZE(CUdevice_attribute), SIZE(CUmemAllocationType), SIZE(CUmemAllocationHandleType),                \
		SIZE(CUmemLocationType), SIZE(CUmemAccess_flags), SIZE(CUmemAllocationGranularity_flags),            \
		SIZE(CUmemPool_attribute), SIZE(CUstreamCaptureStatus), SIZE(CUstreamCaptureMode),                   \
		SIZE(CUpointer_attribute), SIZE(CUmemorytype), SIZE(CUuuid), SIZE(CUmemLocation),                    \
		SIZE(CUmemAllocationProp), SIZE(CUmemAccessDesc), OFFSET(CUmemLocation, type),                       \
		OFFSET(CUmemLocation, id), OFFSET(CUmemAllocationProp, type),                                        \
		OFFSET(CUmemAllocationProp, requestedHandleTypes), OFFSET(CUmemAllocationProp, location),            \
		OFFSET(CUmemAllocationProp, win32HandleMetaData), OFFSET(CUmemAllocationProp, allocFlags),           \
		OFFSET(CUmemAllocationProp, allocFlags.compressionType),                                             \
		OFFSET(CUmemAllocationProp, allocFlags.gpuDirectRDMACapable),                                        \
		OFFSET(CUmemAllocationProp, allocFlags.usage), OFFSET(CUmemAccessDesc, location),                    \
		OFFSET(CUmemAccessDesc, flags), SIZE(CUmemPoolProps), OFFSET(CUmemPoolProps, handleTypes),           \
		OFFSET(CUmemPoolProps, location), OFFSET(CUmemPoolProps, maxSize), OFFSET(CUmemPoolProps, usage),    \
		SIZE(CUmemPoolPtrExportData), SIZE(CUipcMemHandle), SIZE(CUipcEventHandle), SIZE(CUDA_MEMCPY2D),     \
		OFFSET(CUDA_MEMCPY2D, srcMemoryType), OFFSET(CUDA_MEMCPY2D, srcHost),                                \
		OFFSET(CUDA_MEMCPY2D, srcDevice), OFFSET(CUDA_MEMCPY2D, srcPitch), OFFSET(CUDA_MEMCPY2D, dstY),      \
		OFFSET(CUDA_MEMCPY2D, dstMemoryType), OFFSET(CUDA_MEMCPY2D, dstHost),                                \
		OFFSET(CUDA_MEMCPY2D, dstDevice), OFFSET(CUDA_MEMCPY2D, dstPitch), OFFSET(CUDA_MEMCPY2D, Height),    \
		SIZE(CUDA_MEMCPY3D), OFFSET(CUDA_MEMCPY3D, srcLOD), OFFSET(CUDA_MEMCPY3D, srcMemoryType),            \
		OFFSET(CUDA_MEMCPY3D, srcHost), OFFSET(CUDA_MEMCPY3D, srcDevice), OFFSET(CUDA_MEMCPY3D, srcPitch),   \
		OFFSET(CUDA_MEMCPY3D, srcHeight), OFFSET(CUDA_MEMCPY3D, dstXInBytes),                                \
		OFFSET(CUDA_MEMCPY3D, dstMemoryType), OFFSET(CUDA_MEMCPY3D, dstHost),                                \
		OFFSET(CUDA_MEMCPY3D, dstDevice), OFFSET(CUDA_MEMCPY3D, dstPitch), OFFSET(CUDA_MEMCPY3D, dstHeight), \
		OFFSET(CUDA_MEMCPY3D, WidthInBytes), OFFSET(CUDA_MEMCPY3D, Depth), SIZE(CUlaunchAttributeValue),     \
		SIZE(CUlaunchAttribute), OFFSET(CUlaunchAttribute, value), SIZE(CUlaunchConfig),                     \
		OFFSET(CUlaunchConfig, blockDimX), OFFSET(CUlaunchConfig, sharedMemBytes),                           \
		OFFSET(CUlaunchConfig, hStream), OFFSET(CUlaunchConfig, attrs), OFFSET(CUlaunchConfig, numAttrs),    \
		SIZE(CUtensorMap), {"alignof CUtensorMap", _Alignof(CUtensorMap)}, SIZE(CUgraphEdgeData),            \
		SIZE(CUDA_GRAPH_INSTANTIATE_PARAMS), OFFSET(CUDA_GRAPH_INSTANTIATE_PARAMS, hUploadStream),           \
		OFFSET(CUDA_GRAPH_INSTANTIATE_PARAMS, hErrNode_out),                                                 \
		OFFSET(CUDA_GRAPH_INSTANTIATE_PARAMS, result_out), SIZE(CUgraphExecUpdateResultInfo),                \
		OFFSET(CUgraphExecUpdateResultInfo, errorNode)

#endif
