/* charlm/kernels.h: the kernels, and the one way to queue any of them on the device:
 *
 *     launch(gpu, KERNEL_GELU, (struct call){.out = {active}, .in = {expanded}});
 *
 * A call names the tensors that the kernel writes and those that it only reads, in the order of the list below, and
 * the sizes that the tensors do not tell. The simulator checks the order of launches by these tensors. Matrices are
 * stored by rows. Outputs are overwritten, except where the list says +=.
 */
#ifndef CHARLM_KERNELS_H
#define CHARLM_KERNELS_H

#include "device.h"
#include "random.h"
#include "tensor.h"

/* The widest row that a kernel takes whole. */
enum { ROW_MAX = 4096 };

/* What each computes, from its inputs x, y, ... in this order. Statistics are each row's mean and 1 / deviation.
 *
 *   FILL                 out = constant + Gaussian numbers of that deviation
 *   CONVERT              out (half) = x (whole)
 *   ADD                  out += x
 *   TRANSPOSE            out = x[rows, columns] transposed; both whole or both half
 *   SUM_ROWS             out[columns] += the sum of x's rows
 *   MATMUL               out[rows, columns] = x[rows, inner] x y[inner, columns] + z[columns], if there is a z
 *   MATMUL_TRANSPOSED    out[rows, columns] += x[inner, rows] transposed x y[inner, columns]
 *   EMBED                out = token[id] + position                   in: token, position, ids
 *   EMBED_BACKWARD       out: token's gradient, position's; both +=   in: gradient of out, ids
 *   NORM                 out: (x - mean) / deviation * gain + bias, statistics   in: x, gain, bias
 *   NORM_BACKWARD        out: gradients of x, gain, bias; all +=      in: gradient of out, x, statistics, gain
 *   ATTENTION            out: out, kept, scratch                      in: qkv (rows of query, key, value)
 *   ATTENTION_BACKWARD   out: gradient of qkv, scratch                in: qkv, kept, gradient of out
 *   EFFICIENT, EFFICIENT_BACKWARD                                     the same with less kept: attention.c
 *   GELU                 out = x * (the share of a Gaussian below x), in its usual tanh form
 *   GELU_BACKWARD        out: gradient of gelu's out, which becomes that of x
 *   CROSS_ENTROPY        out: logits, which become their gradient; loss (a double), +=   in: targets
 *   ADAMW                out: value, both moments                     in: gradient
 */
enum kernel {
	KERNEL_FILL,
	KERNEL_CONVERT,
	KERNEL_ADD,
	KERNEL_TRANSPOSE,
	KERNEL_SUM_ROWS,
	KERNEL_MATMUL,
	KERNEL_MATMUL_TRANSPOSED,
	KERNEL_EMBED,
	KERNEL_EMBED_BACKWARD,
	KERNEL_NORM,
	KERNEL_NORM_BACKWARD,
	KERNEL_ATTENTION,
	KERNEL_ATTENTION_BACKWARD,
	KERNEL_EFFICIENT,
	KERNEL_EFFICIENT_BACKWARD,
	KERNEL_GELU,
	KERNEL_GELU_BACKWARD,
	KERNEL_CROSS_ENTROPY,
	KERNEL_ADAMW,
};

struct call {
	enum kernel kernel; /* set by launch */
	struct tensor out[3], in[4];
	size_t rows, columns, inner; /* of attention: samples x context, width, context */
	size_t heads;
	double constant, deviation; /* of a fill */
	struct random random;
	double scale; /* of each position's loss */
	double rate, decay;
	uint64_t step; /* of AdamW, from 1 */
};

void launch(struct gpu *gpu, enum kernel kernel, struct call call);

/* A new tensor of `count` numbers. `at` is NULL after a failure, see device.h. */
struct tensor tensor_new(struct gpu *gpu, const char *tag, size_t count, bool half);

/* attention.c */
void kernel_attention(const struct call *call);
void kernel_attention_backward(const struct call *call);
void kernel_efficient(const struct call *call);
void kernel_efficient_backward(const struct call *call);
size_t attention_scratch(size_t context, size_t head_width, bool efficient); /* how many numbers it has */

#endif
