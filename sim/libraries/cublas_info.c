/* cuBLAS: versions, names of errors, and results whose type is an argument. */
#include "sim/libraries/cublas_common.h"
#include "sim/libraries/stand_in.h"

struct handle;

intptr_t cublas_stream(uintptr_t first, void **ret_stream);
bool cublas_host(uintptr_t first);

int cublasGetVersion_v2(struct handle *handle, int *ret_version)
{
	(void)handle;
	if (!ret_version)
		return CUBLAS_INVALID_VALUE;
	*ret_version = CUBLAS_VERSION;
	return 0;
}

int cublasGetProperty(int type, int *ret_value) { return cublas_property(type, ret_value); }

size_t cublasGetCudartVersion(void) { return CUBLAS_RUNTIME; }

const char *cublasGetStatusName(int code) { return cublas_status_name(code); }

const char *cublasGetStatusString(int code) { return cublas_status_text(code); }

/* cudaDataType_t: 0 f32, 1 f64, 2 f16, 3 i8, 4 c32, 5 c64, 6 c16, 7 ci8, 14 bf16, 15 complex bf16. */
static size_t type_bytes(int type)
{
	switch (type) {
	case 2:
	case 14:
	case 7:
		return 2;
	case 1:
	case 4:
		return 8;
	case 5:
		return 16;
	case 3:
		return 1;
	default:
		return 4;
	}
}

static int scalars(const char *function, struct handle *handle, int count, void **results, const size_t *bytes)
{
	void *stream = NULL;
	intptr_t status = cublas_stream((uintptr_t)handle, &stream);
	int i;

	if (status != 0)
		return (int)status;
	for (i = 0; i < count && cublas_host((uintptr_t)handle); i++)
		stand_in_zero((uintptr_t)results[i], bytes[i]);
	return (int)stand_in_compute(function, stream);
}

static int scalar(const char *function, struct handle *handle, void *result, int type)
{
	size_t bytes = type_bytes(type);

	return scalars(function, handle, 1, &result, &bytes);
}

#define DOT(name, integer)                                                                                           \
	int name(struct handle *handle, integer n, const void *x, int x_type, integer incx, const void *y,           \
		 int y_type, integer incy, void *result, int result_type, int execution_type)                        \
	{                                                                                                            \
		(void)n, (void)x, (void)x_type, (void)incx, (void)y, (void)y_type, (void)incy, (void)execution_type; \
		return scalar(#name, handle, result, result_type);                                                   \
	}

DOT(cublasDotEx, int)
DOT(cublasDotEx_64, int64_t)
DOT(cublasDotcEx, int)
DOT(cublasDotcEx_64, int64_t)

#define NORM(name, integer)                                                                                          \
	int name(struct handle *handle, integer n, const void *x, int x_type, integer incx, void *result,            \
		 int result_type, int execution_type)                                                                \
	{                                                                                                            \
		(void)n, (void)x, (void)x_type, (void)incx, (void)execution_type;                                    \
		return scalar(#name, handle, result, result_type);                                                   \
	}

NORM(cublasNrm2Ex, int)
NORM(cublasNrm2Ex_64, int64_t)
NORM(cublasAsumEx, int)
NORM(cublasAsumEx_64, int64_t)

int cublasRotgEx(struct handle *handle, void *a, void *b, int ab_type, void *c, void *s, int cs_type,
		 int execution_type)
{
	void *results[] = {c, s};
	size_t bytes[] = {type_bytes(cs_type), type_bytes(cs_type)};

	(void)a, (void)b, (void)ab_type, (void)execution_type;
	return scalars("cublasRotgEx", handle, 2, results, bytes);
}

int cublasRotmgEx(struct handle *handle, void *d1, int d1_type, void *d2, int d2_type, void *x1, int x1_type,
		  const void *y1, int y1_type, void *param, int param_type, int execution_type)
{
	size_t bytes = 5 * type_bytes(param_type);

	(void)d1, (void)d1_type, (void)d2, (void)d2_type, (void)x1, (void)x1_type, (void)y1, (void)y1_type;
	(void)execution_type;
	return scalars("cublasRotmgEx", handle, 1, &param, &bytes);
}
