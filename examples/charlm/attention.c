/* charlm/attention.c: causal self-attention, one head of one sample at a time.
 *
 *   weights = softmax(query x key^T / sqrt(head width)), zero above the diagonal        out = weights x value
 */
#include "exponential.h"
#include "kernels.h"

static void transposed(real *out, const real *in, size_t rows, size_t columns, size_t in_row)
{
	for (size_t i = 0; i < rows; i++)
		for (size_t j = 0; j < columns; j++)
			out[j * rows + i] = in[i * in_row + j];
}

/* Row t of a square of scores becomes weights of positions 0..t. */
static void causal_softmax(real *scores, size_t context, real scale)
{
	for (size_t t = 0; t < context; t++) {
		real *row = scores + t * context, highest = row[0], sum = 0;

		for (size_t s = 1; s <= t; s++)
			highest = row[s] > highest ? row[s] : highest;
		for (size_t s = 0; s <= t; s++)
			row[s] = exponential((row[s] - highest) * scale);
		for (size_t s = 0; s <= t; s++)
			sum += row[s];
		for (size_t s = 0; s <= t; s++)
			row[s] /= sum;
		for (size_t s = t + 1; s < context; s++)
			row[s] = 0;
	}
}

/* The gradient of the weights becomes that of query x key^T. */
static void causal_softmax_backward(real *gradient, const real *weights, size_t context, real scale)
{
	for (size_t t = 0; t < context; t++) {
		real *row = gradient + t * context, mean = 0;
		const real *weight = weights + t * context;

		for (size_t s = 0; s <= t; s++)
			mean += row[s] * weight[s];
		for (size_t s = 0; s <= t; s++)
			row[s] = weight[s] * (row[s] - mean) * scale;
		for (size_t s = t + 1; s < context; s++)
			row[s] = 0;
	}
}

void kernel_attention(const struct attention *a)
{
	size_t head_width = a->width / a->heads, wide = 3 * a->width, square = a->context * a->context;
	real scale = 1 / square_root((real)head_width);

	for (size_t i = 0; i < a->samples * a->heads; i++) {
		size_t sample = i / a->heads, head = i % a->heads;
		const real *query = a->qkv + sample * a->context * wide + head * head_width;
		const real *key = query + a->width, *value = key + a->width;
		real *weights = a->weights + i * square;

		transposed(a->scratch, key, a->context, head_width, wide);
		kernel_matmul(&(struct matmul){weights, query, a->scratch, NULL, a->context, head_width, a->context,
					       wide, 1, a->context, a->context, false});
		causal_softmax(weights, a->context, scale);
		kernel_matmul(&(struct matmul){a->out + sample * a->context * a->width + head * head_width, weights,
					       value, NULL, a->context, a->context, head_width, a->context, 1, wide,
					       a->width, false});
	}
}

void kernel_attention_backward(const struct attention_backward *a)
{
	size_t head_width = a->width / a->heads, wide = 3 * a->width, square = a->context * a->context;
	real scale = 1 / square_root((real)head_width);
	real *scores = a->scratch, *flipped = a->scratch + square;

	for (size_t i = 0; i < a->samples * a->heads; i++) {
		size_t sample = i / a->heads, head = i % a->heads,
		       at = sample * a->context * wide + head * head_width;
		const real *query = a->qkv + at, *key = query + a->width, *value = key + a->width;
		const real *weights = a->weights + i * square;
		const real *out_gradient = a->out_gradient + sample * a->context * a->width + head * head_width;
		real *query_gradient = a->qkv_gradient + at, *key_gradient = query_gradient + a->width;

		kernel_matmul(&(struct matmul){key_gradient + a->width, weights, out_gradient, NULL, a->context,
					       a->context, head_width, 1, a->context, a->width, wide, false});
		transposed(flipped, value, a->context, head_width, wide);
		kernel_matmul(&(struct matmul){scores, out_gradient, flipped, NULL, a->context, head_width,
					       a->context, a->width, 1, a->context, a->context, false});
		causal_softmax_backward(scores, weights, a->context, scale);
		kernel_matmul(&(struct matmul){query_gradient, scores, key, NULL, a->context, a->context, head_width,
					       a->context, 1, wide, wide, false});
		kernel_matmul(&(struct matmul){key_gradient, scores, query, NULL, a->context, a->context, head_width,
					       1, a->context, wide, wide, false});
	}
}
