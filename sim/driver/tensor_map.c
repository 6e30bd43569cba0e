/* Tensor maps: descriptors of tensors for the copies of thread block clusters. Only the device knows a descriptor's
 * format, and no kernel reads it here. The documented limits on its arguments are checked. */
#include "sim/driver/state.h"
#include "sim/profiles/architecture.h"

#include <string.h>

#define RANK_LIMIT 5

/* By CUtensorMapDataType: bits of an element. */
static const unsigned char type_bits[] = {8, 16, 32, 32, 64, 64, 16, 32, 64, 16, 32, 32, 32, 4, 4, 6};
#define TYPE_COUNT    ((int)sizeof type_bits)
#define TYPE_U4_ALIGN 14 /* 16U4_ALIGN16B and 16U6_ALIGN16B: stricter alignment */
#define INTERLEAVE_32 2
#define SWIZZLE_128   3 /* and above: a span of 128 bytes */
#define SWIZZLE_LAST  6

/* The widest innermost dimension of the box, in bytes; 0: any. */
static uint64_t swizzle_span(CUtensorMapSwizzle swizzle)
{
	return swizzle == 0 ? 0 : swizzle >= SWIZZLE_128 ? 128 : 16ull << swizzle;
}

/* `first`: the first dimension whose element stride counts. */
static bool dimensions_good(uint32_t rank, uint64_t alignment, const cuuint64_t *sizes, const cuuint64_t *strides,
			    const uint32_t *box, const uint32_t *element_strides, uint32_t first)
{
	for (uint32_t i = 0; i < rank; i++) {
		if (sizes[i] == 0 || sizes[i] > 1ull << 32 || box[i] == 0 || box[i] > 256)
			return false;
		if (i >= first && (element_strides[i] == 0 || element_strides[i] > 8))
			return false;
		if (i + 1 < rank && (strides[i] % alignment != 0 || strides[i] >= 1ull << 40))
			return false;
	}
	return true;
}

CUresult sim_cuTensorMapEncodeTiled(CUtensorMap *map, CUtensorMapDataType type, uint32_t rank, void *address,
				    const cuuint64_t *sizes, const cuuint64_t *strides, const uint32_t *box,
				    const uint32_t *element_strides, CUtensorMapInterleave interleave,
				    CUtensorMapSwizzle swizzle, CUtensorMapL2promotion promotion,
				    CUtensorMapFloatOOBfill fill)
{
	uint64_t alignment = interleave == INTERLEAVE_32 || type >= TYPE_U4_ALIGN ? 32 : 16, inner;
	uint32_t device;

	if (!sim_current_device(&device))
		return CUDA_ERROR_INVALID_CONTEXT;
	if (!sim_architecture_of(&sim.devices[device])->clusters)
		return CUDA_ERROR_NOT_SUPPORTED;
	if (!map || (uintptr_t)map % 64 != 0 || type < 0 || type >= TYPE_COUNT || rank == 0 || rank > RANK_LIMIT ||
	    !sizes || !box || !element_strides || (rank > 1 && !strides))
		return CUDA_ERROR_INVALID_VALUE;
	if (interleave < 0 || interleave > INTERLEAVE_32 || (interleave > 0 && rank < 3) || swizzle < 0 ||
	    swizzle > SWIZZLE_LAST || promotion < 0 || promotion > 3 || fill < 0 || fill > 1)
		return CUDA_ERROR_INVALID_VALUE;
	if (!address || (uintptr_t)address % alignment != 0 ||
	    !dimensions_good(rank, alignment, sizes, strides, box, element_strides, interleave == 0))
		return CUDA_ERROR_INVALID_VALUE;
	inner = (uint64_t)box[0] * type_bits[type] / 8;
	if (interleave == 0 && (inner % 16 != 0 || (swizzle_span(swizzle) && inner > swizzle_span(swizzle))))
		return CUDA_ERROR_INVALID_VALUE;
	memset(map, 0, sizeof *map);
	map->opaque[0] = (uintptr_t)address;
	map->opaque[1] = rank;
	return CUDA_SUCCESS;
}
