/* cuDNN: the older API of convolutions, which PyTorch uses if the graph API is switched off, and for some fused ones.
 *
 * It returns one algorithm for each of the three convolutions: the one documented to need no workspace, or to be
 * deterministic. NVIDIA's library would often choose another, so each requested size is counted: from nothing to a
 * copy of each operand.
 */
#include "sim/libraries/cudnn_state.h"

#include <stdlib.h>

int cudnnCreateConvolutionDescriptor(struct cudnn_convolution **ret_convolution)
{
	if (!ret_convolution)
		return cudnn_fail(CUDNN_STATUS_BAD_PARAM_NULL_POINTER, "cudnnCreateConvolutionDescriptor");
	*ret_convolution = calloc(1, sizeof **ret_convolution);
	if (!*ret_convolution)
		return CUDNN_STATUS_INTERNAL_ERROR_HOST_ALLOCATION_FAILED;
	(*ret_convolution)->groups = 1;
	return 0;
}

int cudnnDestroyConvolutionDescriptor(struct cudnn_convolution *convolution)
{
	free(convolution);
	return 0;
}

int cudnnSetConvolutionNdDescriptor(struct cudnn_convolution *convolution, int count, const int *padding,
				    const int *stride, const int *dilation, int mode, int type)
{
	if (!convolution || !padding || !stride || !dilation)
		return cudnn_fail(CUDNN_STATUS_BAD_PARAM_NULL_POINTER, "cudnnSetConvolutionNdDescriptor");
	if (count < 1 || count > CUDNN_DIM_MAX - 2 || cudnn_type_bits(type) == 0)
		return cudnn_fail(CUDNN_STATUS_BAD_PARAM, "a convolution has 1 to 6 dimensions and a data type");
	for (int i = 0; i < count; i++)
		if (padding[i] < 0 || stride[i] < 1 || dilation[i] < 1)
			return cudnn_fail(CUDNN_STATUS_BAD_PARAM, "padding, stride or dilation is out of range");
	convolution->count = count;
	convolution->mode = mode;
	convolution->type = type;
	memcpy(convolution->padding, padding, (size_t)count * sizeof(int));
	memcpy(convolution->stride, stride, (size_t)count * sizeof(int));
	memcpy(convolution->dilation, dilation, (size_t)count * sizeof(int));
	return 0;
}

int cudnnSetConvolution2dDescriptor(struct cudnn_convolution *convolution, int pad_h, int pad_w, int stride_h,
				    int stride_w, int dilation_h, int dilation_w, int mode, int type)
{
	return cudnnSetConvolutionNdDescriptor(convolution, 2, (int[]){pad_h, pad_w}, (int[]){stride_h, stride_w},
					       (int[]){dilation_h, dilation_w}, mode, type);
}

int cudnnGetConvolutionNdDescriptor(const struct cudnn_convolution *convolution, int requested, int *ret_count,
				    int *ret_padding, int *ret_stride, int *ret_dilation, int *ret_mode,
				    int *ret_type)
{
	if (!convolution || !ret_count || !ret_padding || !ret_stride || !ret_dilation || !ret_mode || !ret_type)
		return cudnn_fail(CUDNN_STATUS_BAD_PARAM_NULL_POINTER, "cudnnGetConvolutionNdDescriptor");
	if (requested < 0 || requested > CUDNN_DIM_MAX - 2)
		return cudnn_fail(CUDNN_STATUS_BAD_PARAM, "more than 6 dimensions are asked for");
	*ret_count = convolution->count;
	*ret_mode = convolution->mode;
	*ret_type = convolution->type;
	for (int i = 0; i < requested && i < convolution->count; i++) {
		ret_padding[i] = convolution->padding[i];
		ret_stride[i] = convolution->stride[i];
		ret_dilation[i] = convolution->dilation[i];
	}
	return 0;
}

int cudnnGetConvolution2dDescriptor(const struct cudnn_convolution *convolution, int *ret_pad_h, int *ret_pad_w,
				    int *ret_stride_h, int *ret_stride_w, int *ret_dilation_h, int *ret_dilation_w,
				    int *ret_mode, int *ret_type)
{
	int padding[2] = {0};
	int stride[2] = {0};
	int dilation[2] = {0};
	int count = 0;
	int status = cudnnGetConvolutionNdDescriptor(convolution, 2, &count, padding, stride, dilation, ret_mode,
						     ret_type);

	if (status)
		return status;
	if (count != 2 || !ret_pad_h || !ret_pad_w || !ret_stride_h || !ret_stride_w || !ret_dilation_h ||
	    !ret_dilation_w)
		return cudnn_fail(CUDNN_STATUS_BAD_PARAM, "cudnnGetConvolution2dDescriptor");
	*ret_pad_h = padding[0];
	*ret_pad_w = padding[1];
	*ret_stride_h = stride[0];
	*ret_stride_w = stride[1];
	*ret_dilation_h = dilation[0];
	*ret_dilation_w = dilation[1];
	return 0;
}

/* A separate field, with its Set and Get. */
#define FIELD(name, field)                                                                                           \
	int cudnnSetConvolution##name(struct cudnn_convolution *convolution, int value)                              \
	{                                                                                                            \
		if (!convolution)                                                                                    \
			return cudnn_fail(CUDNN_STATUS_BAD_PARAM_NULL_POINTER, "cudnnSetConvolution" #name);         \
		convolution->field = value;                                                                          \
		return 0;                                                                                            \
	}                                                                                                            \
	int cudnnGetConvolution##name(const struct cudnn_convolution *convolution, int *ret_value)                   \
	{                                                                                                            \
		if (!convolution || !ret_value)                                                                      \
			return cudnn_fail(CUDNN_STATUS_BAD_PARAM_NULL_POINTER, "cudnnGetConvolution" #name);         \
		*ret_value = convolution->field;                                                                     \
		return 0;                                                                                            \
	}

FIELD(MathType, math_type)
FIELD(GroupCount, groups)
FIELD(ReorderType, reorder)

/* The length of an output along spatial dimension i, at least 1 if the shapes fit. */
static int output_length(const struct cudnn_convolution *convolution, const struct cudnn_tensor *input,
			 const struct cudnn_filter *filter, int i)
{
	int reach = convolution->dilation[i] * (filter->dimension[i + 2] - 1) + 1;
	int space = input->dimension[i + 2] + 2 * convolution->padding[i] - reach;

	return space < 0 ? 0 : space / convolution->stride[i] + 1;
}

int cudnnGetConvolutionNdForwardOutputDim(const struct cudnn_convolution *convolution,
					  const struct cudnn_tensor *input, const struct cudnn_filter *filter,
					  int count, int *ret_dimension)
{
	if (!convolution || !input || !filter || !ret_dimension)
		return cudnn_fail(CUDNN_STATUS_BAD_PARAM_NULL_POINTER, "cudnnGetConvolutionNdForwardOutputDim");
	if (count != input->count || count != filter->count || count != convolution->count + 2 ||
	    input->dimension[1] != filter->dimension[1] * convolution->groups)
		return cudnn_fail(CUDNN_STATUS_BAD_PARAM, "the shapes of input, filter and convolution do not fit");
	ret_dimension[0] = input->dimension[0];
	ret_dimension[1] = filter->dimension[0];
	for (int i = 0; i < convolution->count; i++) {
		ret_dimension[i + 2] = output_length(convolution, input, filter, i);
		if (ret_dimension[i + 2] == 0)
			return cudnn_fail(CUDNN_STATUS_BAD_PARAM, "the filter is larger than the padded input");
	}
	return 0;
}

int cudnnGetConvolution2dForwardOutputDim(const struct cudnn_convolution *convolution,
					  const struct cudnn_tensor *input, const struct cudnn_filter *filter,
					  int *ret_n, int *ret_c, int *ret_h, int *ret_w)
{
	int dimension[CUDNN_DIM_MAX] = {0};
	int status = cudnnGetConvolutionNdForwardOutputDim(convolution, input, filter, 4, dimension);

	if (status)
		return status;
	if (!ret_n || !ret_c || !ret_h || !ret_w)
		return cudnn_fail(CUDNN_STATUS_BAD_PARAM_NULL_POINTER, "cudnnGetConvolution2dForwardOutputDim");
	*ret_n = dimension[0];
	*ret_c = dimension[1];
	*ret_h = dimension[2];
	*ret_w = dimension[3];
	return 0;
}

/* Checks that the convolution of `x` with the filter has the shape of `y`. Returns a status. */
static int check(const struct cudnn_tensor *x, const struct cudnn_filter *filter,
		 const struct cudnn_convolution *convolution, const struct cudnn_tensor *y)
{
	int dimension[CUDNN_DIM_MAX] = {0};
	int status = cudnnGetConvolutionNdForwardOutputDim(convolution, x, filter, x ? x->count : 0, dimension);

	if (status)
		return status;
	if (!y || y->count != x->count || memcmp(dimension, y->dimension, (size_t)y->count * sizeof(int)) != 0)
		return cudnn_fail(CUDNN_STATUS_BAD_PARAM, "the output's shape is not that of the convolution");
	return 0;
}

/* One convolution: x, filter and y, whichever of them is the result. */
struct shapes {
	const struct cudnn_tensor *x;
	const struct cudnn_filter *filter;
	const struct cudnn_convolution *convolution;
	const struct cudnn_tensor *y;
};

static int workspace(const char *function, const void *handle, struct shapes shapes, size_t *ret_bytes)
{
	int status = cudnn_handle_valid(handle) ? check(shapes.x, shapes.filter, shapes.convolution, shapes.y)
						: CUDNN_STATUS_BAD_PARAM;

	if (status)
		return status;
	if (!ret_bytes)
		return cudnn_fail(CUDNN_STATUS_BAD_PARAM_NULL_POINTER, "no pointer for the workspace's size");
	*ret_bytes = 0;
	stand_in_workspace(function, 0, STAND_IN_UNBOUNDED);
	return 0;
}

/* The one algorithm. Its math type is the convolution's: PyTorch checks that TF32 is not forced on it. */
static int algorithms(const void *handle, struct shapes shapes, int algorithm, int requested, int *ret_count,
		      struct cudnn_performance *ret_performance)
{
	int status = cudnn_handle_valid(handle) ? check(shapes.x, shapes.filter, shapes.convolution, shapes.y)
						: CUDNN_STATUS_BAD_PARAM;

	if (status)
		return status;
	if (!ret_count || !ret_performance || requested < 1)
		return cudnn_fail(CUDNN_STATUS_BAD_PARAM, "no pointer for an algorithm");
	*ret_count = 1;
	*ret_performance = (struct cudnn_performance){.algorithm = algorithm,
						      .determinism = CUDNN_DETERMINISTIC,
						      .math_type = shapes.convolution->math_type};
	return 0;
}

static int max_count(const void *handle, int count, int *ret_count)
{
	if (!cudnn_handle_valid(handle) || !ret_count)
		return CUDNN_STATUS_BAD_PARAM;
	*ret_count = count;
	return 0;
}

int cudnnGetConvolutionForwardAlgorithmMaxCount(const void *handle, int *ret_count)
{
	return max_count(handle, CUDNN_CONVOLUTION_FWD_ALGO_COUNT, ret_count);
}

int cudnnGetConvolutionBackwardDataAlgorithmMaxCount(const void *handle, int *ret_count)
{
	return max_count(handle, CUDNN_CONVOLUTION_BWD_DATA_ALGO_COUNT, ret_count);
}

int cudnnGetConvolutionBackwardFilterAlgorithmMaxCount(const void *handle, int *ret_count)
{
	return max_count(handle, CUDNN_CONVOLUTION_BWD_FILTER_ALGO_COUNT, ret_count);
}

#define X const struct cudnn_tensor *x
#define Y const struct cudnn_tensor *y
#define W const struct cudnn_filter *filter
#define C const struct cudnn_convolution *convolution
#define SHAPES                                                                                                       \
	(struct shapes) { x, filter, convolution, y }
#define ANSWER int requested, int *ret_count, struct cudnn_performance *ret_performance

/* Forward */

int cudnnGetConvolutionForwardAlgorithm_v7(const void *handle, X, W, C, Y, ANSWER)
{
	return algorithms(handle, SHAPES, CUDNN_CONVOLUTION_FWD_ALGO_IMPLICIT_GEMM, requested, ret_count,
			  ret_performance);
}

int cudnnFindConvolutionForwardAlgorithm(const void *handle, X, W, C, Y, ANSWER)
{
	return algorithms(handle, SHAPES, CUDNN_CONVOLUTION_FWD_ALGO_IMPLICIT_GEMM, requested, ret_count,
			  ret_performance);
}

int cudnnFindConvolutionForwardAlgorithmEx(const void *handle, X, const void *x_data, W, const void *w_data, C, Y,
					   void *y_data, ANSWER, void *space, size_t space_bytes)
{
	(void)x_data, (void)w_data, (void)y_data, (void)space, (void)space_bytes;
	return algorithms(handle, SHAPES, CUDNN_CONVOLUTION_FWD_ALGO_IMPLICIT_GEMM, requested, ret_count,
			  ret_performance);
}

int cudnnGetConvolutionForwardWorkspaceSize(const void *handle, X, W, C, Y, int algorithm, size_t *ret_bytes)
{
	(void)algorithm;
	return workspace("cudnnGetConvolutionForwardWorkspaceSize", handle, SHAPES, ret_bytes);
}

int cudnnConvolutionForward(const void *handle, const void *alpha, X, const void *x_data, W, const void *w_data, C,
			    int algorithm, void *space, size_t space_bytes, const void *beta, Y, void *y_data)
{
	int status = check(x, filter, convolution, y);

	(void)alpha, (void)x_data, (void)w_data, (void)algorithm, (void)space, (void)space_bytes, (void)beta;
	if (!status)
		status = cudnn_compute("cudnnConvolutionForward", handle);
	if (!status)
		cudnn_forget_tensor(y, y_data);
	return status;
}

int cudnnConvolutionBiasActivationForward(const void *handle, const void *alpha, X, const void *x_data, W,
					  const void *w_data, C, int algorithm, void *space, size_t space_bytes,
					  const void *alpha2, const struct cudnn_tensor *z, const void *z_data,
					  const struct cudnn_tensor *bias, const void *bias_data,
					  const void *activation, Y, void *y_data)
{
	int status = check(x, filter, convolution, y);

	(void)alpha, (void)x_data, (void)w_data, (void)algorithm, (void)space, (void)space_bytes, (void)alpha2;
	(void)z, (void)z_data, (void)bias, (void)bias_data, (void)activation;
	if (!status)
		status = cudnn_compute("cudnnConvolutionBiasActivationForward", handle);
	if (!status)
		cudnn_forget_tensor(y, y_data);
	return status;
}

/* Backward, to the input */

int cudnnGetConvolutionBackwardDataAlgorithm_v7(const void *handle, W, Y, C, X, ANSWER)
{
	return algorithms(handle, SHAPES, CUDNN_CONVOLUTION_BWD_DATA_ALGO_1, requested, ret_count, ret_performance);
}

int cudnnFindConvolutionBackwardDataAlgorithm(const void *handle, W, Y, C, X, ANSWER)
{
	return algorithms(handle, SHAPES, CUDNN_CONVOLUTION_BWD_DATA_ALGO_1, requested, ret_count, ret_performance);
}

int cudnnFindConvolutionBackwardDataAlgorithmEx(const void *handle, W, const void *w_data, Y, const void *dy_data, C,
						X, void *dx_data, ANSWER, void *space, size_t space_bytes)
{
	(void)w_data, (void)dy_data, (void)dx_data, (void)space, (void)space_bytes;
	return algorithms(handle, SHAPES, CUDNN_CONVOLUTION_BWD_DATA_ALGO_1, requested, ret_count, ret_performance);
}

int cudnnGetConvolutionBackwardDataWorkspaceSize(const void *handle, W, Y, C, X, int algorithm, size_t *ret_bytes)
{
	(void)algorithm;
	return workspace("cudnnGetConvolutionBackwardDataWorkspaceSize", handle, SHAPES, ret_bytes);
}

int cudnnConvolutionBackwardData(const void *handle, const void *alpha, W, const void *w_data, Y, const void *dy_data,
				 C, int algorithm, void *space, size_t space_bytes, const void *beta, X,
				 void *dx_data)
{
	int status = check(x, filter, convolution, y);

	(void)alpha, (void)w_data, (void)dy_data, (void)algorithm, (void)space, (void)space_bytes, (void)beta;
	if (!status)
		status = cudnn_compute("cudnnConvolutionBackwardData", handle);
	if (!status)
		cudnn_forget_tensor(x, dx_data);
	return status;
}

/* Backward, to the filter */

int cudnnGetConvolutionBackwardFilterAlgorithm_v7(const void *handle, X, Y, C, W, ANSWER)
{
	return algorithms(handle, SHAPES, CUDNN_CONVOLUTION_BWD_FILTER_ALGO_1, requested, ret_count, ret_performance);
}

int cudnnFindConvolutionBackwardFilterAlgorithm(const void *handle, X, Y, C, W, ANSWER)
{
	return algorithms(handle, SHAPES, CUDNN_CONVOLUTION_BWD_FILTER_ALGO_1, requested, ret_count, ret_performance);
}

int cudnnFindConvolutionBackwardFilterAlgorithmEx(const void *handle, X, const void *x_data, Y, const void *dy_data,
						  C, W, void *dw_data, ANSWER, void *space, size_t space_bytes)
{
	(void)x_data, (void)dy_data, (void)dw_data, (void)space, (void)space_bytes;
	return algorithms(handle, SHAPES, CUDNN_CONVOLUTION_BWD_FILTER_ALGO_1, requested, ret_count, ret_performance);
}

int cudnnGetConvolutionBackwardFilterWorkspaceSize(const void *handle, X, Y, C, W, int algorithm, size_t *ret_bytes)
{
	(void)algorithm;
	return workspace("cudnnGetConvolutionBackwardFilterWorkspaceSize", handle, SHAPES, ret_bytes);
}

int cudnnConvolutionBackwardFilter(const void *handle, const void *alpha, X, const void *x_data, Y,
				   const void *dy_data, C, int algorithm, void *space, size_t space_bytes,
				   const void *beta, W, void *dw_data)
{
	int status = check(x, filter, convolution, y);

	(void)alpha, (void)x_data, (void)dy_data, (void)algorithm, (void)space, (void)space_bytes, (void)beta;
	if (!status)
		status = cudnn_compute("cudnnConvolutionBackwardFilter", handle);
	if (!status)
		cudnn_forget(dw_data, cudnn_filter_bytes(filter));
	return status;
}
