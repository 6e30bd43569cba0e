/* sim/tests/runtime/cudnn_test.h: cuDNN's functions, looked up by name, for a test that calls cudnn_load first. */
#ifndef NEAP_TESTS_CUDNN_TEST_H
#define NEAP_TESTS_CUDNN_TEST_H

#include "libraries_test.h"

#define X(result, name, parameters) static result(*name) parameters __attribute__((unused));
#include "cudnn_functions.h"
#undef X

enum {
	BAD_PARAM = 2000,
	NULL_POINTER = 2002,
	SIZE_INSUFFICIENT = 2006,
	NOT_SUPPORTED = 3000,
	FAILED = 5000,
	FLOAT = 0,
	DOUBLE = 1,
	HALF = 2,
	LSTM = 2,
	GRU = 3,
};

static void cudnn_load(void)
{
	void *library = library_open("libcudnn.so.9");

#define X(result, name, parameters) library_function(library, #name, &name);
#include "cudnn_functions.h"
#undef X
}

/* A handle, in a fresh process. */
static void *cudnn_begin(void)
{
	void *handle = NULL;

	fake_begin();
	assert_int_equal(cudnnCreate(&handle), 0);
	return handle;
}

#endif
