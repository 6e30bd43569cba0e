/* charlm's gradients: each parameter's against central finite differences, the same for every split of the effective
 * batch, and nothing left behind when memory runs out anywhere in a micro-batch.
 *
 * Built twice. In double (CHARLM_DOUBLE) finite differences agree to about 8 digits and splits to 12; in float, as
 * the example runs, only the splits are compared, to 1e-4 of the largest gradient. */
#include "charlm_host.h"
#include "model.h"
#include "random.h"

#include <math.h>
#include <setjmp.h>
#include <stdarg.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#include <cmocka.h>

enum { BATCH = 12, CONTEXT = 9, VOCABULARY = 21, TOKENS = BATCH * CONTEXT };

static const struct model_shape shape = {
	.layers = 2, .width = 24, .heads = 3, .context = CONTEXT, .vocabulary = VOCABULARY};
static const double scale = 1.0 / TOKENS;

struct fixture {
	struct gpu *gpu;
	struct model *model;
	int32_t ids[TOKENS], targets[TOKENS];
};

/* Biases start at 0 and gains at 1, where a wrong gradient may hide: everything is moved a little. */
static int setup(void **state)
{
	struct fixture *fixture = calloc(1, sizeof(*fixture));
	struct random random = random_from(1, 2, 3);
	struct neap_error err;

	*state = fixture;
	fixture->gpu = host_create();
	if (model_create(fixture->gpu, &shape, 7, &fixture->model, &err) != NEAP_OK)
		return -1;
	for (size_t i = 0; i < fixture->model->parameter_count; i++)
		for (size_t k = 0; k < fixture->model->parameters[i].count; k++)
			fixture->model->parameters[i].value[k] += (real)(0.1 * random_gauss(&random));
	for (int i = 0; i < TOKENS; i++) {
		fixture->ids[i] = (int32_t)(random_next(&random) % VOCABULARY);
		fixture->targets[i] = (int32_t)(random_next(&random) % VOCABULARY);
	}
	return 0;
}

static int teardown(void **state)
{
	struct fixture *fixture = *state;

	model_destroy(fixture->model);
	assert_int_equal(host_of(fixture->gpu)->live_blocks, 0);
	gpu_close(fixture->gpu);
	free(fixture);
	return 0;
}

static double run(struct fixture *fixture, size_t micro_batch)
{
	model_zero(fixture->model);
	for (size_t i = 0; i < BATCH; i += micro_batch)
		model_micro_batch(fixture->model, fixture->ids + i * CONTEXT, fixture->targets + i * CONTEXT,
				  micro_batch, scale);
	assert_int_equal(gpu_take_error(fixture->gpu, NULL), NEAP_OK);
	return model_loss(fixture->model);
}

#ifdef CHARLM_DOUBLE
/* Along a random direction through the whole parameter, and along single numbers of it. */
static void check_direction(struct fixture *fixture, struct parameter *parameter, const real *direction)
{
	const double reach = 1e-5;
	double predicted = 0, after, before, measured;

	run(fixture, BATCH);
	for (size_t k = 0; k < parameter->count; k++)
		predicted += parameter->gradient[k] * direction[k];
	for (size_t k = 0; k < parameter->count; k++)
		parameter->value[k] += reach * direction[k];
	after = run(fixture, BATCH);
	for (size_t k = 0; k < parameter->count; k++)
		parameter->value[k] -= 2 * reach * direction[k];
	before = run(fixture, BATCH);
	for (size_t k = 0; k < parameter->count; k++)
		parameter->value[k] += reach * direction[k];
	measured = (after - before) / (2 * reach);
	if (fabs(measured - predicted) > 1e-8 + 1e-6 * fabs(measured))
		fail_msg("%s: gradient %.12g, finite difference %.12g", parameter->name, predicted, measured);
}

static void gradients_agree_with_differences(void **state)
{
	struct fixture *fixture = *state;
	struct random random = random_from(4, 5, 6);

	for (size_t i = 0; i < fixture->model->parameter_count; i++) {
		struct parameter *parameter = &fixture->model->parameters[i];
		real *direction = calloc(parameter->count, sizeof(real));

		assert_non_null(direction);
		for (int single = 0; single < 3; single++) {
			size_t at = random_next(&random) % parameter->count;

			direction[at] = 1;
			check_direction(fixture, parameter, direction);
			direction[at] = 0;
		}
		for (size_t k = 0; k < parameter->count; k++)
			direction[k] = random_gauss(&random);
		check_direction(fixture, parameter, direction);
		free(direction);
	}
}
#endif

/* The largest difference of two sets of gradients, as a share of the largest gradient of its parameter. The bias of
 * keys has no influence on the softmax, its gradient is noise: hence parameter by parameter, not number by number. */
static double difference(const struct model *model, const real *expected)
{
	double worst = 0;

	for (size_t i = 0; i < model->parameter_count; expected += model->parameters[i++].count) {
		double largest = 0, apart = 0;

		for (size_t k = 0; k < model->parameters[i].count; k++) {
			largest = fmax(largest, fabs((double)expected[k]));
			apart = fmax(apart, fabs((double)(expected[k] - model->parameters[i].gradient[k])));
		}
		assert_true(largest > 0 && isfinite(largest));
		worst = fmax(worst, apart / largest);
	}
	return worst;
}

static void splits_give_equal_gradients(void **state)
{
	const double tolerance = sizeof(real) == sizeof(double) ? 1e-12 : 1e-4;
	struct fixture *fixture = *state;
	double loss = run(fixture, BATCH);
	size_t count = 0, whole_peak = host_of(fixture->gpu)->peak_bytes;
	real *expected;

	for (size_t i = 0; i < fixture->model->parameter_count; i++)
		count += fixture->model->parameters[i].count;
	expected = malloc(count * sizeof(*expected));
	assert_non_null(expected);
	for (size_t i = 0, at = 0; i < fixture->model->parameter_count; at += fixture->model->parameters[i++].count)
		memcpy(expected + at, fixture->model->parameters[i].gradient,
		       fixture->model->parameters[i].count * sizeof(real));
	for (size_t micro_batch = 1; micro_batch < BATCH; micro_batch++) {
		if (BATCH % micro_batch)
			continue;
		host_of(fixture->gpu)->peak_bytes = 0;
		assert_true(fabs(run(fixture, micro_batch) - loss) <= tolerance * loss);
		double apart = difference(fixture->model, expected);

		print_message("micro-batch %zu: apart by %.2g of the largest, peak %zu of %zu bytes\n", micro_batch,
			      apart, host_of(fixture->gpu)->peak_bytes, whole_peak);
		assert_true(apart <= tolerance);
		assert_true(host_of(fixture->gpu)->peak_bytes < whole_peak);
	}
	free(expected);
}

static void running_out_anywhere_leaves_nothing(void **state)
{
	struct fixture *fixture = *state;
	struct host *host = host_of(fixture->gpu);
	size_t before = host->live_blocks;
	double loss = run(fixture, BATCH);
	enum neap_status status = NEAP_EOOM;
	long allowed = 0;

	for (; status != NEAP_OK; allowed++) {
		host->allocations_left = allowed;
		model_zero(fixture->model);
		model_micro_batch(fixture->model, fixture->ids, fixture->targets, BATCH, scale);
		status = gpu_take_error(fixture->gpu, NULL);
		assert_true(status == NEAP_OK || status == NEAP_EOOM);
		assert_int_equal(host->live_blocks, before);
	}
	assert_true(allowed > 20);
	host->allocations_left = -1;
	assert_true(run(fixture, BATCH) == loss);
}

int main(void)
{
	const struct CMUnitTest tests[] = {
#ifdef CHARLM_DOUBLE
		cmocka_unit_test_setup_teardown(gradients_agree_with_differences, setup, teardown),
#endif
		cmocka_unit_test_setup_teardown(splits_give_equal_gradients, setup, teardown),
		cmocka_unit_test_setup_teardown(running_out_anywhere_leaves_nothing, setup, teardown),
	};

	return cmocka_run_group_tests_name("charlm_gradients", tests, NULL, NULL);
}
