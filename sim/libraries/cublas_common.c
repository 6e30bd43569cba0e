/* sim/libraries/cublas_common.c: see the header. */
#include "sim/libraries/cublas_common.h"

#include <stddef.h>

struct status {
	int code;
	const char *name;
	const char *text;
};

static const struct status statuses[] = {
	{0, "CUBLAS_STATUS_SUCCESS", "success"},
	{1, "CUBLAS_STATUS_NOT_INITIALIZED", "the handle was not created"},
	{3, "CUBLAS_STATUS_ALLOC_FAILED", "out of memory"},
	{7, "CUBLAS_STATUS_INVALID_VALUE", "an argument is invalid"},
	{8, "CUBLAS_STATUS_ARCH_MISMATCH", "the device lacks a feature"},
	{11, "CUBLAS_STATUS_MAPPING_ERROR", "device memory cannot be accessed"},
	{13, "CUBLAS_STATUS_EXECUTION_FAILED", "the launch on the device failed"},
	{14, "CUBLAS_STATUS_INTERNAL_ERROR", "an internal operation failed"},
	{15, "CUBLAS_STATUS_NOT_SUPPORTED", "not supported (neap's stand-in, or the device)"},
	{16, "CUBLAS_STATUS_LICENSE_ERROR", "license error"},
};

static const struct status *status_of(int code)
{
	static const struct status unknown = {-1, "CUBLAS_STATUS_UNKNOWN", "not a code of cuBLAS"};
	size_t i;

	for (i = 0; i < sizeof statuses / sizeof statuses[0]; i++) {
		if (statuses[i].code == code)
			return &statuses[i];
	}
	return &unknown;
}

const char *cublas_status_name(int code) { return status_of(code)->name; }

const char *cublas_status_text(int code) { return status_of(code)->text; }

int cublas_property(int type, int *ret_value)
{
	static const int values[] = {STAND_IN_MAJOR, CUBLAS_MINOR, 0};

	if (!ret_value || type < 0 || type > 2)
		return CUBLAS_INVALID_VALUE;
	*ret_value = values[type];
	return 0;
}
