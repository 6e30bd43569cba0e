/* charlm/model_parts.h: what model.c (parameters) and pass.c (forward, backward) share. */
#ifndef CHARLM_MODEL_PARTS_H
#define CHARLM_MODEL_PARTS_H

#include "model.h"

enum { TOKEN, POSITION, LAYERS };

enum {
	NORM1_GAIN,
	NORM1_BIAS,
	QKV,
	QKV_BIAS,
	PROJECT,
	PROJECT_BIAS,
	NORM2_GAIN,
	NORM2_BIAS,
	EXPAND,
	EXPAND_BIAS,
	CONTRACT,
	CONTRACT_BIAS,
	LAYER_PARAMETERS
};

enum { FINAL_GAIN, FINAL_BIAS, HEAD, HEAD_BIAS, LAST_PARAMETERS };

static inline struct parameter *of_layer(const struct model *model, size_t layer, size_t which)
{
	return &model->parameters[LAYERS + layer * LAYER_PARAMETERS + which];
}

static inline struct parameter *of_end(const struct model *model, size_t which)
{
	return of_layer(model, model->shape.layers, which);
}

/* What forward keeps of one layer for backward. Statistics and logs are always whole. */
struct layer {
	struct numbers norm1, statistics1, qkv, weights, logs, attended, middle, norm2, statistics2, expanded, active,
		out;
};

struct activations {
	int32_t *ids, *targets;
	struct numbers embedded, final, final_statistics, logits;
	struct layer layers[];
};

#endif
