/* sim/runtime/api.h: the CUDA Runtime API as neap's libcudart implements it: types and constants, our own
 * declarations.
 *
 * Handles are the driver's: a stream, an event, a graph of the runtime is the driver's pointer. Error codes and
 * device attributes have the driver's numbers. RUNTIME_MAJOR (12 or 13) is the soname that is being built;
 * differences between the two are marked here. Source: CUDA Runtime API reference, 12.9 and 13.2. A test compares all
 * of it with CUDA's headers where those are installed. Do not include both in one file.
 */
#ifndef NEAP_RUNTIME_API_H
#define NEAP_RUNTIME_API_H

#include "device/cuda_api.h"

#include <stddef.h>
#include <stdint.h>

#ifndef RUNTIME_MAJOR
#define RUNTIME_MAJOR 13
#endif
#if RUNTIME_MAJOR == 12
#define RUNTIME_VERSION 12090
#else
#define RUNTIME_VERSION 13020
#endif

/* Enums of the runtime are ints in its ABI. */
typedef int cudaError_t;

/* The runtime's own codes; all others are CUresult's. */
enum {
	cudaErrorInvalidConfiguration = 9,
	cudaErrorInvalidPitchValue = 12,
	cudaErrorInvalidSymbol = 13,
	cudaErrorInvalidMemcpyDirection = 21,
	cudaErrorInsufficientDriver = 35,
	cudaErrorMissingConfiguration = 52,
	cudaErrorInvalidDeviceFunction = 98,
};

enum cudaMemcpyKind {
	cudaMemcpyHostToHost = 0,
	cudaMemcpyHostToDevice = 1,
	cudaMemcpyDeviceToHost = 2,
	cudaMemcpyDeviceToDevice = 3,
	cudaMemcpyDefault = 4, /* the pointers determine it */
};

enum cudaMemoryType {
	cudaMemoryTypeUnregistered = 0,
	cudaMemoryTypeHost = 1,
	cudaMemoryTypeDevice = 2,
	cudaMemoryTypeManaged = 3,
};

typedef struct dim3 {
	unsigned int x, y, z;
} dim3;

struct cudaFuncAttributes {
	size_t sharedSizeBytes, constSizeBytes, localSizeBytes;
	int maxThreadsPerBlock, numRegs, ptxVersion, binaryVersion, cacheModeCA, maxDynamicSharedSizeBytes;
	int preferredShmemCarveout, clusterDimMustBeSet, requiredClusterWidth, requiredClusterHeight;
	int requiredClusterDepth, clusterSchedulingPolicyPreference, nonPortableClusterSizeAllowed;
	int reserved[16];
};

struct cudaPointerAttributes {
	int type; /* enum cudaMemoryType */
	int device;
	void *devicePointer, *hostPointer;
#if RUNTIME_MAJOR >= 13
	long reserved[8];
#endif
};

typedef struct cudaLaunchConfig_st {
	dim3 gridDim, blockDim;
	size_t dynamicSmemBytes;
	CUstream stream;
	void *attrs;
	unsigned int numAttrs;
} cudaLaunchConfig_t;

struct cudaPitchedPtr {
	void *ptr;
	size_t pitch, xsize, ysize;
};

struct cudaExtent {
	size_t width, height, depth;
};

typedef struct cudaIpcHandle_st {
	char reserved[64];
} cudaIpcHandle_t; /* of memory and of events */

typedef void (*cudaStreamCallback_t)(CUstream stream, cudaError_t status, void *data);

struct cudaDeviceProp {
	char name[256];
	CUuuid uuid;
	char luid[8];
	unsigned int luidDeviceNodeMask;
	size_t totalGlobalMem, sharedMemPerBlock;
	int regsPerBlock, warpSize;
	size_t memPitch;
	int maxThreadsPerBlock, maxThreadsDim[3], maxGridSize[3];
#if RUNTIME_MAJOR == 12
	int clockRate;
#endif
	size_t totalConstMem;
	int major, minor;
	size_t textureAlignment, texturePitchAlignment;
#if RUNTIME_MAJOR == 12
	int deviceOverlap;
#endif
	int multiProcessorCount;
#if RUNTIME_MAJOR == 12
	int kernelExecTimeoutEnabled;
#endif
	int integrated, canMapHostMemory;
#if RUNTIME_MAJOR == 12
	int computeMode;
#endif
	int maxTexture1D, maxTexture1DMipmap;
#if RUNTIME_MAJOR == 12
	int maxTexture1DLinear;
#endif
	int maxTexture2D[2], maxTexture2DMipmap[2], maxTexture2DLinear[3], maxTexture2DGather[2], maxTexture3D[3];
	int maxTexture3DAlt[3], maxTextureCubemap, maxTexture1DLayered[2], maxTexture2DLayered[3];
	int maxTextureCubemapLayered[2], maxSurface1D, maxSurface2D[2], maxSurface3D[3], maxSurface1DLayered[2];
	int maxSurface2DLayered[3], maxSurfaceCubemap, maxSurfaceCubemapLayered[2];
	size_t surfaceAlignment;
	int concurrentKernels, ECCEnabled, pciBusID, pciDeviceID, pciDomainID, tccDriver, asyncEngineCount;
	int unifiedAddressing;
#if RUNTIME_MAJOR == 12
	int memoryClockRate;
#endif
	int memoryBusWidth, l2CacheSize, persistingL2CacheMaxSize, maxThreadsPerMultiProcessor;
	int streamPrioritiesSupported, globalL1CacheSupported, localL1CacheSupported;
	size_t sharedMemPerMultiprocessor;
	int regsPerMultiprocessor, managedMemory, isMultiGpuBoard, multiGpuBoardGroupID, hostNativeAtomicSupported;
#if RUNTIME_MAJOR == 12
	int singleToDoublePrecisionPerfRatio;
#endif
	int pageableMemoryAccess, concurrentManagedAccess, computePreemptionSupported;
	int canUseHostPointerForRegisteredMem, cooperativeLaunch;
#if RUNTIME_MAJOR == 12
	int cooperativeMultiDeviceLaunch;
#endif
	size_t sharedMemPerBlockOptin;
	int pageableMemoryAccessUsesHostPageTables, directManagedMemAccessFromHost, maxBlocksPerMultiProcessor;
	int accessPolicyMaxWindowSize;
	size_t reservedSharedMemPerBlock;
	int hostRegisterSupported, sparseCudaArraySupported, hostRegisterReadOnlySupported;
	int timelineSemaphoreInteropSupported, memoryPoolsSupported, gpuDirectRDMASupported;
	unsigned int gpuDirectRDMAFlushWritesOptions;
	int gpuDirectRDMAWritesOrdering;
	unsigned int memoryPoolSupportedHandleTypes;
	int deferredMappingCudaArraySupported, ipcEventSupported, clusterLaunch, unifiedFunctionPointers;
	int reserved[63];
};

#endif
