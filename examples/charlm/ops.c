/* charlm/ops.c: see the header. */
#include "ops.h"

#include <string.h>

#define READS(pointer, count)                                                                                        \
	{                                                                                                            \
		(uintptr_t)(pointer), (count) * sizeof(*(pointer)), 0                                                \
	}
#define WRITES(pointer, count)                                                                                       \
	{                                                                                                            \
		(uintptr_t)(pointer), (count) * sizeof(*(pointer)), 1                                                \
	}

#define OPENS(numbers, count)                                                                                        \
	{                                                                                                            \
		(uintptr_t)(numbers).at, numbers_bytes((numbers).half, count), 0                                     \
	}
#define CLOSES(numbers, count)                                                                                       \
	{                                                                                                            \
		(uintptr_t)(numbers).at, numbers_bytes((numbers).half, count), 1                                     \
	}

/* Queues kernel_NAME on a copy of *arguments; what follows the operations are the ranges. Where memory was refused
 * before, nothing is queued (device.h), so the ranges' pointers need no check. */
#define LAUNCH(gpu, kernel, arguments, flops, ...)                                                                   \
	do {                                                                                                         \
		struct neap_sim_range ranges[] = {__VA_ARGS__};                                                      \
		launch(gpu, #kernel, run_##kernel, arguments, sizeof(*(arguments)), flops, ranges,                   \
		       sizeof(ranges) / sizeof(*ranges));                                                            \
	} while (0)

#define RUNS(name, type)                                                                                             \
	static void run_##name(void *arguments) { kernel_##name((const struct type *)arguments); }

RUNS(fill, fill)
RUNS(matmul, matmul)
RUNS(transpose, transpose)
RUNS(sum_rows, sum_rows)
RUNS(embed, embed)
RUNS(embed_backward, embed)
RUNS(norm, norm)
RUNS(norm_backward, norm_backward)
RUNS(attention, attention)
RUNS(attention_backward, attention_backward)
RUNS(attention_efficient, attention)
RUNS(attention_efficient_backward, attention_backward)
RUNS(gelu, gelu)
RUNS(gelu_backward, gelu_backward)
RUNS(add, add)
RUNS(copy, copy)
RUNS(cross_entropy, cross_entropy)
RUNS(adamw, adamw)

struct zero {
	void *memory;
	size_t bytes;
};

static void run_zero(void *arguments)
{
	const struct zero *zero = arguments;

	memset(zero->memory, 0, zero->bytes);
}

static void launch(struct gpu *gpu, const char *name, void (*function)(void *), const void *arguments,
		   size_t argument_bytes, double operations, const struct neap_sim_range *ranges, size_t count)
{
	struct gpu_work work = {.name = name,
				.function = function,
				.arguments = arguments,
				.argument_bytes = argument_bytes,
				.operations = operations,
				.range_count = count};

	memcpy(work.ranges, ranges, count * sizeof(*ranges));
	gpu_launch(gpu, &work);
}

real *op_new(struct gpu *gpu, const char *tag, size_t count) { return gpu_new(gpu, tag, count * sizeof(real)); }

struct numbers op_numbers(struct gpu *gpu, const char *tag, size_t count, bool half)
{
	return (struct numbers){gpu_new(gpu, tag, numbers_bytes(half, count)), half};
}

void op_zero(struct gpu *gpu, void *memory, size_t bytes)
{
	struct zero zero = {memory, bytes};

	LAUNCH(gpu, zero, &zero, 0, {(uintptr_t)memory, bytes, 1});
}

void op_fill(struct gpu *gpu, const struct fill *f)
{
	LAUNCH(gpu, fill, f, (double)f->count, WRITES(f->out, f->count));
}

/* How many numbers from the first of a matrix to its last. */
static size_t span(size_t rows, size_t row, size_t columns, size_t column)
{
	return (rows - 1) * row + (columns - 1) * column + 1;
}

void op_matmul(struct gpu *gpu, const struct matmul *m)
{
	LAUNCH(gpu, matmul, m, 2.0 * (double)m->rows * (double)m->inner * (double)m->columns,
	       CLOSES(m->out, span(m->rows, m->out_row, m->columns, 1)),
	       OPENS(m->a, span(m->rows, m->a_row, m->inner, m->a_column)),
	       OPENS(m->b, span(m->inner, m->b_row, m->columns, 1)), READS(m->bias, m->bias ? m->columns : 0));
}

void op_embed(struct gpu *gpu, const struct embed *e, size_t vocabulary)
{
	size_t tokens = e->samples * e->context;

	LAUNCH(gpu, embed, e, (double)(tokens * e->width), CLOSES(e->out, tokens * e->width),
	       READS(e->token, vocabulary * e->width), READS(e->position, e->context * e->width),
	       READS(e->ids, tokens));
}

void op_embed_backward(struct gpu *gpu, const struct embed *e, size_t vocabulary)
{
	size_t tokens = e->samples * e->context;

	LAUNCH(gpu, embed_backward, e, 2.0 * (double)(tokens * e->width), OPENS(e->out, tokens * e->width),
	       WRITES(e->token, vocabulary * e->width), WRITES(e->position, e->context * e->width),
	       READS(e->ids, tokens));
}

void op_norm(struct gpu *gpu, const struct norm *n)
{
	size_t count = n->rows * n->width;

	LAUNCH(gpu, norm, n, 8.0 * (double)count, CLOSES(n->out, count), WRITES(n->statistics, 2 * n->rows),
	       OPENS(n->in, count), READS(n->gain, n->width), READS(n->bias, n->width));
}

void op_norm_backward(struct gpu *gpu, const struct norm_backward *n)
{
	size_t count = n->rows * n->width;

	LAUNCH(gpu, norm_backward, n, 16.0 * (double)count, WRITES(n->in_gradient, count),
	       WRITES(n->gain_gradient, n->width), WRITES(n->bias_gradient, n->width), OPENS(n->out_gradient, count),
	       OPENS(n->in, count), READS(n->statistics, 2 * n->rows), READS(n->gain, n->width));
}

void op_attention(struct gpu *gpu, const struct attention *given)
{
	struct attention a = *given;
	size_t tokens = a.samples * a.context, head_width = a.width / a.heads;
	size_t scratch = attention_scratch(a.context, head_width, !a.weights.at);
	double operations = 4.0 * (double)(tokens * a.context * a.width);

	a.scratch = op_new(gpu, "workspace", scratch);
	if (a.weights.at)
		LAUNCH(gpu, attention, &a, operations, CLOSES(a.out, tokens * a.width),
		       CLOSES(a.weights, tokens * a.heads * a.context), WRITES(a.scratch, scratch),
		       OPENS(a.qkv, tokens * 3 * a.width));
	else
		LAUNCH(gpu, attention_efficient, &a, operations, CLOSES(a.out, tokens * a.width),
		       WRITES(a.logs, tokens * a.heads), WRITES(a.scratch, scratch),
		       OPENS(a.qkv, tokens * 3 * a.width));
	gpu_free(gpu, a.scratch);
}

void op_attention_backward(struct gpu *gpu, const struct attention_backward *given)
{
	struct attention_backward a = *given;
	size_t tokens = a.samples * a.context, head_width = a.width / a.heads;
	size_t scratch = attention_scratch(a.context, head_width, !a.weights.at);
	double operations = (double)(tokens * a.context * a.width);

	a.scratch = op_new(gpu, "workspace", scratch);
	if (a.weights.at)
		LAUNCH(gpu, attention_backward, &a, 8 * operations, CLOSES(a.qkv_gradient, tokens * 3 * a.width),
		       WRITES(a.scratch, scratch), OPENS(a.out_gradient, tokens * a.width),
		       OPENS(a.weights, tokens * a.heads * a.context), OPENS(a.qkv, tokens * 3 * a.width));
	else
		LAUNCH(gpu, attention_efficient_backward, &a, 10 * operations,
		       CLOSES(a.qkv_gradient, tokens * 3 * a.width), WRITES(a.scratch, scratch),
		       OPENS(a.out_gradient, tokens * a.width), OPENS(a.out, tokens * a.width),
		       READS(a.logs, tokens * a.heads), OPENS(a.qkv, tokens * 3 * a.width));
	gpu_free(gpu, a.scratch);
}

void op_gelu(struct gpu *gpu, const struct gelu *g)
{
	LAUNCH(gpu, gelu, g, 16.0 * (double)g->count, CLOSES(g->out, g->count), OPENS(g->in, g->count));
}

void op_gelu_backward(struct gpu *gpu, const struct gelu_backward *g)
{
	LAUNCH(gpu, gelu_backward, g, 24.0 * (double)g->count, CLOSES(g->gradient, g->count), OPENS(g->in, g->count));
}

void op_add(struct gpu *gpu, const struct add *a)
{
	LAUNCH(gpu, add, a, (double)a->count, CLOSES(a->out, a->count), OPENS(a->in, a->count));
}

void op_copy(struct gpu *gpu, const struct copy *c)
{
	LAUNCH(gpu, copy, c, 0, CLOSES(c->out, c->count), OPENS(c->in, c->count));
}

void op_cross_entropy(struct gpu *gpu, const struct cross_entropy *c)
{
	LAUNCH(gpu, cross_entropy, c, 16.0 * (double)(c->rows * c->vocabulary),
	       WRITES(c->logits, c->rows * c->vocabulary), WRITES(c->loss, 1), READS(c->targets, c->rows));
}

void op_adamw(struct gpu *gpu, const struct adamw *a)
{
	LAUNCH(gpu, adamw, a, 16.0 * (double)a->count, WRITES(a->value, a->count), READS(a->gradient, a->count),
	       WRITES(a->moment1, a->count), WRITES(a->moment2, a->count));
}

void op_linear(struct gpu *gpu, const struct linear *l)
{
	op_matmul(gpu, &(struct matmul){.out = l->out,
					.a = l->in,
					.b = l->weight,
					.bias = l->bias,
					.rows = l->rows,
					.inner = l->inner,
					.columns = l->columns,
					.a_row = l->inner,
					.a_column = 1,
					.b_row = l->columns,
					.out_row = l->columns});
}

void op_linear_backward(struct gpu *gpu, const struct linear_backward *l)
{
	struct numbers transposed = op_numbers(gpu, "workspace", l->inner * l->columns, l->weight.half);
	struct transpose transpose = {transposed, l->weight, l->inner, l->columns};
	struct sum_rows sum = {l->bias_gradient, l->out_gradient, l->rows, l->columns};

	LAUNCH(gpu, transpose, &transpose, 0, CLOSES(transposed, l->inner * l->columns),
	       OPENS(l->weight, l->inner * l->columns));
	op_matmul(gpu, &(struct matmul){.out = l->in_gradient,
					.a = l->out_gradient,
					.b = transposed,
					.rows = l->rows,
					.inner = l->columns,
					.columns = l->inner,
					.a_row = l->columns,
					.a_column = 1,
					.b_row = l->inner,
					.out_row = l->inner});
	gpu_free(gpu, transposed.at);
	op_matmul(gpu, &(struct matmul){.out = whole(l->weight_gradient),
					.a = l->in,
					.b = l->out_gradient,
					.rows = l->inner,
					.inner = l->rows,
					.columns = l->columns,
					.a_row = 1,
					.a_column = l->inner,
					.b_row = l->columns,
					.out_row = l->columns,
					.add = true});
	LAUNCH(gpu, sum_rows, &sum, (double)(l->rows * l->columns), WRITES(l->bias_gradient, l->columns),
	       OPENS(l->out_gradient, l->rows * l->columns));
}
