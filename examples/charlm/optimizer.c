/* charlm/optimizer.c: see the header. */
#include "optimizer.h"

#include "ops.h"

#include <math.h>
#include <stdlib.h>

static const double DECAY = 0.1, LOWEST_SHARE = 0.1;

enum neap_status optimizer_init(struct optimizer *optimizer, struct model *model, double rate, uint64_t total_steps,
				struct neap_error *err)
{
	size_t count = 2 * model->parameter_count;
	enum neap_status status;

	*optimizer = (struct optimizer){.model = model, .rate = rate, .total_steps = total_steps};
	optimizer->warmup_steps = total_steps / 20 + 1;
	optimizer->moments = calloc(count, sizeof(*optimizer->moments));
	if (!optimizer->moments) {
		*err = (struct neap_error){.status = NEAP_ENOMEM,
					   .message = "creating the optimizer: the host is out of memory"};
		return NEAP_ENOMEM;
	}
	for (size_t i = 0; i < count; i++) {
		size_t numbers = model->parameters[i / 2].count;

		optimizer->moments[i] = op_new(model->gpu, "optimizer", numbers);
		op_zero(model->gpu, optimizer->moments[i], numbers * sizeof(real));
	}
	status = gpu_take_error(model->gpu, err);
	if (status != NEAP_OK)
		optimizer_fini(optimizer);
	return status;
}

void optimizer_fini(struct optimizer *optimizer)
{
	for (size_t i = 0; optimizer->moments && i < 2 * optimizer->model->parameter_count; i++)
		gpu_free(optimizer->model->gpu, optimizer->moments[i]);
	free(optimizer->moments);
	*optimizer = (struct optimizer){0};
}

static double rate_at(const struct optimizer *optimizer, uint64_t step)
{
	double done = (double)step / (double)optimizer->total_steps, pi = acos(-1.0);

	if (step < optimizer->warmup_steps)
		return optimizer->rate * (double)step / (double)optimizer->warmup_steps;
	return optimizer->rate * (LOWEST_SHARE + (1 - LOWEST_SHARE) * (1 + cos(pi * fmin(done, 1))) / 2);
}

void optimizer_step(struct optimizer *optimizer, uint64_t step)
{
	struct model *model = optimizer->model;

	for (size_t i = 0; i < model->parameter_count; i++) {
		const struct parameter *parameter = &model->parameters[i];

		op_adamw(model->gpu, &(struct adamw){.value = parameter->value,
						     .gradient = parameter->gradient,
						     .moment1 = optimizer->moments[2 * i],
						     .moment2 = optimizer->moments[2 * i + 1],
						     .count = parameter->count,
						     .step = step,
						     .rate = rate_at(optimizer, step),
						     .decay = parameter->decays ? DECAY : 0});
	}
}
