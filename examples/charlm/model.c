/* charlm/model.c: see the header. The parameters come in this order, so that an index is a name:
 *
 *   TOKEN, POSITION, then for each layer LAYER_PARAMETERS of them, then FINAL_GAIN, FINAL_BIAS, HEAD, HEAD_BIAS
 */
#include "model.h"

#include "ops.h"
#include "random.h"

#include <math.h>
#include <stdio.h>
#include <stdlib.h>

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

/* What forward keeps of one layer for backward. */
struct layer {
	real *norm1, *statistics1, *qkv, *weights, *attended, *middle, *norm2, *statistics2, *expanded, *active, *out;
};

struct activations {
	int32_t *ids, *targets;
	real *embedded, *final, *final_statistics, *logits;
	struct layer layers[];
};

static struct parameter *of_layer(const struct model *model, size_t layer, size_t which)
{
	return &model->parameters[LAYERS + layer * LAYER_PARAMETERS + which];
}

static struct parameter *of_end(const struct model *model, size_t which)
{
	return of_layer(model, model->shape.layers, which);
}

/* How a parameter begins: all the same number, or Gaussian with this deviation. */
struct start {
	const char *name;
	size_t rows, columns; /* rows 0: a vector */
	double constant, deviation;
};

static void parameter_init(struct model *model, size_t index, const struct start *start, uint64_t seed)
{
	struct parameter *parameter = &model->parameters[index];

	parameter->count = (start->rows ? start->rows : 1) * start->columns;
	parameter->decays = start->rows > 0;
	parameter->value = op_new(model->gpu, "parameters", parameter->count);
	parameter->gradient = op_new(model->gpu, "gradients", parameter->count);
	op_fill(model->gpu, &(struct fill){parameter->value, parameter->count, start->constant, start->deviation,
					   random_from(seed, index, 0)});
}

static void layer_init(struct model *model, size_t layer, uint64_t seed)
{
	size_t width = model->shape.width;
	/* What is added to the residual stream starts smaller the more layers add to it. */
	double deviation = 0.4 / sqrt((double)width), added = deviation / sqrt(2.0 * model->shape.layers);
	const struct start starts[LAYER_PARAMETERS] = {
		[NORM1_GAIN] = {"norm1.gain", 0, width, 1, 0},
		[NORM1_BIAS] = {"norm1.bias", 0, width, 0, 0},
		[QKV] = {"qkv", width, 3 * width, 0, deviation},
		[QKV_BIAS] = {"qkv.bias", 0, 3 * width, 0, 0},
		[PROJECT] = {"project", width, width, 0, added},
		[PROJECT_BIAS] = {"project.bias", 0, width, 0, 0},
		[NORM2_GAIN] = {"norm2.gain", 0, width, 1, 0},
		[NORM2_BIAS] = {"norm2.bias", 0, width, 0, 0},
		[EXPAND] = {"expand", width, 4 * width, 0, deviation},
		[EXPAND_BIAS] = {"expand.bias", 0, 4 * width, 0, 0},
		[CONTRACT] = {"contract", 4 * width, width, 0, added / 2},
		[CONTRACT_BIAS] = {"contract.bias", 0, width, 0, 0},
	};

	for (size_t i = 0; i < LAYER_PARAMETERS; i++) {
		struct parameter *parameter = of_layer(model, layer, i);

		snprintf(parameter->name, sizeof(parameter->name), "layer%zu.%s", layer, starts[i].name);
		parameter_init(model, (size_t)(parameter - model->parameters), &starts[i], seed);
	}
}

static void parameters_init(struct model *model, uint64_t seed)
{
	const struct model_shape *shape = &model->shape;
	const struct start first[LAYERS] = {
		[TOKEN] = {"token", shape->vocabulary, shape->width, 0, 0.1},
		[POSITION] = {"position", shape->context, shape->width, 0, 0.1},
	};
	const struct start last[LAST_PARAMETERS] = {
		[FINAL_GAIN] = {"final.gain", 0, shape->width, 1, 0},
		[FINAL_BIAS] = {"final.bias", 0, shape->width, 0, 0},
		[HEAD] = {"head", shape->width, shape->vocabulary, 0, 0.4 / sqrt((double)shape->width)},
		[HEAD_BIAS] = {"head.bias", 0, shape->vocabulary, 0, 0},
	};

	for (size_t i = 0; i < LAYERS; i++) {
		snprintf(model->parameters[i].name, sizeof(model->parameters[i].name), "%s", first[i].name);
		parameter_init(model, i, &first[i], seed);
	}
	for (size_t i = 0; i < shape->layers; i++)
		layer_init(model, i, seed);
	for (size_t i = 0; i < LAST_PARAMETERS; i++) {
		struct parameter *parameter = of_end(model, i);

		snprintf(parameter->name, sizeof(parameter->name), "%s", last[i].name);
		parameter_init(model, (size_t)(parameter - model->parameters), &last[i], seed);
	}
}

enum neap_status model_create(struct gpu *gpu, const struct model_shape *shape, uint64_t seed,
			      struct model **ret_model, struct neap_error *err)
{
	enum neap_status status = NEAP_ENOMEM;
	struct model *model = calloc(1, sizeof(*model));

	if (!model)
		goto out;
	model->gpu = gpu;
	model->shape = *shape;
	model->parameter_count = LAYERS + (size_t)shape->layers * LAYER_PARAMETERS + LAST_PARAMETERS;
	model->parameters = calloc(model->parameter_count, sizeof(*model->parameters));
	model->saved = calloc(1, sizeof(*model->saved) + shape->layers * sizeof(struct layer));
	if (!model->parameters || !model->saved)
		goto out;
	parameters_init(model, seed);
	model->loss = gpu_new(gpu, "temporaries", sizeof(*model->loss));
	model_zero(model);
	status = gpu_take_error(gpu, err);
	if (status != NEAP_OK)
		goto fail;
	*ret_model = model;
	return NEAP_OK;
out:
	*err = (struct neap_error){.status = status, .message = "creating the model: the host is out of memory"};
fail:
	model_destroy(model);
	return status;
}

void model_destroy(struct model *model)
{
	if (!model)
		return;
	for (size_t i = 0; model->parameters && i < model->parameter_count; i++) {
		gpu_free(model->gpu, model->parameters[i].value);
		gpu_free(model->gpu, model->parameters[i].gradient);
	}
	gpu_free(model->gpu, model->loss);
	free(model->parameters);
	free(model->saved);
	free(model);
}

void model_zero(struct model *model)
{
	for (size_t i = 0; i < model->parameter_count; i++)
		op_zero(model->gpu, model->parameters[i].gradient, model->parameters[i].count * sizeof(real));
	op_zero(model->gpu, model->loss, sizeof(*model->loss));
}

double model_loss(struct model *model)
{
	double loss = NAN;

	gpu_read(model->gpu, &loss, model->loss, sizeof(loss));
	return loss;
}

/* Forward. */

static real *new_activation(const struct model *model, size_t count)
{
	return op_new(model->gpu, "activations", count);
}

static void normalize(const struct model *model, size_t tokens, const real *in, const struct parameter *gain,
		      real **ret_out, real **ret_statistics)
{
	size_t width = model->shape.width;

	*ret_out = new_activation(model, tokens * width);
	*ret_statistics = new_activation(model, 2 * tokens);
	op_norm(model->gpu, &(struct norm){*ret_out, *ret_statistics, in, gain->value, gain[1].value, tokens, width});
}

/* `weight` is followed by its bias. */
static real *linear(const struct model *model, size_t tokens, const real *in, const struct parameter *weight)
{
	size_t columns = weight[1].count, inner = weight->count / columns;
	real *out = new_activation(model, tokens * columns);

	op_linear(model->gpu, &(struct linear){out, in, weight->value, weight[1].value, tokens, inner, columns});
	return out;
}

static void layer_forward(const struct model *model, size_t index, size_t samples, const real *in)
{
	const struct model_shape *shape = &model->shape;
	struct layer *layer = &model->saved->layers[index];
	size_t tokens = samples * shape->context, stream = tokens * shape->width;

	normalize(model, tokens, in, of_layer(model, index, NORM1_GAIN), &layer->norm1, &layer->statistics1);
	layer->qkv = linear(model, tokens, layer->norm1, of_layer(model, index, QKV));
	layer->weights = new_activation(model, tokens * shape->heads * shape->context);
	layer->attended = new_activation(model, stream);
	op_attention(model->gpu, &(struct attention){layer->attended, layer->weights, NULL, layer->qkv, samples,
						     shape->heads, shape->context, shape->width});
	layer->middle = linear(model, tokens, layer->attended, of_layer(model, index, PROJECT));
	op_add(model->gpu, &(struct add){layer->middle, in, stream});

	normalize(model, tokens, layer->middle, of_layer(model, index, NORM2_GAIN), &layer->norm2,
		  &layer->statistics2);
	layer->expanded = linear(model, tokens, layer->norm2, of_layer(model, index, EXPAND));
	layer->active = new_activation(model, 4 * stream);
	op_gelu(model->gpu, &(struct gelu){layer->active, layer->expanded, 4 * stream});
	layer->out = linear(model, tokens, layer->active, of_layer(model, index, CONTRACT));
	op_add(model->gpu, &(struct add){layer->out, layer->middle, stream});
}

/* What the layer after this one reads, from the embedding (0) to the last layer's output. */
static real *stream_before(const struct model *model, size_t layer)
{
	return layer ? model->saved->layers[layer - 1].out : model->saved->embedded;
}

static struct embed embedding(const struct model *model, size_t samples)
{
	return (struct embed){model->saved->embedded,
			      model->parameters[TOKEN].value,
			      model->parameters[POSITION].value,
			      model->saved->ids,
			      samples,
			      model->shape.context,
			      model->shape.width};
}

static void forward(const struct model *model, const int32_t *ids, const int32_t *targets, size_t samples)
{
	const struct model_shape *shape = &model->shape;
	struct activations *saved = model->saved;
	size_t tokens = samples * shape->context;

	saved->ids = gpu_new(model->gpu, "batch", tokens * sizeof(*ids));
	saved->targets = gpu_new(model->gpu, "batch", tokens * sizeof(*targets));
	gpu_write(model->gpu, saved->ids, ids, tokens * sizeof(*ids));
	gpu_write(model->gpu, saved->targets, targets, tokens * sizeof(*targets));

	saved->embedded = new_activation(model, tokens * shape->width);
	struct embed embed = embedding(model, samples);
	op_embed(model->gpu, &embed, shape->vocabulary);
	for (size_t i = 0; i < shape->layers; i++)
		layer_forward(model, i, samples, stream_before(model, i));
	normalize(model, tokens, stream_before(model, shape->layers), of_end(model, FINAL_GAIN), &saved->final,
		  &saved->final_statistics);
	saved->logits = linear(model, tokens, saved->final, of_end(model, HEAD));
}

/* Backward. Everything is freed once its last reader is queued. */

static void drop(const struct model *model, real **memory)
{
	gpu_free(model->gpu, *memory);
	*memory = NULL;
}

/* Gives the gradient of the linear map's input, a temporary; frees its output's gradient unless that is kept. */
static real *linear_backward(const struct model *model, size_t tokens, const real *in, struct parameter *weight,
			     const real *out_gradient)
{
	size_t columns = weight[1].count, inner = weight->count / columns;
	real *in_gradient = op_new(model->gpu, "temporaries", tokens * inner);

	op_linear_backward(model->gpu,
			   &(struct linear_backward){in_gradient, weight->gradient, weight[1].gradient, out_gradient,
						     in, weight->value, tokens, inner, columns});
	return in_gradient;
}

/* Adds to the residual stream's gradient. */
static void normalize_backward(const struct model *model, size_t tokens, const real *in, const real *statistics,
			       struct parameter *gain, const real *out_gradient, real *stream_gradient)
{
	op_norm_backward(model->gpu,
			 &(struct norm_backward){stream_gradient, gain->gradient, gain[1].gradient, out_gradient, in,
						 statistics, gain->value, tokens, model->shape.width});
}

static void mlp_backward(const struct model *model, size_t index, size_t tokens, real *stream_gradient)
{
	struct layer *layer = &model->saved->layers[index];
	real *gradient, *deeper;

	gradient = linear_backward(model, tokens, layer->active, of_layer(model, index, CONTRACT), stream_gradient);
	drop(model, &layer->active);
	op_gelu_backward(model->gpu,
			 &(struct gelu_backward){gradient, layer->expanded, 4 * tokens * model->shape.width});
	drop(model, &layer->expanded);
	deeper = linear_backward(model, tokens, layer->norm2, of_layer(model, index, EXPAND), gradient);
	drop(model, &gradient);
	drop(model, &layer->norm2);
	normalize_backward(model, tokens, layer->middle, layer->statistics2, of_layer(model, index, NORM2_GAIN),
			   deeper, stream_gradient);
	drop(model, &deeper);
	drop(model, &layer->middle);
	drop(model, &layer->statistics2);
}

static void attention_backward(const struct model *model, size_t index, size_t samples, real *stream_gradient)
{
	const struct model_shape *shape = &model->shape;
	struct layer *layer = &model->saved->layers[index];
	size_t tokens = samples * shape->context;
	real *gradient, *deeper;

	gradient = linear_backward(model, tokens, layer->attended, of_layer(model, index, PROJECT), stream_gradient);
	drop(model, &layer->attended);
	deeper = op_new(model->gpu, "temporaries", tokens * 3 * shape->width);
	op_attention_backward(model->gpu,
			      &(struct attention_backward){deeper, NULL, gradient, layer->weights, layer->qkv,
							   samples, shape->heads, shape->context, shape->width});
	drop(model, &gradient);
	drop(model, &layer->weights);
	drop(model, &layer->qkv);
	gradient = linear_backward(model, tokens, layer->norm1, of_layer(model, index, QKV), deeper);
	drop(model, &deeper);
	drop(model, &layer->norm1);
	normalize_backward(model, tokens, stream_before(model, index), layer->statistics1,
			   of_layer(model, index, NORM1_GAIN), gradient, stream_gradient);
	drop(model, &gradient);
	drop(model, &layer->statistics1);
}

static void backward(const struct model *model, size_t samples, double scale)
{
	const struct model_shape *shape = &model->shape;
	struct activations *saved = model->saved;
	size_t tokens = samples * shape->context, layers = shape->layers;
	real *stream_gradient, *gradient;

	op_cross_entropy(model->gpu, &(struct cross_entropy){saved->logits, model->loss, saved->targets, tokens,
							     shape->vocabulary, scale});
	gradient = linear_backward(model, tokens, saved->final, of_end(model, HEAD), saved->logits);
	drop(model, &saved->logits);
	drop(model, &saved->final);
	stream_gradient = op_new(model->gpu, "temporaries", tokens * shape->width);
	op_zero(model->gpu, stream_gradient, tokens * shape->width * sizeof(real));
	normalize_backward(model, tokens, stream_before(model, layers), saved->final_statistics,
			   of_end(model, FINAL_GAIN), gradient, stream_gradient);
	drop(model, &gradient);
	drop(model, &saved->final_statistics);
	for (size_t i = layers; i-- > 0;) {
		drop(model, &saved->layers[i].out);
		mlp_backward(model, i, tokens, stream_gradient);
		attention_backward(model, i, samples, stream_gradient);
	}

	struct embed embed = embedding(model, samples);

	embed.out = stream_gradient;
	embed.token = model->parameters[TOKEN].gradient;
	embed.position = model->parameters[POSITION].gradient;
	op_embed_backward(model->gpu, &embed, shape->vocabulary);
	drop(model, &stream_gradient);
}

/* Frees whatever is left: after success the batch and the embedding, after a failure anything. */
static void release(const struct model *model)
{
	struct activations *saved = model->saved;

	gpu_free(model->gpu, saved->ids);
	gpu_free(model->gpu, saved->targets);
	saved->ids = saved->targets = NULL;
	drop(model, &saved->embedded);
	drop(model, &saved->final);
	drop(model, &saved->final_statistics);
	drop(model, &saved->logits);
	for (size_t i = 0; i < model->shape.layers; i++) {
		struct layer *layer = &saved->layers[i];
		real **all[] = {&layer->norm1,    &layer->statistics1, &layer->qkv,   &layer->weights,
				&layer->attended, &layer->middle,      &layer->norm2, &layer->statistics2,
				&layer->expanded, &layer->active,      &layer->out};

		for (size_t k = 0; k < sizeof(all) / sizeof(*all); k++)
			drop(model, all[k]);
	}
}

void model_micro_batch(struct model *model, const int32_t *ids, const int32_t *targets, size_t samples, double scale)
{
	forward(model, ids, targets, samples);
	backward(model, samples, scale);
	release(model);
}
