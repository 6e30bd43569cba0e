/* device/cuda_api.h: the driver ABI as neap sees it: types, constants, and the table of functions.
 *
 * This is the seam of the whole project: libneap knows a device only as a struct neap_cuda, filled by dlopen
 * (device/driver.h). NVIDIA's libcuda.so.1 and neap's simulator fill it alike. Nothing needs CUDA's headers to build;
 * a test compares this file with cuda.h where that is installed. Do not include both in one file.
 */
#ifndef NEAP_DEVICE_CUDA_API_H
#define NEAP_DEVICE_CUDA_API_H

#include <stddef.h>
#include <stdint.h>

#define CUDAAPI
#define CUDA_UUID_DEFINED

typedef int CUdevice;
typedef unsigned long long CUdeviceptr;
typedef unsigned long long CUmemGenericAllocationHandle;
typedef uint64_t cuuint64_t;
typedef struct CUctx_st *CUcontext;
typedef struct CUmod_st *CUmodule;
typedef struct CUlib_st *CUlibrary;
typedef struct CUkern_st *CUkernel;
typedef struct CUfunc_st *CUfunction;
typedef struct CUlinkState_st *CUlinkState;
typedef struct CUstream_st *CUstream;
typedef struct CUevent_st *CUevent;
typedef struct CUgraph_st *CUgraph;
typedef struct CUgraphNode_st *CUgraphNode;
typedef struct CUgraphExec_st *CUgraphExec;
typedef struct CUuserObject_st *CUuserObject;
typedef struct CUmemPoolHandle_st *CUmemoryPool;
typedef struct CUarray_st *CUarray;
typedef struct CUgreenCtx_st *CUgreenCtx;
typedef struct CUdevResourceDesc_st *CUdevResourceDesc;
typedef struct CUlogsCallbackEntry_st *CUlogsCallbackHandle;
typedef cuuint64_t CUgraphConditionalHandle;
typedef void(CUDAAPI *CUhostFn)(void *data);
typedef size_t(CUDAAPI *CUoccupancyB2DSize)(int block_size);

/* The two stream handles that are not pointers. */
#define CU_STREAM_LEGACY     ((CUstream)0x1)
#define CU_STREAM_PER_THREAD ((CUstream)0x2)

/* C enums of the driver are ints in its ABI; a test checks sizeof == 4. */
typedef int CUresult;
typedef int CUarray_format;
typedef int CUcomputemode;
typedef int CUctx_flags;
typedef int CUdevResourceType;
typedef int CUdevice_P2PAttribute;
typedef int CUdevice_attribute;
typedef int CUdriverProcAddressQueryResult;
typedef int CUdriverProcAddress_flags;
typedef int CUevent_flags;
typedef int CUevent_record_flags;
typedef int CUevent_wait_flags;
typedef int CUexecAffinityType;
typedef int CUflushGPUDirectRDMAWritesScope;
typedef int CUflushGPUDirectRDMAWritesTarget;
typedef int CUfunc_cache;
typedef int CUfunctionLoadingState;
typedef int CUfunction_attribute;
typedef int CUgraphDebugDot_flags;
typedef int CUgraphExecUpdateResult;
typedef int CUgraphInstantiateResult;
typedef int CUgraphInstantiate_flags;
typedef int CUgraphMem_attribute;
typedef int CUgraphNodeType;
typedef int CUipcMem_flags;
typedef int CUjitInputType;
typedef int CUjit_option;
typedef int CUlaunchAttributeID;
typedef int CUlibraryOption;
typedef int CUlimit;
typedef int CUlogLevel;
typedef int CUmemAccess_flags;
typedef int CUmemAllocationGranularity_flags;
typedef int CUmemAllocationHandleType;
typedef int CUmemAllocationType;
typedef int CUmemAttach_flags;
typedef int CUmemLocationType;
typedef int CUmemPool_attribute;
typedef int CUmemRangeHandleType;
typedef int CUmem_advise;
typedef int CUmem_range_attribute;
typedef int CUmemorytype;
typedef int CUmoduleLoadingMode;
typedef int CUmulticastGranularity_flags;
typedef int CUoccupancy_flags;
typedef int CUpointer_attribute;
typedef int CUsharedconfig;
typedef int CUstreamCaptureMode;
typedef int CUstreamCaptureStatus;
typedef int CUstreamUpdateCaptureDependencies_flags;
typedef int CUstream_flags;
typedef int CUtensorMapDataType;
typedef int CUtensorMapFloatOOBfill;
typedef int CUtensorMapInterleave;
typedef int CUtensorMapL2promotion;
typedef int CUtensorMapSwizzle;
typedef int CUuserObjectRetain_flags;
typedef int CUuserObject_flags;
typedef CUlaunchAttributeID CUstreamAttrID;

typedef void(CUDAAPI *CUstreamCallback)(CUstream stream, CUresult status, void *data);
typedef void(CUDAAPI *CUlogsCallback)(void *data, CUlogLevel level, char *message, size_t length);

enum {
#define X(type, name, value) name = value,
#include "device/cuda_constants.h"
#undef X
};

typedef struct CUuuid_st {
	char bytes[16];
} CUuuid;

typedef struct CUmemLocation_st {
	CUmemLocationType type;
	int id;
} CUmemLocation;

typedef struct CUmemAllocationProp_st {
	CUmemAllocationType type;
	CUmemAllocationHandleType requestedHandleTypes;
	CUmemLocation location;
	void *win32HandleMetaData;
	struct {
		unsigned char compressionType;
		unsigned char gpuDirectRDMACapable;
		unsigned short usage;
		unsigned char reserved[4];
	} allocFlags;
} CUmemAllocationProp;

typedef struct CUmemAccessDesc_st {
	CUmemLocation location;
	CUmemAccess_flags flags;
} CUmemAccessDesc;

typedef struct CUmemPoolProps_st {
	CUmemAllocationType allocType;
	CUmemAllocationHandleType handleTypes;
	CUmemLocation location;
	void *win32SecurityAttributes;
	size_t maxSize;
	unsigned short usage;
	unsigned char reserved[54];
} CUmemPoolProps;

typedef struct CUmemPoolPtrExportData_st {
	unsigned char reserved[64];
} CUmemPoolPtrExportData;

#define CU_IPC_HANDLE_SIZE 64

typedef struct CUipcMemHandle_st {
	char reserved[CU_IPC_HANDLE_SIZE];
} CUipcMemHandle;

typedef struct CUipcEventHandle_st {
	char reserved[CU_IPC_HANDLE_SIZE];
} CUipcEventHandle;

typedef struct CUDA_MEMCPY2D_st {
	size_t srcXInBytes, srcY;
	CUmemorytype srcMemoryType;
	const void *srcHost;
	CUdeviceptr srcDevice;
	CUarray srcArray;
	size_t srcPitch;
	size_t dstXInBytes, dstY;
	CUmemorytype dstMemoryType;
	void *dstHost;
	CUdeviceptr dstDevice;
	CUarray dstArray;
	size_t dstPitch;
	size_t WidthInBytes, Height;
} CUDA_MEMCPY2D;

typedef struct CUDA_MEMCPY3D_st {
	size_t srcXInBytes, srcY, srcZ, srcLOD;
	CUmemorytype srcMemoryType;
	const void *srcHost;
	CUdeviceptr srcDevice;
	CUarray srcArray;
	void *reserved0;
	size_t srcPitch, srcHeight;
	size_t dstXInBytes, dstY, dstZ, dstLOD;
	CUmemorytype dstMemoryType;
	void *dstHost;
	CUdeviceptr dstDevice;
	CUarray dstArray;
	void *reserved1;
	size_t dstPitch, dstHeight;
	size_t WidthInBytes, Height, Depth;
} CUDA_MEMCPY3D;

/* The value of a launch or stream attribute; the simulator reads none of it. */
typedef union CUlaunchAttributeValue_union {
	char pad[64];
	struct {
		unsigned int x, y, z;
	} clusterDim;
	int cooperative;
	int priority;
	void *aligned;
} CUlaunchAttributeValue;
typedef CUlaunchAttributeValue CUstreamAttrValue;

typedef struct CUlaunchAttribute_st {
	CUlaunchAttributeID id;
	char pad[4];
	CUlaunchAttributeValue value;
} CUlaunchAttribute;

typedef struct CUlaunchConfig_st {
	unsigned int gridDimX, gridDimY, gridDimZ;
	unsigned int blockDimX, blockDimY, blockDimZ;
	unsigned int sharedMemBytes;
	CUstream hStream;
	CUlaunchAttribute *attrs;
	unsigned int numAttrs;
} CUlaunchConfig;

typedef struct CUtensorMap_st {
	_Alignas(128) cuuint64_t opaque[16];
} CUtensorMap;

typedef struct CUgraphEdgeData_st {
	unsigned char from_port, to_port, type;
	unsigned char reserved[5];
} CUgraphEdgeData;

typedef struct CUDA_GRAPH_INSTANTIATE_PARAMS_st {
	cuuint64_t flags;
	CUstream hUploadStream;
	CUgraphNode hErrNode_out;
	CUgraphInstantiateResult result_out;
} CUDA_GRAPH_INSTANTIATE_PARAMS;

typedef struct CUgraphExecUpdateResultInfo_st {
	CUgraphExecUpdateResult result;
	CUgraphNode errorNode, errorFromNode;
} CUgraphExecUpdateResultInfo;

/* Parameters of features that the simulator refuses: their contents are not needed. */
typedef struct CUgraphNodeParams_st CUgraphNodeParams;
typedef struct CUexecAffinityParam_st CUexecAffinityParam;
typedef struct CUctxCigParam_st CUctxCigParam;
typedef struct CUdevResource_st CUdevResource;
typedef struct CUmulticastObjectProp_st CUmulticastObjectProp;

typedef struct CUctxCreateParams_st {
	CUexecAffinityParam *execAffinityParams;
	int numExecAffinityParams;
	CUctxCigParam *cigParams;
} CUctxCreateParams;

/* One member per function: cuda->cuMemCreate(...). OPTIONAL ones may be NULL. */
struct neap_cuda {
#define X(need, name, symbol, parameters) CUresult(CUDAAPI *name) parameters;
#include "device/cuda_functions.h"
#undef X
};

/* The entry point that returns the others. */
typedef CUresult(CUDAAPI *neap_get_proc_address)(const char *symbol, void **ret_function, int cuda_version,
						 cuuint64_t flags, CUdriverProcAddressQueryResult *ret_status);

#endif
