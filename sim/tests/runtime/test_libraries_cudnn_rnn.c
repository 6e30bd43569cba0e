/* cuDNN's recurrent networks: their weights, their sequences, and the sizes that they reserve. */
#include "cudnn_test.h"

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
	void *handle = cudnn_begin();
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
	void *handle = cudnn_begin();
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
	void *handle = cudnn_begin();
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
	void *handle = cudnn_begin();
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
		cmocka_unit_test(weights_of_recurrent_networks_are_one_buffer),
		cmocka_unit_test(absent_weights_have_no_address),
		cmocka_unit_test(a_network_that_cannot_be_is_refused),
		cmocka_unit_test(the_reserve_is_what_was_measured),
		cmocka_unit_test(sequences_are_given_back),
		cmocka_unit_test(a_packed_batch_has_its_sequences_alone),
	};

	cudnn_load();
	return cmocka_run_group_tests(tests, NULL, NULL);
}
