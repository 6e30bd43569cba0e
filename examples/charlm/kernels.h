/* charlm/kernels.h: the mathematics, on plain arrays. Matrices are stored by rows. A `tokens` is samples x context:
 * one row for each position of each sample. Gradients of parameters are added to, all others written unless it says
 * so.
 *
 * Each function takes one struct, so that it can be queued as it is (ops.c).
 */
#ifndef CHARLM_KERNELS_H
#define CHARLM_KERNELS_H

#include "numbers.h"
#include "random.h"

/* The widest row that a kernel takes whole. */
enum { ROW_MAX = 4096 };

/* out[rows, columns] = a x b, plus bias if there is one, plus what was in out if `add`.
 * a[i, k] is a[i * a_row + k * a_column], so that it can be read transposed; b and out have rows of contiguous
 * numbers, b_row and out_row apart; of a, rows or columns are contiguous. */
struct matmul {
	struct numbers out, a, b;
	const real *bias;
	size_t rows, inner, columns;
	size_t a_row, a_column, b_row, out_row;
	bool add;
};

/* out[columns, rows] = in[rows, columns] transposed */
struct transpose {
	struct numbers out, in; /* both whole or both half */
	size_t rows, columns;
};

/* out[columns] += the sum of in's rows */
struct sum_rows {
	real *out;
	struct numbers in;
	size_t rows, columns;
};

/* out = token[ids] + position; backward: both tables' gradients += out's. */
struct embed {
	struct numbers out;
	real *token, *position;
	const int32_t *ids;
	size_t samples, context, width;
};

/* out = (in - mean) / deviation * gain + bias, row by row; `statistics` keeps mean and 1/deviation of each row. */
struct norm {
	struct numbers out, in;
	real *statistics;
	const real *gain, *bias;
	size_t rows, width;
};

/* in_gradient is added to: the residual stream's gradient goes past as well as through. */
struct norm_backward {
	real *in_gradient, *gain_gradient, *bias_gradient;
	struct numbers out_gradient, in;
	const real *statistics, *gain;
	size_t rows, width;
};

/* Each head's query looks at keys at its own position and before. qkv: rows of query, key, value, each `width` wide.
 * `scratch` has attention_scratch numbers. Two ways to the same result:
 *
 *   attention            keeps all weights[samples, heads, context, context] for the way back
 *   attention_efficient  keeps logs[samples, heads, context], the logarithm of the sum that each query's weights were
 *                        divided by, and computes weights again, a tile at a time: see attention_efficient.c
 */
struct attention {
	struct numbers out, qkv, weights;
	real *logs, *scratch;
	size_t samples, heads, context, width;
};

/* `out` is read by attention_efficient_backward only. */
struct attention_backward {
	struct numbers qkv_gradient, out_gradient, out, qkv, weights;
	real *logs, *scratch;
	size_t samples, heads, context, width;
};

/* out = in * (how much of a Gaussian lies below it), its usual tanh form */
struct gelu {
	struct numbers out, in;
	size_t count;
};

/* gradient: of out on entry, of in on return */
struct gelu_backward {
	struct numbers gradient, in;
	size_t count;
};

/* out += in */
struct add {
	struct numbers out, in;
	size_t count;
};

/* out = in */
struct copy {
	struct numbers out, in;
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
void kernel_attention_efficient(const struct attention *arguments);
void kernel_attention_efficient_backward(const struct attention_backward *arguments);
size_t attention_scratch(size_t context, size_t head_width, bool efficient);
void kernel_gelu(const struct gelu *arguments);
void kernel_gelu_backward(const struct gelu_backward *arguments);
void kernel_add(const struct add *arguments);
void kernel_copy(const struct copy *arguments);
void kernel_cross_entropy(const struct cross_entropy *arguments);
void kernel_adamw(const struct adamw *arguments);

#endif
