/* cuDNN: descriptors of tensors and layers. Get returns the values that were set. A descriptor that was never set has
 * zeros. */
#include "sim/libraries/cudnn_state.h"

#include <stdlib.h>

/* A descriptor's Create and Destroy. */
#define DESCRIPTOR(name, type)                                                                                       \
	int cudnnCreate##name##Descriptor(struct type **ret_descriptor)                                              \
	{                                                                                                            \
		if (!ret_descriptor)                                                                                 \
			return cudnn_fail(CUDNN_STATUS_BAD_PARAM_NULL_POINTER, "cudnnCreate" #name "Descriptor");    \
		*ret_descriptor = calloc(1, sizeof **ret_descriptor);                                                \
		return *ret_descriptor ? 0 : CUDNN_STATUS_INTERNAL_ERROR_HOST_ALLOCATION_FAILED;                     \
	}                                                                                                            \
	int cudnnDestroy##name##Descriptor(struct type *descriptor)                                                  \
	{                                                                                                            \
		free(descriptor);                                                                                    \
		return 0;                                                                                            \
	}

static int null_pointer(void) { return cudnn_fail(CUDNN_STATUS_BAD_PARAM_NULL_POINTER, "a pointer is NULL"); }

static int bad_shape(void)
{
	return cudnn_fail(CUDNN_STATUS_BAD_PARAM, "dimensions are 1 to 8, each at least 1, of a known data type");
}

static bool shape_valid(int type, int count, const int *dimension)
{
	if (cudnn_type_bits(type) == 0 || count < 1 || count > CUDNN_DIM_MAX)
		return false;
	for (int i = 0; i < count; i++)
		if (dimension[i] < 1)
			return false;
	return true;
}

/* Writes nothing to NULL. */
static void give(int *ret_value, int value)
{
	if (ret_value)
		*ret_value = value;
}

static void give_array(int *ret_values, const int *values, int requested, int count)
{
	for (int i = 0; ret_values && i < requested && i < count; i++)
		ret_values[i] = values[i];
}

/* Tensors */

int cudnn_type_bits(int type)
{
	static const uint16_t bits[] = {32, 64, 16, 8, 32, 32, 8, 32, 256, 16,  64, 1,
					8,  8,  32, 8, 4,  4,  4, 32, 64,  128, 8,  8};

	return type >= 0 && type < (int)(sizeof bits / sizeof *bits) ? bits[type] : 0;
}

uint64_t cudnn_tensor_bytes(const struct cudnn_tensor *tensor)
{
	uint64_t last = 0;

	if (tensor->count == 0)
		return 0;
	for (int i = 0; i < tensor->count; i++)
		last += (uint64_t)(tensor->dimension[i] - 1) * (uint64_t)tensor->stride[i];
	return ((last + 1) * (uint64_t)cudnn_type_bits(tensor->type) + 7) / 8;
}

uint64_t cudnn_tensor_elements(const struct cudnn_tensor *tensor)
{
	uint64_t elements = tensor->count > 0;

	for (int i = 0; i < tensor->count; i++)
		elements *= (uint64_t)tensor->dimension[i];
	return elements;
}

void cudnn_forget_tensor(const struct cudnn_tensor *tensor, const void *address)
{
	if (tensor)
		cudnn_forget(address, cudnn_tensor_bytes(tensor));
}

void cudnn_tensor_pack(struct cudnn_tensor *ret_tensor, int type, int count, const int *dimension)
{
	int stride = 1;

	ret_tensor->type = type;
	ret_tensor->count = count;
	for (int i = count - 1; i >= 0; i--) {
		ret_tensor->dimension[i] = dimension[i];
		ret_tensor->stride[i] = stride;
		stride *= dimension[i];
	}
}

DESCRIPTOR(Tensor, cudnn_tensor)

int cudnnSetTensorNdDescriptor(struct cudnn_tensor *tensor, int type, int count, const int *dimension,
			       const int *stride)
{
	if (!tensor || !dimension || !stride)
		return null_pointer();
	if (!shape_valid(type, count, dimension))
		return bad_shape();
	for (int i = 0; i < count; i++)
		if (stride[i] < 0)
			return cudnn_fail(CUDNN_STATUS_BAD_PARAM, "a stride is negative");
	tensor->type = type;
	tensor->count = count;
	memcpy(tensor->dimension, dimension, (size_t)count * sizeof(int));
	memcpy(tensor->stride, stride, (size_t)count * sizeof(int));
	return 0;
}

/* The strides of a packed tensor whose second dimension lies innermost. */
static void pack_channels_last(struct cudnn_tensor *tensor)
{
	int stride = tensor->dimension[1];

	tensor->stride[1] = 1;
	for (int i = tensor->count - 1; i >= 2; i--) {
		tensor->stride[i] = stride;
		stride *= tensor->dimension[i];
	}
	tensor->stride[0] = stride;
}

int cudnnSetTensorNdDescriptorEx(struct cudnn_tensor *tensor, int format, int type, int count, const int *dimension)
{
	if (!tensor || !dimension)
		return null_pointer();
	if (!shape_valid(type, count, dimension))
		return bad_shape();
	if (format != CUDNN_TENSOR_NCHW && (format != CUDNN_TENSOR_NHWC || count < 2))
		return cudnn_refuse("cudnnSetTensorNdDescriptorEx", "tensors of vectors are not simulated");
	cudnn_tensor_pack(tensor, type, count, dimension);
	if (format == CUDNN_TENSOR_NHWC)
		pack_channels_last(tensor);
	return 0;
}

int cudnnSetTensor4dDescriptor(struct cudnn_tensor *tensor, int format, int type, int n, int c, int h, int w)
{
	return cudnnSetTensorNdDescriptorEx(tensor, format, type, 4, (int[]){n, c, h, w});
}

int cudnnSetTensor4dDescriptorEx(struct cudnn_tensor *tensor, int type, int n, int c, int h, int w, int n_stride,
				 int c_stride, int h_stride, int w_stride)
{
	return cudnnSetTensorNdDescriptor(tensor, type, 4, (int[]){n, c, h, w},
					  (int[]){n_stride, c_stride, h_stride, w_stride});
}

int cudnnGetTensorNdDescriptor(const struct cudnn_tensor *tensor, int requested, int *ret_type, int *ret_count,
			       int *ret_dimension, int *ret_stride)
{
	if (!tensor)
		return null_pointer();
	if (requested < 0 || requested > CUDNN_DIM_MAX)
		return cudnn_fail(CUDNN_STATUS_BAD_PARAM, "more than 8 dimensions are asked for");
	give(ret_type, tensor->type);
	give(ret_count, tensor->count);
	give_array(ret_dimension, tensor->dimension, requested, tensor->count);
	give_array(ret_stride, tensor->stride, requested, tensor->count);
	return 0;
}

int cudnnGetTensor4dDescriptor(const struct cudnn_tensor *tensor, int *ret_type, int *ret_n, int *ret_c, int *ret_h,
			       int *ret_w, int *ret_n_stride, int *ret_c_stride, int *ret_h_stride, int *ret_w_stride)
{
	int *ret_dimension[] = {ret_n, ret_c, ret_h, ret_w};
	int *ret_stride[] = {ret_n_stride, ret_c_stride, ret_h_stride, ret_w_stride};

	if (!tensor)
		return null_pointer();
	if (tensor->count != 4)
		return cudnn_fail(CUDNN_STATUS_BAD_PARAM, "the tensor does not have 4 dimensions");
	give(ret_type, tensor->type);
	for (int i = 0; i < 4; i++) {
		give(ret_dimension[i], tensor->dimension[i]);
		give(ret_stride[i], tensor->stride[i]);
	}
	return 0;
}

int cudnnGetTensorSizeInBytes(const struct cudnn_tensor *tensor, size_t *ret_bytes)
{
	if (!tensor || !ret_bytes)
		return null_pointer();
	*ret_bytes = (size_t)cudnn_tensor_bytes(tensor);
	return 0;
}

/* Filters */

DESCRIPTOR(Filter, cudnn_filter)

uint64_t cudnn_filter_bytes(const struct cudnn_filter *filter)
{
	uint64_t elements = filter->count > 0;

	for (int i = 0; i < filter->count; i++)
		elements *= (uint64_t)filter->dimension[i];
	return (elements * (uint64_t)cudnn_type_bits(filter->type) + 7) / 8;
}

int cudnnSetFilterNdDescriptor(struct cudnn_filter *filter, int type, int format, int count, const int *dimension)
{
	if (!filter || !dimension)
		return null_pointer();
	if (!shape_valid(type, count, dimension))
		return bad_shape();
	*filter = (struct cudnn_filter){.type = type, .format = format, .count = count};
	memcpy(filter->dimension, dimension, (size_t)count * sizeof(int));
	return 0;
}

int cudnnSetFilter4dDescriptor(struct cudnn_filter *filter, int type, int format, int k, int c, int h, int w)
{
	return cudnnSetFilterNdDescriptor(filter, type, format, 4, (int[]){k, c, h, w});
}

int cudnnGetFilterNdDescriptor(const struct cudnn_filter *filter, int requested, int *ret_type, int *ret_format,
			       int *ret_count, int *ret_dimension)
{
	if (!filter)
		return null_pointer();
	give(ret_type, filter->type);
	give(ret_format, filter->format);
	give(ret_count, filter->count);
	give_array(ret_dimension, filter->dimension, requested, filter->count);
	return 0;
}

int cudnnGetFilter4dDescriptor(const struct cudnn_filter *filter, int *ret_type, int *ret_format, int *ret_k,
			       int *ret_c, int *ret_h, int *ret_w)
{
	if (!filter)
		return null_pointer();
	if (filter->count != 4)
		return cudnn_fail(CUDNN_STATUS_BAD_PARAM, "the filter does not have 4 dimensions");
	give(ret_type, filter->type);
	give(ret_format, filter->format);
	give(ret_k, filter->dimension[0]);
	give(ret_c, filter->dimension[1]);
	give(ret_h, filter->dimension[2]);
	give(ret_w, filter->dimension[3]);
	return 0;
}

int cudnnGetFilterSizeInBytes(const struct cudnn_filter *filter, size_t *ret_bytes)
{
	if (!filter || !ret_bytes)
		return null_pointer();
	*ret_bytes = (size_t)cudnn_filter_bytes(filter);
	return 0;
}

/* Pooling */

struct cudnn_pooling {
	int mode;
	int nan;
	int count;
	int window[CUDNN_DIM_MAX];
	int padding[CUDNN_DIM_MAX];
	int stride[CUDNN_DIM_MAX];
};

DESCRIPTOR(Pooling, cudnn_pooling)

int cudnnSetPoolingNdDescriptor(struct cudnn_pooling *pooling, int mode, int nan, int count, const int *window,
				const int *padding, const int *stride)
{
	if (!pooling || !window || !padding || !stride)
		return null_pointer();
	if (count < 1 || count > CUDNN_DIM_MAX - 2)
		return bad_shape();
	for (int i = 0; i < count; i++)
		if (window[i] < 1 || padding[i] < 0 || stride[i] < 1)
			return bad_shape();
	*pooling = (struct cudnn_pooling){.mode = mode, .nan = nan, .count = count};
	memcpy(pooling->window, window, (size_t)count * sizeof(int));
	memcpy(pooling->padding, padding, (size_t)count * sizeof(int));
	memcpy(pooling->stride, stride, (size_t)count * sizeof(int));
	return 0;
}

int cudnnSetPooling2dDescriptor(struct cudnn_pooling *pooling, int mode, int nan, int window_h, int window_w,
				int padding_h, int padding_w, int stride_h, int stride_w)
{
	return cudnnSetPoolingNdDescriptor(pooling, mode, nan, 2, (int[]){window_h, window_w},
					   (int[]){padding_h, padding_w}, (int[]){stride_h, stride_w});
}

int cudnnGetPoolingNdDescriptor(const struct cudnn_pooling *pooling, int requested, int *ret_mode, int *ret_nan,
				int *ret_count, int *ret_window, int *ret_padding, int *ret_stride)
{
	if (!pooling)
		return null_pointer();
	give(ret_mode, pooling->mode);
	give(ret_nan, pooling->nan);
	give(ret_count, pooling->count);
	give_array(ret_window, pooling->window, requested, pooling->count);
	give_array(ret_padding, pooling->padding, requested, pooling->count);
	give_array(ret_stride, pooling->stride, requested, pooling->count);
	return 0;
}

int cudnnGetPooling2dDescriptor(const struct cudnn_pooling *pooling, int *ret_mode, int *ret_nan, int *ret_window_h,
				int *ret_window_w, int *ret_padding_h, int *ret_padding_w, int *ret_stride_h,
				int *ret_stride_w)
{
	if (!pooling)
		return null_pointer();
	give(ret_mode, pooling->mode);
	give(ret_nan, pooling->nan);
	give(ret_window_h, pooling->window[0]);
	give(ret_window_w, pooling->window[1]);
	give(ret_padding_h, pooling->padding[0]);
	give(ret_padding_w, pooling->padding[1]);
	give(ret_stride_h, pooling->stride[0]);
	give(ret_stride_w, pooling->stride[1]);
	return 0;
}

int cudnnGetPoolingNdForwardOutputDim(const struct cudnn_pooling *pooling, const struct cudnn_tensor *input,
				      int count, int *ret_dimension)
{
	if (!pooling || !input || !ret_dimension)
		return null_pointer();
	if (count != input->count || count != pooling->count + 2)
		return bad_shape();
	ret_dimension[0] = input->dimension[0];
	ret_dimension[1] = input->dimension[1];
	for (int i = 0; i < pooling->count; i++)
		ret_dimension[i + 2] = 1 + (input->dimension[i + 2] + 2 * pooling->padding[i] - pooling->window[i]) /
						   pooling->stride[i];
	return 0;
}

int cudnnGetPooling2dForwardOutputDim(const struct cudnn_pooling *pooling, const struct cudnn_tensor *input,
				      int *ret_n, int *ret_c, int *ret_h, int *ret_w)
{
	int dimension[4] = {0};
	int status = cudnnGetPoolingNdForwardOutputDim(pooling, input, 4, dimension);

	if (status)
		return status;
	give(ret_n, dimension[0]);
	give(ret_c, dimension[1]);
	give(ret_h, dimension[2]);
	give(ret_w, dimension[3]);
	return 0;
}

/* Activations */

struct cudnn_activation {
	int mode;
	int nan;
	double coefficient;
	double swish_beta;
};

DESCRIPTOR(Activation, cudnn_activation)

int cudnnSetActivationDescriptor(struct cudnn_activation *activation, int mode, int nan, double coefficient)
{
	if (!activation)
		return null_pointer();
	activation->mode = mode;
	activation->nan = nan;
	activation->coefficient = coefficient;
	return 0;
}

int cudnnGetActivationDescriptor(const struct cudnn_activation *activation, int *ret_mode, int *ret_nan,
				 double *ret_coefficient)
{
	if (!activation)
		return null_pointer();
	give(ret_mode, activation->mode);
	give(ret_nan, activation->nan);
	if (ret_coefficient)
		*ret_coefficient = activation->coefficient;
	return 0;
}

int cudnnSetActivationDescriptorSwishBeta(struct cudnn_activation *activation, double beta)
{
	if (!activation)
		return null_pointer();
	activation->swish_beta = beta;
	return 0;
}

int cudnnGetActivationDescriptorSwishBeta(const struct cudnn_activation *activation, double *ret_beta)
{
	if (!activation || !ret_beta)
		return null_pointer();
	*ret_beta = activation->swish_beta;
	return 0;
}

/* Local response normalization */

struct cudnn_lrn {
	unsigned n;
	double alpha;
	double beta;
	double k;
};

DESCRIPTOR(LRN, cudnn_lrn)

int cudnnSetLRNDescriptor(struct cudnn_lrn *lrn, unsigned n, double alpha, double beta, double k)
{
	if (!lrn)
		return null_pointer();
	if (n < 1 || n > 16 || beta < 0.01 || k < 1e-5)
		return cudnn_fail(CUDNN_STATUS_BAD_PARAM, "n is 1 to 16, beta at least 0.01, k at least 1e-5");
	*lrn = (struct cudnn_lrn){n, alpha, beta, k};
	return 0;
}

int cudnnGetLRNDescriptor(const struct cudnn_lrn *lrn, unsigned *ret_n, double *ret_alpha, double *ret_beta,
			  double *ret_k)
{
	double *ret_number[] = {ret_alpha, ret_beta, ret_k};

	if (!lrn)
		return null_pointer();
	if (ret_n)
		*ret_n = lrn->n;
	for (int i = 0; i < 3; i++)
		if (ret_number[i])
			*ret_number[i] = (double[]){lrn->alpha, lrn->beta, lrn->k}[i];
	return 0;
}

/* Spatial transformers. The API has no Get function for them. */

struct cudnn_spatial {
	struct cudnn_tensor output;
	int sampler;
};

DESCRIPTOR(SpatialTransformer, cudnn_spatial)

int cudnnSetSpatialTransformerNdDescriptor(struct cudnn_spatial *spatial, int sampler, int type, int count,
					   const int *dimension)
{
	if (!spatial || !dimension)
		return null_pointer();
	if (!shape_valid(type, count, dimension))
		return bad_shape();
	spatial->sampler = sampler;
	cudnn_tensor_pack(&spatial->output, type, count, dimension);
	return 0;
}

/* Elementwise operations */

struct cudnn_operation {
	int operation;
	int type;
	int nan;
};

DESCRIPTOR(OpTensor, cudnn_operation)

int cudnnSetOpTensorDescriptor(struct cudnn_operation *operation, int op, int type, int nan)
{
	if (!operation)
		return null_pointer();
	*operation = (struct cudnn_operation){op, type, nan};
	return 0;
}

int cudnnGetOpTensorDescriptor(const struct cudnn_operation *operation, int *ret_op, int *ret_type, int *ret_nan)
{
	if (!operation)
		return null_pointer();
	give(ret_op, operation->operation);
	give(ret_type, operation->type);
	give(ret_nan, operation->nan);
	return 0;
}
