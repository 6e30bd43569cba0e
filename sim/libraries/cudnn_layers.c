/* cuDNN: normalization, dropout, connectionist temporal classification (CTC) and reductions: their descriptors and
 * sizes. */
#include "sim/libraries/cudnn_state.h"

#include <stdlib.h>

static int null_pointer(const char *function) { return cudnn_fail(CUDNN_STATUS_BAD_PARAM_NULL_POINTER, function); }

/* A size that NVIDIA's library chooses: returns `low` and counts the interval. */
static int size_between(const char *function, uint64_t low, uint64_t high, size_t *ret_bytes)
{
	if (!ret_bytes)
		return null_pointer(function);
	*ret_bytes = (size_t)low;
	stand_in_workspace(function, low, high);
	return 0;
}

/* Normalization.
 *
 * Only the variant that NVIDIA calls persistent (channels last, 16-bit, spatial) has a workspace and a reserve; the
 * documentation says that the others need neither. The reserve holds what backward needs from forward: with a fused
 * activation, a bit for each element; without one, it is not known. PyTorch keeps the reserve with the graph.
 */

static bool persistent(int mode, const struct cudnn_tensor *x)
{
	return mode == CUDNN_BATCHNORM_SPATIAL_PERSISTENT && x && x->count >= 4 && x->stride[1] == 1 &&
	       cudnn_type_bits(x->type) == 16;
}

static int batch_size(const char *function, const void *handle, bool known, uint64_t high, size_t *ret_bytes)
{
	if (!cudnn_handle_valid(handle))
		return CUDNN_STATUS_BAD_PARAM;
	if (!ret_bytes)
		return null_pointer(function);
	if (!known)
		return size_between(function, 0, high, ret_bytes);
	*ret_bytes = 0;
	return 0;
}

int cudnnGetBatchNormalizationForwardTrainingExWorkspaceSize(const void *handle, int mode, int operations,
							     const struct cudnn_tensor *x, const void *z,
							     const void *y, const void *scale, const void *activation,
							     size_t *ret_bytes)
{
	(void)operations, (void)z, (void)y, (void)scale, (void)activation;
	return batch_size("cudnnGetBatchNormalizationForwardTrainingExWorkspaceSize", handle, !persistent(mode, x),
			  x ? cudnn_tensor_bytes(x) : 0, ret_bytes);
}

int cudnnGetBatchNormalizationBackwardExWorkspaceSize(const void *handle, int mode, int operations,
						      const struct cudnn_tensor *x, const void *y, const void *dy,
						      const void *dz, const void *dx, const void *scale,
						      const void *activation, size_t *ret_bytes)
{
	(void)operations, (void)y, (void)dy, (void)dz, (void)dx, (void)scale, (void)activation;
	return batch_size("cudnnGetBatchNormalizationBackwardExWorkspaceSize", handle, !persistent(mode, x),
			  x ? cudnn_tensor_bytes(x) : 0, ret_bytes);
}

int cudnnGetBatchNormalizationTrainingExReserveSpaceSize(const void *handle, int mode, int operations,
							 const void *activation, const struct cudnn_tensor *x,
							 size_t *ret_bytes)
{
	(void)operations, (void)activation;
	return batch_size("cudnnGetBatchNormalizationTrainingExReserveSpaceSize", handle, !persistent(mode, x),
			  x ? (cudnn_tensor_elements(x) + 7) / 8 : 0, ret_bytes);
}

/* One value for each channel, or for each activation. */
int cudnnDeriveBNTensorDescriptor(struct cudnn_tensor *ret_derived, const struct cudnn_tensor *x, int mode)
{
	int dimension[CUDNN_DIM_MAX];

	if (!ret_derived || !x)
		return null_pointer("cudnnDeriveBNTensorDescriptor");
	if (x->count < 4 || x->count > 5)
		return cudnn_fail(CUDNN_STATUS_BAD_PARAM, "batch normalization takes tensors of 4 or 5 dimensions");
	for (int i = 0; i < x->count; i++)
		dimension[i] = i == 1 || (i > 1 && mode == CUDNN_BATCHNORM_PER_ACTIVATION) ? x->dimension[i] : 1;
	cudnn_tensor_pack(ret_derived, x->type == CUDNN_DATA_DOUBLE ? CUDNN_DATA_DOUBLE : CUDNN_DATA_FLOAT, x->count,
			  dimension);
	return 0;
}

int cudnnDeriveNormTensorDescriptor(struct cudnn_tensor *ret_scale, struct cudnn_tensor *ret_mean,
				    const struct cudnn_tensor *x, int mode, int groups)
{
	int status = cudnnDeriveBNTensorDescriptor(ret_scale, x, mode);

	(void)groups;
	return status ? status : cudnnDeriveBNTensorDescriptor(ret_mean, x, mode);
}

/* Writes the output and the values saved for backward. Running statistics stay: they belong to the program. */
int cudnnBatchNormalizationForwardTrainingEx(const void *handle, int mode, int operations, const void *alpha,
					     const void *beta, const struct cudnn_tensor *x, const void *x_data,
					     const struct cudnn_tensor *z, const void *z_data,
					     const struct cudnn_tensor *y, void *y_data,
					     const struct cudnn_tensor *scale, const void *scale_data,
					     const void *bias_data, double factor, void *running_mean,
					     void *running_variance, double epsilon, void *saved_mean,
					     void *saved_variance, const void *activation, void *space,
					     size_t space_bytes, void *reserve, size_t reserve_bytes)
{
	int status = cudnn_compute("cudnnBatchNormalizationForwardTrainingEx", handle);

	(void)mode, (void)operations, (void)alpha, (void)beta, (void)x, (void)x_data, (void)z, (void)z_data;
	(void)scale_data, (void)bias_data, (void)factor, (void)running_mean, (void)running_variance, (void)epsilon;
	(void)activation, (void)space, (void)space_bytes, (void)reserve, (void)reserve_bytes;
	if (status)
		return status;
	cudnn_forget_tensor(y, y_data);
	cudnn_forget_tensor(scale, saved_mean);
	cudnn_forget_tensor(scale, saved_variance);
	return 0;
}

int cudnnBatchNormalizationForwardInference(const void *handle, int mode, const void *alpha, const void *beta,
					    const struct cudnn_tensor *x, const void *x_data,
					    const struct cudnn_tensor *y, void *y_data,
					    const struct cudnn_tensor *scale, const void *scale_data,
					    const void *bias_data, const void *mean, const void *variance,
					    double epsilon)
{
	int status = cudnn_compute("cudnnBatchNormalizationForwardInference", handle);

	(void)mode, (void)alpha, (void)beta, (void)x, (void)x_data, (void)scale, (void)scale_data, (void)bias_data;
	(void)mean, (void)variance, (void)epsilon;
	if (!status)
		cudnn_forget_tensor(y, y_data);
	return status;
}

int cudnnBatchNormalizationBackwardEx(const void *handle, int mode, int operations, const void *alpha_data,
				      const void *beta_data, const void *alpha_param, const void *beta_param,
				      const struct cudnn_tensor *x, const void *x_data, const struct cudnn_tensor *y,
				      const void *y_data, const struct cudnn_tensor *dy, const void *dy_data,
				      const struct cudnn_tensor *dz, void *dz_data, const struct cudnn_tensor *dx,
				      void *dx_data, const struct cudnn_tensor *scale, const void *scale_data,
				      const void *bias_data, void *dscale_data, void *dbias_data, double epsilon,
				      const void *saved_mean, const void *saved_variance, const void *activation,
				      void *space, size_t space_bytes, void *reserve, size_t reserve_bytes)
{
	int status = cudnn_compute("cudnnBatchNormalizationBackwardEx", handle);

	(void)epsilon, (void)saved_mean, (void)saved_variance, (void)activation;
	(void)space, (void)space_bytes, (void)reserve, (void)reserve_bytes;
	(void)mode, (void)operations, (void)alpha_data, (void)beta_data, (void)alpha_param, (void)beta_param;
	(void)x, (void)x_data, (void)y, (void)y_data, (void)dy, (void)dy_data, (void)scale_data, (void)bias_data;
	if (status)
		return status;
	cudnn_forget_tensor(dz, dz_data);
	cudnn_forget_tensor(dx, dx_data);
	cudnn_forget_tensor(scale, dscale_data);
	cudnn_forget_tensor(scale, dbias_data);
	return 0;
}

/* The newer names of the same. */
int cudnnGetNormalizationForwardTrainingWorkspaceSize(const void *handle, int mode, int operations, int algorithm,
						      const struct cudnn_tensor *x, const void *z, const void *y,
						      const void *scale, const void *activation, const void *mean,
						      size_t *ret_bytes)
{
	(void)mode, (void)operations, (void)z, (void)y, (void)scale, (void)activation, (void)mean;
	return batch_size("cudnnGetNormalizationForwardTrainingWorkspaceSize", handle, algorithm == 0,
			  x ? cudnn_tensor_bytes(x) : 0, ret_bytes);
}

int cudnnGetNormalizationBackwardWorkspaceSize(const void *handle, int mode, int operations, int algorithm,
					       const struct cudnn_tensor *x, const void *y, const void *dy,
					       const void *dz, const void *dx, const void *scale,
					       const void *activation, const void *mean, size_t *ret_bytes)
{
	(void)mode, (void)operations, (void)y, (void)dy, (void)dz, (void)dx, (void)scale, (void)activation,
		(void)mean;
	return batch_size("cudnnGetNormalizationBackwardWorkspaceSize", handle, algorithm == 0,
			  x ? cudnn_tensor_bytes(x) : 0, ret_bytes);
}

int cudnnGetNormalizationTrainingReserveSpaceSize(const void *handle, int mode, int operations, int algorithm,
						  const void *activation, const struct cudnn_tensor *x,
						  size_t *ret_bytes)
{
	(void)mode, (void)operations, (void)activation;
	return batch_size("cudnnGetNormalizationTrainingReserveSpaceSize", handle, algorithm == 0,
			  x ? (cudnn_tensor_elements(x) + 7) / 8 : 0, ret_bytes);
}

/* Dropout.
 *
 * The states hold a random number generator for each thread that the device can run at once. cuRAND's default
 * generator (XORWOW) is six words, 24 bytes; its state in the documented API, with the second normal number kept,
 * is 48.
 */

int cudnnCreateDropoutDescriptor(struct cudnn_dropout **ret_dropout)
{
	if (!ret_dropout)
		return null_pointer("cudnnCreateDropoutDescriptor");
	*ret_dropout = calloc(1, sizeof **ret_dropout);
	return *ret_dropout ? 0 : CUDNN_STATUS_INTERNAL_ERROR_HOST_ALLOCATION_FAILED;
}

int cudnnDestroyDropoutDescriptor(struct cudnn_dropout *dropout)
{
	free(dropout);
	return 0;
}

/* Threads that a multiprocessor holds at once, by compute capability (CUDA's programming guide). */
static uint64_t threads_resident(int capability)
{
	switch (capability) {
	case 75:
		return 1024;
	case 86:
	case 87:
	case 88:
	case 89:
	case 110:
	case 120:
	case 121:
		return 1536;
	default:
		return 2048;
	}
}

static uint64_t states_bytes(void)
{
	const struct runtime_services *services = stand_in_services();
	int capability = 0;
	int multiprocessors = 0;

	if (!services || !services->architecture(services->device(), &capability, &multiprocessors))
		return 0;
	return (uint64_t)multiprocessors * threads_resident(capability) * 24;
}

int cudnnDropoutGetStatesSize(const void *handle, size_t *ret_bytes)
{
	uint64_t bytes = states_bytes();

	if (!cudnn_handle_valid(handle))
		return CUDNN_STATUS_BAD_PARAM;
	return size_between("cudnnDropoutGetStatesSize", bytes, 2 * bytes, ret_bytes);
}

/* The mask: a bit for each element, at most a byte. */
int cudnnDropoutGetReserveSpaceSize(const struct cudnn_tensor *x, size_t *ret_bytes)
{
	if (!x)
		return null_pointer("cudnnDropoutGetReserveSpaceSize");
	return size_between("cudnnDropoutGetReserveSpaceSize", (cudnn_tensor_elements(x) + 7) / 8,
			    cudnn_tensor_elements(x), ret_bytes);
}

/* Initializes the states, unless they are NULL. */
int cudnnSetDropoutDescriptor(struct cudnn_dropout *dropout, const void *handle, float probability, void *states,
			      size_t bytes, unsigned long long seed)
{
	int status = 0;

	if (!dropout)
		return null_pointer("cudnnSetDropoutDescriptor");
	if (!cudnn_handle_valid(handle) || !(probability >= 0 && probability <= 1))
		return cudnn_fail(CUDNN_STATUS_BAD_PARAM, "cudnnSetDropoutDescriptor: a probability is 0 to 1");
	if (states && bytes < states_bytes())
		return cudnn_fail(CUDNN_STATUS_BAD_PARAM_SIZE_INSUFFICIENT, "the states are too small");
	if (states)
		status = cudnn_compute("cudnnSetDropoutDescriptor", handle);
	if (status)
		return status;
	cudnn_forget(states, bytes);
	*dropout = (struct cudnn_dropout){probability, states, seed};
	return 0;
}

/* The states are those of an earlier descriptor: nothing is written. */
int cudnnRestoreDropoutDescriptor(struct cudnn_dropout *dropout, const void *handle, float probability, void *states,
				  size_t bytes, unsigned long long seed)
{
	if (!dropout)
		return null_pointer("cudnnRestoreDropoutDescriptor");
	if (!cudnn_handle_valid(handle) || !(probability >= 0 && probability <= 1))
		return cudnn_fail(CUDNN_STATUS_BAD_PARAM, "cudnnRestoreDropoutDescriptor: a probability is 0 to 1");
	if (states && bytes < states_bytes())
		return cudnn_fail(CUDNN_STATUS_BAD_PARAM_SIZE_INSUFFICIENT, "the states are too small");
	*dropout = (struct cudnn_dropout){probability, states, seed};
	return 0;
}

int cudnnGetDropoutDescriptor(const struct cudnn_dropout *dropout, const void *handle, float *ret_probability,
			      void **ret_states, unsigned long long *ret_seed)
{
	if (!dropout || !cudnn_handle_valid(handle))
		return cudnn_fail(CUDNN_STATUS_BAD_PARAM, "cudnnGetDropoutDescriptor");
	if (ret_probability)
		*ret_probability = dropout->probability;
	if (ret_states)
		*ret_states = dropout->states;
	if (ret_seed)
		*ret_seed = dropout->seed;
	return 0;
}

/* CTC.
 *
 * The loss runs forward and backward over a lattice of T steps by 2 L + 1 labels and blanks for each sequence, in the
 * loss's type. At least one direction is kept, at most both and the probabilities.
 */

struct cudnn_ctc {
	int type;
	int normalization;
	int gradient;
	int longest_label;
};

int cudnnCreateCTCLossDescriptor(struct cudnn_ctc **ret_ctc)
{
	if (!ret_ctc)
		return null_pointer("cudnnCreateCTCLossDescriptor");
	*ret_ctc = calloc(1, sizeof **ret_ctc);
	return *ret_ctc ? 0 : CUDNN_STATUS_INTERNAL_ERROR_HOST_ALLOCATION_FAILED;
}

int cudnnDestroyCTCLossDescriptor(struct cudnn_ctc *ctc)
{
	free(ctc);
	return 0;
}

int cudnnSetCTCLossDescriptor_v9(struct cudnn_ctc *ctc, int type, int normalization, int gradient, int longest_label)
{
	if (!ctc)
		return null_pointer("cudnnSetCTCLossDescriptor");
	if (type != CUDNN_DATA_FLOAT)
		return cudnn_fail(CUDNN_STATUS_BAD_PARAM, "CTC is computed in float");
	*ctc = (struct cudnn_ctc){type, normalization, gradient, longest_label};
	return 0;
}

int cudnnSetCTCLossDescriptor_v8(struct cudnn_ctc *ctc, int type, int normalization, int gradient, int longest_label)
{
	return cudnnSetCTCLossDescriptor_v9(ctc, type, normalization, gradient, longest_label);
}

int cudnnSetCTCLossDescriptorEx(struct cudnn_ctc *ctc, int type, int normalization, int gradient)
{
	return cudnnSetCTCLossDescriptor_v9(ctc, type, normalization, gradient, 0);
}

int cudnnSetCTCLossDescriptor(struct cudnn_ctc *ctc, int type)
{
	return cudnnSetCTCLossDescriptor_v9(ctc, type, 0, 0, 0);
}

int cudnnGetCTCLossDescriptor_v9(const struct cudnn_ctc *ctc, int *ret_type, int *ret_normalization,
				 int *ret_gradient, int *ret_longest_label)
{
	int *ret_number[] = {ret_type, ret_normalization, ret_gradient, ret_longest_label};

	if (!ctc)
		return null_pointer("cudnnGetCTCLossDescriptor");
	for (int i = 0; i < 4; i++)
		if (ret_number[i])
			*ret_number[i] = (int[]){ctc->type, ctc->normalization, ctc->gradient, ctc->longest_label}[i];
	return 0;
}

int cudnnGetCTCLossDescriptor_v8(const struct cudnn_ctc *ctc, int *ret_type, int *ret_normalization,
				 int *ret_gradient, int *ret_longest_label)
{
	return cudnnGetCTCLossDescriptor_v9(ctc, ret_type, ret_normalization, ret_gradient, ret_longest_label);
}

int cudnnGetCTCLossDescriptorEx(const struct cudnn_ctc *ctc, int *ret_type, int *ret_normalization, int *ret_gradient)
{
	return cudnnGetCTCLossDescriptor_v9(ctc, ret_type, ret_normalization, ret_gradient, NULL);
}

int cudnnGetCTCLossDescriptor(const struct cudnn_ctc *ctc, int *ret_type)
{
	return cudnnGetCTCLossDescriptor_v9(ctc, ret_type, NULL, NULL, NULL);
}

static int ctc_workspace(const char *function, const void *handle, const struct cudnn_tensor *probabilities,
			 int longest_label, size_t *ret_bytes)
{
	uint64_t lattice;

	if (!cudnn_handle_valid(handle))
		return CUDNN_STATUS_BAD_PARAM;
	if (!probabilities)
		return null_pointer(function);
	if (probabilities->count != 3)
		return cudnn_fail(CUDNN_STATUS_BAD_PARAM, "the probabilities are not time by batch by alphabet");
	lattice = (uint64_t)probabilities->dimension[0] * (uint64_t)probabilities->dimension[1] *
		  (2 * (uint64_t)longest_label + 1) * sizeof(float);
	return size_between(function, lattice, 2 * lattice + cudnn_tensor_elements(probabilities) * sizeof(float),
			    ret_bytes);
}

int cudnnGetCTCLossWorkspaceSize(const void *handle, const struct cudnn_tensor *probabilities, const void *gradients,
				 const int *labels, const int *label_lengths, const int *input_lengths, int algorithm,
				 const struct cudnn_ctc *ctc, size_t *ret_bytes)
{
	int longest = 0;

	(void)gradients, (void)labels, (void)input_lengths, (void)algorithm;
	if (!ctc || !label_lengths)
		return null_pointer("cudnnGetCTCLossWorkspaceSize");
	for (int i = 0; probabilities && probabilities->count == 3 && i < probabilities->dimension[1]; i++)
		longest = label_lengths[i] > longest ? label_lengths[i] : longest;
	return ctc_workspace("cudnnGetCTCLossWorkspaceSize", handle, probabilities, longest, ret_bytes);
}

int cudnnGetCTCLossWorkspaceSize_v8(const void *handle, int algorithm, const struct cudnn_ctc *ctc,
				    const struct cudnn_tensor *probabilities, const void *gradients,
				    size_t *ret_bytes)
{
	(void)algorithm, (void)gradients;
	if (!ctc)
		return null_pointer("cudnnGetCTCLossWorkspaceSize_v8");
	return ctc_workspace("cudnnGetCTCLossWorkspaceSize_v8", handle, probabilities,
			     ctc->longest_label > 0 ? ctc->longest_label : 0, ret_bytes);
}

/* Reductions */

struct cudnn_reduction {
	int operation;
	int type;
	int nan;
	int indices;
	int indices_type;
};

int cudnnCreateReduceTensorDescriptor(struct cudnn_reduction **ret_reduction)
{
	if (!ret_reduction)
		return null_pointer("cudnnCreateReduceTensorDescriptor");
	*ret_reduction = calloc(1, sizeof **ret_reduction);
	return *ret_reduction ? 0 : CUDNN_STATUS_INTERNAL_ERROR_HOST_ALLOCATION_FAILED;
}

int cudnnDestroyReduceTensorDescriptor(struct cudnn_reduction *reduction)
{
	free(reduction);
	return 0;
}

int cudnnSetReduceTensorDescriptor(struct cudnn_reduction *reduction, int operation, int type, int nan, int indices,
				   int indices_type)
{
	if (!reduction)
		return null_pointer("cudnnSetReduceTensorDescriptor");
	*reduction = (struct cudnn_reduction){operation, type, nan, indices, indices_type};
	return 0;
}

int cudnnGetReduceTensorDescriptor(const struct cudnn_reduction *reduction, int *ret_operation, int *ret_type,
				   int *ret_nan, int *ret_indices, int *ret_indices_type)
{
	int *ret_number[] = {ret_operation, ret_type, ret_nan, ret_indices, ret_indices_type};

	if (!reduction)
		return null_pointer("cudnnGetReduceTensorDescriptor");
	for (int i = 0; i < 5; i++)
		if (ret_number[i])
			*ret_number[i] = (int[]){reduction->operation, reduction->type, reduction->nan,
						 reduction->indices, reduction->indices_type}[i];
	return 0;
}

/* One 32-bit index for each output, if the place of a minimum or maximum is requested. */
int cudnnGetReductionIndicesSize(const void *handle, const struct cudnn_reduction *reduction, const void *a,
				 const struct cudnn_tensor *c, size_t *ret_bytes)
{
	bool place;

	(void)a;
	if (!cudnn_handle_valid(handle))
		return CUDNN_STATUS_BAD_PARAM;
	if (!reduction || !c || !ret_bytes)
		return null_pointer("cudnnGetReductionIndicesSize");
	place = reduction->operation >= CUDNN_REDUCE_TENSOR_MIN && reduction->operation <= CUDNN_REDUCE_TENSOR_AMAX &&
		reduction->indices == CUDNN_REDUCE_TENSOR_FLATTENED_INDICES;
	*ret_bytes = place ? (size_t)cudnn_tensor_elements(c) * 4 : 0;
	return 0;
}

int cudnnGetReductionWorkspaceSize(const void *handle, const struct cudnn_reduction *reduction,
				   const struct cudnn_tensor *a, const struct cudnn_tensor *c, size_t *ret_bytes)
{
	if (!cudnn_handle_valid(handle))
		return CUDNN_STATUS_BAD_PARAM;
	if (!reduction || !a || !c)
		return null_pointer("cudnnGetReductionWorkspaceSize");
	return size_between("cudnnGetReductionWorkspaceSize", 0, cudnn_tensor_bytes(a), ret_bytes);
}
