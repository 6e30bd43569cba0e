/* Device properties: cudaGetDeviceProperties copies the driver's attributes one by one. */
#include "sim/runtime/runtime.h"

int runtime_attribute(int attribute, int device)
{
	int value = 0;

	return runtime_cuda.cuDeviceGetAttribute(&value, attribute, device) == CUDA_SUCCESS ? value : 0;
}

int runtime_cudaDeviceGetAttribute(int *value, int attribute, int device)
{
	int result = runtime_open();

	return result == CUDA_SUCCESS ? runtime_cuda.cuDeviceGetAttribute(value, attribute, device) : result;
}

/* Member of the struct <- number of the driver's attribute, the same number as cudaDeviceAttr's. */
#define MEMBERS                                                                                                      \
	M(sharedMemPerBlock, 8)                                                                                      \
	M(regsPerBlock, 12)                                                                                          \
	M(warpSize, 10)                                                                                              \
	M(memPitch, 11)                                                                                              \
	M(maxThreadsPerBlock, 1)                                                                                     \
	M(maxThreadsDim[0], 2)                                                                                       \
	M(maxThreadsDim[1], 3)                                                                                       \
	M(maxThreadsDim[2], 4)                                                                                       \
	M(maxGridSize[0], 5)                                                                                         \
	M(maxGridSize[1], 6)                                                                                         \
	M(maxGridSize[2], 7)                                                                                         \
	M(totalConstMem, 9)                                                                                          \
	M(major, 75)                                                                                                 \
	M(minor, 76)                                                                                                 \
	M(textureAlignment, 14)                                                                                      \
	M(texturePitchAlignment, 51)                                                                                 \
	M(multiProcessorCount, 16)                                                                                   \
	M(integrated, 18)                                                                                            \
	M(canMapHostMemory, 19)                                                                                      \
	M(maxTexture1D, 21)                                                                                          \
	M(maxTexture1DMipmap, 77)                                                                                    \
	M(maxTexture2D[0], 22)                                                                                       \
	M(maxTexture2D[1], 23)                                                                                       \
	M(maxTexture2DMipmap[0], 73)                                                                                 \
	M(maxTexture2DMipmap[1], 74)                                                                                 \
	M(maxTexture2DLinear[0], 70)                                                                                 \
	M(maxTexture2DLinear[1], 71)                                                                                 \
	M(maxTexture2DLinear[2], 72)                                                                                 \
	M(maxTexture2DGather[0], 45)                                                                                 \
	M(maxTexture2DGather[1], 46)                                                                                 \
	M(maxTexture3D[0], 24)                                                                                       \
	M(maxTexture3D[1], 25)                                                                                       \
	M(maxTexture3D[2], 26)                                                                                       \
	M(maxTexture3DAlt[0], 47)                                                                                    \
	M(maxTexture3DAlt[1], 48)                                                                                    \
	M(maxTexture3DAlt[2], 49)                                                                                    \
	M(maxTextureCubemap, 52)                                                                                     \
	M(maxTexture1DLayered[0], 42)                                                                                \
	M(maxTexture1DLayered[1], 43)                                                                                \
	M(maxTexture2DLayered[0], 27)                                                                                \
	M(maxTexture2DLayered[1], 28)                                                                                \
	M(maxTexture2DLayered[2], 29)                                                                                \
	M(maxTextureCubemapLayered[0], 53)                                                                           \
	M(maxTextureCubemapLayered[1], 54)                                                                           \
	M(maxSurface1D, 55)                                                                                          \
	M(maxSurface2D[0], 56)                                                                                       \
	M(maxSurface2D[1], 57)                                                                                       \
	M(maxSurface3D[0], 58)                                                                                       \
	M(maxSurface3D[1], 59)                                                                                       \
	M(maxSurface3D[2], 60)                                                                                       \
	M(maxSurface1DLayered[0], 61)                                                                                \
	M(maxSurface1DLayered[1], 62)                                                                                \
	M(maxSurface2DLayered[0], 63)                                                                                \
	M(maxSurface2DLayered[1], 64)                                                                                \
	M(maxSurface2DLayered[2], 65)                                                                                \
	M(maxSurfaceCubemap, 66)                                                                                     \
	M(maxSurfaceCubemapLayered[0], 67)                                                                           \
	M(maxSurfaceCubemapLayered[1], 68)                                                                           \
	M(surfaceAlignment, 30)                                                                                      \
	M(concurrentKernels, 31)                                                                                     \
	M(ECCEnabled, 32)                                                                                            \
	M(pciBusID, 33)                                                                                              \
	M(pciDeviceID, 34)                                                                                           \
	M(pciDomainID, 50)                                                                                           \
	M(tccDriver, 35)                                                                                             \
	M(asyncEngineCount, 40)                                                                                      \
	M(unifiedAddressing, 41)                                                                                     \
	M(memoryBusWidth, 37)                                                                                        \
	M(l2CacheSize, 38)                                                                                           \
	M(persistingL2CacheMaxSize, 108)                                                                             \
	M(maxThreadsPerMultiProcessor, 39)                                                                           \
	M(streamPrioritiesSupported, 78)                                                                             \
	M(globalL1CacheSupported, 79)                                                                                \
	M(localL1CacheSupported, 80)                                                                                 \
	M(sharedMemPerMultiprocessor, 81)                                                                            \
	M(regsPerMultiprocessor, 82)                                                                                 \
	M(managedMemory, 83)                                                                                         \
	M(isMultiGpuBoard, 84)                                                                                       \
	M(multiGpuBoardGroupID, 85)                                                                                  \
	M(hostNativeAtomicSupported, 86)                                                                             \
	M(pageableMemoryAccess, 88)                                                                                  \
	M(concurrentManagedAccess, 89)                                                                               \
	M(computePreemptionSupported, 90)                                                                            \
	M(canUseHostPointerForRegisteredMem, 91)                                                                     \
	M(cooperativeLaunch, 95)                                                                                     \
	M(sharedMemPerBlockOptin, 97)                                                                                \
	M(pageableMemoryAccessUsesHostPageTables, 100)                                                               \
	M(directManagedMemAccessFromHost, 101)                                                                       \
	M(maxBlocksPerMultiProcessor, 106)                                                                           \
	M(accessPolicyMaxWindowSize, 109)                                                                            \
	M(reservedSharedMemPerBlock, 111)                                                                            \
	M(hostRegisterSupported, 99)                                                                                 \
	M(sparseCudaArraySupported, 112)                                                                             \
	M(hostRegisterReadOnlySupported, 113)                                                                        \
	M(timelineSemaphoreInteropSupported, 114)                                                                    \
	M(memoryPoolsSupported, 115)                                                                                 \
	M(gpuDirectRDMASupported, 116)                                                                               \
	M(gpuDirectRDMAFlushWritesOptions, 117)                                                                      \
	M(gpuDirectRDMAWritesOrdering, 118)                                                                          \
	M(memoryPoolSupportedHandleTypes, 119)                                                                       \
	M(deferredMappingCudaArraySupported, 121)                                                                    \
	M(ipcEventSupported, 125)                                                                                    \
	M(clusterLaunch, 120)                                                                                        \
	M(unifiedFunctionPointers, 129)

#if RUNTIME_MAJOR == 12
#define OLD_MEMBERS                                                                                                  \
	M(clockRate, 13)                                                                                             \
	M(deviceOverlap, 15)                                                                                         \
	M(kernelExecTimeoutEnabled, 17)                                                                              \
	M(computeMode, 20)                                                                                           \
	M(maxTexture1DLinear, 69)                                                                                    \
	M(memoryClockRate, 36)                                                                                       \
	M(singleToDoublePrecisionPerfRatio, 87)                                                                      \
	M(cooperativeMultiDeviceLaunch, 96)
#else
#define OLD_MEMBERS
#endif

static int fill(struct cudaDeviceProp *properties, int device)
{
	int result;

	memset(properties, 0, sizeof *properties);
	result = runtime_cuda.cuDeviceGetName(properties->name, sizeof properties->name, device);
	if (result == CUDA_SUCCESS)
		result = runtime_cuda.cuDeviceGetUuid(&properties->uuid, device);
	if (result == CUDA_SUCCESS)
		result = runtime_cuda.cuDeviceTotalMem(&properties->totalGlobalMem, device);
	if (result != CUDA_SUCCESS)
		return result;
#define M(member, number) properties->member = (__typeof__(properties->member))runtime_attribute(number, device);
	MEMBERS
	OLD_MEMBERS
#undef M
	return CUDA_SUCCESS;
}

/* In CUDA 12 the name without a version takes an older, shorter struct. */
#if RUNTIME_MAJOR == 12
int runtime_cudaGetDeviceProperties_v2(struct cudaDeviceProp *properties, int device)
#else
int runtime_cudaGetDeviceProperties(struct cudaDeviceProp *properties, int device)
#endif
{
	int result = runtime_open();

	if (!properties)
		return CUDA_ERROR_INVALID_VALUE;
	return result == CUDA_SUCCESS ? fill(properties, device) : result;
}
