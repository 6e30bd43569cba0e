/* charlm/model.c: the parameters; then each part of the model, its way forward and its way back side by side; then
 * both ways through all of them.
 *
 * An activation is allocated just before it is written, and freed once its last reader is queued. After a failure all
 * these functions do nothing (device.h), so no line checks for it.
 */
#include "model.h"

#include "kernels.h"

#include <math.h>
#include <stdlib.h>

static const double DECAY = 0.1;

/* The parameters in their order: those before the layers, those of each layer, those after the last layer. A bias
 * follows the matrix that it is added to. Rows 0: a vector. They start as a constant, or as Gaussian numbers with a
 * deviation. Matrices that add to the residual stream start smaller the more layers there are.
 *
 *   X(kind, name, rows, columns, constant, deviation) */
#define PARAMETERS(X)                                                                                                \
	X(TOKEN, "token", vocabulary, width, 0, 0.1)                                                                 \
	X(POSITION, "position", context, width, 0, 0.1)                                                              \
	X(NORM1_GAIN, "norm1.gain", 0, width, 1, 0)                                                                  \
	X(NORM1_BIAS, "norm1.bias", 0, width, 0, 0)                                                                  \
	X(QKV, "qkv", width, 3 * width, 0, deviation)                                                                \
	X(QKV_BIAS, "qkv.bias", 0, 3 * width, 0, 0)                                                                  \
	X(PROJECT, "project", width, width, 0, added)                                                                \
	X(PROJECT_BIAS, "project.bias", 0, width, 0, 0)                                                              \
	X(NORM2_GAIN, "norm2.gain", 0, width, 1, 0)                                                                  \
	X(NORM2_BIAS, "norm2.bias", 0, width, 0, 0)                                                                  \
	X(EXPAND, "expand", width, 4 * width, 0, deviation)                                                          \
	X(EXPAND_BIAS, "expand.bias", 0, 4 * width, 0, 0)                                                            \
	X(CONTRACT, "contract", 4 * width, width, 0, added / 2)                                                      \
	X(CONTRACT_BIAS, "contract.bias", 0, width, 0, 0)                                                            \
	X(FINAL_GAIN, "final.gain", 0, width, 1, 0)                                                                  \
	X(FINAL_BIAS, "final.bias", 0, width, 0, 0)                                                                  \
	X(HEAD, "head", width, vocabulary, 0, deviation)                                                             \
	X(HEAD_BIAS, "head.bias", 0, vocabulary, 0, 0)

#define KIND(kind, ...) kind,
enum kind { PARAMETERS(KIND) KINDS, LAYER_KINDS = FINAL_GAIN - NORM1_GAIN };

/* `layer` is 0 for what comes before the layers. */
static struct parameter *parameter_of(const struct model *model, size_t layer, enum kind kind)
{
	if (kind >= FINAL_GAIN)
		layer = model->shape.layers - 1;
	return &model->parameters[layer * LAYER_KINDS + kind];
}

struct start {
	const char *name;
	size_t rows, columns;
	double constant, deviation;
};

static void parameter_init(struct model *model, size_t index, const struct start *start, uint64_t seed)
{
	struct parameter *parameter = &model->parameters[index];

	parameter->name = start->name;
	parameter->count = (start->rows ? start->rows : 1) * start->columns;
	parameter->decays = start->rows > 0;
	parameter->value = tensor_new(model->gpu, "parameters", parameter->count, false);
	parameter->gradient = tensor_new(model->gpu, "gradients", parameter->count, false);
	launch(model->gpu, &FILL,
	       (struct call){{parameter->value},
			     .constant = start->constant,
			     .deviation = start->deviation,
			     .random = random_from(seed, index, 0)});
}

static void parameters_init(struct model *model, uint64_t seed)
{
	size_t width = model->shape.width, context = model->shape.context, vocabulary = model->shape.vocabulary;
	double deviation = 0.4 / sqrt((double)width), added = deviation / sqrt(2.0 * model->shape.layers);
#define START(kind, ...) {__VA_ARGS__},
	const struct start starts[KINDS] = {PARAMETERS(START)};

	for (size_t layer = 0, layers = model->shape.layers; layer < layers; layer++)
		for (size_t kind = layer ? NORM1_GAIN : TOKEN; kind < (layer + 1 < layers ? FINAL_GAIN : KINDS);
		     kind++)
			parameter_init(model, layer * LAYER_KINDS + kind, &starts[kind], seed);
}

/* What forward keeps for backward. Statistics and logits are always whole. */

struct layer {
	struct tensor norm1, statistics1, qkv, kept, attended, middle, norm2, statistics2, expanded, active;
	struct tensor out;
};

struct activations {
	size_t samples, tokens; /* tokens = samples x context */
	struct tensor ids, targets, embedded, final, final_statistics, logits;
	struct layer layers[];
};

static struct tensor new_activation(const struct model *model, size_t columns)
{
	return tensor_new(model->gpu, "activations", model->a->tokens * columns, model->modes.half);
}

static struct tensor new_temporary(const struct model *model, size_t columns)
{
	return tensor_new(model->gpu, "temporaries", model->a->tokens * columns, model->modes.half);
}

static void drop(const struct model *model, struct tensor *tensor)
{
	gpu_free(model->gpu, tensor->at);
	*tensor = (struct tensor){0};
}

/* Drops everything of a layer but its output. */
static void drop_inside(const struct model *model, struct layer *layer)
{
	struct tensor *inside[] = {&layer->norm1,    &layer->statistics1, &layer->qkv,   &layer->kept,
				   &layer->attended, &layer->middle,      &layer->norm2, &layer->statistics2,
				   &layer->expanded, &layer->active};

	for (size_t i = 0; i < sizeof inside / sizeof *inside; i++)
		drop(model, inside[i]);
}

/* The layer's input: the embedding, or the output of the layer before it. */
static struct tensor stream_into(const struct model *model, size_t layer)
{
	return layer ? model->a->layers[layer - 1].out : model->a->embedded;
}

/* out = in x weight + bias */

static struct tensor matrix(const struct parameter *weight) { return weight->half.at ? weight->half : weight->value; }

static void linear(const struct model *model, struct tensor out, struct tensor in, const struct parameter *weight)
{
	const struct parameter *bias = weight + 1;

	launch(model->gpu, &MATMUL,
	       (struct call){{out},
			     {in, matrix(weight), bias->value},
			     model->a->tokens,
			     bias->count,
			     weight->count / bias->count});
}

/* Returns the gradient of `in`, a temporary. */
static struct tensor linear_backward(const struct model *model, struct tensor out_gradient, struct tensor in,
				     const struct parameter *weight)
{
	const struct parameter *bias = weight + 1;
	size_t tokens = model->a->tokens, columns = bias->count, inner = weight->count / columns;
	struct tensor in_gradient = new_temporary(model, inner);
	struct tensor transposed = tensor_new(model->gpu, "workspace", weight->count, weight->half.at);

	launch(model->gpu, &TRANSPOSE, (struct call){{transposed}, {matrix(weight)}, inner, columns});
	launch(model->gpu, &MATMUL, (struct call){{in_gradient}, {out_gradient, transposed}, tokens, inner, columns});
	drop(model, &transposed);
	launch(model->gpu, &MATMUL_TRANSPOSED,
	       (struct call){{weight->gradient}, {in, out_gradient}, inner, columns, tokens});
	launch(model->gpu, &SUM_ROWS, (struct call){{bias->gradient}, {out_gradient}, tokens, columns});
	return in_gradient;
}

/* out = norm(in) * gain + bias */

static void normalize(const struct model *model, struct tensor *ret_out, struct tensor *ret_statistics,
		      struct tensor in, const struct parameter *gain)
{
	size_t tokens = model->a->tokens, width = model->shape.width;

	*ret_out = new_activation(model, width);
	*ret_statistics = tensor_new(model->gpu, "activations", 2 * tokens, false);
	launch(model->gpu, &NORM,
	       (struct call){{*ret_out, *ret_statistics}, {in, gain->value, gain[1].value}, tokens, width});
}

/* Adds to the residual stream's gradient, which passes the norm and goes through it as well. Drops the others. */
static void normalize_backward(const struct model *model, struct tensor stream_gradient, struct tensor *out_gradient,
			       struct tensor in, struct tensor *statistics, const struct parameter *gain)
{
	size_t width = model->shape.width;

	launch(model->gpu, &NORM_BACKWARD,
	       (struct call){{stream_gradient, gain->gradient, gain[1].gradient},
			     {*out_gradient, in, *statistics, gain->value},
			     model->a->tokens,
			     width});
	drop(model, out_gradient);
	drop(model, statistics);
}

/* A layer's attention: middle = in + project(attention(norm(in))) */

/* With its scratch as the last output. */
static void launch_attention(const struct model *model, const struct kernel *kernel, struct call call)
{
	const struct model_shape *shape = &model->shape;
	bool efficient = model->modes.efficient_attention;
	size_t count = attention_scratch(shape->context, shape->width / shape->heads, efficient);
	struct tensor scratch = tensor_new(model->gpu, "workspace", count, false);

	call.out[call.out[1].at ? 2 : 1] = scratch;
	call.rows = model->a->tokens;
	call.columns = shape->width;
	call.inner = shape->context;
	call.heads = shape->heads;
	call.efficient = efficient;
	launch(model->gpu, kernel, call);
	drop(model, &scratch);
}

static void attention(const struct model *model, size_t index)
{
	const struct model_shape *shape = &model->shape;
	struct layer *layer = &model->a->layers[index];
	struct tensor in = stream_into(model, index);
	size_t queries = model->a->tokens * shape->heads;

	normalize(model, &layer->norm1, &layer->statistics1, in, parameter_of(model, index, NORM1_GAIN));
	layer->qkv = new_activation(model, 3 * shape->width);
	linear(model, layer->qkv, layer->norm1, parameter_of(model, index, QKV));
	layer->kept = model->modes.efficient_attention
			      ? tensor_new(model->gpu, "activations", queries, false)
			      : tensor_new(model->gpu, "attention", queries * shape->context, model->modes.half);
	layer->attended = new_activation(model, shape->width);
	launch_attention(model, &ATTENTION, (struct call){{layer->attended, layer->kept}, {layer->qkv}});
	layer->middle = new_activation(model, shape->width);
	linear(model, layer->middle, layer->attended, parameter_of(model, index, PROJECT));
	launch(model->gpu, &ADD, (struct call){{layer->middle}, {in}});
}

static void attention_backward(const struct model *model, size_t index, struct tensor stream_gradient)
{
	struct layer *layer = &model->a->layers[index];
	struct tensor gradient, qkv_gradient;

	gradient = linear_backward(model, stream_gradient, layer->attended, parameter_of(model, index, PROJECT));
	qkv_gradient = new_temporary(model, 3 * model->shape.width);
	launch_attention(model, &ATTENTION_BACKWARD,
			 (struct call){{qkv_gradient}, {layer->qkv, layer->kept, gradient}});
	drop(model, &gradient);
	drop(model, &layer->attended);
	drop(model, &layer->kept);
	drop(model, &layer->qkv);
	gradient = linear_backward(model, qkv_gradient, layer->norm1, parameter_of(model, index, QKV));
	drop(model, &qkv_gradient);
	drop(model, &layer->norm1);
	normalize_backward(model, stream_gradient, &gradient, stream_into(model, index), &layer->statistics1,
			   parameter_of(model, index, NORM1_GAIN));
}

/* The layer's two-layer network: out = middle + contract(gelu(expand(norm(middle)))). Two functions compute it:
 * one the part that backward reads, one the output. Checkpointing repeats the first alone. */

static void expand(const struct model *model, size_t index)
{
	struct layer *layer = &model->a->layers[index];

	normalize(model, &layer->norm2, &layer->statistics2, layer->middle, parameter_of(model, index, NORM2_GAIN));
	layer->expanded = new_activation(model, 4 * model->shape.width);
	linear(model, layer->expanded, layer->norm2, parameter_of(model, index, EXPAND));
	layer->active = new_activation(model, 4 * model->shape.width);
	launch(model->gpu, &GELU, (struct call){{layer->active}, {layer->expanded}});
}

static void contract(const struct model *model, size_t index)
{
	struct layer *layer = &model->a->layers[index];

	layer->out = new_activation(model, model->shape.width);
	linear(model, layer->out, layer->active, parameter_of(model, index, CONTRACT));
	launch(model->gpu, &ADD, (struct call){{layer->out}, {layer->middle}});
}

static void expand_contract_backward(const struct model *model, size_t index, struct tensor stream_gradient)
{
	struct layer *layer = &model->a->layers[index];
	struct tensor gradient, norm_gradient;

	gradient = linear_backward(model, stream_gradient, layer->active, parameter_of(model, index, CONTRACT));
	drop(model, &layer->active);
	launch(model->gpu, &GELU_BACKWARD, (struct call){{gradient}, {layer->expanded}});
	drop(model, &layer->expanded);
	norm_gradient = linear_backward(model, gradient, layer->norm2, parameter_of(model, index, EXPAND));
	drop(model, &gradient);
	drop(model, &layer->norm2);
	normalize_backward(model, stream_gradient, &norm_gradient, layer->middle, &layer->statistics2,
			   parameter_of(model, index, NORM2_GAIN));
	drop(model, &layer->middle);
}

/* Characters in; in backward the gradients of their tables. */

static struct tensor upload(const struct model *model, const int32_t *numbers)
{
	size_t bytes = model->a->tokens * sizeof *numbers;
	struct tensor tensor = {gpu_new(model->gpu, "batch", bytes), bytes, false};

	gpu_write(model->gpu, tensor.at, numbers, bytes);
	return tensor;
}

static void embed(const struct model *model)
{
	const struct parameter *token = parameter_of(model, 0, TOKEN), *position = parameter_of(model, 0, POSITION);

	model->a->embedded = new_activation(model, model->shape.width);
	launch(model->gpu, &EMBED,
	       (struct call){{model->a->embedded},
			     {token->value, position->value, model->a->ids},
			     model->a->tokens,
			     model->shape.width});
}

static void embed_backward(const struct model *model, struct tensor stream_gradient)
{
	const struct parameter *token = parameter_of(model, 0, TOKEN), *position = parameter_of(model, 0, POSITION);

	launch(model->gpu, &EMBED_BACKWARD,
	       (struct call){{token->gradient, position->gradient},
			     {stream_gradient, model->a->ids},
			     model->a->tokens,
			     model->shape.width});
}

/* Logits out; in backward the loss, and the first gradient of the residual stream. */

static void predict(const struct model *model)
{
	struct activations *a = model->a;

	normalize(model, &a->final, &a->final_statistics, stream_into(model, model->shape.layers),
		  parameter_of(model, 0, FINAL_GAIN));
	a->logits = tensor_new(model->gpu, "activations", a->tokens * model->shape.vocabulary, false);
	linear(model, a->logits, a->final, parameter_of(model, 0, HEAD));
}

/* The residual stream's gradient is a sum over layers: whole. */
static struct tensor predict_backward(const struct model *model, double scale)
{
	struct activations *a = model->a;
	struct tensor gradient, stream_gradient;

	launch(model->gpu, &CROSS_ENTROPY,
	       (struct call){
		       {a->logits, model->loss}, {a->targets}, a->tokens, model->shape.vocabulary, .scale = scale});
	gradient = linear_backward(model, a->logits, a->final, parameter_of(model, 0, HEAD));
	drop(model, &a->logits);
	drop(model, &a->final);
	stream_gradient = tensor_new(model->gpu, "temporaries", a->tokens * model->shape.width, false);
	launch(model->gpu, &FILL, (struct call){{stream_gradient}});
	normalize_backward(model, stream_gradient, &gradient, stream_into(model, model->shape.layers),
			   &a->final_statistics, parameter_of(model, 0, FINAL_GAIN));
	return stream_gradient;
}

/* Through all of it. */

/* Whether forward drops a layer's inner activations: in all layers but the last, which backward reads at once. */
static bool drops_inside(const struct model *model, size_t layer)
{
	return model->modes.checkpointing && layer + 1 < model->shape.layers;
}

static void forward(const struct model *model)
{
	embed(model);
	for (size_t i = 0; i < model->shape.layers; i++) {
		attention(model, i);
		expand(model, i);
		contract(model, i);
		if (drops_inside(model, i))
			drop_inside(model, &model->a->layers[i]);
	}
	predict(model);
}

static void backward(const struct model *model, double scale)
{
	struct tensor stream_gradient = predict_backward(model, scale);

	for (size_t i = model->shape.layers; i-- > 0;) {
		drop(model, &model->a->layers[i].out);
		if (drops_inside(model, i)) {
			attention(model, i);
			expand(model, i);
		}
		expand_contract_backward(model, i, stream_gradient);
		attention_backward(model, i, stream_gradient);
	}
	embed_backward(model, stream_gradient);
	drop(model, &stream_gradient);
}

void model_micro_batch(struct model *model, const int32_t *ids, const int32_t *targets, size_t samples, double scale)
{
	struct activations *a = model->a;
	struct tensor *rest[] = {&a->ids, &a->targets, &a->embedded, &a->final, &a->final_statistics, &a->logits};

	a->samples = samples;
	a->tokens = samples * model->shape.context;
	a->ids = upload(model, ids);
	a->targets = upload(model, targets);
	forward(model);
	backward(model, scale);
	/* After success only the batch and the embedding are left; after a failure, anything. */
	for (size_t i = 0; i < sizeof rest / sizeof *rest; i++)
		drop(model, rest[i]);
	for (size_t i = 0; i < model->shape.layers; i++) {
		drop_inside(model, &a->layers[i]);
		drop(model, &a->layers[i].out);
	}
}

/* A step, and the model's life. */

/* Updates the half-precision copies of the matrices that activations are multiplied with, or drops them. */
static void convert_matrices(struct model *model)
{
	for (size_t i = NORM1_GAIN; i < model->parameter_count; i++) {
		struct parameter *parameter = &model->parameters[i];

		if (!model->modes.half)
			drop(model, &parameter->half);
		else if (parameter->decays) {
			if (!parameter->half.at)
				parameter->half = tensor_new(model->gpu, "parameters", parameter->count, true);
			launch(model->gpu, &CONVERT, (struct call){{parameter->half}, {parameter->value}});
		}
	}
}

void model_begin(struct model *model, struct model_modes modes)
{
	model->modes = modes;
	convert_matrices(model);
	for (size_t i = 0; i < model->parameter_count; i++)
		launch(model->gpu, &FILL, (struct call){{model->parameters[i].gradient}});
	launch(model->gpu, &FILL, (struct call){{model->loss}});
}

double model_loss(struct model *model)
{
	double loss = NAN;

	gpu_read(model->gpu, &loss, model->loss.at, sizeof loss);
	return loss;
}

enum neap_status model_prepare_updates(struct model *model, struct neap_error *err)
{
	for (size_t i = 0; i < 2 * model->parameter_count; i++) {
		struct parameter *parameter = &model->parameters[i / 2];
		struct tensor *moment = &parameter->moments[i % 2];

		*moment = tensor_new(model->gpu, "optimizer", parameter->count, false);
		launch(model->gpu, &FILL, (struct call){{*moment}});
	}
	return gpu_take_error(model->gpu, err);
}

void model_update(struct model *model, uint64_t step, double rate)
{
	for (size_t i = 0; i < model->parameter_count; i++) {
		const struct parameter *p = &model->parameters[i];

		launch(model->gpu, &ADAMW,
		       (struct call){{p->value, p->moments[0], p->moments[1]},
				     {p->gradient},
				     .step = step,
				     .rate = rate,
				     .decay = p->decays ? DECAY : 0});
	}
}

enum neap_status model_create(struct gpu *gpu, const struct model_shape *shape, uint64_t seed,
			      struct model **ret_model, struct neap_error *err)
{
	enum neap_status status = NEAP_ENOMEM;
	struct model *model = calloc(1, sizeof *model);

	if (!model)
		goto out;
	model->gpu = gpu;
	model->shape = *shape;
	model->parameter_count = KINDS + (size_t)(shape->layers - 1) * LAYER_KINDS;
	model->parameters = calloc(model->parameter_count, sizeof *model->parameters);
	model->a = calloc(1, sizeof *model->a + shape->layers * sizeof(struct layer));
	if (!model->parameters || !model->a)
		goto out;
	parameters_init(model, seed);
	model->loss = (struct tensor){gpu_new(gpu, "temporaries", sizeof(double)), sizeof(double), false};
	model_begin(model, (struct model_modes){0});
	status = gpu_take_error(gpu, err);
	if (status)
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
		struct parameter *parameter = &model->parameters[i];
		struct tensor *all[] = {&parameter->moments[0], &parameter->moments[1], &parameter->value,
					&parameter->gradient, &parameter->half};

		for (size_t k = 0; k < sizeof all / sizeof *all; k++)
			drop(model, all[k]);
	}
	gpu_free(model->gpu, model->loss.at);
	free(model->parameters);
	free(model->a);
	free(model);
}
