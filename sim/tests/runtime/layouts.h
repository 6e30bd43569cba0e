/* sim/tests/runtime/layouts.h: the structs of the Runtime API: the size of each and the offsets of its members, as
 * numbers. Two files compile it, one after our declarations, one after CUDA's. */
#include <stddef.h>

#define SIZE(type)          sizeof(type)
#define PLACE(type, member) offsetof(type, member)

#define LAYOUT                                                                                                       \
	SIZE(struct cudaDeviceProp), PLACE(struct cudaDeviceProp, totalGlobalMem),                                   \
		PLACE(struct cudaDeviceProp, totalConstMem), PLACE(struct cudaDeviceProp, multiProcessorCount),      \
		PLACE(struct cudaDeviceProp, maxTexture2D), PLACE(struct cudaDeviceProp, surfaceAlignment),          \
		PLACE(struct cudaDeviceProp, memoryBusWidth), PLACE(struct cudaDeviceProp, l2CacheSize),             \
		PLACE(struct cudaDeviceProp, sharedMemPerMultiprocessor),                                            \
		PLACE(struct cudaDeviceProp, cooperativeLaunch),                                                     \
		PLACE(struct cudaDeviceProp, sharedMemPerBlockOptin),                                                \
		PLACE(struct cudaDeviceProp, reservedSharedMemPerBlock),                                             \
		PLACE(struct cudaDeviceProp, clusterLaunch), PLACE(struct cudaDeviceProp, unifiedFunctionPointers),  \
		SIZE(struct cudaFuncAttributes), PLACE(struct cudaFuncAttributes, maxThreadsPerBlock),               \
		PLACE(struct cudaFuncAttributes, maxDynamicSharedSizeBytes),                                         \
		PLACE(struct cudaFuncAttributes, nonPortableClusterSizeAllowed), SIZE(struct cudaPointerAttributes), \
		PLACE(struct cudaPointerAttributes, hostPointer), SIZE(cudaLaunchConfig_t),                          \
		PLACE(cudaLaunchConfig_t, stream), PLACE(cudaLaunchConfig_t, numAttrs), SIZE(struct cudaPitchedPtr), \
		SIZE(struct cudaExtent), SIZE(dim3)
