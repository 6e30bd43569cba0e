/* device/cuda_error.c: translates CUDA's errors to neap's, in one place. */
#include "base/error.h"
#include "device/driver.h"

static enum neap_status status_of(CUresult result)
{
	switch (result) {
	case CUDA_ERROR_OUT_OF_MEMORY:
		return NEAP_EOOM;
	case CUDA_ERROR_STUB_LIBRARY:
	case CUDA_ERROR_NO_DEVICE:
	case CUDA_ERROR_INVALID_DEVICE:
		return NEAP_ENODEVICE;
	case CUDA_ERROR_NOT_SUPPORTED:
		return NEAP_ENOTSUP;
	default:
		return NEAP_EDRIVER;
	}
}

enum neap_status neap_cuda_fail(const struct neap_cuda *cuda, CUresult result, struct neap_error *err,
				const char *what)
{
	const char *name = NULL, *text = NULL;

	if (result == CUDA_SUCCESS)
		return NEAP_OK;
	if (!err)
		return status_of(result);
	/* For a code that this driver does not know, name and text stay NULL. */
	if (cuda->cuGetErrorName && cuda->cuGetErrorName(result, &name) != CUDA_SUCCESS)
		name = NULL;
	if (cuda->cuGetErrorString && cuda->cuGetErrorString(result, &text) != CUDA_SUCCESS)
		text = NULL;
	neap_fail(err, status_of(result), "%s: %s (code %d): %s", what, name ? name : "unknown CUDA error", result,
		  text ? text : "the driver gives no text");
	err->cause = result;
	return err->status;
}
