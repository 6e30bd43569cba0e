/* Copies and sets.
 *
 *   host -> device     stores the bytes                          device -> host   the stored bytes, else zeros
 *   device -> device   likewise, from one range to another       set              one value; zero costs nothing
 *
 * Bytes move at the call. The stream still gets work that takes the copy's time, so later events complete at the
 * right time. No kernel reads the bytes meanwhile, so a program sees no difference. While a stream is capturing, a
 * copy becomes a node and moves nothing: the destination reads as zeros, whether or not the graph was launched.
 *
 * A range that the driver does not know is an invalid value, as in the driver.
 */
#include "sim/runtime/runtime.h"

#define COPY_START_NS 2000
#define HOST_PER_NS   25   /* bytes: PCIe 4, 25 GB/s */
#define DEVICE_PER_NS 1000 /* bytes: about 1 TB/s */

static uint64_t number(const void *pointer) { return (uint64_t)(uintptr_t)pointer; }

enum place {
	PAGEABLE, /* ordinary host memory */
	PINNED,   /* host memory that devices reach too: pinned, registered or managed */
	DEVICE,   /* its bytes are in contents.c */
};

static enum place place_of(const void *pointer)
{
	unsigned int type = 0, managed = 0;

	if (runtime_is_variable(pointer))
		return DEVICE;
	if (runtime_cuda.cuPointerGetAttribute(&type, CU_POINTER_ATTRIBUTE_MEMORY_TYPE, number(pointer)) !=
	    CUDA_SUCCESS)
		return PAGEABLE;
	if (type == cudaMemoryTypeHost)
		return PINNED;
	(void)runtime_cuda.cuPointerGetAttribute(&managed, CU_POINTER_ATTRIBUTE_IS_MANAGED, number(pointer));
	return managed ? PINNED : DEVICE;
}

/* Finds the places of both sides from the pointers. They must not contradict `kind`. */
static int places(const void *to, const void *from, int kind, enum place *ret_to, enum place *ret_from)
{
	if (kind < cudaMemcpyHostToHost || kind > cudaMemcpyDefault)
		return cudaErrorInvalidMemcpyDirection;
	*ret_to = place_of(to);
	*ret_from = place_of(from);
	if (kind == cudaMemcpyDefault)
		return CUDA_SUCCESS;
	if (*ret_to == PAGEABLE && (kind == cudaMemcpyHostToDevice || kind == cudaMemcpyDeviceToDevice))
		return CUDA_ERROR_INVALID_VALUE;
	if (*ret_from == PAGEABLE && (kind == cudaMemcpyDeviceToHost || kind == cudaMemcpyDeviceToDevice))
		return CUDA_ERROR_INVALID_VALUE;
	return CUDA_SUCCESS;
}

static int move(void *to, enum place to_place, const void *from, enum place from_place, size_t bytes)
{
	bool stored = true;

	if (values_blind() && (to_place == DEVICE || from_place == DEVICE)) {
		if (to_place == DEVICE)
			return CUDA_SUCCESS;
		memset(to, 0, bytes);
		values_invented();
		return CUDA_SUCCESS;
	}
	if (from_place == DEVICE)
		gate_open_range(number(from), bytes); /* before its write to `to` is superseded */
	if (to_place == DEVICE)
		gate_overwrite_range(number(to), bytes);
	if (to_place == DEVICE && from_place == DEVICE)
		stored = contents_move(number(to), number(from), bytes);
	else if (to_place == DEVICE)
		stored = contents_write(number(to), from, bytes);
	else if (from_place == DEVICE)
		contents_read(number(from), to, bytes);
	else
		memmove(to, from, bytes);
	return stored ? CUDA_SUCCESS : CUDA_ERROR_OUT_OF_MEMORY;
}

struct rows {
	void *to;
	const void *from;
	size_t to_pitch, from_pitch, width, height;
	int kind;
};

/* Returns the bytes from the first one of the first row to the last one of the last row. */
static struct neap_sim_touch touch_of(const void *start, size_t pitch, const struct rows *rows, uint32_t use)
{
	uint64_t bytes = (rows->height - 1) * pitch + rows->width;
	bool dense = rows->height == 1 || pitch == rows->width;

	return (struct neap_sim_touch){number(start), bytes, dense ? use : use | NEAP_SIM_SPARSE};
}

static void report_copy(const char *name, const struct rows *rows, enum place to_place, enum place from_place,
			CUstream stream)
{
	struct neap_sim_touch touches[2];
	size_t count = 0;

	if (from_place != PAGEABLE)
		touches[count++] = touch_of(rows->from, rows->from_pitch, rows, NEAP_SIM_READS);
	if (to_place != PAGEABLE)
		touches[count++] = touch_of(rows->to, rows->to_pitch, rows, NEAP_SIM_WRITES);
	values_used(stream, name, touches, count);
}

/* Copies rows of bytes on a stream; a plain copy is one row. */
static int copy_rows(const char *name, const struct rows *rows, CUstream stream, bool wait)
{
	enum place to_place, from_place;
	uint64_t bytes = (uint64_t)rows->width * rows->height;
	int result = runtime_ready();
	size_t row;

	if (result != CUDA_SUCCESS || bytes == 0)
		return result;
	if (!rows->to || !rows->from)
		return CUDA_ERROR_INVALID_VALUE;
	if (rows->height > 1 && (rows->width > rows->to_pitch || rows->width > rows->from_pitch))
		return cudaErrorInvalidPitchValue;
	result = places(rows->to, rows->from, rows->kind, &to_place, &from_place);
	if (result == CUDA_SUCCESS)
		result = runtime_launch(
			stream, name, COPY_START_NS + bytes / (to_place == from_place ? DEVICE_PER_NS : HOST_PER_NS));
	if (result != CUDA_SUCCESS)
		return result;
	report_copy(name, rows, to_place, from_place, stream);
	if (runtime_capturing(stream)) {
		for (row = 0; row < rows->height && to_place == DEVICE && !values_kept(); row++)
			contents_forget(number(rows->to) + row * rows->to_pitch, rows->width);
		return wait ? CUDA_ERROR_STREAM_CAPTURE_UNSUPPORTED : CUDA_SUCCESS;
	}
	for (row = 0; row < rows->height && result == CUDA_SUCCESS; row++)
		result = move((char *)rows->to + row * rows->to_pitch, to_place,
			      (const char *)rows->from + row * rows->from_pitch, from_place, rows->width);
	if (result == CUDA_SUCCESS && (wait || (to_place == PAGEABLE && from_place == DEVICE)))
		result = runtime_cudaStreamSynchronize(stream);
	return result;
}

static int copy(const char *name, void *to, const void *from, size_t bytes, int kind, CUstream stream, bool wait)
{
	struct rows rows = {to, from, bytes, bytes, bytes, 1, kind};

	return copy_rows(name, &rows, stream, wait);
}

int runtime_cudaMemcpy(void *to, const void *from, size_t bytes, int kind)
{
	return copy("cudaMemcpy", to, from, bytes, kind, NULL, true);
}

int runtime_cudaMemcpyAsync(void *to, const void *from, size_t bytes, int kind, CUstream stream)
{
	return copy("cudaMemcpyAsync", to, from, bytes, kind, stream, false);
}

int runtime_cudaMemcpyPeer(void *to, int to_device, const void *from, int from_device, size_t bytes)
{
	(void)to_device; /* addresses are unified, so the address shows the device */
	(void)from_device;
	return copy("cudaMemcpyPeer", to, from, bytes, cudaMemcpyDeviceToDevice, NULL, true);
}

int runtime_cudaMemcpyPeerAsync(void *to, int to_device, const void *from, int from_device, size_t bytes,
				CUstream stream)
{
	(void)to_device;
	(void)from_device;
	return copy("cudaMemcpyPeerAsync", to, from, bytes, cudaMemcpyDeviceToDevice, stream, false);
}

int runtime_cudaMemcpy2D(void *to, size_t to_pitch, const void *from, size_t from_pitch, size_t width, size_t height,
			 int kind)
{
	struct rows rows = {to, from, to_pitch, from_pitch, width, height, kind};

	return copy_rows("cudaMemcpy2D", &rows, NULL, true);
}

int runtime_cudaMemcpy2DAsync(void *to, size_t to_pitch, const void *from, size_t from_pitch, size_t width,
			      size_t height, int kind, CUstream stream)
{
	struct rows rows = {to, from, to_pitch, from_pitch, width, height, kind};

	return copy_rows("cudaMemcpy2DAsync", &rows, stream, false);
}

/* -- variables --------------------------------------------------------------------------------------------------- */

static int within_symbol(const void *symbol, size_t offset, size_t bytes, void **ret_pointer)
{
	uint64_t address;
	size_t size;
	int result = runtime_symbol(symbol, &address, &size);

	if (result != CUDA_SUCCESS)
		return result;
	if (offset > size || bytes > size - offset)
		return CUDA_ERROR_INVALID_VALUE;
	*ret_pointer = (void *)(uintptr_t)(address + offset);
	return CUDA_SUCCESS;
}

static int to_symbol(const void *symbol, const void *from, size_t bytes, size_t offset, CUstream stream, bool wait)
{
	void *to = NULL;
	int result = runtime_ready();

	if (result == CUDA_SUCCESS)
		result = within_symbol(symbol, offset, bytes, &to);
	return result == CUDA_SUCCESS ? copy("cudaMemcpyToSymbol", to, from, bytes, cudaMemcpyDefault, stream, wait)
				      : result;
}

int runtime_cudaMemcpyToSymbol(const void *symbol, const void *from, size_t bytes, size_t offset, int kind)
{
	(void)kind; /* the pointer determines it */
	return to_symbol(symbol, from, bytes, offset, NULL, true);
}

int runtime_cudaMemcpyToSymbolAsync(const void *symbol, const void *from, size_t bytes, size_t offset, int kind,
				    CUstream stream)
{
	(void)kind;
	return to_symbol(symbol, from, bytes, offset, stream, false);
}

static int from_symbol(void *to, const void *symbol, size_t bytes, size_t offset, CUstream stream, bool wait)
{
	void *from = NULL;
	int result = runtime_ready();

	if (result == CUDA_SUCCESS)
		result = within_symbol(symbol, offset, bytes, &from);
	return result == CUDA_SUCCESS ? copy("cudaMemcpyFromSymbol", to, from, bytes, cudaMemcpyDefault, stream, wait)
				      : result;
}

int runtime_cudaMemcpyFromSymbol(void *to, const void *symbol, size_t bytes, size_t offset, int kind)
{
	(void)kind;
	return from_symbol(to, symbol, bytes, offset, NULL, true);
}

int runtime_cudaMemcpyFromSymbolAsync(void *to, const void *symbol, size_t bytes, size_t offset, int kind,
				      CUstream stream)
{
	(void)kind;
	return from_symbol(to, symbol, bytes, offset, stream, false);
}

/* -- sets -------------------------------------------------------------------------------------------------------- */

static int set_rows(const char *name, void *to, size_t pitch, int value, size_t width, size_t height, CUstream stream,
		    bool wait)
{
	uint64_t bytes = (uint64_t)width * height;
	int result = runtime_ready();
	enum place place;
	size_t row;

	if (result != CUDA_SUCCESS || bytes == 0)
		return result;
	place = place_of(to);
	if ((height > 1 && width > pitch) || place == PAGEABLE)
		return CUDA_ERROR_INVALID_VALUE;
	result = runtime_launch(stream, name, COPY_START_NS + bytes / DEVICE_PER_NS);
	if (result == CUDA_SUCCESS)
		values_used(stream, name,
			    &(struct neap_sim_touch){number(to), (height - 1) * pitch + width,
						     height == 1 || pitch == width
							     ? NEAP_SIM_WRITES
							     : NEAP_SIM_WRITES | NEAP_SIM_SPARSE},
			    1);
	for (row = 0; row < height && result == CUDA_SUCCESS; row++) {
		char *start = (char *)to + row * pitch;

		if (place == DEVICE && !runtime_capturing(stream))
			gate_overwrite_range(number(start), width);
		if (values_blind() || (values_kept() && runtime_capturing(stream)))
			continue;
		if (runtime_capturing(stream))
			contents_forget(number(start), width);
		else if (place == DEVICE)
			contents_set(number(start), value, width);
		else
			memset(start, value, width);
	}
	return result == CUDA_SUCCESS && wait ? runtime_cudaStreamSynchronize(stream) : result;
}

/* cudaMemset is asynchronous to the host for device memory, as documented. */
int runtime_cudaMemset(void *to, int value, size_t count)
{
	return set_rows("cudaMemset", to, count, value, count, 1, NULL, false);
}

int runtime_cudaMemsetAsync(void *to, int value, size_t count, CUstream stream)
{
	return set_rows("cudaMemsetAsync", to, count, value, count, 1, stream, false);
}

int runtime_cudaMemset2D(void *to, size_t pitch, int value, size_t width, size_t height)
{
	return set_rows("cudaMemset2D", to, pitch, value, width, height, NULL, false);
}

int runtime_cudaMemset2DAsync(void *to, size_t pitch, int value, size_t width, size_t height, CUstream stream)
{
	return set_rows("cudaMemset2DAsync", to, pitch, value, width, height, stream, false);
}
