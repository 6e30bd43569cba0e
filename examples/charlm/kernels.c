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
	uint16_t *half_out = a->out.at;
	const uint16_t *half_in = a->in.at;
	real *out = a->out.at;
	const real *in = a->in.at;

	for (size_t i = 0; i < a->rows && a->in.half; i++)
		for (size_t j = 0; j < a->columns; j++)
			half_out[j * a->rows + i] = half_in[i * a->columns + j];
	for (size_t i = 0; i < a->rows && !a->in.half; i++)
		for (size_t j = 0; j < a->columns; j++)
			out[j * a->rows + i] = in[i * a->columns + j];
}

/* What has no rows is taken in pieces. */
enum { PIECE = 512 };

static size_t piece(size_t from, size_t count) { return count - from < PIECE ? count - from : PIECE; }

void kernel_sum_rows(const struct sum_rows *a)
{
	real room[PIECE];

	for (size_t from = 0; from < a->columns; from += PIECE)
		for (size_t i = 0; i < a->rows; i++) {
			size_t count = piece(from, a->columns);
			const real *in = numbers_open(a->in, i * a->columns + from, count, room);

			for (size_t j = 0; j < count; j++)
				a->out[from + j] += in[j];
		}
}

void kernel_embed(const struct embed *a)
{
	real room[ROW_MAX];

	for (size_t i = 0; i < a->samples * a->context; i++) {
		const real *token = a->token + (size_t)a->ids[i] * a->width;
		const real *position = a->position + i % a->context * a->width;
		real *out = numbers_place(a->out, i * a->width, room);

		for (size_t j = 0; j < a->width; j++)
			out[j] = token[j] + position[j];
		numbers_close(a->out, i * a->width, a->width, out);
	}
}

void kernel_embed_backward(const struct embed *a)
{
	real room[ROW_MAX];

	for (size_t i = 0; i < a->samples * a->context; i++) {
		real *token = a->token + (size_t)a->ids[i] * a->width;
		real *position = a->position + i % a->context * a->width;
		const real *out = numbers_open(a->out, i * a->width, a->width, room);

		for (size_t j = 0; j < a->width; j++) {
			token[j] += out[j];
			position[j] += out[j];
		}
	}
}

void kernel_norm(const struct norm *a)
{
	real in_room[ROW_MAX], out_room[ROW_MAX];

	for (size_t i = 0; i < a->rows; i++) {
		const real *in = numbers_open(a->in, i * a->width, a->width, in_room);
		real *out = numbers_place(a->out, i * a->width, out_room), mean = 0, variance = 0, scale;

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
		numbers_close(a->out, i * a->width, a->width, out);
	}
}

/* With x = (in - mean) * scale and g = out_gradient * gain:  in_gradient = (g - mean(g) - x mean(g x)) * scale */
void kernel_norm_backward(const struct norm_backward *a)
{
	real in_room[ROW_MAX], gradient_room[ROW_MAX];

	for (size_t i = 0; i < a->rows; i++) {
		const real *in = numbers_open(a->in, i * a->width, a->width, in_room);
		const real *out_gradient = numbers_open(a->out_gradient, i * a->width, a->width, gradient_room);
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
	real in_room[PIECE], out_room[PIECE];

	for (size_t from = 0; from < a->count; from += PIECE) {
		size_t count = piece(from, a->count);
		const real *in = numbers_open(a->in, from, count, in_room);
		real *out = numbers_place(a->out, from, out_room);

		for (size_t i = 0; i < count; i++)
			out[i] = in[i] * gelu_share(in[i]);
		numbers_close(a->out, from, count, out);
	}
}

void kernel_gelu_backward(const struct gelu_backward *a)
{
	real in_room[PIECE], gradient_room[PIECE];

	for (size_t from = 0; from < a->count; from += PIECE) {
		size_t count = piece(from, a->count);
		const real *in = numbers_open(a->in, from, count, in_room);
		real *gradient = numbers_open(a->gradient, from, count, gradient_room);

		for (size_t i = 0; i < count; i++) {
			real x = in[i], share = gelu_share(x);

			gradient[i] *=
				share + x * share * (1 - share) * 2 * GELU_LINEAR * (1 + 3 * GELU_CUBIC * x * x);
		}
		numbers_close(a->gradient, from, count, gradient);
	}
}

void kernel_add(const struct add *a)
{
	real in_room[PIECE], out_room[PIECE];

	for (size_t from = 0; from < a->count; from += PIECE) {
		size_t count = piece(from, a->count);
		const real *in = numbers_open(a->in, from, count, in_room);
		real *out = numbers_open(a->out, from, count, out_room);

		for (size_t i = 0; i < count; i++)
			out[i] += in[i];
		numbers_close(a->out, from, count, out);
	}
}

void kernel_copy(const struct copy *a)
{
	real in_room[PIECE], out_room[PIECE];

	for (size_t from = 0; from < a->count; from += PIECE) {
		size_t count = piece(from, a->count);
		const real *in = numbers_open(a->in, from, count, in_room);
		real *out = numbers_place(a->out, from, out_room);

		memcpy(out, in, count * sizeof(*out));
		numbers_close(a->out, from, count, out);
	}
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
