/* charlm/ops.h: the kernels, queued on the device with the ranges that each reads and writes. */
#ifndef CHARLM_OPS_H
#define CHARLM_OPS_H

#include "device.h"
#include "kernels.h"

/* Memory for so many numbers: whole ones, or as asked for. */
real *op_new(struct gpu *gpu, const char *tag, size_t count);
struct numbers op_numbers(struct gpu *gpu, const char *tag, size_t count, bool half);

void op_zero(struct gpu *gpu, void *memory, size_t bytes);
void op_fill(struct gpu *gpu, const struct fill *arguments);
void op_matmul(struct gpu *gpu, const struct matmul *arguments);
void op_embed(struct gpu *gpu, const struct embed *arguments, size_t vocabulary);
void op_embed_backward(struct gpu *gpu, const struct embed *arguments, size_t vocabulary);
void op_norm(struct gpu *gpu, const struct norm *arguments);
void op_norm_backward(struct gpu *gpu, const struct norm_backward *arguments);
/* The efficient ones where there is no memory for all weights. They bring their scratch. */
void op_attention(struct gpu *gpu, const struct attention *arguments);
void op_attention_backward(struct gpu *gpu, const struct attention_backward *arguments);
void op_gelu(struct gpu *gpu, const struct gelu *arguments);
void op_gelu_backward(struct gpu *gpu, const struct gelu_backward *arguments);
void op_add(struct gpu *gpu, const struct add *arguments);
void op_copy(struct gpu *gpu, const struct copy *arguments);
void op_cross_entropy(struct gpu *gpu, const struct cross_entropy *arguments);
void op_adamw(struct gpu *gpu, const struct adamw *arguments);

/* out = in x weight + bias */
struct linear {
	struct numbers out, in, weight;
	const real *bias;
	size_t rows, inner, columns;
};

/* in_gradient = out_gradient x weight^T; weight_gradient += in^T x out_gradient; bias_gradient += its rows' sum */
struct linear_backward {
	struct numbers in_gradient;
	real *weight_gradient, *bias_gradient;
	struct numbers out_gradient, in, weight;
	size_t rows, inner, columns;
};

void op_linear(struct gpu *gpu, const struct linear *arguments);
void op_linear_backward(struct gpu *gpu, const struct linear_backward *arguments);

#endif
