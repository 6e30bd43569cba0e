/* CUPTI: versions, errors, time, and which device a context has. */
#include "sim/libraries/stand_in.h"

#include <time.h>

enum { /* CUptiResult */
       INVALID_PARAMETER = 1,
       INVALID_CONTEXT = 3,
};

#if STAND_IN_MAJOR == 12
#define VERSION 26 /* CUDA 12.9 */
#else
#define VERSION 130200
#endif

int cuptiGetVersion(uint32_t *ret_version)
{
	if (!ret_version)
		return INVALID_PARAMETER;
	*ret_version = VERSION;
	return 0;
}

static const struct {
	int code;
	const char *name;
	const char *text;
} results[] = {
	{0, "CUPTI_SUCCESS", "success"},
	{1, "CUPTI_ERROR_INVALID_PARAMETER", "an argument is invalid"},
	{2, "CUPTI_ERROR_INVALID_DEVICE", "no such device"},
	{3, "CUPTI_ERROR_INVALID_CONTEXT", "no such context"},
	{12, "CUPTI_ERROR_MAX_LIMIT_REACHED", "there are no more records"},
	{15, "CUPTI_ERROR_NOT_INITIALIZED", "not initialized"},
	{27, "CUPTI_ERROR_NOT_SUPPORTED", "not supported by neap's stand-in"},
};

static int find(int code, const char **ret_text, bool is_name)
{
	size_t i;

	if (!ret_text)
		return INVALID_PARAMETER;
	for (i = 0; i < sizeof results / sizeof results[0]; i++) {
		if (results[i].code == code) {
			*ret_text = is_name ? results[i].name : results[i].text;
			return 0;
		}
	}
	*ret_text = "CUPTI_ERROR";
	return INVALID_PARAMETER;
}

int cuptiGetResultString(int code, const char **ret_text) { return find(code, ret_text, true); }

int cuptiGetErrorMessage(int code, const char **ret_text) { return find(code, ret_text, false); }

int cuptiGetTimestamp(uint64_t *ret_ns)
{
	struct timespec now;

	if (!ret_ns)
		return INVALID_PARAMETER;
	clock_gettime(CLOCK_REALTIME, &now);
	*ret_ns = (uint64_t)now.tv_sec * 1000000000u + (uint64_t)now.tv_nsec;
	return 0;
}

/* No callback is ever called, so the names do not matter; but programs search the list of names. */
int cuptiGetCallbackName(int domain, uint32_t number, const char **ret_name)
{
	(void)domain, (void)number;
	if (!ret_name)
		return INVALID_PARAMETER;
	*ret_name = "";
	return 0;
}

int cuptiGetDeviceId(void *context, uint32_t *ret_device)
{
	int (*push)(void *) = NULL;
	int (*get)(int *) = NULL;
	int (*pop)(void **) = NULL;
	void *symbols[] = {dlsym(RTLD_DEFAULT, "cuCtxPushCurrent_v2"), dlsym(RTLD_DEFAULT, "cuCtxGetDevice"),
			   dlsym(RTLD_DEFAULT, "cuCtxPopCurrent_v2")};
	int device = 0;
	int result;

	if (!ret_device)
		return INVALID_PARAMETER;
	if (!context || !symbols[0] || !symbols[1] || !symbols[2])
		return INVALID_CONTEXT;
	memcpy(&push, &symbols[0], sizeof push);
	memcpy(&get, &symbols[1], sizeof get);
	memcpy(&pop, &symbols[2], sizeof pop);
	if (push(context) != 0)
		return INVALID_CONTEXT;
	result = get(&device);
	pop(&context);
	*ret_device = (uint32_t)device;
	return result == 0 ? 0 : INVALID_CONTEXT;
}
