/* cuDNN: recurrent networks.
 *
 * The weights are one buffer. A pseudo-layer is a layer in one direction; its gates have an input matrix, a recurrent
 * matrix and up to two biases each, and an LSTM may end in a projection:
 *
 *   | layer 0: W of each gate, R of each gate, P | layer 0 backwards | layer 1 ... | layer 0: b of W, b of R | ...
 *     H x I                H x P                P x H                                 H each
 *
 * H hidden size, I input size of the layer, P size of the output: H without a projection. All matrices come before
 * all biases, with no gaps. PyTorch checks that the matrices of a layer follow each other, and makes its parameters
 * views of the buffer.
 *
 * Temporary space. The reserve keeps the values of forward that backward needs, for each step, sequence and
 * pseudo-layer: the gates, the state, and the outputs of all layers but the last. One measurement is public (PyTorch
 * issue 2895: input
 * 123, hidden 320, 4 layers, 25 000 steps times sequences, float): 736 000 000 bytes for LSTM and 864 000 000 for
 * GRU, which is 5 and 6 values a unit and layer and one for each layer but the last. The workspace was 17 730 560 and
 * 13 169 920 bytes there: a copy of the matrices and 5.6 and 4.1 MB. Newer versions were not measured, so both are
 * counted as intervals.
 */
#include "sim/libraries/cudnn_state.h"

#include <stdlib.h>

struct cudnn_rnn {
	int algorithm;
	int cell;
	int bias;
	int direction;
	int input_mode;
	int type;
	int math_precision;
	int math_type;
	int input;
	int hidden;
	int projection; /* size of the output */
	int layers;
	struct cudnn_dropout *dropout;
	uint32_t flags;
	int clip_mode;
	int clip_nan;
	double clip_low;
	double clip_high;
};

struct cudnn_rnn_data {
	int type;
	int layout;
	int steps; /* of the longest sequence */
	int batch;
	int width;
	int *lengths; /* of each sequence, ours */
};

static int null_pointer(const char *function) { return cudnn_fail(CUDNN_STATUS_BAD_PARAM_NULL_POINTER, function); }

static void give(int *ret_value, int value)
{
	if (ret_value)
		*ret_value = value;
}

int cudnnCreateRNNDescriptor(struct cudnn_rnn **ret_rnn)
{
	if (!ret_rnn)
		return null_pointer("cudnnCreateRNNDescriptor");
	*ret_rnn = calloc(1, sizeof **ret_rnn);
	return *ret_rnn ? 0 : CUDNN_STATUS_INTERNAL_ERROR_HOST_ALLOCATION_FAILED;
}

int cudnnDestroyRNNDescriptor(struct cudnn_rnn *rnn)
{
	free(rnn);
	return 0;
}

static bool shape_valid(const struct cudnn_rnn *rnn)
{
	if (rnn->cell < CUDNN_RNN_RELU || rnn->cell > CUDNN_GRU || rnn->bias < CUDNN_RNN_NO_BIAS ||
	    rnn->bias > CUDNN_RNN_SINGLE_REC_BIAS || cudnn_type_bits(rnn->type) < 8)
		return false;
	if (rnn->direction < 0 || rnn->direction > CUDNN_BIDIRECTIONAL || rnn->input_mode < 0 ||
	    rnn->input_mode > CUDNN_SKIP_INPUT)
		return false;
	if (rnn->input < 1 || rnn->hidden < 1 || rnn->layers < 1 || rnn->projection < 1)
		return false;
	if (rnn->projection > rnn->hidden || (rnn->projection < rnn->hidden && rnn->cell != CUDNN_LSTM))
		return false;
	return rnn->input_mode != CUDNN_SKIP_INPUT || rnn->input == rnn->hidden;
}

int cudnnSetRNNDescriptor_v8(struct cudnn_rnn *rnn, int algorithm, int cell, int bias, int direction, int input_mode,
			     int type, int math_precision, int math_type, int32_t input, int32_t hidden,
			     int32_t projection, int32_t layers, struct cudnn_dropout *dropout, uint32_t flags)
{
	struct cudnn_rnn set = {.algorithm = algorithm,
				.cell = cell,
				.bias = bias,
				.direction = direction,
				.input_mode = input_mode,
				.type = type,
				.math_precision = math_precision,
				.math_type = math_type,
				.input = input,
				.hidden = hidden,
				.projection = projection,
				.layers = layers,
				.dropout = dropout,
				.flags = flags};

	if (!rnn)
		return null_pointer("cudnnSetRNNDescriptor_v8");
	if (!shape_valid(&set))
		return cudnn_fail(CUDNN_STATUS_BAD_PARAM,
				  "cudnnSetRNNDescriptor_v8: modes or sizes are out of range");
	*rnn = set;
	return 0;
}

int cudnnGetRNNDescriptor_v8(const struct cudnn_rnn *rnn, int *ret_algorithm, int *ret_cell, int *ret_bias,
			     int *ret_direction, int *ret_input_mode, int *ret_type, int *ret_math_precision,
			     int *ret_math_type, int32_t *ret_input, int32_t *ret_hidden, int32_t *ret_projection,
			     int32_t *ret_layers, struct cudnn_dropout **ret_dropout, uint32_t *ret_flags)
{
	if (!rnn)
		return null_pointer("cudnnGetRNNDescriptor_v8");
	give(ret_algorithm, rnn->algorithm);
	give(ret_cell, rnn->cell);
	give(ret_bias, rnn->bias);
	give(ret_direction, rnn->direction);
	give(ret_input_mode, rnn->input_mode);
	give(ret_type, rnn->type);
	give(ret_math_precision, rnn->math_precision);
	give(ret_math_type, rnn->math_type);
	give(ret_input, rnn->input);
	give(ret_hidden, rnn->hidden);
	give(ret_projection, rnn->projection);
	give(ret_layers, rnn->layers);
	if (ret_dropout)
		*ret_dropout = rnn->dropout;
	if (ret_flags)
		*ret_flags = rnn->flags;
	return 0;
}

int cudnnRNNSetClip_v8(struct cudnn_rnn *rnn, int mode, int nan, double low, double high)
{
	if (!rnn)
		return null_pointer("cudnnRNNSetClip");
	if (mode != 0 && !(low <= high))
		return cudnn_fail(CUDNN_STATUS_BAD_PARAM, "cudnnRNNSetClip: the low bound is above the high one");
	rnn->clip_mode = mode;
	rnn->clip_nan = nan;
	rnn->clip_low = low;
	rnn->clip_high = high;
	return 0;
}

int cudnnRNNSetClip_v9(struct cudnn_rnn *rnn, int mode, double low, double high)
{
	return cudnnRNNSetClip_v8(rnn, mode, 0, low, high);
}

int cudnnRNNGetClip_v8(const struct cudnn_rnn *rnn, int *ret_mode, int *ret_nan, double *ret_low, double *ret_high)
{
	if (!rnn)
		return null_pointer("cudnnRNNGetClip");
	give(ret_mode, rnn->clip_mode);
	give(ret_nan, rnn->clip_nan);
	if (ret_low)
		*ret_low = rnn->clip_low;
	if (ret_high)
		*ret_high = rnn->clip_high;
	return 0;
}

int cudnnRNNGetClip_v9(const struct cudnn_rnn *rnn, int *ret_mode, double *ret_low, double *ret_high)
{
	return cudnnRNNGetClip_v8(rnn, ret_mode, NULL, ret_low, ret_high);
}

/* Sequences */

int cudnnCreateRNNDataDescriptor(struct cudnn_rnn_data **ret_data)
{
	if (!ret_data)
		return null_pointer("cudnnCreateRNNDataDescriptor");
	*ret_data = calloc(1, sizeof **ret_data);
	return *ret_data ? 0 : CUDNN_STATUS_INTERNAL_ERROR_HOST_ALLOCATION_FAILED;
}

int cudnnDestroyRNNDataDescriptor(struct cudnn_rnn_data *data)
{
	if (data)
		free(data->lengths);
	free(data);
	return 0;
}

int cudnnSetRNNDataDescriptor(struct cudnn_rnn_data *data, int type, int layout, int steps, int batch, int width,
			      const int *lengths, void *padding)
{
	int *copy;

	(void)padding;
	if (!data || !lengths)
		return null_pointer("cudnnSetRNNDataDescriptor");
	if (cudnn_type_bits(type) < 8 || layout < 0 || layout > 2 || steps < 1 || batch < 1 || width < 1)
		return cudnn_fail(CUDNN_STATUS_BAD_PARAM, "cudnnSetRNNDataDescriptor: a size is out of range");
	for (int i = 0; i < batch; i++)
		if (lengths[i] < 0 || lengths[i] > steps)
			return cudnn_fail(CUDNN_STATUS_BAD_PARAM, "a sequence is longer than the longest one");
	copy = malloc((size_t)batch * sizeof *copy);
	if (!copy)
		return CUDNN_STATUS_INTERNAL_ERROR_HOST_ALLOCATION_FAILED;
	memcpy(copy, lengths, (size_t)batch * sizeof *copy);
	free(data->lengths);
	*data = (struct cudnn_rnn_data){type, layout, steps, batch, width, copy};
	return 0;
}

int cudnnGetRNNDataDescriptor(const struct cudnn_rnn_data *data, int *ret_type, int *ret_layout, int *ret_steps,
			      int *ret_batch, int *ret_width, int requested, int *ret_lengths, void *ret_padding)
{
	(void)ret_padding;
	if (!data)
		return null_pointer("cudnnGetRNNDataDescriptor");
	give(ret_type, data->type);
	give(ret_layout, data->layout);
	give(ret_steps, data->steps);
	give(ret_batch, data->batch);
	give(ret_width, data->width);
	for (int i = 0; ret_lengths && i < requested && i < data->batch; i++)
		ret_lengths[i] = data->lengths[i];
	return 0;
}

static uint64_t data_bytes(const struct cudnn_rnn_data *data)
{
	uint64_t steps = 0;

	if (data->layout == CUDNN_RNN_DATA_LAYOUT_SEQ_MAJOR_PACKED)
		for (int i = 0; i < data->batch; i++)
			steps += (uint64_t)data->lengths[i];
	else
		steps = (uint64_t)data->steps * (uint64_t)data->batch;
	return steps * (uint64_t)data->width * (uint64_t)cudnn_type_bits(data->type) / 8;
}

/* Weights */

static int directions(const struct cudnn_rnn *rnn) { return rnn->direction == CUDNN_BIDIRECTIONAL ? 2 : 1; }

static int gates(const struct cudnn_rnn *rnn)
{
	switch (rnn->cell) {
	case CUDNN_LSTM:
		return 4;
	case CUDNN_GRU:
		return 3;
	default:
		return 1;
	}
}

static bool projected(const struct cudnn_rnn *rnn) { return rnn->projection < rnn->hidden; }

/* Columns of a pseudo-layer's input matrices; 0: it has none. */
static int input_width(const struct cudnn_rnn *rnn, int pseudo_layer)
{
	if (pseudo_layer >= directions(rnn))
		return rnn->projection * directions(rnn);
	return rnn->input_mode == CUDNN_SKIP_INPUT ? 0 : rnn->input;
}

/* Elements of a pseudo-layer's matrices. */
static uint64_t matrix_elements(const struct cudnn_rnn *rnn, int pseudo_layer)
{
	uint64_t hidden = (uint64_t)rnn->hidden;
	uint64_t each = hidden * (uint64_t)(input_width(rnn, pseudo_layer) + rnn->projection);

	return (uint64_t)gates(rnn) * each + (projected(rnn) ? hidden * (uint64_t)rnn->projection : 0);
}

/* Bias vectors of a gate: bit 0 for the input, bit 1 for the recurrent matrix. */
static unsigned biases(const struct cudnn_rnn *rnn)
{
	static const unsigned bits[] = {0, 1, 3, 2};

	return bits[rnn->bias];
}

static uint64_t bias_elements(const struct cudnn_rnn *rnn)
{
	uint64_t vectors = (biases(rnn) & 1) + (biases(rnn) >> 1);

	return vectors * (uint64_t)gates(rnn) * (uint64_t)rnn->hidden;
}

/* Elements of the matrices of all pseudo-layers before this one. */
static uint64_t matrices_before(const struct cudnn_rnn *rnn, int pseudo_layer)
{
	uint64_t elements = 0;

	for (int i = 0; i < pseudo_layer; i++)
		elements += matrix_elements(rnn, i);
	return elements;
}

static uint64_t weight_bytes(const struct cudnn_rnn *rnn)
{
	int pseudo_layers = rnn->layers * directions(rnn);
	uint64_t elements = matrices_before(rnn, pseudo_layers) + (uint64_t)pseudo_layers * bias_elements(rnn);

	return elements * (uint64_t)cudnn_type_bits(rnn->type) / 8;
}

int cudnnGetRNNWeightSpaceSize(const void *handle, const struct cudnn_rnn *rnn, size_t *ret_bytes)
{
	if (!cudnn_handle_valid(handle))
		return CUDNN_STATUS_BAD_PARAM;
	if (!rnn || !ret_bytes)
		return null_pointer("cudnnGetRNNWeightSpaceSize");
	*ret_bytes = (size_t)weight_bytes(rnn);
	return 0;
}

/* One matrix or vector of a pseudo-layer. No rows: it does not exist. */
struct part {
	uint64_t offset; /* in elements */
	int rows;
	int columns;
};

/* Identifiers 0 to gates - 1 are the input matrices, then come the recurrent ones, then the projection. */
static struct part matrix_part(const struct cudnn_rnn *rnn, int pseudo_layer, int id)
{
	int count = gates(rnn);
	int width = input_width(rnn, pseudo_layer);
	uint64_t start = matrices_before(rnn, pseudo_layer);
	uint64_t hidden = (uint64_t)rnn->hidden;
	uint64_t inputs = (uint64_t)count * hidden * (uint64_t)width;
	uint64_t recurrent = hidden * (uint64_t)rnn->projection;

	if (id < count)
		return (struct part){start + (uint64_t)id * hidden * (uint64_t)width, width ? rnn->hidden : 0, width};
	if (id < 2 * count)
		return (struct part){start + inputs + (uint64_t)(id - count) * recurrent, rnn->hidden,
				     rnn->projection};
	if (!projected(rnn))
		return (struct part){0};
	return (struct part){start + inputs + (uint64_t)count * recurrent, rnn->projection, rnn->hidden};
}

static struct part bias_part(const struct cudnn_rnn *rnn, int pseudo_layer, int id)
{
	int count = gates(rnn);
	unsigned side = id < count ? 1 : 2;
	uint64_t start =
		matrices_before(rnn, rnn->layers * directions(rnn)) + (uint64_t)pseudo_layer * bias_elements(rnn);

	if (id >= 2 * count || !(biases(rnn) & side))
		return (struct part){0};
	if (side == 2 && biases(rnn) == 2)
		id -= count;
	return (struct part){start + (uint64_t)id * (uint64_t)rnn->hidden, rnn->hidden, 1};
}

static void give_part(const struct cudnn_rnn *rnn, struct part part, const void *weights,
		      struct cudnn_tensor *ret_tensor, void **ret_address)
{
	uint64_t offset = part.offset * (uint64_t)cudnn_type_bits(rnn->type) / 8;

	if (ret_tensor) {
		*ret_tensor = (struct cudnn_tensor){.type = rnn->type};
		if (part.rows)
			cudnn_tensor_pack(ret_tensor, rnn->type, 3, (int[]){1, part.rows, part.columns});
	}
	if (ret_address)
		*ret_address = part.rows ? (void *)((uintptr_t)weights + offset) : NULL;
}

int cudnnGetRNNWeightParams(const void *handle, const struct cudnn_rnn *rnn, int32_t pseudo_layer, size_t bytes,
			    const void *weights, int32_t id, struct cudnn_tensor *ret_matrix,
			    void **ret_matrix_address, struct cudnn_tensor *ret_bias, void **ret_bias_address)
{
	if (!cudnn_handle_valid(handle))
		return CUDNN_STATUS_BAD_PARAM;
	if (!rnn)
		return null_pointer("cudnnGetRNNWeightParams");
	if (pseudo_layer < 0 || pseudo_layer >= rnn->layers * directions(rnn) || id < 0 ||
	    id > 2 * gates(rnn) - (rnn->cell != CUDNN_LSTM))
		return cudnn_fail(CUDNN_STATUS_BAD_PARAM, "cudnnGetRNNWeightParams: no such layer or matrix");
	if (bytes < weight_bytes(rnn))
		return cudnn_fail(CUDNN_STATUS_BAD_PARAM_SIZE_INSUFFICIENT, "the weight space is too small");
	give_part(rnn, matrix_part(rnn, pseudo_layer, id), weights, ret_matrix, ret_matrix_address);
	give_part(rnn, bias_part(rnn, pseudo_layer, id), weights, ret_bias, ret_bias_address);
	return 0;
}

/* Temporary space: the top of the file has the source of the numbers. */

static uint64_t reserve_bytes(const struct cudnn_rnn *rnn, const struct cudnn_rnn_data *x)
{
	uint64_t units = (uint64_t)(rnn->layers * directions(rnn)) * (uint64_t)rnn->hidden;
	uint64_t outputs = (uint64_t)(rnn->layers - 1) * (uint64_t)(directions(rnn) * rnn->projection);
	uint64_t values = rnn->cell == CUDNN_LSTM ? 5 : rnn->cell == CUDNN_GRU ? 6 : 1;

	return (uint64_t)x->steps * (uint64_t)x->batch * (values * units + outputs) *
	       (uint64_t)cudnn_type_bits(rnn->type) / 8;
}

/* The known maximum: a copy of the weights, and for each sequence and layer three values a gate. */
static uint64_t workspace_most(const struct cudnn_rnn *rnn, const struct cudnn_rnn_data *x)
{
	uint64_t units = (uint64_t)(rnn->layers * directions(rnn)) * (uint64_t)rnn->hidden;

	return weight_bytes(rnn) +
	       3 * (uint64_t)gates(rnn) * units * (uint64_t)x->batch * (uint64_t)cudnn_type_bits(rnn->type) / 8;
}

int cudnnGetRNNTempSpaceSizes(const void *handle, const struct cudnn_rnn *rnn, int mode,
			      const struct cudnn_rnn_data *x, size_t *ret_workspace, size_t *ret_reserve)
{
	uint64_t reserve;

	if (!cudnn_handle_valid(handle))
		return CUDNN_STATUS_BAD_PARAM;
	if (!rnn || !x)
		return null_pointer("cudnnGetRNNTempSpaceSizes");
	reserve = mode == CUDNN_FWD_MODE_TRAINING ? reserve_bytes(rnn, x) : 0;
	if (ret_workspace) {
		*ret_workspace = 0;
		stand_in_workspace("cudnnGetRNNTempSpaceSizes (workspace)", 0, workspace_most(rnn, x));
	}
	if (ret_reserve) {
		*ret_reserve = (size_t)reserve;
		if (reserve)
			stand_in_workspace("cudnnGetRNNTempSpaceSizes (reserve)", reserve, 2 * reserve);
	}
	return 0;
}

int cudnnRNNForward(const void *handle, const struct cudnn_rnn *rnn, int mode, const int32_t *lengths,
		    const struct cudnn_rnn_data *x, const void *x_data, const struct cudnn_rnn_data *y, void *y_data,
		    const struct cudnn_tensor *h, const void *hx, void *hy, const struct cudnn_tensor *c,
		    const void *cx, void *cy, size_t weights_bytes, const void *weights, size_t space_bytes,
		    void *space, size_t reserve_size, void *reserve)
{
	int status;

	(void)mode, (void)lengths, (void)x_data, (void)hx, (void)cx, (void)weights;
	(void)space_bytes, (void)space, (void)reserve;
	if (!rnn || !x || !y)
		return null_pointer("cudnnRNNForward");
	if (x->width != rnn->input || y->width != rnn->projection * directions(rnn) || x->batch != y->batch)
		return cudnn_fail(CUDNN_STATUS_BAD_PARAM, "cudnnRNNForward: the data does not fit the network");
	if (weights_bytes < weight_bytes(rnn) ||
	    (mode == CUDNN_FWD_MODE_TRAINING && reserve_size < reserve_bytes(rnn, x)))
		return cudnn_fail(CUDNN_STATUS_BAD_PARAM_SIZE_INSUFFICIENT, "cudnnRNNForward: a buffer is too small");
	status = cudnn_compute("cudnnRNNForward", handle);
	if (status)
		return status;
	cudnn_forget(y_data, data_bytes(y));
	cudnn_forget_tensor(h, hy);
	cudnn_forget_tensor(c, cy);
	return 0;
}

int cudnnRNNBackwardData_v8(const void *handle, const struct cudnn_rnn *rnn, const int32_t *lengths,
			    const struct cudnn_rnn_data *y, const void *y_data, const void *dy,
			    const struct cudnn_rnn_data *x, void *dx, const struct cudnn_tensor *h, const void *hx,
			    const void *dhy, void *dhx, const struct cudnn_tensor *c, const void *cx, const void *dcy,
			    void *dcx, size_t weights_bytes, const void *weights, size_t space_bytes, void *space,
			    size_t reserve_size, void *reserve)
{
	int status;

	(void)lengths, (void)y, (void)y_data, (void)dy, (void)hx, (void)dhy, (void)cx, (void)dcy, (void)weights_bytes;
	(void)weights, (void)space_bytes, (void)space, (void)reserve;
	if (!rnn || !x)
		return null_pointer("cudnnRNNBackwardData_v8");
	if (reserve_size < reserve_bytes(rnn, x))
		return cudnn_fail(CUDNN_STATUS_BAD_PARAM_SIZE_INSUFFICIENT, "the reserve space is too small");
	status = cudnn_compute("cudnnRNNBackwardData_v8", handle);
	if (status)
		return status;
	cudnn_forget(dx, data_bytes(x));
	cudnn_forget_tensor(h, dhx);
	cudnn_forget_tensor(c, dcx);
	return 0;
}

int cudnnRNNBackwardWeights_v8(const void *handle, const struct cudnn_rnn *rnn, int add, const int32_t *lengths,
			       const struct cudnn_rnn_data *x, const void *x_data, const struct cudnn_tensor *h,
			       const void *hx, const struct cudnn_rnn_data *y, const void *y_data,
			       size_t weights_bytes, void *dweights)
{
	int status;

	(void)add, (void)lengths, (void)x, (void)x_data, (void)h, (void)hx, (void)y, (void)y_data;
	if (!rnn)
		return null_pointer("cudnnRNNBackwardWeights_v8");
	if (weights_bytes < weight_bytes(rnn))
		return cudnn_fail(CUDNN_STATUS_BAD_PARAM_SIZE_INSUFFICIENT, "the weight space is too small");
	status = cudnn_compute("cudnnRNNBackwardWeights_v8", handle);
	if (!status)
		cudnn_forget(dweights, weight_bytes(rnn));
	return status;
}
