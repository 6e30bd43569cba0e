/* charlm/model.h: a character-level transformer.
 *
 *   ids -> embed -> [ x += project(attention(norm(x)));  x += contract(gelu(expand(norm(x)))) ] x layers
 *       -> norm -> head -> cross-entropy against the next character
 *
 * Parameters and their gradients live as long as the model. Activations live within one micro-batch: forward
 * allocates them as it goes, backward frees them as it comes back. That is where the memory goes, and why a smaller
 * micro-batch needs less. Three modes, alone or together, need less of the same micro-batch:
 *
 *   efficient_attention  attention's weights are not kept: attention_efficient.c. The same result but for rounding
 *   half                 mixed precision: activations, and a copy of the matrices, in half (numbers.h). Values,
 * gradients of parameters, the residual stream's gradient, statistics, logits and all sums stay whole checkpointing
 * of all layers but the last, forward keeps only the output; backward computes the rest again. Exactly the same
 * result
 */
#ifndef CHARLM_MODEL_H
#define CHARLM_MODEL_H

#include "device.h"
#include "kernels.h"

struct model_shape {
	uint32_t layers, width, heads, context, vocabulary;
};

struct parameter {
	char name[32];
	size_t count;
	bool decays; /* matrices do; gains, biases and positions do not */
	real *value, *gradient;
	void *half; /* a copy in half, where the mode wants one */
};

struct model_modes {
	bool efficient_attention, half, checkpointing;
};

struct model {
	struct gpu *gpu;
	struct model_shape shape;
	struct model_modes modes;     /* of the step under way */
	struct parameter *parameters; /* the order is model.c's */
	size_t parameter_count;
	double *loss;              /* on the device, of the step so far */
	struct activations *saved; /* of the micro-batch under way */
};

/* `width` is a multiple of `heads`, at most ROW_MAX; no number of the shape is 0. The same seed gives the same model.
 */
enum neap_status model_create(struct gpu *gpu, const struct model_shape *shape, uint64_t seed,
			      struct model **ret_model, struct neap_error *err);
void model_destroy(struct model *model); /* NULL is fine */

/* A step begins, or begins again, in these modes: gradients and loss to zero. */
void model_begin(struct model *model, struct model_modes modes);

/* Forward and backward of `samples` rows of `context` ids each; adds `scale` times the sum of all positions' losses
 * to the step's loss, and its gradients to the parameters'. Whatever happens, nothing but that is left behind: see
 * gpu_take_error for whether it went well. */
void model_micro_batch(struct model *model, const int32_t *ids, const int32_t *targets, size_t samples, double scale);

/* Waits for the step's work. */
double model_loss(struct model *model);

#endif
