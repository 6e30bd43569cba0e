/* charlm/model.h: a character-level transformer, and its updates by AdamW.
 *
 *   ids -> embed -> [ x += project(attention(norm(x)));  x += contract(gelu(expand(norm(x)))) ] x layers
 *       -> norm -> head -> cross-entropy against the next character
 *
 * Parameters, their gradients and moments live as long as the model. Activations live within one micro-batch: forward
 * allocates them as it proceeds, backward frees them on its way back. They take most of the memory, so a smaller
 * micro-batch needs less. Three modes, alone or together, need less for the same micro-batch:
 *
 *   efficient_attention  attention's weights are not kept (attention.c). The same result but for rounding
 *   half                 mixed precision: activations, and a copy of the matrices, in half (tensor.h). Values,
 *                        gradients of parameters, the residual stream's gradient, statistics, logits and all sums
 *                        stay whole
 *   checkpointing        forward keeps only the output of all layers but the last; backward computes the rest again.
 *                        Exactly the same result
 */
#ifndef CHARLM_MODEL_H
#define CHARLM_MODEL_H

#include "device.h"
#include "tensor.h"

struct model_shape {
	uint64_t layers, width, heads, context, vocabulary;
};

struct model_modes {
	bool efficient_attention, half, checkpointing;
};

struct parameter {
	const char *name; /* the same in all layers */
	size_t count;
	bool decays; /* matrices do; gains and biases do not */
	struct tensor value, gradient;
	struct tensor moments[2]; /* of AdamW; none before model_prepare_updates */
	struct tensor half;       /* a copy of the value, where the mode wants one */
};

struct model {
	struct gpu *gpu;
	struct model_shape shape;
	struct model_modes modes;     /* of the step under way */
	struct parameter *parameters; /* model.c gives their order */
	size_t parameter_count;
	struct tensor loss;    /* a double on the device, of the step so far */
	struct activations *a; /* of the micro-batch under way */
};

/* `width` is a multiple of `heads`, at most ROW_MAX; no number of the shape is 0. The same seed gives the same model.
 */
enum neap_status model_create(struct gpu *gpu, const struct model_shape *shape, uint64_t seed,
			      struct model **ret_model, struct neap_error *err);
void model_destroy(struct model *model); /* NULL is fine */

/* Begins a step, or begins it again, in these modes: sets gradients and loss to zero. */
void model_begin(struct model *model, struct model_modes modes);

/* Forward and backward of `samples` rows of `context` ids each. Adds `scale` times the sum of all positions' losses
 * to the step's loss, and its gradients to the parameters'. Leaves nothing else behind, whatever happens:
 * gpu_take_error tells whether it went well. */
void model_micro_batch(struct model *model, const int32_t *ids, const int32_t *targets, size_t samples, double scale);

/* Waits for the step's work. */
double model_loss(struct model *model);

/* Allocates the moments, tagged "optimizer". Once. */
enum neap_status model_prepare_updates(struct model *model, struct neap_error *err);
/* Queues the update number `step`, from 1, from the gradients as they are. */
void model_update(struct model *model, uint64_t step, double rate);

#endif
