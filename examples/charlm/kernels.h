/* charlm/kernels.h: the mathematics, on plain arrays. Matrices are stored by rows. A `tokens` is samples x context:
 * one row for each position of each sample. Gradients of parameters are added to, all others written unless it says
 * so.
 *
 * Each function takes one struct, so that it can be queued as it is (ops.c).
 */
#ifndef CHARLM_KERNELS_H
#define CHARLM_KERNELS_H

#include "random.h"

#include <stdbool.h>
#include <stddef.h>
#include <stdint.h>

/* The gradient tests compile everything in double, so that finite differences are sharp. */
#ifdef CHARLM_DOUBLE
typedef double real;
#else
typedef float real;
#endif

/* out[rows, columns] = a x b, plus bias if there is one, plus what was in out if `add`.
 * a[i, k] is a[i * a_row + k * a_column], so that it can be read transposed; b and out have rows of contiguous
 * numbers, b_row and out_row apart. */
struct matmul {
	real *out;
	const real *a, *b, *bias;
	size_t rows, inner, columns;
	size_t a_row, a_column, b_row, out_row;
	bool add;
};

/* out[columns, rows] = in[rows, columns] transposed */
struct transpose {
	real *out;
	const real *in;
	size_t rows, columns;
};

/* out[columns] += the sum of in's rows */
struct sum_rows {
	real *out;
	const real *in;
	size_t rows, columns;
};

/* out = token[ids] + position; backward: both tables' gradients += out's. */
struct embed {
	real *out, *token, *position;
	const int32_t *ids;
	size_t samples, context, width;
};

/* out = (in - mean) / deviation * gain + bias, row by row; `statistics` keeps mean and 1/deviation of each row. */
struct norm {
	real *out, *statistics;
	const real *in, *gain, *bias;
	size_t rows, width;
};

/* in_gradient is added to: the residual stream's gradient goes past as well as through. */
struct norm_backward {
	real *in_gradient, *gain_gradient, *bias_gradient;
	const real *out_gradient, *in, *statistics, *gain;
	size_t rows, width;
};

/* Each head's query looks at keys at its own position and before. qkv: rows of query, key, value, each `width` wide;
 * weights[samples, heads, context, context] is kept for the way back. scratch: context x (context + width / heads).
 */
struct attention {
	real *out, *weights, *scratch;
	const real *qkv;
	size_t samples, heads, context, width;
};

struct attention_backward {
	real *qkv_gradient, *scratch;
	const real *out_gradient, *weights, *qkv;
	size_t samples, heads, context, width;
};

/* out = in * (how much of a Gaussian lies below it), its usual tanh form */
struct gelu {
	real *out;
	const real *in;
	size_t count;
};

/* gradient: of out on entry, of in on return */
struct gelu_backward {
	real *gradient;
	const real *in;
	size_t count;
};

/* out += in */
struct add {
	real *out;
	const real *in;
	size_t count;
};

/* loss += scale * sum of -log softmax(logits)[target]; the logits become its gradient. */
struct cross_entropy {
	real *logits;
	double *loss;
	const int32_t *targets;
	size_t rows, vocabulary;
	double scale;
};

/* One update of AdamW, with `step` from 1. */
struct adamw {
	real *value, *gradient, *moment1, *moment2;
	size_t count;
	uint64_t step;
	double rate, decay;
};

/* out = constant, plus Gaussian numbers of that deviation if it is not 0. */
struct fill {
	real *out;
	size_t count;
	double constant, deviation;
	struct random random;
};

void kernel_fill(const struct fill *arguments);
void kernel_matmul(const struct matmul *arguments);
void kernel_transpose(const struct transpose *arguments);
void kernel_sum_rows(const struct sum_rows *arguments);
void kernel_embed(const struct embed *arguments);
void kernel_embed_backward(const struct embed *arguments); /* `out`: its gradient; the tables: theirs */
void kernel_norm(const struct norm *arguments);
void kernel_norm_backward(const struct norm_backward *arguments);
void kernel_attention(const struct attention *arguments);
void kernel_attention_backward(const struct attention_backward *arguments);
void kernel_gelu(const struct gelu *arguments);
void kernel_gelu_backward(const struct gelu_backward *arguments);
void kernel_add(const struct add *arguments);
void kernel_cross_entropy(const struct cross_entropy *arguments);
void kernel_adamw(const struct adamw *arguments);

#endif
