/* charlm/kernels.h: the kernels, and the one way to queue any of them on the device:
 *
 *     launch(gpu, &GELU, (struct call){{active}, {expanded}});
 *
 * A call names the tensors that the kernel writes, then those that it only reads, in the order of the list below,
 * then rows, columns and inner, if the tensors do not tell these sizes. The simulator checks the order of launches by
 * these tensors. Matrices are stored by rows. Outputs are overwritten, except if the list says +=.
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
 *   CONVERT              out (half) = x (whole)
 *   ADD                  out += x
 *   GELU                 out = x * (the share of a Gaussian below x), in its usual tanh form
 *   GELU_BACKWARD        out: gradient of gelu's out, which becomes that of x
 *   FILL                 out = constant + Gaussian numbers of that deviation
 *   ADAMW                out: value, both moments                     in: gradient
 *   EMBED                out = token[id] + position                   in: token, position, ids
 *   EMBED_BACKWARD       out: token's gradient, position's; both +=   in: gradient of out, ids
 *   NORM                 out: (x - mean) / deviation * gain + bias, statistics   in: x, gain, bias
 *   NORM_BACKWARD        out: gradients of x, gain, bias; all +=      in: gradient of out, x, statistics, gain
 *   CROSS_ENTROPY        out: logits, which become their gradient; loss (a double), +=   in: targets
 *   SUM_ROWS             out[columns] += the sum of x's rows
 *   TRANSPOSE            out = x[rows, columns] transposed; both whole or both half
 *   MATMUL               out[rows, columns] = x[rows, inner] x y[inner, columns] + z[columns], if there is a z
 *   MATMUL_TRANSPOSED    out[rows, columns] += x[inner, rows] transposed x y[inner, columns]
 *   ATTENTION            out: out, kept, scratch                      in: qkv (rows of query, key, value)
 *   ATTENTION_BACKWARD   out: gradient of qkv, scratch                in: qkv, kept, gradient of out
 */
struct kernel;
extern const struct kernel CONVERT, ADD, GELU, GELU_BACKWARD, FILL, ADAMW, EMBED, EMBED_BACKWARD, NORM, NORM_BACKWARD,
	CROSS_ENTROPY, SUM_ROWS, TRANSPOSE, MATMUL, MATMUL_TRANSPOSED, ATTENTION, ATTENTION_BACKWARD;

struct call {
	struct tensor out[3], in[4];
	size_t rows, columns, inner; /* of attention: samples x context, width, context */
	size_t heads;
	bool efficient;             /* attention that keeps less */
	double constant, deviation; /* of a fill */
	struct random random;
	double scale; /* of each position's loss */
	double rate, decay;
	uint64_t step;               /* of AdamW, from 1 */
	const struct kernel *kernel; /* set by launch */
};

void launch(struct gpu *gpu, const struct kernel *kernel, struct call call);

/* A new tensor of `count` numbers. `at` is NULL after a failure, see device.h. */
struct tensor tensor_new(struct gpu *gpu, const char *tag, size_t count, bool half);

/* How many numbers attention's scratch holds. */
size_t attention_scratch(size_t context, size_t head_width, bool efficient);

#endif
