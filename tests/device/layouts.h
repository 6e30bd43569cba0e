/* tests/device/layouts.h: sizes and offsets, as whoever includes this sees them. Included once beside CUDA's own
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
		OFFSET(CUmemAccessDesc, flags)

#endif
