/* cuDNN: settings are returned, sizes are the sums of their parts, and unknown sizes are counted. */
#include "libraries_test.h"

#include <stdio.h>
#include <stdlib.h>
#include <string.h>

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

/* A function of the library, declared and looked up by name. */
#define FUNCTION(name, ...) static int (*name)(__VA_ARGS__)

FUNCTION(cudnnCreate, void **);
FUNCTION(cudnnDestroy, void *);
FUNCTION(cudnnSetStream, void *, void *);
FUNCTION(cudnnGetStream, void *, void **);
FUNCTION(cudnnGetProperty, int, int *);
FUNCTION(cudnnCreateTensorDescriptor, void **);
FUNCTION(cudnnDestroyTensorDescriptor, void *);
FUNCTION(cudnnSetTensorNdDescriptor, void *, int, int, const int *, const int *);
FUNCTION(cudnnGetTensorNdDescriptor, const void *, int, int *, int *, int *, int *);
FUNCTION(cudnnSetTensor4dDescriptor, void *, int, int, int, int, int, int);
FUNCTION(cudnnGetTensorSizeInBytes, const void *, size_t *);
FUNCTION(cudnnCreateFilterDescriptor, void **);
FUNCTION(cudnnDestroyFilterDescriptor, void *);
FUNCTION(cudnnSetFilterNdDescriptor, void *, int, int, int, const int *);
FUNCTION(cudnnGetFilterNdDescriptor, const void *, int, int *, int *, int *, int *);
FUNCTION(cudnnCreateConvolutionDescriptor, void **);
FUNCTION(cudnnDestroyConvolutionDescriptor, void *);
FUNCTION(cudnnSetConvolutionNdDescriptor, void *, int, const int *, const int *, const int *, int, int);
FUNCTION(cudnnSetConvolutionMathType, void *, int);
FUNCTION(cudnnSetConvolutionGroupCount, void *, int);
FUNCTION(cudnnGetConvolutionNdForwardOutputDim, const void *, const void *, const void *, int, int *);
FUNCTION(cudnnGetConvolutionForwardAlgorithm_v7, void *, void *, void *, void *, void *, int, int *, void *);
FUNCTION(cudnnGetConvolutionForwardWorkspaceSize, void *, void *, void *, void *, void *, int, size_t *);
FUNCTION(cudnnConvolutionForward, void *, void *, void *, void *, void *, void *, void *, int, void *, size_t, void *,
	 void *, void *);
FUNCTION(cudnnSetActivationDescriptor, void *, int, int, double);
FUNCTION(cudnnGetActivationDescriptor, const void *, int *, int *, double *);
FUNCTION(cudnnCreateActivationDescriptor, void **);
FUNCTION(cudnnDestroyActivationDescriptor, void *);
FUNCTION(cudnnGetBatchNormalizationTrainingExReserveSpaceSize, void *, int, int, void *, void *, size_t *);
FUNCTION(cudnnCreateDropoutDescriptor, void **);
FUNCTION(cudnnDestroyDropoutDescriptor, void *);
FUNCTION(cudnnDropoutGetStatesSize, void *, size_t *);
FUNCTION(cudnnSetDropoutDescriptor, void *, void *, float, void *, size_t, unsigned long long);
FUNCTION(cudnnGetDropoutDescriptor, void *, void *, float *, void **, unsigned long long *);
FUNCTION(cudnnCreateCTCLossDescriptor, void **);
FUNCTION(cudnnDestroyCTCLossDescriptor, void *);
FUNCTION(cudnnSetCTCLossDescriptor_v9, void *, int, int, int, int);
FUNCTION(cudnnGetCTCLossWorkspaceSize, void *, void *, void *, int *, int *, int *, int, void *, size_t *);
FUNCTION(cudnnGetCTCLossWorkspaceSize_v8, void *, int, void *, void *, void *, size_t *);
FUNCTION(cudnnCreateRNNDescriptor, void **);
FUNCTION(cudnnDestroyRNNDescriptor, void *);
FUNCTION(cudnnSetRNNDescriptor_v8, void *, int, int, int, int, int, int, int, int, int, int, int, int, void *,
	 unsigned);
FUNCTION(cudnnGetRNNWeightSpaceSize, void *, void *, size_t *);
FUNCTION(cudnnGetRNNWeightParams, void *, void *, int, size_t, void *, int, void *, void **, void *, void **);
FUNCTION(cudnnCreateRNNDataDescriptor, void **);
FUNCTION(cudnnDestroyRNNDataDescriptor, void *);
FUNCTION(cudnnSetRNNDataDescriptor, void *, int, int, int, int, int, const int *, void *);
FUNCTION(cudnnGetRNNDataDescriptor, void *, int *, int *, int *, int *, int *, int, int *, void *);
FUNCTION(cudnnGetRNNTempSpaceSizes, void *, void *, int, void *, size_t *, size_t *);
FUNCTION(cudnnRNNForward, void *, void *, int, const int *, void *, void *, void *, void *, void *, void *, void *,
	 void *, void *, void *, size_t, void *, size_t, void *, size_t, void *);
FUNCTION(cudnnSoftmaxForward, void *);
FUNCTION(cudnnMultiHeadAttnForward, void *);
static size_t (*cudnnGetVersion)(void);
static const char *(*cudnnGetErrorString)(int);
static void (*cudnnGetLastErrorString)(char *, size_t);

static void load(void)
{
	void *library = library_open("libcudnn.so.9");

#define LOAD(name) library_function(library, #name, &name)
	LOAD(cudnnCreate);
	LOAD(cudnnDestroy);
	LOAD(cudnnSetStream);
	LOAD(cudnnGetStream);
	LOAD(cudnnGetProperty);
	LOAD(cudnnCreateTensorDescriptor);
	LOAD(cudnnDestroyTensorDescriptor);
	LOAD(cudnnSetTensorNdDescriptor);
	LOAD(cudnnGetTensorNdDescriptor);
	LOAD(cudnnSetTensor4dDescriptor);
	LOAD(cudnnGetTensorSizeInBytes);
	LOAD(cudnnCreateFilterDescriptor);
	LOAD(cudnnDestroyFilterDescriptor);
	LOAD(cudnnSetFilterNdDescriptor);
	LOAD(cudnnGetFilterNdDescriptor);
	LOAD(cudnnCreateConvolutionDescriptor);
	LOAD(cudnnDestroyConvolutionDescriptor);
	LOAD(cudnnSetConvolutionNdDescriptor);
	LOAD(cudnnSetConvolutionMathType);
	LOAD(cudnnSetConvolutionGroupCount);
	LOAD(cudnnGetConvolutionNdForwardOutputDim);
	LOAD(cudnnGetConvolutionForwardAlgorithm_v7);
	LOAD(cudnnGetConvolutionForwardWorkspaceSize);
	LOAD(cudnnConvolutionForward);
	LOAD(cudnnSetActivationDescriptor);
	LOAD(cudnnGetActivationDescriptor);
	LOAD(cudnnCreateActivationDescriptor);
	LOAD(cudnnDestroyActivationDescriptor);
	LOAD(cudnnGetBatchNormalizationTrainingExReserveSpaceSize);
	LOAD(cudnnCreateDropoutDescriptor);
	LOAD(cudnnDestroyDropoutDescriptor);
	LOAD(cudnnDropoutGetStatesSize);
	LOAD(cudnnSetDropoutDescriptor);
	LOAD(cudnnGetDropoutDescriptor);
	LOAD(cudnnCreateCTCLossDescriptor);
	LOAD(cudnnDestroyCTCLossDescriptor);
	LOAD(cudnnSetCTCLossDescriptor_v9);
	LOAD(cudnnGetCTCLossWorkspaceSize);
	LOAD(cudnnGetCTCLossWorkspaceSize_v8);
	LOAD(cudnnCreateRNNDescriptor);
	LOAD(cudnnDestroyRNNDescriptor);
	LOAD(cudnnSetRNNDescriptor_v8);
	LOAD(cudnnGetRNNWeightSpaceSize);
	LOAD(cudnnGetRNNWeightParams);
	LOAD(cudnnCreateRNNDataDescriptor);
	LOAD(cudnnDestroyRNNDataDescriptor);
	LOAD(cudnnSetRNNDataDescriptor);
	LOAD(cudnnGetRNNDataDescriptor);
	LOAD(cudnnGetRNNTempSpaceSizes);
	LOAD(cudnnRNNForward);
	LOAD(cudnnSoftmaxForward);
	LOAD(cudnnMultiHeadAttnForward);
	LOAD(cudnnGetVersion);
	LOAD(cudnnGetErrorString);
	LOAD(cudnnGetLastErrorString);
}

static void *begin(void)
{
	void *handle = NULL;

	fake_begin();
	assert_int_equal(cudnnCreate(&handle), 0);
	return handle;
}

static void handles_are_distinct_and_keep_their_stream(void **state)
{
	void *one = begin();
	void *two = NULL;
	void *stream = NULL;

	(void)state;
	assert_int_equal(cudnnCreate(&two), 0);
	assert_ptr_not_equal(one, two);
	assert_int_equal(cudnnSetStream(one, &one), 0);
	assert_int_equal(cudnnGetStream(one, &stream), 0);
	assert_ptr_equal(stream, &one);
	assert_int_equal(cudnnGetStream(two, &stream), 0);
	assert_null(stream);
	assert_int_equal(cudnnSoftmaxForward(one), 0);
	assert_ptr_equal(fake.launch_stream, &one);
	assert_int_equal(fake.tallies[GAP_VALUES], 1);
	assert_int_equal(cudnnDestroy(one), 0);
	assert_int_equal(cudnnDestroy(two), 0);
	assert_int_equal(cudnnSoftmaxForward(NULL), BAD_PARAM);
	assert_int_equal(cudnnSetStream(NULL, NULL), BAD_PARAM);
}

static void a_launch_that_fails_is_told(void **state)
{
	void *handle = begin();

	(void)state;
	fake.launch_result = 700;
	assert_int_equal(cudnnSoftmaxForward(handle), FAILED);
	assert_int_equal(fake.tallies[GAP_VALUES], 0);
	cudnnDestroy(handle);
}

static void without_libcudart_or_device_no_handle_is_made(void **state)
{
	void *handle = NULL;

	(void)state;
	fake_begin();
	fake.capability = 0;
	assert_int_equal(cudnnCreate(&handle), 1001);
	assert_null(handle);
	assert_int_equal(cudnnCreate(NULL), NULL_POINTER);
}

static void what_is_not_simulated_is_refused(void **state)
{
	void *handle = begin();

	(void)state;
	assert_int_equal(cudnnMultiHeadAttnForward(handle), NOT_SUPPORTED);
	assert_int_equal(fake.tallies[GAP_REFUSED], 1);
	assert_string_equal(fake.function, "cudnnMultiHeadAttnForward");
	assert_string_equal(fake.library, "cudnn");
	cudnnDestroy(handle);
}

static void version_is_the_newest_or_what_is_asked_for(void **state)
{
	int number[3] = {0};

	(void)state;
	unsetenv("NEAP_CUDNN_VERSION");
	assert_int_equal(cudnnGetVersion(), 92600);
	setenv("NEAP_CUDNN_VERSION", "9.1.0", 1);
	assert_int_equal(cudnnGetVersion(), 90100);
	setenv("NEAP_CUDNN_VERSION", "9.10.2.21", 1);
	assert_int_equal(cudnnGetVersion(), 91002);
	for (int i = 0; i < 3; i++)
		assert_int_equal(cudnnGetProperty(i, &number[i]), 0);
	assert_int_equal(number[0] * 10000 + number[1] * 100 + number[2], 91002);
	assert_int_equal(cudnnGetProperty(3, number), BAD_PARAM);
	setenv("NEAP_CUDNN_VERSION", "8.9.7", 1);
	assert_int_equal(cudnnGetVersion(), 92600);
	setenv("NEAP_CUDNN_VERSION", "new", 1);
	assert_int_equal(cudnnGetVersion(), 92600);
	unsetenv("NEAP_CUDNN_VERSION");
}

static void errors_have_names_and_a_text_once(void **state)
{
	char text[64];

	(void)state;
	assert_string_equal(cudnnGetErrorString(0), "CUDNN_STATUS_SUCCESS");
	assert_string_equal(cudnnGetErrorString(NOT_SUPPORTED), "CUDNN_STATUS_NOT_SUPPORTED");
	assert_int_equal(cudnnSetTensorNdDescriptor(NULL, 0, 0, NULL, NULL), NULL_POINTER);
	cudnnGetLastErrorString(text, sizeof text);
	assert_string_equal(text, "a pointer is NULL");
	cudnnGetLastErrorString(text, sizeof text);
	assert_string_equal(text, "");
}

static void *tensor(int type, int count, const int *dimension, const int *stride)
{
	void *made = NULL;

	assert_int_equal(cudnnCreateTensorDescriptor(&made), 0);
	assert_int_equal(cudnnSetTensorNdDescriptor(made, type, count, dimension, stride), 0);
	return made;
}

static void tensors_are_given_back(void **state)
{
	int dimension[8] = {0};
	int stride[8] = {0};
	int type = -1;
	int count = -1;
	size_t bytes = 0;
	void *made = tensor(HALF, 4, (int[]){2, 3, 4, 5}, (int[]){100, 30, 7, 1});

	(void)state;
	assert_int_equal(cudnnGetTensorNdDescriptor(made, 8, &type, &count, dimension, stride), 0);
	assert_int_equal(type, HALF);
	assert_int_equal(count, 4);
	assert_memory_equal(dimension, ((int[]){2, 3, 4, 5}), 4 * sizeof(int));
	assert_memory_equal(stride, ((int[]){100, 30, 7, 1}), 4 * sizeof(int));
	assert_int_equal(dimension[4], 0);
	assert_int_equal(cudnnGetTensorSizeInBytes(made, &bytes), 0);
	assert_int_equal(bytes, (100 + 2 * 30 + 3 * 7 + 4 + 1) * 2);
	assert_int_equal(cudnnSetTensor4dDescriptor(made, 1, DOUBLE, 2, 3, 4, 5), 0); /* channels last */
	assert_int_equal(cudnnGetTensorNdDescriptor(made, 2, &type, &count, dimension, stride), 0);
	assert_int_equal(stride[0], 60);
	assert_int_equal(stride[1], 1);
	assert_int_equal(stride[2], 7); /* two were asked for */
	assert_int_equal(cudnnSetTensorNdDescriptor(made, HALF, 9, (int[9]){1}, (int[9]){1}), BAD_PARAM);
	assert_int_equal(cudnnSetTensorNdDescriptor(made, HALF, 1, (int[]){0}, (int[]){1}), BAD_PARAM);
	assert_int_equal(cudnnSetTensorNdDescriptor(made, 99, 1, (int[]){1}, (int[]){1}), BAD_PARAM);
	assert_int_equal(cudnnGetTensorNdDescriptor(made, 2, &type, &count, NULL, NULL), 0);
	assert_int_equal(type, DOUBLE);
	assert_int_equal(cudnnDestroyTensorDescriptor(made), 0);
}

static void layers_are_given_back(void **state)
{
	void *filter = NULL;
	void *activation = NULL;
	int dimension[8] = {0};
	int number[3] = {-1, -1, -1};
	double coefficient = 0;

	(void)state;
	assert_int_equal(cudnnCreateFilterDescriptor(&filter), 0);
	assert_int_equal(cudnnSetFilterNdDescriptor(filter, HALF, 1, 3, (int[]){8, 4, 3}), 0);
	assert_int_equal(cudnnGetFilterNdDescriptor(filter, 8, &number[0], &number[1], &number[2], dimension), 0);
	assert_memory_equal(number, ((int[]){HALF, 1, 3}), sizeof number);
	assert_memory_equal(dimension, ((int[]){8, 4, 3, 0}), 4 * sizeof(int));
	assert_int_equal(cudnnDestroyFilterDescriptor(filter), 0);
	assert_int_equal(cudnnCreateActivationDescriptor(&activation), 0);
	assert_int_equal(cudnnSetActivationDescriptor(activation, 3, 1, 6.5), 0);
	assert_int_equal(cudnnGetActivationDescriptor(activation, &number[0], &number[1], &coefficient), 0);
	assert_int_equal(number[0], 3);
	assert_int_equal(number[1], 1);
	assert_true(coefficient == 6.5);
	assert_int_equal(cudnnDestroyActivationDescriptor(activation), 0);
}

/* 8 images of 4 channels of 10 x 10, 6 filters of 3 x 3, two groups: 8 x 6 x 5 x 5. */
struct convolution {
	void *x;
	void *filter;
	void *convolution;
	void *y;
};

static struct convolution convolution_begin(void)
{
	struct convolution made = {tensor(FLOAT, 4, (int[]){8, 4, 10, 10}, (int[]){400, 100, 10, 1}), NULL, NULL,
				   tensor(FLOAT, 4, (int[]){8, 6, 5, 5}, (int[]){150, 25, 5, 1})};

	assert_int_equal(cudnnCreateFilterDescriptor(&made.filter), 0);
	assert_int_equal(cudnnSetFilterNdDescriptor(made.filter, FLOAT, 0, 4, (int[]){6, 2, 3, 3}), 0);
	assert_int_equal(cudnnCreateConvolutionDescriptor(&made.convolution), 0);
	assert_int_equal(cudnnSetConvolutionNdDescriptor(made.convolution, 2, (int[]){1, 1}, (int[]){2, 2},
							 (int[]){1, 1}, 1, FLOAT),
			 0);
	assert_int_equal(cudnnSetConvolutionGroupCount(made.convolution, 2), 0);
	assert_int_equal(cudnnSetConvolutionMathType(made.convolution, 3), 0);
	return made;
}

static void convolution_end(struct convolution made)
{
	cudnnDestroyTensorDescriptor(made.x);
	cudnnDestroyTensorDescriptor(made.y);
	cudnnDestroyFilterDescriptor(made.filter);
	cudnnDestroyConvolutionDescriptor(made.convolution);
}

static void convolutions_have_one_algorithm_without_workspace(void **state)
{
	struct {
		int algorithm;
		int status;
		float time;
		size_t memory;
		int determinism;
		int math;
		int reserved[3];
	} performance = {.algorithm = -1, .memory = 1};
	void *handle = begin();
	struct convolution made = convolution_begin();
	int dimension[4] = {0};
	int count = -1;
	size_t bytes = 1;

	(void)state;
	assert_int_equal(cudnnGetConvolutionNdForwardOutputDim(made.convolution, made.x, made.filter, 4, dimension),
			 0);
	assert_memory_equal(dimension, ((int[]){8, 6, 5, 5}), sizeof dimension);
	assert_int_equal(cudnnGetConvolutionForwardAlgorithm_v7(handle, made.x, made.filter, made.convolution, made.y,
								5, &count, &performance),
			 0);
	assert_int_equal(count, 1);
	assert_int_equal(performance.algorithm, 0);
	assert_int_equal(performance.status, 0);
	assert_int_equal(performance.memory, 0);
	assert_int_equal(performance.determinism, 1);
	assert_int_equal(performance.math, 3);
	assert_int_equal(cudnnGetConvolutionForwardWorkspaceSize(handle, made.x, made.filter, made.convolution,
								 made.y, 0, &bytes),
			 0);
	assert_int_equal(bytes, 0);
	assert_int_equal(fake.tallies[GAP_WORKSPACE], 1);
	assert_int_equal(fake.high, 4 * (8 * 400 + 6 * 18 + 8 * 150));
	convolution_end(made);
	cudnnDestroy(handle);
}

static void results_of_a_convolution_read_as_zeros(void **state)
{
	void *handle = begin();
	struct convolution made = convolution_begin();

	(void)state;
	assert_int_equal(cudnnConvolutionForward(handle, NULL, made.x, NULL, made.filter, NULL, made.convolution, 0,
						 NULL, 0, NULL, made.y, (void *)0x1000),
			 0);
	assert_int_equal(fake.launches, 1);
	assert_int_equal(fake.forgets, 1);
	assert_int_equal(fake.forgotten_at, 0x1000);
	assert_int_equal(fake.forgotten, 8 * 150 * 4);
	/* a shape that is not the convolution's */
	assert_int_equal(cudnnConvolutionForward(handle, NULL, made.x, NULL, made.filter, NULL, made.convolution, 0,
						 NULL, 0, NULL, made.x, (void *)0x1000),
			 BAD_PARAM);
	assert_int_equal(fake.launches, 1);
	convolution_end(made);
	cudnnDestroy(handle);
}

static void batch_norm_keeps_nothing_unless_persistent(void **state)
{
	void *handle = begin();
	void *planes = tensor(HALF, 4, (int[]){8, 4, 10, 10}, (int[]){400, 100, 10, 1});
	void *channels_last = tensor(HALF, 4, (int[]){8, 4, 10, 10}, (int[]){400, 1, 40, 4});
	size_t bytes = 1;

	(void)state;
	assert_int_equal(cudnnGetBatchNormalizationTrainingExReserveSpaceSize(handle, 1, 0, NULL, planes, &bytes), 0);
	assert_int_equal(bytes, 0);
	assert_int_equal(fake.tallies[GAP_WORKSPACE], 0);
	bytes = 1;
	assert_int_equal(
		cudnnGetBatchNormalizationTrainingExReserveSpaceSize(handle, 2, 0, NULL, channels_last, &bytes), 0);
	assert_int_equal(bytes, 0);
	assert_int_equal(fake.tallies[GAP_WORKSPACE], 1);
	assert_int_equal(fake.high, 8 * 400 / 8);
	cudnnDestroyTensorDescriptor(planes);
	cudnnDestroyTensorDescriptor(channels_last);
	cudnnDestroy(handle);
}

static void dropout_has_a_generator_for_each_thread(void **state)
{
	void *handle = begin();
	void *dropout = NULL;
	void *states = NULL;
	float probability = 0;
	unsigned long long seed = 0;
	size_t bytes = 0;

	(void)state;
	assert_int_equal(cudnnDropoutGetStatesSize(handle, &bytes), 0);
	assert_int_equal(bytes, 108 * 2048 * 24); /* the services' device: 8.0 with 108 multiprocessors */
	assert_int_equal(fake.low, bytes);
	fake.capability = 89;
	assert_int_equal(cudnnDropoutGetStatesSize(handle, &bytes), 0);
	assert_int_equal(bytes, 108 * 1536 * 24);
	assert_int_equal(cudnnCreateDropoutDescriptor(&dropout), 0);
	assert_int_equal(cudnnSetDropoutDescriptor(dropout, handle, 0.25f, (void *)0x2000, bytes - 1, 7),
			 SIZE_INSUFFICIENT);
	assert_int_equal(cudnnSetDropoutDescriptor(dropout, handle, 1.25f, (void *)0x2000, bytes, 7), BAD_PARAM);
	assert_int_equal(fake.launches, 0);
	assert_int_equal(cudnnSetDropoutDescriptor(dropout, handle, 0.25f, (void *)0x2000, bytes, 7), 0);
	assert_int_equal(fake.launches, 1);
	assert_int_equal(fake.forgotten, bytes);
	assert_int_equal(cudnnGetDropoutDescriptor(dropout, handle, &probability, &states, &seed), 0);
	assert_true(probability == 0.25f);
	assert_ptr_equal(states, (void *)0x2000);
	assert_int_equal(seed, 7);
	assert_int_equal(cudnnSetDropoutDescriptor(dropout, handle, 0, NULL, 0, 0), 0); /* none: nothing to start */
	assert_int_equal(fake.launches, 1);
	cudnnDestroyDropoutDescriptor(dropout);
	cudnnDestroy(handle);
}

static void ctc_keeps_a_lattice(void **state)
{
	void *handle = begin();
	void *probabilities = tensor(FLOAT, 3, (int[]){50, 4, 20}, (int[]){80, 20, 1});
	void *ctc = NULL;
	size_t bytes = 0;

	(void)state;
	assert_int_equal(cudnnCreateCTCLossDescriptor(&ctc), 0);
	assert_int_equal(cudnnSetCTCLossDescriptor_v9(ctc, FLOAT, 1, 0, 9), 0);
	assert_int_equal(cudnnGetCTCLossWorkspaceSize(handle, probabilities, NULL, NULL, (int[]){5, 3, 10, 2}, NULL,
						      0, ctc, &bytes),
			 0);
	assert_int_equal(bytes, 50 * 4 * 21 * 4);
	assert_int_equal(fake.low, bytes);
	assert_int_equal(fake.high, 2 * bytes + 50 * 4 * 20 * 4);
	assert_int_equal(cudnnGetCTCLossWorkspaceSize_v8(handle, 0, ctc, probabilities, NULL, &bytes), 0);
	assert_int_equal(bytes, 50 * 4 * 19 * 4);
	cudnnDestroyCTCLossDescriptor(ctc);
	cudnnDestroyTensorDescriptor(probabilities);
	cudnnDestroy(handle);
}

static void *rnn(int cell, int bias, int bidirectional, int input, int hidden, int projection, int layers)
{
	void *made = NULL;

	assert_int_equal(cudnnCreateRNNDescriptor(&made), 0);
	assert_int_equal(cudnnSetRNNDescriptor_v8(made, 0, cell, bias, bidirectional, 0, FLOAT, FLOAT, 0, input,
						  hidden, projection, layers, NULL, 1),
			 0);
	return made;
}

static size_t weight_bytes(void *handle, void *made)
{
	size_t bytes = 0;

	assert_int_equal(cudnnGetRNNWeightSpaceSize(handle, made, &bytes), 0);
	return bytes;
}

/* Every matrix and bias follows the one before it: all matrices, layer by layer, then all biases. */
static void weights_are_packed(void *handle, void *made, int pseudo_layers, int gates, bool projected)
{
	size_t bytes = weight_bytes(handle, made);
	void *matrix = NULL;
	void *bias = NULL;
	uintptr_t at = 0x10000;

	assert_int_equal(cudnnCreateTensorDescriptor(&matrix), 0);
	assert_int_equal(cudnnCreateTensorDescriptor(&bias), 0);
	for (int biases = 0; biases < 2; biases++) {
		for (int i = 0; i < pseudo_layers * (2 * gates + projected); i++) {
			int id = i % (2 * gates + projected);
			void *address[2] = {NULL, NULL};
			size_t part = 0;

			assert_int_equal(cudnnGetRNNWeightParams(handle, made, i / (2 * gates + projected), bytes,
								 (void *)0x10000, id, matrix, &address[0], bias,
								 &address[1]),
					 0);
			if (biases && id == 2 * gates) {
				assert_null(address[1]);
				continue;
			}
			assert_int_equal((uintptr_t)address[biases], at);
			cudnnGetTensorSizeInBytes(biases ? bias : matrix, &part);
			at += part;
		}
	}
	assert_int_equal(at, 0x10000 + bytes);
	cudnnDestroyTensorDescriptor(matrix);
	cudnnDestroyTensorDescriptor(bias);
}

static void weights_of_recurrent_networks_are_one_buffer(void **state)
{
	void *handle = begin();
	void *lstm = rnn(LSTM, 2, 0, 10, 20, 20, 2);
	void *both_ways = rnn(GRU, 2, 1, 10, 20, 20, 3);
	void *projected = rnn(LSTM, 2, 1, 10, 20, 5, 2);

	(void)state;
	assert_int_equal(weight_bytes(handle, lstm), 4 * (4 * 20 * (10 + 20) + 4 * 20 * (20 + 20) + 2 * 2 * 4 * 20));
	weights_are_packed(handle, lstm, 2, 4, false);
	assert_int_equal(weight_bytes(handle, both_ways),
			 4 * (2 * 3 * 20 * (10 + 20) + 2 * 2 * 3 * 20 * (40 + 20) + 6 * 2 * 3 * 20));
	weights_are_packed(handle, both_ways, 6, 3, false);
	assert_int_equal(weight_bytes(handle, projected),
			 4 * (2 * (4 * 20 * (10 + 5) + 20 * 5) + 2 * (4 * 20 * (10 + 5) + 20 * 5) + 4 * 2 * 4 * 20));
	weights_are_packed(handle, projected, 4, 4, true);
	cudnnDestroyRNNDescriptor(lstm);
	cudnnDestroyRNNDescriptor(both_ways);
	cudnnDestroyRNNDescriptor(projected);
	cudnnDestroy(handle);
}

static void absent_weights_have_no_address(void **state)
{
	void *handle = begin();
	void *made = rnn(0, 0, 0, 10, 20, 20, 1); /* ReLU, without biases */
	void *matrix = NULL;
	void *address[2] = {NULL, &matrix};
	int dimension[3] = {0};
	int type = -1;
	int count = -1;

	(void)state;
	assert_int_equal(cudnnCreateTensorDescriptor(&matrix), 0);
	assert_int_equal(weight_bytes(handle, made), 4 * 20 * (10 + 20));
	assert_int_equal(
		cudnnGetRNNWeightParams(handle, made, 0, 4 * 600, NULL, 1, matrix, &address[0], NULL, &address[1]),
		0);
	assert_int_equal((uintptr_t)address[0], 4 * 20 * 10);
	assert_null(address[1]);
	assert_int_equal(cudnnGetTensorNdDescriptor(matrix, 3, &type, &count, dimension, NULL), 0);
	assert_int_equal(count, 3);
	assert_memory_equal(dimension, ((int[]){1, 20, 20}), sizeof dimension);
	assert_int_equal(cudnnGetRNNWeightParams(handle, made, 1, 4 * 600, NULL, 0, NULL, NULL, NULL, NULL),
			 BAD_PARAM);
	assert_int_equal(cudnnGetRNNWeightParams(handle, made, 0, 4 * 600, NULL, 2, NULL, NULL, NULL, NULL),
			 BAD_PARAM);
	assert_int_equal(cudnnGetRNNWeightParams(handle, made, 0, 4 * 600 - 1, NULL, 0, NULL, NULL, NULL, NULL),
			 SIZE_INSUFFICIENT);
	cudnnDestroyTensorDescriptor(matrix);
	cudnnDestroyRNNDescriptor(made);
	cudnnDestroy(handle);
}

static void a_network_that_cannot_be_is_refused(void **state)
{
	void *made = NULL;

	(void)state;
	fake_begin();
	assert_int_equal(cudnnCreateRNNDescriptor(&made), 0);
	assert_int_equal(cudnnSetRNNDescriptor_v8(made, 0, GRU, 2, 0, 0, FLOAT, FLOAT, 0, 10, 20, 5, 1, NULL, 0),
			 BAD_PARAM); /* only an LSTM is projected */
	assert_int_equal(cudnnSetRNNDescriptor_v8(made, 0, LSTM, 2, 0, 0, FLOAT, FLOAT, 0, 10, 20, 30, 1, NULL, 0),
			 BAD_PARAM);
	assert_int_equal(cudnnSetRNNDescriptor_v8(made, 0, LSTM, 2, 0, 0, FLOAT, FLOAT, 0, 10, 20, 20, 0, NULL, 0),
			 BAD_PARAM);
	assert_int_equal(cudnnDestroyRNNDescriptor(made), 0);
}

static void *sequences(int layout, int steps, int batch, int width, const int *lengths)
{
	void *made = NULL;

	assert_int_equal(cudnnCreateRNNDataDescriptor(&made), 0);
	assert_int_equal(cudnnSetRNNDataDescriptor(made, FLOAT, layout, steps, batch, width, lengths, NULL), 0);
	return made;
}

/* The public measurement behind the formula (PyTorch issue 2895). */
static void the_reserve_is_what_was_measured(void **state)
{
	static int lengths[100];
	void *handle = begin();
	void *lstm = rnn(LSTM, 2, 0, 123, 320, 320, 4);
	void *gru = rnn(GRU, 2, 0, 123, 320, 320, 4);
	void *x;
	size_t workspace = 1;
	size_t reserve = 1;

	(void)state;
	for (int i = 0; i < 100; i++)
		lengths[i] = 250;
	x = sequences(0, 250, 100, 123, lengths);
	assert_int_equal(cudnnGetRNNTempSpaceSizes(handle, lstm, 1, x, &workspace, &reserve), 0);
	assert_int_equal(workspace, 0);
	assert_int_equal(reserve, 736000000);
	assert_int_equal(fake.tallies[GAP_WORKSPACE], 2);
	assert_int_equal(cudnnGetRNNTempSpaceSizes(handle, gru, 1, x, &workspace, &reserve), 0);
	assert_int_equal(reserve, 864000000);
	assert_int_equal(cudnnGetRNNTempSpaceSizes(handle, lstm, 0, x, &workspace, &reserve), 0);
	assert_int_equal(reserve, 0);       /* inference */
	assert_true(fake.high >= 17730560); /* the measured workspace */
	cudnnDestroyRNNDescriptor(lstm);
	cudnnDestroyRNNDescriptor(gru);
	cudnnDestroyRNNDataDescriptor(x);
	cudnnDestroy(handle);
}

static void sequences_are_given_back(void **state)
{
	void *made = sequences(1, 9, 3, 7, (int[]){9, 4, 2});
	int number[5] = {0};
	int lengths[3] = {0};

	(void)state;
	assert_int_equal(cudnnGetRNNDataDescriptor(made, &number[0], &number[1], &number[2], &number[3], &number[4],
						   3, lengths, NULL),
			 0);
	assert_memory_equal(number, ((int[]){FLOAT, 1, 9, 3, 7}), sizeof number);
	assert_memory_equal(lengths, ((int[]){9, 4, 2}), sizeof lengths);
	assert_int_equal(cudnnSetRNNDataDescriptor(made, FLOAT, 1, 9, 3, 7, (int[]){10, 4, 2}, NULL), BAD_PARAM);
	assert_int_equal(cudnnDestroyRNNDataDescriptor(made), 0);
}

static void a_packed_batch_has_its_sequences_alone(void **state)
{
	void *handle = begin();
	void *made = rnn(LSTM, 2, 1, 7, 20, 20, 1);
	void *x = sequences(1, 9, 3, 7, (int[]){9, 4, 2});
	void *y = sequences(1, 9, 3, 40, (int[]){9, 4, 2});
	size_t bytes = weight_bytes(handle, made);
	size_t reserve = 0;

	(void)state;
	assert_int_equal(cudnnGetRNNTempSpaceSizes(handle, made, 1, x, NULL, &reserve), 0);
	assert_int_equal(reserve, 9 * 3 * 5 * 2 * 20 * 4);
	assert_int_equal(cudnnRNNForward(handle, made, 1, NULL, x, NULL, y, (void *)0x3000, NULL, NULL, NULL, NULL,
					 NULL, NULL, bytes, NULL, 0, NULL, reserve, NULL),
			 0);
	assert_int_equal(fake.launches, 1);
	assert_int_equal(fake.forgotten, (9 + 4 + 2) * 40 * 4);
	assert_int_equal(cudnnRNNForward(handle, made, 1, NULL, x, NULL, y, NULL, NULL, NULL, NULL, NULL, NULL, NULL,
					 bytes, NULL, 0, NULL, reserve - 1, NULL),
			 SIZE_INSUFFICIENT);
	assert_int_equal(cudnnRNNForward(handle, made, 1, NULL, y, NULL, x, NULL, NULL, NULL, NULL, NULL, NULL, NULL,
					 bytes, NULL, 0, NULL, reserve, NULL),
			 BAD_PARAM);
	assert_int_equal(fake.launches, 1);
	cudnnDestroyRNNDescriptor(made);
	cudnnDestroyRNNDataDescriptor(x);
	cudnnDestroyRNNDataDescriptor(y);
	cudnnDestroy(handle);
}

int main(void)
{
	static const struct CMUnitTest tests[] = {
		cmocka_unit_test(without_libcudart_or_device_no_handle_is_made),
		cmocka_unit_test(handles_are_distinct_and_keep_their_stream),
		cmocka_unit_test(a_launch_that_fails_is_told),
		cmocka_unit_test(what_is_not_simulated_is_refused),
		cmocka_unit_test(version_is_the_newest_or_what_is_asked_for),
		cmocka_unit_test(errors_have_names_and_a_text_once),
		cmocka_unit_test(tensors_are_given_back),
		cmocka_unit_test(layers_are_given_back),
		cmocka_unit_test(convolutions_have_one_algorithm_without_workspace),
		cmocka_unit_test(results_of_a_convolution_read_as_zeros),
		cmocka_unit_test(batch_norm_keeps_nothing_unless_persistent),
		cmocka_unit_test(dropout_has_a_generator_for_each_thread),
		cmocka_unit_test(ctc_keeps_a_lattice),
		cmocka_unit_test(weights_of_recurrent_networks_are_one_buffer),
		cmocka_unit_test(absent_weights_have_no_address),
		cmocka_unit_test(a_network_that_cannot_be_is_refused),
		cmocka_unit_test(the_reserve_is_what_was_measured),
		cmocka_unit_test(sequences_are_given_back),
		cmocka_unit_test(a_packed_batch_has_its_sequences_alone),
	};

	load();
	return cmocka_run_group_tests(tests, NULL, NULL);
}
