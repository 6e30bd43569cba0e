/* charlm/kernels.c: see the header. Matrix products and attention have files of their own. */
#include "kernels.h"

#include "exponential.h"

#include <math.h>

void kernel_fill(const struct fill *a)
{
	struct random random = a->random;

	for (size_t i = 0; i < a->count; i++)
		a->out[i] = (real)(a->constant + (a->deviation != 0 ? a->deviation * random_gauss(&random) : 0));
}

void kernel_transpose(const struct transpose *a)
{
	for (size_t i = 0; i < a->rows; i++)
		for (size_t j = 0; j < a->columns; j++)
			a->out[j * a->rows + i] = a->in[i * a->columns + j];
}

void kernel_sum_rows(const struct sum_rows *a)
{
	for (size_t i = 0; i < a->rows; i++)
		for (size_t j = 0; j < a->columns; j++)
			a->out[j] += a->in[i * a->columns + j];
}

void kernel_embed(const struct embed *a)
{
	for (size_t i = 0; i < a->samples * a->context; i++) {
		const real *token = a->token + (size_t)a->ids[i] * a->width;
		const real *position = a->position + i % a->context * a->width;

		for (size_t j = 0; j < a->width; j++)
			a->out[i * a->width + j] = token[j] + position[j];
	}
}

void kernel_embed_backward(const struct embed *a)
{
	for (size_t i = 0; i < a->samples * a->context; i++) {
		real *token = a->token + (size_t)a->ids[i] * a->width;
		real *position = a->position + i % a->context * a->width;
		const real *out = a->out + i * a->width;

		for (size_t j = 0; j < a->width; j++) {
			token[j] += out[j];
			position[j] += out[j];
		}
	}
}

void kernel_norm(const struct norm *a)
{
	for (size_t i = 0; i < a->rows; i++) {
		const real *in = a->in + i * a->width;
		real *out = a->out + i * a->width, mean = 0, variance = 0, scale;

		for (size_t j = 0; j < a->width; j++)
			mean += in[j];
		mean /= (real)a->width;
		for (size_t j = 0; j < a->width; j++)
			variance += (in[j] - mean) * (in[j] - mean);
		scale = 1 / square_root(variance / (real)a->width + (real)1e-5);
		for (size_t j = 0; j < a->width; j++)
			out[j] = (in[j] - mean) * scale * a->gain[j] + a->bias[j];
		a->statistics[2 * i] = mean;
		a->statistics[2 * i + 1] = scale;
	}
}

/* With x = (in - mean) * scale and g = out_gradient * gain:  in_gradient = (g - mean(g) - x mean(g x)) * scale */
void kernel_norm_backward(const struct norm_backward *a)
{
	for (size_t i = 0; i < a->rows; i++) {
		const real *in = a->in + i * a->width, *out_gradient = a->out_gradient + i * a->width;
		real mean = a->statistics[2 * i], scale = a->statistics[2 * i + 1], g_mean = 0, gx_mean = 0;
		real *in_gradient = a->in_gradient + i * a->width;

		for (size_t j = 0; j < a->width; j++) {
			real x = (in[j] - mean) * scale, g = out_gradient[j] * a->gain[j];

			g_mean += g;
			gx_mean += g * x;
			a->gain_gradient[j] += out_gradient[j] * x;
			a->bias_gradient[j] += out_gradient[j];
		}
		g_mean /= (real)a->width;
		gx_mean /= (real)a->width;
		for (size_t j = 0; j < a->width; j++) {
			real x = (in[j] - mean) * scale, g = out_gradient[j] * a->gain[j];

			in_gradient[j] += (g - g_mean - x * gx_mean) * scale;
		}
	}
}

/* x * (1 + tanh u) / 2 = x / (1 + e^-2u) with u = sqrt(2 / pi) (x + 0.044715 x^3) */
static const real GELU_LINEAR = (real)0.797884560802865, GELU_CUBIC = (real)0.044715;

static inline __attribute__((always_inline)) real gelu_share(real x)
{
	return 1 / (1 + exponential(-2 * GELU_LINEAR * (x + GELU_CUBIC * x * x * x)));
}

void kernel_gelu(const struct gelu *a)
{
	for (size_t i = 0; i < a->count; i++)
		a->out[i] = a->in[i] * gelu_share(a->in[i]);
}

void kernel_gelu_backward(const struct gelu_backward *a)
{
	for (size_t i = 0; i < a->count; i++) {
		real x = a->in[i], share = gelu_share(x);

		a->gradient[i] *= share + x * share * (1 - share) * 2 * GELU_LINEAR * (1 + 3 * GELU_CUBIC * x * x);
	}
}

void kernel_add(const struct add *a)
{
	for (size_t i = 0; i < a->count; i++)
		a->out[i] += a->in[i];
}

void kernel_cross_entropy(const struct cross_entropy *a)
{
	double loss = 0;

	for (size_t i = 0; i < a->rows; i++) {
		real *row = a->logits + i * a->vocabulary, highest = row[0], target = row[a->targets[i]], sum = 0,
		     scale;

		for (size_t j = 1; j < a->vocabulary; j++)
			highest = row[j] > highest ? row[j] : highest;
		for (size_t j = 0; j < a->vocabulary; j++)
			row[j] = exponential(row[j] - highest);
		for (size_t j = 0; j < a->vocabulary; j++)
			sum += row[j];
		loss += log((double)sum) - (double)(target - highest);
		scale = (real)(a->scale / (double)sum);
		for (size_t j = 0; j < a->vocabulary; j++)
			row[j] *= scale;
		row[a->targets[i]] -= (real)a->scale;
	}
	*a->loss += a->scale * loss;
}

void kernel_adamw(const struct adamw *a)
{
	const real keep1 = (real)0.9, keep2 = (real)0.99;
	real correct1 = (real)(1 / (1 - pow(0.9, (double)a->step)));
	real correct2 = (real)(1 / (1 - pow(0.99, (double)a->step)));
	real rate = (real)a->rate, shrink = (real)(1 - a->rate * a->decay);

	for (size_t i = 0; i < a->count; i++) {
		real gradient = a->gradient[i];
		real moment1 = a->moment1[i] = keep1 * a->moment1[i] + (1 - keep1) * gradient;
		real moment2 = a->moment2[i] = keep2 * a->moment2[i] + (1 - keep2) * gradient * gradient;

		a->value[i] = shrink * a->value[i] -
			      rate * moment1 * correct1 / (square_root(moment2 * correct2) + (real)1e-8);
	}
}
