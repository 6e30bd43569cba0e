/* cuDNN: tensors and operations of the graph API: refuses invalid ones when they are finalized. */
#include "sim/libraries/cudnn_graph.h"

static int missing(const char *text) { return cudnn_fail(CUDNN_STATUS_BAD_PARAM, text); }

static int shape_mismatch(const char *text) { return cudnn_fail(CUDNN_STATUS_BAD_PARAM_SHAPE_MISMATCH, text); }

static int tensor_check(const struct cudnn_contents *tensor)
{
	int64_t count = 0;
	int64_t strides = 0;
	int64_t alone = 0;
	const int64_t *dimension = cudnn_graph_numbers(tensor, CUDNN_ATTR_TENSOR_DIMENSIONS, &count);
	const int64_t *stride = cudnn_graph_numbers(tensor, CUDNN_ATTR_TENSOR_STRIDES, &strides);
	const int64_t *alignment;

	if (cudnn_type_bits(cudnn_graph_enumerator(tensor, CUDNN_ATTR_TENSOR_DATA_TYPE, CUDNN_TYPE_DATA_TYPE)) == 0)
		return missing("a tensor has no data type");
	if (!cudnn_graph_numbers(tensor, CUDNN_ATTR_TENSOR_UNIQUE_ID, &alone))
		return missing("a tensor has no unique id");
	alignment = cudnn_graph_numbers(tensor, CUDNN_ATTR_TENSOR_BYTE_ALIGNMENT, &alone);
	if (!alignment || *alignment < 1 || (*alignment & (*alignment - 1)) != 0)
		return missing("a tensor's alignment is not a power of two");
	if (count < 1 || count > CUDNN_DIM_MAX || strides != count)
		return shape_mismatch("a tensor has 1 to 8 dimensions and as many strides");
	for (int64_t i = 0; i < count; i++)
		if (dimension[i] < 1 || stride[i] < 0)
			return missing("a tensor's dimension is below 1 or a stride is negative");
	return 0;
}

/* Convolutions */

static int convolution_check(const struct cudnn_contents *convolution)
{
	static const struct {
		int name;
		int64_t least;
	} lists[] = {
		{CUDNN_ATTR_CONVOLUTION_DILATIONS, 1},
		{CUDNN_ATTR_CONVOLUTION_FILTER_STRIDES, 1},
		{CUDNN_ATTR_CONVOLUTION_PRE_PADDINGS, 0},
		{CUDNN_ATTR_CONVOLUTION_POST_PADDINGS, 0},
	};
	int64_t count = 0;
	const int64_t *spatial = cudnn_graph_numbers(convolution, CUDNN_ATTR_CONVOLUTION_SPATIAL_DIMS, &count);

	if (cudnn_graph_enumerator(convolution, CUDNN_ATTR_CONVOLUTION_COMP_TYPE, CUDNN_TYPE_DATA_TYPE) < 0 ||
	    !spatial || *spatial < 1 || *spatial > CUDNN_DIM_MAX - 2)
		return missing("a convolution has no data type or no spatial dimensions");
	for (size_t i = 0; i < sizeof lists / sizeof *lists; i++) {
		const int64_t *list = cudnn_graph_numbers(convolution, lists[i].name, &count);

		if (count != *spatial)
			return shape_mismatch("a convolution's lists are not as long as its spatial dimensions");
		for (int64_t j = 0; j < count; j++)
			if (list[j] < lists[i].least)
				return missing("a convolution's stride, dilation or padding is out of range");
	}
	return 0;
}

/* The operation's attributes: convolution, w, x, y, for any result. */
struct convolution_names {
	int convolution;
	int w;
	int x;
	int y;
};

static const struct convolution_names *convolution_names(int type)
{
	static const struct convolution_names forward = {
		CUDNN_ATTR_CONVOLUTION_FORWARD_CONV_DESC, CUDNN_ATTR_CONVOLUTION_FORWARD_W,
		CUDNN_ATTR_CONVOLUTION_FORWARD_X, CUDNN_ATTR_CONVOLUTION_FORWARD_Y};
	static const struct convolution_names data = {
		CUDNN_ATTR_CONVOLUTION_BWD_DATA_CONV_DESC, CUDNN_ATTR_CONVOLUTION_BWD_DATA_W,
		CUDNN_ATTR_CONVOLUTION_BWD_DATA_DX, CUDNN_ATTR_CONVOLUTION_BWD_DATA_DY};
	static const struct convolution_names filter = {
		CUDNN_ATTR_CONVOLUTION_BWD_FILTER_CONV_DESC, CUDNN_ATTR_CONVOLUTION_BWD_FILTER_DW,
		CUDNN_ATTR_CONVOLUTION_BWD_FILTER_X, CUDNN_ATTR_CONVOLUTION_BWD_FILTER_DY};

	switch (type) {
	case CUDNN_BACKEND_CONVOLUTION_FORWARD:
		return &forward;
	case CUDNN_BACKEND_CONVOLUTION_BACKWARD_DATA:
		return &data;
	case CUDNN_BACKEND_CONVOLUTION_BACKWARD_FILTER:
		return &filter;
	default:
		return NULL;
	}
}

/* Whether w takes x to y along each spatial dimension. */
static int spatial_check(const struct cudnn_contents *convolution, const int64_t *w, const int64_t *x,
			 const int64_t *y, int64_t spatial)
{
	int64_t count = 0;
	const int64_t *dilation = cudnn_graph_numbers(convolution, CUDNN_ATTR_CONVOLUTION_DILATIONS, &count);
	const int64_t *stride = cudnn_graph_numbers(convolution, CUDNN_ATTR_CONVOLUTION_FILTER_STRIDES, &count);
	const int64_t *before = cudnn_graph_numbers(convolution, CUDNN_ATTR_CONVOLUTION_PRE_PADDINGS, &count);
	const int64_t *after = cudnn_graph_numbers(convolution, CUDNN_ATTR_CONVOLUTION_POST_PADDINGS, &count);

	for (int64_t i = 0; i < spatial; i++) {
		int64_t space = x[i + 2] + before[i] + after[i] - dilation[i] * (w[i + 2] - 1) - 1;

		if (space < 0 || space / stride[i] + 1 != y[i + 2])
			return shape_mismatch("a convolution's output has another length");
	}
	return 0;
}

static int convolution_operation_check(const struct cudnn_contents *operation)
{
	const struct convolution_names *names = convolution_names(operation->type);
	const struct cudnn_contents *convolution =
		cudnn_contents_part(operation, names->convolution, CUDNN_BACKEND_CONVOLUTION);
	const struct cudnn_contents *tensor[3] = {cudnn_contents_part(operation, names->w, CUDNN_BACKEND_TENSOR),
						  cudnn_contents_part(operation, names->x, CUDNN_BACKEND_TENSOR),
						  cudnn_contents_part(operation, names->y, CUDNN_BACKEND_TENSOR)};
	const int64_t *dimension[3];
	int64_t count[3] = {0};
	int64_t spatial = 0;

	if (!convolution || !tensor[0] || !tensor[1] || !tensor[2])
		return missing("a convolution lacks its input, filter, output or description");
	for (int i = 0; i < 3; i++)
		dimension[i] = cudnn_graph_numbers(tensor[i], CUDNN_ATTR_TENSOR_DIMENSIONS, &count[i]);
	spatial = *cudnn_graph_numbers(convolution, CUDNN_ATTR_CONVOLUTION_SPATIAL_DIMS, &spatial);
	if (count[0] != spatial + 2 || count[1] != spatial + 2 || count[2] != spatial + 2)
		return shape_mismatch("a convolution's tensors do not have two dimensions more than it has");
	if (dimension[1][0] != dimension[2][0] || dimension[0][0] != dimension[2][1] ||
	    dimension[1][1] % dimension[0][1] != 0)
		return shape_mismatch("a convolution's batch or channels do not fit");
	return spatial_check(convolution, dimension[0], dimension[1], dimension[2], spatial);
}

/* Other operations: checks that their operands exist. */

static int pointwise_check(const struct cudnn_contents *operation)
{
	if (!cudnn_contents_part(operation, CUDNN_ATTR_OPERATION_POINTWISE_PW_DESCRIPTOR, CUDNN_BACKEND_POINTWISE))
		return missing("a pointwise operation has no description");
	if (!cudnn_contents_part(operation, CUDNN_ATTR_OPERATION_POINTWISE_YDESC, CUDNN_BACKEND_TENSOR) &&
	    !cudnn_contents_part(operation, CUDNN_ATTR_OPERATION_POINTWISE_DXDESC, CUDNN_BACKEND_TENSOR))
		return missing("a pointwise operation has no output");
	return 0;
}

static int matmul_check(const struct cudnn_contents *operation)
{
	if (!cudnn_contents_part(operation, CUDNN_ATTR_OPERATION_MATMUL_ADESC, CUDNN_BACKEND_TENSOR) ||
	    !cudnn_contents_part(operation, CUDNN_ATTR_OPERATION_MATMUL_BDESC, CUDNN_BACKEND_TENSOR) ||
	    !cudnn_contents_part(operation, CUDNN_ATTR_OPERATION_MATMUL_CDESC, CUDNN_BACKEND_TENSOR))
		return missing("a product of matrices lacks an operand");
	return 0;
}

static int reduction_check(const struct cudnn_contents *operation)
{
	if (!cudnn_contents_part(operation, CUDNN_ATTR_OPERATION_REDUCTION_XDESC, CUDNN_BACKEND_TENSOR) ||
	    !cudnn_contents_part(operation, CUDNN_ATTR_OPERATION_REDUCTION_YDESC, CUDNN_BACKEND_TENSOR))
		return missing("a reduction lacks its input or output");
	return 0;
}

bool cudnn_operation_is(int type)
{
	return (type >= CUDNN_BACKEND_CONVOLUTION_FORWARD && type <= CUDNN_BACKEND_GEN_STATS) ||
	       (type >= CUDNN_BACKEND_OPERATION_MATMUL && type != CUDNN_BACKEND_REDUCTION &&
		type != CUDNN_BACKEND_RESAMPLE && type != CUDNN_BACKEND_RNG && type != CUDNN_BACKEND_KERNEL_CACHE &&
		type != CUDNN_BACKEND_DEVICEPROP);
}

int cudnn_operation_check(const struct cudnn_contents *contents)
{
	switch (contents->type) {
	case CUDNN_BACKEND_TENSOR:
		return tensor_check(contents);
	case CUDNN_BACKEND_CONVOLUTION:
		return convolution_check(contents);
	case CUDNN_BACKEND_CONVOLUTION_FORWARD:
	case CUDNN_BACKEND_CONVOLUTION_BACKWARD_DATA:
	case CUDNN_BACKEND_CONVOLUTION_BACKWARD_FILTER:
		return convolution_operation_check(contents);
	case CUDNN_BACKEND_POINTWISE:
		if (cudnn_graph_enumerator(contents, CUDNN_ATTR_POINTWISE_MODE, CUDNN_TYPE_POINTWISE_MODE) < 0)
			return missing("a pointwise operation has no mode");
		return 0;
	case CUDNN_BACKEND_OPERATION_POINTWISE:
		return pointwise_check(contents);
	case CUDNN_BACKEND_OPERATION_MATMUL:
		return matmul_check(contents);
	case CUDNN_BACKEND_OPERATION_REDUCTION:
		return reduction_check(contents);
	default:
		return 0;
	}
}
