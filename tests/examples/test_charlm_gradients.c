/* charlm's gradients: each parameter's agrees with central finite differences and is the same for every split of the
 * batch, equal parts or not, and in every mode. Each mode needs less memory, and nothing is left behind when memory
 * runs out anywhere in a micro-batch.
 *
 * Built twice. In double (CHARLM_DOUBLE) finite differences agree to about 8 digits, splits and efficient attention
 * to 12; in float, as the example runs, splits and attention are compared to 1e-4 of the largest gradient.
 * Checkpointing changes no bit in either. In half, a parameter's gradient is apart by at most 3 % (HALF_TOLERANCE) of
 * its length. */
#include "charlm_host.h"
#include "model.h"
#include "random.h"

#include "neap/train.h"
#include "support/test.h"

#include <math.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

enum { TOKENS_MAX = 300, VOCABULARY = 21 };

static const double TOLERANCE = sizeof(real) == sizeof(double) ? 1e-12 : 1e-4, HALF_TOLERANCE = 0.03;

/* A model whose attention fits one strip of queries, and one with five strips, the last of them not full. */
static const struct world {
	struct model_shape shape;
	size_t batch;
} worlds[] = {
	{{.layers = 2, .width = 24, .heads = 3, .context = 9, .vocabulary = VOCABULARY}, 12},
	{{.layers = 3, .width = 24, .heads = 2, .context = 70, .vocabulary = VOCABULARY}, 4},
};

enum { WORLDS = sizeof worlds / sizeof *worlds, MODES = 8 };

static struct model_modes modes_of(unsigned bits)
{
	return (struct model_modes){.efficient_attention = bits & 1, .half = bits & 2, .checkpointing = bits & 4};
}

static real *value_of(const struct parameter *parameter) { return parameter->value.at; }
static real *gradient_of(const struct parameter *parameter) { return parameter->gradient.at; }

struct fixture {
	const struct world *world;
	struct model_modes modes;
	struct gpu *gpu;
	struct model *model;
	int32_t ids[TOKENS_MAX], targets[TOKENS_MAX];
};

/* Biases start at 0 and gains at 1, where a wrong gradient may hide: everything is moved a little. */
static struct fixture *open_fixture(const struct world *world)
{
	struct fixture *fixture = calloc(1, sizeof *fixture);
	struct random random = random_from(1, 2, 3);
	struct neap_error err;

	assert_non_null(fixture);
	assert_true(world->batch * world->shape.context <= TOKENS_MAX);
	fixture->world = world;
	fixture->gpu = host_create();
	assert_int_equal(model_create(fixture->gpu, &world->shape, 7, &fixture->model, &err), NEAP_OK);
	for (size_t i = 0; i < fixture->model->parameter_count; i++)
		for (size_t k = 0; k < fixture->model->parameters[i].count; k++)
			value_of(&fixture->model->parameters[i])[k] += (real)(0.1 * random_gauss(&random));
	for (int i = 0; i < TOKENS_MAX; i++) {
		fixture->ids[i] = (int32_t)(random_next(&random) % VOCABULARY);
		fixture->targets[i] = (int32_t)(random_next(&random) % VOCABULARY);
	}
	return fixture;
}

static void close_fixture(struct fixture *fixture)
{
	model_destroy(fixture->model);
	assert_int_equal(host_of(fixture->gpu)->live_blocks, 0);
	gpu_close(fixture->gpu);
	free(fixture);
}

/* The mean loss of the first `samples` samples, in the parts that a session makes; the gradients are in the model.
 * Each part's mean is weighted by its share of the samples. */
static double run_parts(struct fixture *fixture, size_t samples, size_t micro_batch)
{
	const struct neap_split split = {.micro_batch = micro_batch, .batch = fixture->world->batch};
	size_t context = fixture->world->shape.context;

	model_begin(fixture->model, fixture->modes);
	host_of(fixture->gpu)->peak_bytes = 0;
	for (uint64_t i = 0; i < neap_split_parts(&split, samples); i++) {
		struct neap_part part = neap_split_part(&split, samples, i);

		model_micro_batch(fixture->model, fixture->ids + part.first * context,
				  fixture->targets + part.first * context, part.samples,
				  part.weight / (double)(part.samples * context));
	}
	assert_int_equal(gpu_take_error(fixture->gpu, NULL), NEAP_OK);
	return model_loss(fixture->model);
}

static double run(struct fixture *fixture, size_t micro_batch)
{
	return run_parts(fixture, fixture->world->batch, micro_batch);
}

static size_t count_of(const struct model *model)
{
	size_t count = 0;

	for (size_t i = 0; i < model->parameter_count; i++)
		count += model->parameters[i].count;
	return count;
}

/* All gradients of the model, one parameter after another. The caller frees them. */
static real *gradients_of(const struct model *model)
{
	real *all = malloc(count_of(model) * sizeof *all), *at = all;

	assert_non_null(all);
	for (size_t i = 0; i < model->parameter_count; at += model->parameters[i++].count)
		memcpy(at, model->parameters[i].gradient.at, model->parameters[i].gradient.bytes);
	return all;
}

#ifdef CHARLM_DOUBLE
/* Along a random direction through the whole parameter, and along single numbers of it. */
static void check_direction(struct fixture *fixture, struct parameter *parameter, const real *direction)
{
	const double reach = 1e-5;
	double predicted = 0, after, before, measured;

	run(fixture, fixture->world->batch);
	for (size_t k = 0; k < parameter->count; k++)
		predicted += gradient_of(parameter)[k] * direction[k];
	for (size_t k = 0; k < parameter->count; k++)
		value_of(parameter)[k] += reach * direction[k];
	after = run(fixture, fixture->world->batch);
	for (size_t k = 0; k < parameter->count; k++)
		value_of(parameter)[k] -= 2 * reach * direction[k];
	before = run(fixture, fixture->world->batch);
	for (size_t k = 0; k < parameter->count; k++)
		value_of(parameter)[k] += reach * direction[k];
	measured = (after - before) / (2 * reach);
	if (fabs(measured - predicted) > 1e-8 + 1e-6 * fabs(measured))
		fail_msg("%s: gradient %.12g, finite difference %.12g", parameter->name, predicted, measured);
}

/* In all modes whose numbers are whole; single numbers of a parameter in the plain one. */
static void gradients_agree_with_differences(void **state)
{
	struct random random = random_from(4, 5, 6);

	(void)state;
	for (unsigned bits = 0; bits < MODES; bits++) {
		/* The long one costs more: so only in the mode that needs it. */
		const struct world *world = &worlds[bits == 5];
		struct fixture *fixture = open_fixture(world);

		fixture->modes = modes_of(bits);
		for (size_t i = 0; i < fixture->model->parameter_count && !fixture->modes.half; i++) {
			struct parameter *parameter = &fixture->model->parameters[i];
			real *direction = calloc(parameter->count, sizeof(real));

			assert_non_null(direction);
			for (int single = 0; single < 3 && bits == 0; single++) {
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
		close_fixture(fixture);
	}
}
#endif

/* The largest difference of two sets of gradients, as a share of the largest gradient of its parameter. The bias of
 * keys does not influence the softmax, so its gradient is noise: hence parameter by parameter, not number by
 * number. */
static double difference(const struct model *model, const real *expected)
{
	double worst = 0;

	for (size_t i = 0; i < model->parameter_count; expected += model->parameters[i++].count) {
		double largest = 0, apart = 0;

		for (size_t k = 0; k < model->parameters[i].count; k++) {
			largest = fmax(largest, fabs((double)expected[k]));
			apart = fmax(apart, fabs((double)(expected[k] - gradient_of(&model->parameters[i])[k])));
		}
		assert_true(largest > 0 && isfinite(largest));
		worst = fmax(worst, apart / largest);
	}
	return worst;
}

/* The same, in lengths: |expected - gradient| / |expected|. */
static double distance(const struct model *model, const real *expected)
{
	double worst = 0;

	for (size_t i = 0; i < model->parameter_count; expected += model->parameters[i++].count) {
		double length = 0, apart = 0;

		for (size_t k = 0; k < model->parameters[i].count; k++) {
			double off = (double)expected[k] - (double)gradient_of(&model->parameters[i])[k];

			length += (double)expected[k] * (double)expected[k];
			apart += off * off;
		}
		worst = fmax(worst, sqrt(apart / length));
	}
	return worst;
}

/* A batch of `samples` in parts of every size, equal or not. */
static void compare_splits(struct fixture *fixture, size_t samples)
{
	double loss = run_parts(fixture, samples, samples);
	size_t whole_peak = host_of(fixture->gpu)->peak_bytes;
	real *expected = gradients_of(fixture->model);

	for (size_t micro_batch = 1; micro_batch < samples; micro_batch++) {
		assert_true(fabs(run_parts(fixture, samples, micro_batch) - loss) <= TOLERANCE * loss);
		double apart = difference(fixture->model, expected);

		print_message(
			"%zu samples, at most %zu at a time: apart by %.2g of the largest, peak %zu of %zu bytes\n",
			samples, micro_batch, apart, host_of(fixture->gpu)->peak_bytes, whole_peak);
		assert_true(apart <= TOLERANCE);
		assert_true(host_of(fixture->gpu)->peak_bytes < whole_peak);
	}
	free(expected);
}

/* The whole batch, and the last one of an epoch, which may be smaller. */
static void splits_give_equal_gradients(void **state)
{
	(void)state;
	for (unsigned bits = 0; bits < MODES; bits++) {
		struct fixture *fixture = open_fixture(&worlds[0]);
		size_t batch = fixture->world->batch;

		fixture->modes = modes_of(bits);
		compare_splits(fixture, batch);
		compare_splits(fixture, batch - 1);
		if (bits == 0)
			for (size_t samples = 1; samples < batch - 1; samples++)
				compare_splits(fixture, samples);
		close_fixture(fixture);
	}
}

/* Each mode, added to any others: what it does to the gradients and to the loss, and that it needs less. */
static void compare_modes(const struct world *world, struct fixture *fixture)
{
	real *gradients[MODES] = {0};
	double losses[MODES];
	size_t peaks[MODES];

	for (unsigned bits = 0; bits < MODES; bits++) {
		fixture->modes = modes_of(bits);
		losses[bits] = run(fixture, world->batch);
		peaks[bits] = host_of(fixture->gpu)->peak_bytes;
		for (unsigned bit = 1; bit < MODES; bit *= 2) {
			if (!(bits & bit))
				continue;
			const real *expected = gradients[bits & ~bit];
			double apart = difference(fixture->model, expected), far = distance(fixture->model, expected);
			double loss = losses[bits & ~bit], off = fabs(losses[bits] - loss) / loss;
			bool halves = bits & 2;

			print_message(
				"modes %u + %u: apart by %.2g, by %.2g in length; loss by %.2g; peak %zu of %zu\n",
				bits & ~bit, bit, apart, far, off, peaks[bits], peaks[bits & ~bit]);
			if (modes_of(bit).checkpointing) {
				assert_true(apart == 0);
				assert_true(off == 0);
			} else if (halves) {
				assert_true(far > 0 && far <= HALF_TOLERANCE);
				assert_true(off <= HALF_TOLERANCE / 10);
			} else {
				assert_true(apart <= TOLERANCE);
				assert_true(off <= TOLERANCE);
			}
			assert_true(peaks[bits] < peaks[bits & ~bit]);
		}
		gradients[bits] = gradients_of(fixture->model);
	}
	for (unsigned bits = 0; bits < MODES; bits++)
		free(gradients[bits]);
}

static void modes_give_the_same_for_less(void **state)
{
	(void)state;
	for (size_t i = 0; i < WORLDS; i++) {
		struct fixture *fixture = open_fixture(&worlds[i]);

		compare_modes(&worlds[i], fixture);
		close_fixture(fixture);
	}
}

static void running_out_anywhere_leaves_nothing(void **state)
{
	(void)state;
	for (unsigned bits = 0; bits < MODES; bits++) {
		struct fixture *fixture = open_fixture(&worlds[0]);
		struct host *host = host_of(fixture->gpu);
		size_t before = host->live_blocks, batch = fixture->world->batch;
		enum neap_status status = NEAP_EOOM;
		long allowed = 0;

		fixture->modes = modes_of(bits);
		double loss = run(fixture, batch);
		for (; status != NEAP_OK; allowed++) {
			model_begin(fixture->model, (struct model_modes){0}); /* without copies in half precision */
			assert_int_equal(host->live_blocks, before);
			host->allocations_left = allowed;
			model_begin(fixture->model, fixture->modes);
			size_t begun = host->live_blocks;
			model_micro_batch(fixture->model, fixture->ids, fixture->targets, batch,
					  1.0 / (double)(batch * fixture->world->shape.context));
			status = gpu_take_error(fixture->gpu, NULL);
			assert_true(!status || status == NEAP_EOOM);
			assert_int_equal(host->live_blocks, begun);
			host->allocations_left = -1;
		}
		assert_true(allowed > 20);
		assert_true(run(fixture, batch) == loss);
		close_fixture(fixture);
	}
}

/* An update between two steps reaches the copies in half precision. */
static void copies_follow_the_values(void **state)
{
	struct fixture *fixture = open_fixture(&worlds[0]);
	size_t batch = fixture->world->batch;

	(void)state;
	fixture->modes.half = true;
	double before = run(fixture, batch);
	for (size_t i = 0; i < fixture->model->parameter_count; i++)
		for (size_t k = 0; k < fixture->model->parameters[i].count; k++)
			value_of(&fixture->model->parameters[i])[k] *= (real)1.5;
	double after = run(fixture, batch);
	model_begin(fixture->model, (struct model_modes){0}); /* without copies: they are made again */
	assert_true(run(fixture, batch) == after);
	assert_true(after != before);
	close_fixture(fixture);
}

/* To the nearest, to the even one of two, and what is not a number stays none. */
static void halves_are_rounded(void **state)
{
	static const struct {
		uint32_t whole;
		uint16_t half;
	} cases[] = {
		{0x3F800000, 0x3F80}, {0x3F807FFF, 0x3F80}, {0x3F808000, 0x3F80}, {0x3F808001, 0x3F81},
		{0x3F818000, 0x3F82}, {0x3F81FFFF, 0x3F82}, {0x80000000, 0x8000}, {0xBF80FFFF, 0xBF81},
		{0x7F7FFFFF, 0x7F80}, {0x7F800000, 0x7F80}, {0xFF800000, 0xFF80}, {0x7F800001, 0x7FC0},
		{0x00000001, 0x0000}, {0x0000C000, 0x0001},
	};

	(void)state;
	for (size_t i = 0; i < sizeof cases / sizeof *cases; i++) {
		float number;

		memcpy(&number, &cases[i].whole, sizeof number);
		if ((cases[i].whole & 0x7FFFFFFF) > 0x7F800000 && sizeof(real) != sizeof(float))
			continue;
		if (to_half((real)number) != cases[i].half)
			fail_msg("%08x becomes %04x, not %04x", cases[i].whole, to_half((real)number), cases[i].half);
	}
	for (uint32_t half = 0; half < 0x7F80; half++)
		assert_int_equal(to_half(from_half((uint16_t)half)), half);
}

int main(void)
{
	const struct CMUnitTest tests[] = {
#ifdef CHARLM_DOUBLE
		cmocka_unit_test(gradients_agree_with_differences),
#endif
		cmocka_unit_test(splits_give_equal_gradients),
		cmocka_unit_test(modes_give_the_same_for_less),
		cmocka_unit_test(running_out_anywhere_leaves_nothing),
		cmocka_unit_test(copies_follow_the_values),
		cmocka_unit_test(halves_are_rounded),
	};

	return cmocka_run_group_tests_name("charlm_gradients", tests, NULL, NULL);
}
