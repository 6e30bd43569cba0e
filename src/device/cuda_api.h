/* device/cuda_api.h: the driver ABI as neap sees it: types, constants, and the table of functions.
 *
 * This is the seam of the whole project: libneap knows a device only as a struct neap_cuda, filled by dlopen
 * (device/driver.h). NVIDIA's libcuda.so.1 and neap's simulator fill it alike. Nothing needs CUDA's headers to build;
 * a test compares what stands here with cuda.h where that is installed. Do not include both in one file.
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
typedef struct CUstream_st *CUstream;
typedef struct CUevent_st *CUevent;
typedef struct CUgraph_st *CUgraph;
typedef struct CUmemPoolHandle_st *CUmemoryPool;
typedef void(CUDAAPI *CUhostFn)(void *data);

/* C enums of the driver are ints in its ABI; a test checks sizeof == 4. */
typedef int CUresult;
typedef int CUdevice_attribute;
typedef int CUmemAllocationType;
typedef int CUmemAllocationHandleType;
typedef int CUmemLocationType;
typedef int CUmemAccess_flags;
typedef int CUmemAllocationGranularity_flags;
typedef int CUmemPool_attribute;
typedef int CUstream_flags;
typedef int CUevent_flags;
typedef int CUstreamCaptureStatus;
typedef int CUstreamCaptureMode;
typedef int CUpointer_attribute;
typedef int CUmemorytype;
typedef int CUdriverProcAddressQueryResult;

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

/* One member per function: cuda->cuMemCreate(...). OPTIONAL ones may be NULL. */
struct neap_cuda {
#define X(need, name, symbol, parameters) CUresult(CUDAAPI *name) parameters;
#include "device/cuda_functions.h"
#undef X
};

/* The entry through which the others are asked for. */
typedef CUresult(CUDAAPI *neap_get_proc_address)(const char *symbol, void **ret_function, int cuda_version,
						 cuuint64_t flags, CUdriverProcAddressQueryResult *ret_status);

#endif
