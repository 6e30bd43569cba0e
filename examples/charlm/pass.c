/* charlm/pass.c: one micro-batch forward and backward. Each activation is allocated just before it is written and
 * freed once its last reader is queued. */
#include "model_parts.h"
#include "ops.h"

static struct numbers new_activation(const struct model *model, size_t count)
{
	return op_numbers(model->gpu, "activations", count, model->modes.half);
}

static struct numbers new_temporary(const struct model *model, size_t count)
{
	return op_numbers(model->gpu, "temporaries", count, model->modes.half);
}

static void drop(const struct model *model, struct numbers *numbers)
{
	gpu_free(model->gpu, numbers->at);
	*numbers = (struct numbers){0};
}

/* Forward. */

/* `gain` is followed by its bias. */
static void normalize(const struct model *model, size_t tokens, struct numbers in, const struct parameter *gain,
		      struct numbers *ret_out, struct numbers *ret_statistics)
{
	size_t width = model->shape.width;

	*ret_out = new_activation(model, tokens * width);
	*ret_statistics = op_numbers(model->gpu, "activations", 2 * tokens, false);
	op_norm(model->gpu,
		&(struct norm){*ret_out, in, ret_statistics->at, gain->value, gain[1].value, tokens, width});
}

static struct numbers matrix(const struct parameter *weight)
{
	return weight->half ? (struct numbers){weight->half, true} : whole(weight->value);
}

/* out = in x weight + bias; `weight` is followed by its bias. */
static void linear(const struct model *model, size_t tokens, struct numbers in, const struct parameter *weight,
		   struct numbers out)
{
	size_t columns = weight[1].count, inner = weight->count / columns;

	op_linear(model->gpu, &(struct linear){out, in, matrix(weight), weight[1].value, tokens, inner, columns});
}

/* A layer up to what its backward reads; its output is another matter. */
static void layer_inside(const struct model *model, size_t index, size_t samples, struct numbers in)
{
	const struct model_shape *shape = &model->shape;
	struct layer *layer = &model->saved->layers[index];
	size_t tokens = samples * shape->context, stream = tokens * shape->width;

	normalize(model, tokens, in, of_layer(model, index, NORM1_GAIN), &layer->norm1, &layer->statistics1);
	layer->qkv = new_activation(model, 3 * stream);
	linear(model, tokens, layer->norm1, of_layer(model, index, QKV), layer->qkv);
	if (model->modes.efficient_attention)
		layer->logs = op_numbers(model->gpu, "activations", tokens * shape->heads, false);
	else
		layer->weights = op_numbers(model->gpu, "attention", tokens * shape->heads * shape->context,
					    model->modes.half);
	layer->attended = new_activation(model, stream);
	op_attention(model->gpu, &(struct attention){layer->attended, layer->qkv, layer->weights, layer->logs.at,
						     NULL, samples, shape->heads, shape->context, shape->width});
	layer->middle = new_activation(model, stream);
	linear(model, tokens, layer->attended, of_layer(model, index, PROJECT), layer->middle);
	op_add(model->gpu, &(struct add){layer->middle, in, stream});

	normalize(model, tokens, layer->middle, of_layer(model, index, NORM2_GAIN), &layer->norm2,
		  &layer->statistics2);
	layer->expanded = new_activation(model, 4 * stream);
	linear(model, tokens, layer->norm2, of_layer(model, index, EXPAND), layer->expanded);
	layer->active = new_activation(model, 4 * stream);
	op_gelu(model->gpu, &(struct gelu){layer->active, layer->expanded, 4 * stream});
}

static void layer_out(const struct model *model, size_t index, size_t tokens)
{
	struct layer *layer = &model->saved->layers[index];
	size_t stream = tokens * model->shape.width;

	layer->out = new_activation(model, stream);
	linear(model, tokens, layer->active, of_layer(model, index, CONTRACT), layer->out);
	op_add(model->gpu, &(struct add){layer->out, layer->middle, stream});
}

/* Frees all of a layer but its output. */
static void forget_inside(const struct model *model, struct layer *layer)
{
	struct numbers *inside[] = {&layer->norm1,       &layer->statistics1, &layer->qkv,    &layer->weights,
				    &layer->logs,        &layer->attended,    &layer->middle, &layer->norm2,
				    &layer->statistics2, &layer->expanded,    &layer->active};

	for (size_t k = 0; k < sizeof(inside) / sizeof(*inside); k++)
		drop(model, inside[k]);
}

/* Whether forward forgot what is inside: the last layer's is read right after it was written. */
static bool forgotten(const struct model *model, size_t layer)
{
	return model->modes.checkpointing && layer + 1 < model->shape.layers;
}

/* What the layer after this one reads, from the embedding (0) to the last layer's output. */
static struct numbers stream_before(const struct model *model, size_t layer)
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
	for (size_t i = 0; i < shape->layers; i++) {
		layer_inside(model, i, samples, stream_before(model, i));
		layer_out(model, i, tokens);
		if (forgotten(model, i))
			forget_inside(model, &saved->layers[i]);
	}
	normalize(model, tokens, stream_before(model, shape->layers), of_end(model, FINAL_GAIN), &saved->final,
		  &saved->final_statistics);
	saved->logits = op_numbers(model->gpu, "activations", tokens * shape->vocabulary, false);
	linear(model, tokens, saved->final, of_end(model, HEAD), saved->logits);
}

/* Backward. */

/* Gives the gradient of the linear map's input, a temporary. */
static struct numbers linear_backward(const struct model *model, size_t tokens, struct numbers in,
				      struct parameter *weight, struct numbers out_gradient)
{
	size_t columns = weight[1].count, inner = weight->count / columns;
	struct numbers in_gradient = new_temporary(model, tokens * inner);

	op_linear_backward(model->gpu,
			   &(struct linear_backward){in_gradient, weight->gradient, weight[1].gradient, out_gradient,
						     in, matrix(weight), tokens, inner, columns});
	return in_gradient;
}

/* Adds to the residual stream's gradient. */
static void normalize_backward(const struct model *model, size_t tokens, struct numbers in, struct numbers statistics,
			       struct parameter *gain, struct numbers out_gradient, struct numbers stream_gradient)
{
	op_norm_backward(model->gpu,
			 &(struct norm_backward){stream_gradient.at, gain->gradient, gain[1].gradient, out_gradient,
						 in, statistics.at, gain->value, tokens, model->shape.width});
}

static void mlp_backward(const struct model *model, size_t index, size_t tokens, struct numbers stream_gradient)
{
	struct layer *layer = &model->saved->layers[index];
	struct numbers gradient, deeper;

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

static void attention_backward(const struct model *model, size_t index, size_t samples,
			       struct numbers stream_gradient)
{
	const struct model_shape *shape = &model->shape;
	struct layer *layer = &model->saved->layers[index];
	size_t tokens = samples * shape->context;
	struct numbers gradient, deeper;

	gradient = linear_backward(model, tokens, layer->attended, of_layer(model, index, PROJECT), stream_gradient);
	deeper = new_temporary(model, tokens * 3 * shape->width);
	op_attention_backward(model->gpu, &(struct attention_backward){deeper, gradient, layer->attended, layer->qkv,
								       layer->weights, layer->logs.at, NULL, samples,
								       shape->heads, shape->context, shape->width});
	drop(model, &gradient);
	drop(model, &layer->attended);
	drop(model, &layer->weights);
	drop(model, &layer->logs);
	drop(model, &layer->qkv);
	gradient = linear_backward(model, tokens, layer->norm1, of_layer(model, index, QKV), deeper);
	drop(model, &deeper);
	drop(model, &layer->norm1);
	normalize_backward(model, tokens, stream_before(model, index), layer->statistics1,
			   of_layer(model, index, NORM1_GAIN), gradient, stream_gradient);
	drop(model, &gradient);
	drop(model, &layer->statistics1);
}

/* The residual stream's gradient is a sum over layers: whole. */
static void backward(const struct model *model, size_t samples, double scale)
{
	const struct model_shape *shape = &model->shape;
	struct activations *saved = model->saved;
	size_t tokens = samples * shape->context, layers = shape->layers;
	struct numbers stream_gradient, gradient;

	op_cross_entropy(model->gpu, &(struct cross_entropy){saved->logits.at, model->loss, saved->targets, tokens,
							     shape->vocabulary, scale});
	gradient = linear_backward(model, tokens, saved->final, of_end(model, HEAD), saved->logits);
	drop(model, &saved->logits);
	drop(model, &saved->final);
	stream_gradient = op_numbers(model->gpu, "temporaries", tokens * shape->width, false);
	op_zero(model->gpu, stream_gradient.at, tokens * shape->width * sizeof(real));
	normalize_backward(model, tokens, stream_before(model, layers), saved->final_statistics,
			   of_end(model, FINAL_GAIN), gradient, stream_gradient);
	drop(model, &gradient);
	drop(model, &saved->final_statistics);
	for (size_t i = layers; i-- > 0;) {
		drop(model, &saved->layers[i].out);
		if (forgotten(model, i))
			layer_inside(model, i, samples, stream_before(model, i));
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
		forget_inside(model, &saved->layers[i]);
		drop(model, &saved->layers[i].out);
	}
}

void model_micro_batch(struct model *model, const int32_t *ids, const int32_t *targets, size_t samples, double scale)
{
	forward(model, ids, targets, samples);
	backward(model, samples, scale);
	release(model);
}
