/* charlm/ops.h: the kernels, queued on the device with the ranges that each reads and writes. */
#ifndef CHARLM_OPS_H
#define CHARLM_OPS_H

#include "device.h"
#include "kernels.h"

/* Memory for so many numbers. */
real *op_new(struct gpu *gpu, const char *tag, size_t count);

void op_zero(struct gpu *gpu, void *memory, size_t bytes);
void op_fill(struct gpu *gpu, const struct fill *arguments);
void op_matmul(struct gpu *gpu, const struct matmul *arguments);
void op_embed(struct gpu *gpu, const struct embed *arguments, size_t vocabulary);
void op_embed_backward(struct gpu *gpu, const struct embed *arguments, size_t vocabulary);
void op_norm(struct gpu *gpu, const struct norm *arguments);
void op_norm_backward(struct gpu *gpu, const struct norm_backward *arguments);
void op_attention(struct gpu *gpu, const struct attention *arguments);                   /* brings its scratch */
void op_attention_backward(struct gpu *gpu, const struct attention_backward *arguments); /* likewise */
void op_gelu(struct gpu *gpu, const struct gelu *arguments);
void op_gelu_backward(struct gpu *gpu, const struct gelu_backward *arguments);
void op_add(struct gpu *gpu, const struct add *arguments);
void op_cross_entropy(struct gpu *gpu, const struct cross_entropy *arguments);
void op_adamw(struct gpu *gpu, const struct adamw *arguments);

/* out = in x weight + bias */
struct linear {
	real *out;
	const real *in, *weight, *bias;
	size_t rows, inner, columns;
};

/* in_gradient = out_gradient x weight^T; weight_gradient += in^T x out_gradient; bias_gradient += its rows' sum */
struct linear_backward {
	real *in_gradient, *weight_gradient, *bias_gradient;
	const real *out_gradient, *in, *weight;
	size_t rows, inner, columns;
};

void op_linear(struct gpu *gpu, const struct linear *arguments);
void op_linear_backward(struct gpu *gpu, const struct linear_backward *arguments);

#endif
