/* Copies and sets.
 *
 * A copy moves rows of layers; a plain copy is one row. The address of a range shows its place: on a device, in host
 * memory that devices reach, or in ordinary (pageable) host memory. For pageable memory, copies behave as the driver
 * documents: the source is read at the call, and a copy to pageable memory is done when the call returns.
 *
 * With backing=none device memory has no bytes: writes are dropped, reads return zeros. Order, time and misuse are
 * still checked.
 */
#include "sim/driver/graph.h"

#include <stdlib.h>
#include <string.h>

#define COPY_START_NS 2000
#define HOST_PER_NS   25   /* bytes: PCIe 4, 25 GB/s */
#define DEVICE_PER_NS 1000 /* bytes: about 1 TB/s */

enum place {
	PAGEABLE,
	HOST, /* pinned, registered or managed */
	DEVICE,
	NOWHERE, /* an unmapped device address */
};

struct shape {
	size_t width, height, depth; /* bytes of a row, rows of a layer, layers */
};

struct end { /* of a copy */
	unsigned char *start;
	size_t pitch, slice; /* bytes from row to row, from layer to layer */
	enum place place;
};

static unsigned char *pointer(uint64_t address) { return (unsigned char *)(uintptr_t)address; }
static uint64_t number(const void *address) { return (uint64_t)(uintptr_t)address; }

static size_t row_count(const struct shape *shape) { return shape->height * shape->depth; }

static unsigned char *row_of(const struct end *end, const struct shape *shape, size_t row)
{
	return end->start + row / shape->height * end->slice + row % shape->height * end->pitch;
}

/* Returns the bytes from the first one to the last one, with the gaps between. */
static uint64_t extent(const struct end *end, const struct shape *shape)
{
	return (shape->depth - 1) * end->slice + (shape->height - 1) * end->pitch + shape->width;
}

/* Lock held. */
static enum place place_of(uint64_t start, uint64_t bytes)
{
	const struct sim_range *reached = sim_ranges_find(&sim.hosts, start, 1);

	if (sim_mapping_at(start))
		return DEVICE;
	if (reached && bytes <= reached->start + reached->bytes - start)
		return HOST;
	return sim_ranges_find(&sim.reservations, start, 1) || sim_address_ours(start) ? NOWHERE : PAGEABLE;
}

/* -- copies ------------------------------------------------------------------------------------------------------ */

struct copy {
	struct end to, from;
	struct shape shape;
	unsigned char staged[]; /* a pageable source's bytes, row after row */
};

static void do_copy(void *argument)
{
	const struct copy *copy = argument;
	const struct shape *shape = &copy->shape;

	for (size_t row = 0; row < row_count(shape); row++)
		memmove(row_of(&copy->to, shape, row), row_of(&copy->from, shape, row), shape->width);
}

static void do_zero(void *argument)
{
	const struct copy *copy = argument;

	for (size_t row = 0; row < row_count(&copy->shape); row++)
		memset(row_of(&copy->to, &copy->shape, row), 0, copy->shape.width);
}

struct transfer {
	const char *name;
	struct end to, from;
	struct shape shape;
	CUstream stream;
	bool wait; /* a synchronous copy */
};

/* Adds the rows of one end of a copy to the ranges. Pageable memory is left out: no other work touches it. */
static void add_ranges(const struct end *end, const struct shape *shape, bool write, struct neap_sim_range *ranges,
		       size_t *count)
{
	if (end->place == PAGEABLE)
		return;
	for (size_t row = 0; row < row_count(shape); row++)
		ranges[(*count)++] = (struct neap_sim_range){number(row_of(end, shape, row)), shape->width, write};
}

/* Returns the function that moves the bytes when the copy completes. NULL: there are no bytes to move. */
static void (*function_for(const struct transfer *asked))(void *)
{
	if (!sim.spec.no_backing || (asked->to.place != DEVICE && asked->from.place != DEVICE))
		return do_copy;
	return asked->to.place == DEVICE ? NULL : do_zero;
}

/* A new struct, with a copy of the source's bytes if `stage`; NULL: host out of memory. */
static struct copy *copy_create(const struct transfer *asked, bool stage)
{
	const struct shape *shape = &asked->shape;
	struct copy *copy = malloc(sizeof *copy + (stage ? shape->width * row_count(shape) : 0));

	if (!copy)
		return NULL;
	*copy = (struct copy){asked->to, asked->from, *shape};
	if (!stage)
		return copy;
	for (size_t row = 0; row < row_count(shape); row++)
		memcpy(copy->staged + row * shape->width, row_of(&asked->from, shape, row), shape->width);
	copy->from.start = copy->staged;
	copy->from.pitch = shape->width;
	copy->from.slice = shape->width * shape->height;
	return copy;
}

/* Finds both places, and whether the stream is capturing. */
static CUresult find_places(struct transfer *asked, bool *ret_capturing)
{
	pthread_mutex_lock(&sim.lock);
	asked->to.place = place_of(number(asked->to.start), extent(&asked->to, &asked->shape));
	asked->from.place = place_of(number(asked->from.start), extent(&asked->from, &asked->shape));
	*ret_capturing = sim_stream_known(asked->stream) && asked->stream->capture;
	pthread_mutex_unlock(&sim.lock);
	return asked->to.place == NOWHERE || asked->from.place == NOWHERE ? CUDA_ERROR_INVALID_VALUE : CUDA_SUCCESS;
}

static uint64_t duration_of(const struct transfer *asked)
{
	bool crosses = (asked->to.place == DEVICE) != (asked->from.place == DEVICE);

	return COPY_START_NS +
	       asked->shape.width * row_count(&asked->shape) / (crosses ? HOST_PER_NS : DEVICE_PER_NS);
}

static CUresult submit(const struct transfer *asked, bool stage, bool wait)
{
	struct sim_task task = {.name = asked->name, .type = CU_GRAPH_NODE_TYPE_MEMCPY};
	struct neap_sim_range few[2], *ranges = few;
	size_t most = 2 * row_count(&asked->shape);
	struct copy *copy = NULL;
	uint64_t id = 0;
	CUresult result;

	task.function = function_for(asked);
	if (task.function) {
		copy = copy_create(asked, stage && task.function == do_copy);
		if (!copy)
			return CUDA_ERROR_OUT_OF_MEMORY;
	}
	if (most > sizeof few / sizeof few[0])
		ranges = malloc(most * sizeof *ranges);
	if (!ranges) {
		free(copy);
		return CUDA_ERROR_OUT_OF_MEMORY;
	}
	add_ranges(&asked->to, &asked->shape, true, ranges, &task.range_count);
	add_ranges(&asked->from, &asked->shape, false, ranges, &task.range_count);
	task.ranges = ranges;
	task.argument = task.staged = copy;
	task.duration_ns = duration_of(asked);
	result = sim_submit(asked->stream, &task, &id);
	if (ranges != few)
		free(ranges);
	if (result == CUDA_SUCCESS && wait && id != 0) {
		result = sim_cuStreamSynchronize(asked->stream);
		if (result != CUDA_SUCCESS)
			sim_flight_cancel(id); /* the caller's memory may be freed by then */
	}
	return result;
}

static CUresult transfer(struct transfer *asked)
{
	bool capturing, wait;
	CUresult result;

	if (asked->shape.width == 0 || row_count(&asked->shape) == 0)
		return CUDA_SUCCESS;
	if (!asked->to.start || !asked->from.start)
		return CUDA_ERROR_INVALID_VALUE;
	result = find_places(asked, &capturing);
	if (result != CUDA_SUCCESS)
		return result;
	wait = asked->wait || asked->to.place == PAGEABLE;
	return submit(asked, asked->from.place == PAGEABLE && !wait && !capturing, wait && !capturing);
}

static CUresult copy_bytes(const char *name, uint64_t to, uint64_t from, size_t bytes, CUstream stream, bool wait)
{
	struct transfer asked = {.name = name,
				 .to = {pointer(to), bytes, bytes, 0},
				 .from = {pointer(from), bytes, bytes, 0},
				 .shape = {bytes, 1, 1},
				 .stream = stream,
				 .wait = wait};

	return transfer(&asked);
}

/* Whether devices can reach the address. */
static bool reached(uint64_t address)
{
	enum place place;

	pthread_mutex_lock(&sim.lock);
	place = place_of(address, 1);
	pthread_mutex_unlock(&sim.lock);
	return place == DEVICE || place == HOST;
}

/* Copies for a call whose name says which end is on a device. Fails if `device`, the address of that end, is not on
 * one. */
static CUresult copy_named(const char *name, uint64_t to, uint64_t from, uint64_t device, size_t bytes,
			   CUstream stream, bool wait)
{
	if (bytes > 0 && !reached(device))
		return CUDA_ERROR_INVALID_VALUE;
	return copy_bytes(name, to, from, bytes, stream, wait);
}

CUresult sim_cuMemcpyHtoD(CUdeviceptr to, const void *from, size_t bytes)
{
	return copy_named("cuMemcpyHtoD", to, number(from), to, bytes, NULL, true);
}

CUresult sim_cuMemcpyDtoH(void *to, CUdeviceptr from, size_t bytes)
{
	return copy_named("cuMemcpyDtoH", number(to), from, from, bytes, NULL, true);
}

/* Asynchronous to the host despite its name, as documented. */
CUresult sim_cuMemcpyDtoD(CUdeviceptr to, CUdeviceptr from, size_t bytes)
{
	return sim_cuMemcpyDtoDAsync(to, from, bytes, NULL);
}

CUresult sim_cuMemcpyHtoDAsync(CUdeviceptr to, const void *from, size_t bytes, CUstream stream)
{
	return copy_named("cuMemcpyHtoDAsync", to, number(from), to, bytes, stream, false);
}

CUresult sim_cuMemcpyDtoHAsync(void *to, CUdeviceptr from, size_t bytes, CUstream stream)
{
	return copy_named("cuMemcpyDtoHAsync", number(to), from, from, bytes, stream, false);
}

CUresult sim_cuMemcpyDtoDAsync(CUdeviceptr to, CUdeviceptr from, size_t bytes, CUstream stream)
{
	if (bytes > 0 && !reached(to))
		return CUDA_ERROR_INVALID_VALUE;
	return copy_named("cuMemcpyDtoDAsync", to, from, from, bytes, stream, false);
}

CUresult sim_cuMemcpy(CUdeviceptr to, CUdeviceptr from, size_t bytes)
{
	return copy_bytes("cuMemcpy", to, from, bytes, NULL, true);
}

CUresult sim_cuMemcpyAsync(CUdeviceptr to, CUdeviceptr from, size_t bytes, CUstream stream)
{
	return copy_bytes("cuMemcpyAsync", to, from, bytes, stream, false);
}

/* A copy between devices needs no other treatment: its addresses show the devices. */
CUresult sim_cuMemcpyPeerAsync(CUdeviceptr to, CUcontext to_context, CUdeviceptr from, CUcontext from_context,
			       size_t bytes, CUstream stream)
{
	if (!sim_context_known(to_context) || !sim_context_known(from_context))
		return CUDA_ERROR_INVALID_CONTEXT;
	return sim_cuMemcpyDtoDAsync(to, from, bytes, stream);
}

CUresult sim_cuMemcpyPeer(CUdeviceptr to, CUcontext to_context, CUdeviceptr from, CUcontext from_context,
			  size_t bytes)
{
	return sim_cuMemcpyPeerAsync(to, to_context, from, from_context, bytes, NULL);
}

/* -- rows and layers --------------------------------------------------------------------------------------------- */

struct place_named { /* one end of a CUDA_MEMCPY2D or 3D */
	CUmemorytype type;
	const void *host;
	CUdeviceptr device;
	size_t x, y, z, pitch, height;
};

/* CUDA arrays are not simulated. */
static CUresult find_end(const struct place_named *named, const struct shape *shape, struct end *ret_end)
{
	uint64_t start = named->type == CU_MEMORYTYPE_HOST ? number(named->host) : named->device;

	if (named->type == CU_MEMORYTYPE_ARRAY)
		return CUDA_ERROR_NOT_SUPPORTED;
	if (named->type < CU_MEMORYTYPE_HOST || named->type > CU_MEMORYTYPE_UNIFIED)
		return CUDA_ERROR_INVALID_VALUE;
	if ((row_count(shape) > 1 && named->pitch < named->x + shape->width) ||
	    (shape->depth > 1 && named->height < named->y + shape->height))
		return CUDA_ERROR_INVALID_VALUE;
	if (named->type == CU_MEMORYTYPE_DEVICE && !reached(start))
		return CUDA_ERROR_INVALID_VALUE;
	ret_end->pitch = named->pitch;
	ret_end->slice = named->pitch * named->height;
	ret_end->start = pointer(start + named->z * ret_end->slice + named->y * named->pitch + named->x);
	return CUDA_SUCCESS;
}

static CUresult copy_rows(const char *name, const struct place_named *to, const struct place_named *from,
			  struct shape shape, CUstream stream, bool wait)
{
	struct transfer asked = {.name = name, .shape = shape, .stream = stream, .wait = wait};
	CUresult result;

	if (shape.width == 0 || row_count(&shape) == 0)
		return CUDA_SUCCESS;
	result = find_end(to, &shape, &asked.to);
	if (result == CUDA_SUCCESS)
		result = find_end(from, &shape, &asked.from);
	return result == CUDA_SUCCESS ? transfer(&asked) : result;
}

static CUresult copy_2d(const char *name, const CUDA_MEMCPY2D *copy, CUstream stream, bool wait)
{
	struct place_named to, from;

	if (!copy)
		return CUDA_ERROR_INVALID_VALUE;
	to = (struct place_named){copy->dstMemoryType, copy->dstHost,
				  copy->dstDevice,     copy->dstXInBytes,
				  copy->dstY,          0,
				  copy->dstPitch,      0};
	from = (struct place_named){copy->srcMemoryType, copy->srcHost,
				    copy->srcDevice,     copy->srcXInBytes,
				    copy->srcY,          0,
				    copy->srcPitch,      0};
	return copy_rows(name, &to, &from, (struct shape){copy->WidthInBytes, copy->Height, 1}, stream, wait);
}

CUresult sim_cuMemcpy2D(const CUDA_MEMCPY2D *copy) { return copy_2d("cuMemcpy2D", copy, NULL, true); }
CUresult sim_cuMemcpy2DUnaligned(const CUDA_MEMCPY2D *copy) { return copy_2d("cuMemcpy2D", copy, NULL, true); }

CUresult sim_cuMemcpy2DAsync(const CUDA_MEMCPY2D *copy, CUstream stream)
{
	return copy_2d("cuMemcpy2DAsync", copy, stream, false);
}

static CUresult copy_3d(const char *name, const CUDA_MEMCPY3D *copy, CUstream stream, bool wait)
{
	struct place_named to, from;

	if (!copy || copy->srcLOD != 0 || copy->dstLOD != 0)
		return CUDA_ERROR_INVALID_VALUE;
	to = (struct place_named){copy->dstMemoryType, copy->dstHost, copy->dstDevice, copy->dstXInBytes,
				  copy->dstY,          copy->dstZ,    copy->dstPitch,  copy->dstHeight};
	from = (struct place_named){copy->srcMemoryType, copy->srcHost, copy->srcDevice, copy->srcXInBytes,
				    copy->srcY,          copy->srcZ,    copy->srcPitch,  copy->srcHeight};
	return copy_rows(name, &to, &from, (struct shape){copy->WidthInBytes, copy->Height, copy->Depth}, stream,
			 wait);
}

CUresult sim_cuMemcpy3D(const CUDA_MEMCPY3D *copy) { return copy_3d("cuMemcpy3D", copy, NULL, true); }

CUresult sim_cuMemcpy3DAsync(const CUDA_MEMCPY3D *copy, CUstream stream)
{
	return copy_3d("cuMemcpy3DAsync", copy, stream, false);
}
