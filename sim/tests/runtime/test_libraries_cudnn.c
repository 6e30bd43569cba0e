/* cuDNN: settings are returned, sizes are the sums of their parts, and unknown sizes are counted. */
#include "cudnn_test.h"

#include <stdlib.h>

static void handles_are_distinct_and_keep_their_stream(void **state)
{
	void *one = cudnn_begin();
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

static void a_launch_that_fails_is_reported(void **state)
{
	void *handle = cudnn_begin();

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
	void *handle = cudnn_begin();

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
	void *handle = cudnn_begin();
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
	assert_true(fake.high == UINT64_MAX); /* of another algorithm: no bound is known */
	convolution_end(made);
	cudnnDestroy(handle);
}

static void results_of_a_convolution_read_as_zeros(void **state)
{
	void *handle = cudnn_begin();
	struct convolution made = convolution_begin();

	(void)state;
	assert_int_equal(cudnnConvolutionForward(handle, NULL, made.x, NULL, made.filter, NULL, made.convolution, 0,
						 NULL, 0, NULL, made.y, (void *)0x1000),
			 0);
	assert_int_equal(fake.launches, 1);
	assert_int_equal(fake.forgets, 1);
	assert_int_equal(fake.forgotten_at, 0x1000);
	assert_int_equal(fake.forgotten, 8 * 150 * 4);
	/* a shape other than the convolution's */
	assert_int_equal(cudnnConvolutionForward(handle, NULL, made.x, NULL, made.filter, NULL, made.convolution, 0,
						 NULL, 0, NULL, made.x, (void *)0x1000),
			 BAD_PARAM);
	assert_int_equal(fake.launches, 1);
	convolution_end(made);
	cudnnDestroy(handle);
}

static void batch_norm_keeps_nothing_unless_persistent(void **state)
{
	void *handle = cudnn_begin();
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
	void *handle = cudnn_begin();
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
	void *handle = cudnn_begin();
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

int main(void)
{
	static const struct CMUnitTest tests[] = {
		cmocka_unit_test(without_libcudart_or_device_no_handle_is_made),
		cmocka_unit_test(handles_are_distinct_and_keep_their_stream),
		cmocka_unit_test(a_launch_that_fails_is_reported),
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
	};

	cudnn_load();
	return cmocka_run_group_tests(tests, NULL, NULL);
}
