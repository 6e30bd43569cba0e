/* cuDNN: handles, versions, errors.
 *
 * PyTorch decides by the version: it requires at least the one that it was compiled for (9.1 for the wheel of 2.4,
 * 9.26 for 2.15), and above 9.15 it prefers cuDNN's attention on compute capability 9.0 and 10.x. NEAP_CUDNN_VERSION
 * ("9.1.0") sets the version, which should be that of the nvidia-cudnn package that the wheel requires. Without it
 * the stand-in reports the newest version that it knows, which every wheel since 2.4 accepts.
 */
#include "sim/libraries/cudnn_state.h"

#include <stdio.h>
#include <stdlib.h>

#define NEWEST_MINOR 26
#define MAGIC        0x6e637564316e6e00ull

struct handle {
	uint64_t magic;
	void *stream;
};

static _Thread_local const char *last_error = "";

int cudnn_fail(int status, const char *text)
{
	last_error = text;
	return status;
}

int cudnn_refuse(const char *function, const char *text)
{
	stand_in_refuse(function);
	return cudnn_fail(CUDNN_STATUS_NOT_SUPPORTED, text);
}

static struct handle *handle_of(uintptr_t first)
{
	struct handle *handle = (struct handle *)first;

	return handle && handle->magic == MAGIC ? handle : NULL;
}

bool cudnn_handle_valid(const void *handle)
{
	if (handle_of((uintptr_t)handle))
		return true;
	last_error = "not a handle of cudnnCreate, or destroyed";
	return false;
}

intptr_t cudnn_stream(uintptr_t first, void **ret_stream)
{
	if (!cudnn_handle_valid((const void *)first))
		return CUDNN_STATUS_BAD_PARAM;
	*ret_stream = handle_of(first)->stream;
	return 0;
}

int cudnn_compute(const char *function, const void *handle)
{
	if (!cudnn_handle_valid(handle))
		return CUDNN_STATUS_BAD_PARAM;
	return (int)stand_in_compute(function, handle_of((uintptr_t)handle)->stream);
}

void cudnn_forget(const void *address, uint64_t bytes)
{
	const struct runtime_services *services = stand_in_services();

	if (services && address && bytes > 0)
		services->forget((uint64_t)(uintptr_t)address, (size_t)bytes);
}

int cudnnCreate(struct handle **ret_handle)
{
	const struct runtime_services *services = stand_in_services();
	int capability = 0;
	int multiprocessors = 0;
	struct handle *handle;

	if (!ret_handle)
		return cudnn_fail(CUDNN_STATUS_BAD_PARAM_NULL_POINTER, "cudnnCreate: no pointer for the handle");
	*ret_handle = NULL;
	if (!services)
		return cudnn_fail(CUDNN_STATUS_NOT_INITIALIZED,
				  "cudnnCreate: neap's libcudart is not in this process");
	if (!services->architecture(services->device(), &capability, &multiprocessors))
		return cudnn_fail(CUDNN_STATUS_NOT_INITIALIZED, "cudnnCreate: no device");
	handle = calloc(1, sizeof *handle);
	if (!handle)
		return cudnn_fail(CUDNN_STATUS_INTERNAL_ERROR_HOST_ALLOCATION_FAILED, "cudnnCreate: out of memory");
	handle->magic = MAGIC;
	*ret_handle = handle;
	return 0;
}

int cudnnDestroy(struct handle *handle)
{
	if (!cudnn_handle_valid(handle))
		return CUDNN_STATUS_BAD_PARAM;
	handle->magic = 0;
	free(handle);
	return 0;
}

int cudnnSetStream(struct handle *handle, void *stream)
{
	if (!cudnn_handle_valid(handle))
		return CUDNN_STATUS_BAD_PARAM;
	handle->stream = stream;
	return 0;
}

int cudnnGetStream(struct handle *handle, void **ret_stream)
{
	if (!cudnn_handle_valid(handle))
		return CUDNN_STATUS_BAD_PARAM;
	if (!ret_stream)
		return cudnn_fail(CUDNN_STATUS_BAD_PARAM_NULL_POINTER, "cudnnGetStream: no pointer for the stream");
	*ret_stream = handle->stream;
	return 0;
}

/* Major, minor and patch of the reported version. If the setting is not a version 9, it is the newest. */
static void version(int ret_version[3])
{
	const char *setting = getenv("NEAP_CUDNN_VERSION");
	int number[3] = {0};

	ret_version[0] = 9;
	ret_version[1] = NEWEST_MINOR;
	ret_version[2] = 0;
	if (!setting || sscanf(setting, "%d.%d.%d", &number[0], &number[1], &number[2]) < 2)
		return;
	if (number[0] != 9 || number[1] < 0 || number[1] > 99 || number[2] < 0 || number[2] > 99)
		return;
	memcpy(ret_version, number, sizeof number);
}

size_t cudnnGetVersion(void)
{
	int number[3];

	version(number);
	return (size_t)(number[0] * 10000 + number[1] * 100 + number[2]);
}

int cudnnGetProperty(int property, int *ret_value)
{
	int number[3];

	if (!ret_value)
		return cudnn_fail(CUDNN_STATUS_BAD_PARAM_NULL_POINTER, "cudnnGetProperty: no pointer for the value");
	if (property < MAJOR_VERSION || property > PATCH_LEVEL)
		return cudnn_fail(CUDNN_STATUS_BAD_PARAM, "cudnnGetProperty: no such property");
	version(number);
	*ret_value = number[property];
	return 0;
}

/* The newest compute capability that cuDNN 9 names: 12.1. */
size_t cudnnGetMaxDeviceVersion(void) { return 1210; }

size_t cudnnGetCudartVersion(void)
{
	void *symbol = dlsym(RTLD_DEFAULT, "cudaRuntimeGetVersion");
	int (*get)(int *ret_version) = NULL;
	int number = 0;

	memcpy(&get, &symbol, sizeof get);
	return get && get(&number) == 0 && number > 0 ? (size_t)number : 0;
}

static const struct {
	int status;
	const char *name;
} status_names[] = {
	{CUDNN_STATUS_SUCCESS, "CUDNN_STATUS_SUCCESS"},
	{CUDNN_STATUS_NOT_INITIALIZED, "CUDNN_STATUS_NOT_INITIALIZED"},
	{CUDNN_STATUS_BAD_PARAM, "CUDNN_STATUS_BAD_PARAM"},
	{CUDNN_STATUS_BAD_PARAM_NULL_POINTER, "CUDNN_STATUS_BAD_PARAM_NULL_POINTER"},
	{CUDNN_STATUS_BAD_PARAM_NOT_FINALIZED, "CUDNN_STATUS_BAD_PARAM_NOT_FINALIZED"},
	{CUDNN_STATUS_BAD_PARAM_OUT_OF_BOUND, "CUDNN_STATUS_BAD_PARAM_OUT_OF_BOUND"},
	{CUDNN_STATUS_BAD_PARAM_SIZE_INSUFFICIENT, "CUDNN_STATUS_BAD_PARAM_SIZE_INSUFFICIENT"},
	{CUDNN_STATUS_BAD_PARAM_SHAPE_MISMATCH, "CUDNN_STATUS_BAD_PARAM_SHAPE_MISMATCH"},
	{CUDNN_STATUS_BAD_PARAM_DUPLICATED_ENTRIES, "CUDNN_STATUS_BAD_PARAM_DUPLICATED_ENTRIES"},
	{CUDNN_STATUS_BAD_PARAM_ATTRIBUTE_TYPE, "CUDNN_STATUS_BAD_PARAM_ATTRIBUTE_TYPE"},
	{CUDNN_STATUS_BAD_PARAM_DESCRIPTOR_TYPE, "CUDNN_STATUS_BAD_PARAM_DESCRIPTOR_TYPE"},
	{CUDNN_STATUS_NOT_SUPPORTED, "CUDNN_STATUS_NOT_SUPPORTED"},
	{CUDNN_STATUS_NOT_SUPPORTED_DATA_TYPE, "CUDNN_STATUS_NOT_SUPPORTED_DATA_TYPE"},
	{CUDNN_STATUS_INTERNAL_ERROR_HOST_ALLOCATION_FAILED, "CUDNN_STATUS_INTERNAL_ERROR_HOST_ALLOCATION_FAILED"},
	{CUDNN_STATUS_EXECUTION_FAILED, "CUDNN_STATUS_EXECUTION_FAILED"},
};

const char *cudnnGetErrorString(int status)
{
	for (size_t i = 0; i < sizeof status_names / sizeof *status_names; i++)
		if (status_names[i].status == status)
			return status_names[i].name;
	return "CUDNN_UNKNOWN_STATUS";
}

/* The text of the calling thread's last error; cleared by the call. */
void cudnnGetLastErrorString(char *message, size_t bytes)
{
	if (!message || bytes == 0)
		return;
	snprintf(message, bytes, "%s", last_error);
	last_error = "";
}
