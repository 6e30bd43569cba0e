/* charlm/attention.c: causal self-attention, one head of one sample at a time.
 *
 *   weights = softmax(query x key^T / sqrt(head width)), zero above the diagonal        out = weights x value
 */
#include "attention.h"

#include "exponential.h"

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

/* out[rows, columns] = a[rows, inner] x b[inner, columns], all of them whole matrices; or a[inner, rows]^T x b */
static void multiply(real *out, const real *a, bool transposed, const real *b, size_t rows, size_t inner,
		     size_t columns)
{
	kernel_matmul(&(struct matmul){.out = whole(out),
				       .a = whole(a),
				       .b = whole(b),
				       .rows = rows,
				       .inner = inner,
				       .columns = columns,
				       .a_row = transposed ? 1 : inner,
				       .a_column = transposed ? rows : 1,
				       .b_row = columns,
				       .out_row = columns});
}

void kernel_attention(const struct attention *a)
{
	size_t head_width = a->width / a->heads, wide = 3 * a->width, square = a->context * a->context;
	size_t matrix = a->context * head_width;
	real *query = a->scratch, *key = query + matrix, *value = key + matrix, *flipped = value + matrix;
	real *out = flipped + matrix, *room = out + matrix, scale = 1 / square_root((real)head_width);

	for (size_t i = 0; i < a->samples * a->heads; i++) {
		size_t row = i / a->heads * a->context, column = i % a->heads * head_width;
		struct numbers qkv = numbers_from(a->qkv, row * wide + column);
		real *weights = numbers_place(a->weights, i * square, room);

		take(query, qkv, a->context, head_width, wide);
		take(key, numbers_from(qkv, a->width), a->context, head_width, wide);
		take(value, numbers_from(qkv, 2 * a->width), a->context, head_width, wide);
		flip(flipped, key, a->context, head_width);
		multiply(weights, query, false, flipped, a->context, head_width, a->context);
		causal_softmax(weights, a->context, scale);
		numbers_close(a->weights, i * square, square, weights);
		multiply(out, weights, false, value, a->context, a->context, head_width);
		put(numbers_from(a->out, row * a->width + column), out, a->context, head_width, a->width);
	}
}

void kernel_attention_backward(const struct attention_backward *a)
{
	size_t head_width = a->width / a->heads, wide = 3 * a->width, square = a->context * a->context;
	size_t matrix = a->context * head_width;
	real *query = a->scratch, *key = query + matrix, *value = key + matrix, *flipped = value + matrix;
	real *out_gradient = flipped + matrix, *gradient = out_gradient + matrix, *scores = gradient + matrix;
	real *room = scores + square, scale = 1 / square_root((real)head_width);

	for (size_t i = 0; i < a->samples * a->heads; i++) {
		size_t row = i / a->heads * a->context, column = i % a->heads * head_width;
		struct numbers qkv = numbers_from(a->qkv, row * wide + column);
		struct numbers qkv_gradient = numbers_from(a->qkv_gradient, row * wide + column);
		const real *weights = numbers_open(a->weights, i * square, square, room);

		take(query, qkv, a->context, head_width, wide);
		take(key, numbers_from(qkv, a->width), a->context, head_width, wide);
		take(value, numbers_from(qkv, 2 * a->width), a->context, head_width, wide);
		take(out_gradient, numbers_from(a->out_gradient, row * a->width + column), a->context, head_width,
		     a->width);
		multiply(gradient, weights, true, out_gradient, a->context, a->context, head_width);
		put(numbers_from(qkv_gradient, 2 * a->width), gradient, a->context, head_width, wide);
		flip(flipped, value, a->context, head_width);
		multiply(scores, out_gradient, false, flipped, a->context, head_width, a->context);
		causal_softmax_backward(scores, weights, a->context, scale);
		multiply(gradient, scores, false, key, a->context, a->context, head_width);
		put(qkv_gradient, gradient, a->context, head_width, wide);
		multiply(gradient, scores, true, query, a->context, a->context, head_width);
		put(numbers_from(qkv_gradient, a->width), gradient, a->context, head_width, wide);
	}
}
