/* sim/libraries/cusparse_common.c: see the header. */
#include "sim/libraries/cusparse_common.h"

#include <stdint.h>

static const char *const names[][2] = {
	{"CUSPARSE_STATUS_SUCCESS", "success"},
	{"CUSPARSE_STATUS_NOT_INITIALIZED", "the handle was not created"},
	{"CUSPARSE_STATUS_ALLOC_FAILED", "out of memory"},
	{"CUSPARSE_STATUS_INVALID_VALUE", "an argument is invalid"},
	{"CUSPARSE_STATUS_ARCH_MISMATCH", "the device lacks a feature"},
	{"CUSPARSE_STATUS_MAPPING_ERROR", "device memory cannot be accessed"},
	{"CUSPARSE_STATUS_EXECUTION_FAILED", "the launch on the device failed"},
	{"CUSPARSE_STATUS_INTERNAL_ERROR", "an internal operation failed"},
	{"CUSPARSE_STATUS_MATRIX_TYPE_NOT_SUPPORTED", "the type of matrix is not supported"},
	{"CUSPARSE_STATUS_ZERO_PIVOT", "a pivot is zero"},
	{"CUSPARSE_STATUS_NOT_SUPPORTED", "not supported (neap's stand-in, or the device)"},
	{"CUSPARSE_STATUS_INSUFFICIENT_RESOURCES", "too few resources"},
};

static const char *name_of(int status, int which)
{
	return status >= 0 && (size_t)status < sizeof names / sizeof names[0] ? names[status][which]
									      : "not a code of cuSPARSE";
}

const char *cusparse_status_name(int status) { return name_of(status, 0); }

const char *cusparse_status_text(int status) { return name_of(status, 1); }

/* cudaDataType: 0 to 7 are f32, f64, f16, i8, c32, c64, c16, ci8. */
size_t cusparse_type_bytes(int type)
{
	static const uint8_t first[] = {4, 8, 2, 1, 8, 16, 4, 2, 1};

	if (type >= 0 && (size_t)type < sizeof first)
		return first[type];
	switch (type) {
	case 14: /* bf16 */
		return 2;
	case 24: /* i64 */
	case 26:
		return 8;
	case 28: /* f8 */
	case 29:
		return 1;
	default:
		return 4;
	}
}
