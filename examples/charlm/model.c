/* charlm/model.c: the parameters, and a step's begin and end. They come in this order, so that an index is a name:
 *
 *   TOKEN, POSITION, then for each layer LAYER_PARAMETERS of them, then FINAL_GAIN, FINAL_BIAS, HEAD, HEAD_BIAS
 */
#include "model_parts.h"

#include "ops.h"
#include "random.h"

#include <math.h>
#include <stdio.h>
#include <stdlib.h>

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
	model_begin(model, (struct model_modes){0});
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
		gpu_free(model->gpu, model->parameters[i].half);
	}
	gpu_free(model->gpu, model->loss);
	free(model->parameters);
	free(model->saved);
	free(model);
}

/* The matrices that activations are multiplied with, in half as the values are now. */
static void copy_in_half(struct model *model)
{
	for (size_t i = LAYERS; i < model->parameter_count; i++) {
		struct parameter *parameter = &model->parameters[i];

		if (!parameter->decays)
			continue;
		if (!parameter->half)
			parameter->half = op_numbers(model->gpu, "parameters", parameter->count, true).at;
		op_copy(model->gpu,
			&(struct copy){{parameter->half, true}, whole(parameter->value), parameter->count});
	}
}

static void drop_halves(struct model *model)
{
	for (size_t i = 0; i < model->parameter_count; i++) {
		gpu_free(model->gpu, model->parameters[i].half);
		model->parameters[i].half = NULL;
	}
}

void model_begin(struct model *model, struct model_modes modes)
{
	model->modes = modes;
	if (modes.half)
		copy_in_half(model);
	else
		drop_halves(model);
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
