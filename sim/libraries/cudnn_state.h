/* sim/libraries/cudnn_state.h: shared by the files of cuDNN's stand-in.
 *
 *   cudnn.c              handles, versions, errors
 *   cudnn_descriptors.c  descriptors of tensors and layers: stored, and returned by the Get functions
 *   cudnn_convolution.c  the older API of convolutions: one algorithm, without workspace
 *   cudnn_layers.c       normalization, dropout, CTC, reductions: their sizes
 *   cudnn_rnn.c          recurrent networks: places of the weights, temporary space
 *   cudnn_backend.c      descriptors of the graph API: attributes, finalized or not
 *   cudnn_operations.c   tensors and operations of a graph: checks them
 *   cudnn_graph.c        graphs, engines, configurations and plans
 *   cudnn_execute.c      workspace and execution of a plan
 *
 * Threads: as documented. A handle or descriptor belongs to one thread at a time; any number of threads may read a
 * finalized descriptor of the graph API.
 */
#ifndef NEAP_RUNTIME_LIBRARIES_CUDNN_STATE_H
#define NEAP_RUNTIME_LIBRARIES_CUDNN_STATE_H

#include "sim/libraries/cudnn_api.h"
#include "sim/libraries/stand_in.h"

struct cudnn_tensor {
	int type;
	int count; /* dimensions; 0: not set */
	int dimension[CUDNN_DIM_MAX];
	int stride[CUDNN_DIM_MAX];
};

struct cudnn_filter {
	int type;
	int format;
	int count;
	int dimension[CUDNN_DIM_MAX];
};

struct cudnn_convolution {
	int count; /* spatial dimensions */
	int padding[CUDNN_DIM_MAX];
	int stride[CUDNN_DIM_MAX];
	int dilation[CUDNN_DIM_MAX];
	int mode;
	int type;
	int math_type;
	int groups;
	int reorder;
};

struct cudnn_dropout {
	float probability;
	void *states;
	unsigned long long seed;
};

/* Stores `text` (static) for cudnnGetLastErrorString and returns `status`. */
int cudnn_fail(int status, const char *text);
/* Counts a refused call, and returns "not supported". `function` and `text` are static. */
int cudnn_refuse(const char *function, const char *text);

/* Whether cudnnCreate made `handle`; if not, sets the last error. */
bool cudnn_handle_valid(const void *handle);

/* Queues and counts a computation on the handle's stream, without its values. Returns a status. */
int cudnn_compute(const char *function, const void *handle);
/* Makes the results at `address` read as zeros. NULL or 0 bytes: does nothing. */
void cudnn_forget(const void *address, uint64_t bytes);
/* The same for the span of a tensor's descriptor. */
void cudnn_forget_tensor(const struct cudnn_tensor *tensor, const void *address);

/* Bits of one element of a cudnnDataType_t, 0: no such type. */
int cudnn_type_bits(int type);
/* Bytes from a tensor's first element to its last. */
uint64_t cudnn_tensor_bytes(const struct cudnn_tensor *tensor);
uint64_t cudnn_tensor_elements(const struct cudnn_tensor *tensor);
/* Sets packed strides. Dimensions are positive, count is 1 to CUDNN_DIM_MAX. */
void cudnn_tensor_pack(struct cudnn_tensor *ret_tensor, int type, int count, const int *dimension);
uint64_t cudnn_filter_bytes(const struct cudnn_filter *filter);

#endif
