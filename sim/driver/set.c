/* Sets: memory filled with one value of 1, 2 or 4 bytes. With backing=none device memory has no bytes. */
#include "sim/driver/graph.h"

#include <stdlib.h>
#include <string.h>

#define SET_START_NS 2000
#define SET_PER_NS   1000 /* bytes: about 1 TB/s */

struct set {
	unsigned char *to;
	size_t pitch, width, height; /* width: how many values a row has */
	unsigned int value, size;    /* size: how many bytes a value has */
};

static void do_set(void *argument)
{
	const struct set *set = argument;

	for (size_t row = 0; row < set->height; row++) {
		unsigned char *at = set->to + row * set->pitch;

		if (set->size == 1)
			memset(at, (int)set->value, set->width);
		for (size_t i = 0; set->size > 1 && i < set->width; i++)
			memcpy(at + i * set->size, &set->value, set->size); /* little endian, as CUDA's hosts are */
	}
}

/* Whether the memory has bytes: host memory that devices reach always has. */
static bool has_bytes(const struct set *set)
{
	bool device;

	pthread_mutex_lock(&sim.lock);
	device = sim_mapping_at((uint64_t)(uintptr_t)set->to) != NULL;
	pthread_mutex_unlock(&sim.lock);
	return !device || !sim.spec.no_backing;
}

static CUresult fill(const char *name, const struct set *asked, CUstream stream)
{
	uint64_t start = (uint64_t)(uintptr_t)asked->to, width = asked->width * asked->size;
	struct sim_task task = {.name = name, .type = CU_GRAPH_NODE_TYPE_MEMSET};
	struct neap_sim_range one, *ranges = &one;
	struct set *set = NULL;
	CUresult result;

	if (asked->width == 0 || asked->height == 0)
		return CUDA_SUCCESS;
	if (start == 0 || start % asked->size != 0 || asked->width > SIM_MEMORY_LIMIT ||
	    asked->height > SIM_MEMORY_LIMIT ||
	    (asked->height > 1 && (asked->pitch < width || asked->pitch % asked->size != 0)))
		return CUDA_ERROR_INVALID_VALUE;
	if (has_bytes(asked)) {
		set = malloc(sizeof *set);
		if (!set)
			return CUDA_ERROR_OUT_OF_MEMORY;
		*set = *asked;
		task.function = do_set;
	}
	if (asked->height > 1)
		ranges = malloc(asked->height * sizeof *ranges);
	if (!ranges) {
		free(set);
		return CUDA_ERROR_OUT_OF_MEMORY;
	}
	for (size_t row = 0; row < asked->height; row++)
		ranges[task.range_count++] = (struct neap_sim_range){start + row * asked->pitch, width, 1};
	task.ranges = ranges;
	task.argument = task.staged = set;
	task.duration_ns = SET_START_NS + width * asked->height / SET_PER_NS;
	result = sim_submit(stream, &task, NULL);
	if (ranges != &one)
		free(ranges);
	return result;
}

static CUresult set_row(const char *name, CUdeviceptr to, unsigned int value, unsigned int size, size_t count,
			CUstream stream)
{
	return fill(name, &(struct set){(unsigned char *)(uintptr_t)to, 0, count, 1, value, size}, stream);
}

static CUresult set_rows(const char *name, CUdeviceptr to, size_t pitch, unsigned int value, unsigned int size,
			 size_t width, size_t height, CUstream stream)
{
	return fill(name, &(struct set){(unsigned char *)(uintptr_t)to, pitch, width, height, value, size}, stream);
}

CUresult sim_cuMemsetD8(CUdeviceptr to, unsigned char value, size_t count)
{
	return set_row("cuMemsetD8", to, value, 1, count, NULL);
}

CUresult sim_cuMemsetD16(CUdeviceptr to, unsigned short value, size_t count)
{
	return set_row("cuMemsetD16", to, value, 2, count, NULL);
}

CUresult sim_cuMemsetD32(CUdeviceptr to, unsigned int value, size_t count)
{
	return set_row("cuMemsetD32", to, value, 4, count, NULL);
}

CUresult sim_cuMemsetD8Async(CUdeviceptr to, unsigned char value, size_t count, CUstream stream)
{
	return set_row("cuMemsetD8Async", to, value, 1, count, stream);
}

CUresult sim_cuMemsetD16Async(CUdeviceptr to, unsigned short value, size_t count, CUstream stream)
{
	return set_row("cuMemsetD16Async", to, value, 2, count, stream);
}

CUresult sim_cuMemsetD32Async(CUdeviceptr to, unsigned int value, size_t count, CUstream stream)
{
	return set_row("cuMemsetD32Async", to, value, 4, count, stream);
}

CUresult sim_cuMemsetD2D8(CUdeviceptr to, size_t pitch, unsigned char value, size_t width, size_t height)
{
	return set_rows("cuMemsetD2D8", to, pitch, value, 1, width, height, NULL);
}

CUresult sim_cuMemsetD2D16(CUdeviceptr to, size_t pitch, unsigned short value, size_t width, size_t height)
{
	return set_rows("cuMemsetD2D16", to, pitch, value, 2, width, height, NULL);
}

CUresult sim_cuMemsetD2D32(CUdeviceptr to, size_t pitch, unsigned int value, size_t width, size_t height)
{
	return set_rows("cuMemsetD2D32", to, pitch, value, 4, width, height, NULL);
}

CUresult sim_cuMemsetD2D8Async(CUdeviceptr to, size_t pitch, unsigned char value, size_t width, size_t height,
			       CUstream stream)
{
	return set_rows("cuMemsetD2D8Async", to, pitch, value, 1, width, height, stream);
}

CUresult sim_cuMemsetD2D16Async(CUdeviceptr to, size_t pitch, unsigned short value, size_t width, size_t height,
				CUstream stream)
{
	return set_rows("cuMemsetD2D16Async", to, pitch, value, 2, width, height, stream);
}

CUresult sim_cuMemsetD2D32Async(CUdeviceptr to, size_t pitch, unsigned int value, size_t width, size_t height,
				CUstream stream)
{
	return set_rows("cuMemsetD2D32Async", to, pitch, value, 4, width, height, stream);
}
