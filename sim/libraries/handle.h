/* sim/libraries/handle.h: a library's handle. Include it once. Before it, define `struct handle`, which begins with
 * its magic number and its stream; MAGIC; and the library's NOT_INITIALIZED, ALLOC_FAILED and INVALID_VALUE.
 */
#ifndef NEAP_RUNTIME_LIBRARIES_HANDLE_H
#define NEAP_RUNTIME_LIBRARIES_HANDLE_H

#include "sim/libraries/stand_in.h"

#include <stdlib.h>

static struct handle *handle_of(uintptr_t first)
{
	struct handle *handle = (struct handle *)first;

	return handle && handle->magic == MAGIC ? handle : NULL;
}

static int handle_create(struct handle **ret_handle, int *ret_capability)
{
	const struct runtime_services *services = stand_in_services();
	int multiprocessors = 0;

	if (!ret_handle)
		return INVALID_VALUE;
	*ret_handle = NULL;
	if (!services || !services->architecture(services->device(), ret_capability, &multiprocessors))
		return NOT_INITIALIZED;
	*ret_handle = calloc(1, sizeof **ret_handle);
	if (!*ret_handle)
		return ALLOC_FAILED;
	(*ret_handle)->magic = MAGIC;
	return 0;
}

static int handle_destroy(struct handle *handle)
{
	if (!handle_of((uintptr_t)handle))
		return NOT_INITIALIZED;
	handle->magic = 0;
	free(handle);
	return 0;
}

static intptr_t handle_stream(uintptr_t first, void **ret_stream)
{
	const struct handle *handle = handle_of(first);

	if (!handle)
		return NOT_INITIALIZED;
	*ret_stream = handle->stream;
	return 0;
}

/* Two functions of the library: get returns the value that was set. */
#define HANDLE_FIELD(set, get, type, field)                                                                          \
	int set(struct handle *handle, type value)                                                                   \
	{                                                                                                            \
		if (!handle_of((uintptr_t)handle))                                                                   \
			return NOT_INITIALIZED;                                                                      \
		handle->field = value;                                                                               \
		return 0;                                                                                            \
	}                                                                                                            \
	int get(struct handle *handle, type *ret_value)                                                              \
	{                                                                                                            \
		if (!handle_of((uintptr_t)handle))                                                                   \
			return NOT_INITIALIZED;                                                                      \
		if (!ret_value)                                                                                      \
			return INVALID_VALUE;                                                                        \
		*ret_value = handle->field;                                                                          \
		return 0;                                                                                            \
	}

#endif
