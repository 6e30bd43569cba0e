/* cuBLAS's copies of vectors and matrices between host and device: really copied, by the runtime. */
#include "sim/libraries/stand_in.h"

enum {
	NOT_INITIALIZED = 1,
	INVALID_VALUE = 7,
	MAPPING_ERROR = 11,

	TO_DEVICE = 1, /* cudaMemcpyKind */
	TO_HOST = 2,
};

/* As cudaMemcpy2D takes them: `height` rows of `width` bytes, `pitch` apart. */
struct rectangle {
	void *to;
	size_t to_pitch;
	const void *from;
	size_t from_pitch;
	size_t width;
	size_t height;
};

static int copy(const struct rectangle *r, int kind, void *stream, bool waits)
{
	int (*copy_2d)(void *, size_t, const void *, size_t, size_t, size_t, int, void *) = NULL;
	int (*wait)(void *) = NULL;
	void *copy_symbol = dlsym(RTLD_DEFAULT, "cudaMemcpy2DAsync");
	void *wait_symbol = dlsym(RTLD_DEFAULT, "cudaStreamSynchronize");

	if (!copy_symbol || !wait_symbol)
		return NOT_INITIALIZED;
	if (r->width == 0 || r->height == 0)
		return 0;
	memcpy(&copy_2d, &copy_symbol, sizeof copy_2d);
	memcpy(&wait, &wait_symbol, sizeof wait);
	if (copy_2d(r->to, r->to_pitch, r->from, r->from_pitch, r->width, r->height, kind, stream) != 0)
		return MAPPING_ERROR;
	return waits && wait(stream) != 0 ? MAPPING_ERROR : 0;
}

static int copy_vector(int64_t n, int64_t element, const void *from, int64_t from_step, void *to, int64_t to_step,
		       int kind, void *stream, bool waits)
{
	struct rectangle r = {.to = to, .from = from, .width = (size_t)element, .height = (size_t)n};

	if (n < 0 || element <= 0 || from_step <= 0 || to_step <= 0)
		return INVALID_VALUE;
	r.to_pitch = (size_t)(to_step * element);
	r.from_pitch = (size_t)(from_step * element);
	return copy(&r, kind, stream, waits);
}

static int copy_matrix(int64_t rows, int64_t columns, int64_t element, const void *from, int64_t from_leading,
		       void *to, int64_t to_leading, int kind, void *stream, bool waits)
{
	struct rectangle r = {.to = to, .from = from, .height = (size_t)columns};

	if (rows < 0 || columns < 0 || element <= 0 || from_leading <= 0 || to_leading <= 0)
		return INVALID_VALUE;
	r.width = (size_t)(rows * element);
	r.to_pitch = (size_t)(to_leading * element);
	r.from_pitch = (size_t)(from_leading * element);
	return copy(&r, kind, stream, waits);
}

#define VECTOR(name, integer, kind)                                                                                  \
	int name(integer n, integer element, const void *from, integer from_step, void *to, integer to_step)         \
	{                                                                                                            \
		return copy_vector(n, element, from, from_step, to, to_step, kind, NULL, true);                      \
	}
#define VECTOR_ASYNC(name, integer, kind)                                                                            \
	int name(integer n, integer element, const void *from, integer from_step, void *to, integer to_step,         \
		 void *stream)                                                                                       \
	{                                                                                                            \
		return copy_vector(n, element, from, from_step, to, to_step, kind, stream, false);                   \
	}
#define MATRIX(name, integer, kind)                                                                                  \
	int name(integer rows, integer columns, integer element, const void *from, integer from_leading, void *to,   \
		 integer to_leading)                                                                                 \
	{                                                                                                            \
		return copy_matrix(rows, columns, element, from, from_leading, to, to_leading, kind, NULL, true);    \
	}
#define MATRIX_ASYNC(name, integer, kind)                                                                            \
	int name(integer rows, integer columns, integer element, const void *from, integer from_leading, void *to,   \
		 integer to_leading, void *stream)                                                                   \
	{                                                                                                            \
		return copy_matrix(rows, columns, element, from, from_leading, to, to_leading, kind, stream, false); \
	}

VECTOR(cublasSetVector, int, TO_DEVICE)
VECTOR(cublasSetVector_64, int64_t, TO_DEVICE)
VECTOR(cublasGetVector, int, TO_HOST)
VECTOR(cublasGetVector_64, int64_t, TO_HOST)
VECTOR_ASYNC(cublasSetVectorAsync, int, TO_DEVICE)
VECTOR_ASYNC(cublasSetVectorAsync_64, int64_t, TO_DEVICE)
VECTOR_ASYNC(cublasGetVectorAsync, int, TO_HOST)
VECTOR_ASYNC(cublasGetVectorAsync_64, int64_t, TO_HOST)
MATRIX(cublasSetMatrix, int, TO_DEVICE)
MATRIX(cublasSetMatrix_64, int64_t, TO_DEVICE)
MATRIX(cublasGetMatrix, int, TO_HOST)
MATRIX(cublasGetMatrix_64, int64_t, TO_HOST)
MATRIX_ASYNC(cublasSetMatrixAsync, int, TO_DEVICE)
MATRIX_ASYNC(cublasSetMatrixAsync_64, int64_t, TO_DEVICE)
MATRIX_ASYNC(cublasGetMatrixAsync, int, TO_HOST)
MATRIX_ASYNC(cublasGetMatrixAsync_64, int64_t, TO_HOST)
