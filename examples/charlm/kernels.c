/* charlm/kernels.c: the mathematics: whole matrices, rows, single numbers, and at the end the table of kernels and
 * the launch. A kernel takes one struct call (kernels.h lists its tensors) and computes in `real` whatever they hold.
 */
#include "kernels.h"

#include "exponential.h"
#include "matmul.h"

#include <math.h>

static size_t least(size_t a, size_t b) { return a < b ? a : b; }

/* Whole matrices. */

static void fill(const struct call *c)
{
	struct random random = c->random;
	size_t count = tensor_count(c->out[0]);
	real *out = c->out[0].at;

	for (size_t i = 0; i < count; i++)
		out[i] = (real)c->constant;
	for (size_t i = 0; i < count && c->deviation != 0; i++)
		out[i] += (real)(c->deviation * random_gauss(&random));
}

static void transpose(const struct call *c)
{
	const uint16_t *half_in = c->in[0].at;
	const real *in = c->in[0].at;
	uint16_t *half_out = c->out[0].at;
	real *out = c->out[0].at;

	for (size_t i = 0; i < c->rows && c->in[0].half; i++)
		for (size_t j = 0; j < c->columns; j++)
			half_out[j * c->rows + i] = half_in[i * c->columns + j];
	for (size_t i = 0; i < c->rows && !c->in[0].half; i++)
		for (size_t j = 0; j < c->columns; j++)
			out[j * c->rows + i] = in[i * c->columns + j];
}

static void matmul(const struct call *c)
{
	multiply(matrix_of(c->out[0], c->rows, c->columns, c->columns),
		 matrix_of(c->in[0], c->rows, c->inner, c->inner),
		 matrix_of(c->in[1], c->inner, c->columns, c->columns), c->in[2].at, false);
}

static void matmul_transposed(const struct call *c)
{
	multiply(matrix_of(c->out[0], c->rows, c->columns, c->columns),
		 transposed(matrix_of(c->in[0], c->inner, c->rows, c->rows)),
		 matrix_of(c->in[1], c->inner, c->columns, c->columns), NULL, true);
}

/* Row by row. */

static void embed(const struct call *c)
{
	const real *tokens = c->in[0].at, *positions = c->in[1].at;
	const int32_t *ids = c->in[2].at;
	size_t width = c->columns, context = tensor_count(c->in[1]) / width;
	real room[ROW_MAX];

	for (size_t i = 0; i < c->rows; i++) {
		const real *token = tokens + (size_t)ids[i] * width, *position = positions + i % context * width;
		real *out = tensor_place(c->out[0], i * width, room);

		for (size_t j = 0; j < width; j++)
			out[j] = token[j] + position[j];
		tensor_close(c->out[0], i * width, width, out);
	}
}

static void embed_backward(const struct call *c)
{
	real *tokens = c->out[0].at, *positions = c->out[1].at;
	const int32_t *ids = c->in[1].at;
	size_t width = c->columns, context = tensor_count(c->out[1]) / width;
	real room[ROW_MAX];

	for (size_t i = 0; i < c->rows; i++) {
		real *token = tokens + (size_t)ids[i] * width, *position = positions + i % context * width;
		const real *gradient = tensor_open(c->in[0], i * width, width, room);

		for (size_t j = 0; j < width; j++) {
			token[j] += gradient[j];
			position[j] += gradient[j];
		}
	}
}

static void norm(const struct call *c)
{
	const real *gain = c->in[1].at, *bias = c->in[2].at;
	real *statistics = c->out[1].at, in_room[ROW_MAX], out_room[ROW_MAX];
	size_t width = c->columns;

	for (size_t i = 0; i < c->rows; i++) {
		const real *in = tensor_open(c->in[0], i * width, width, in_room);
		real *out = tensor_place(c->out[0], i * width, out_room), mean = 0, variance = 0;

		for (size_t j = 0; j < width; j++)
			mean += in[j];
		mean /= (real)width;
		for (size_t j = 0; j < width; j++)
			variance += (in[j] - mean) * (in[j] - mean);
		real scale = 1 / square_root(variance / (real)width + (real)1e-5);
		for (size_t j = 0; j < width; j++)
			out[j] = (in[j] - mean) * scale * gain[j] + bias[j];
		statistics[2 * i] = mean;
		statistics[2 * i + 1] = scale;
		tensor_close(c->out[0], i * width, width, out);
	}
}

/* With x = (in - mean) * scale and g = out_gradient * gain:  in_gradient += (g - mean(g) - x mean(g x)) * scale */
static void norm_backward(const struct call *c)
{
	const real *statistics = c->in[2].at, *gain = c->in[3].at;
	real *gain_gradient = c->out[1].at, *bias_gradient = c->out[2].at, in_room[ROW_MAX], gradient_room[ROW_MAX];
	size_t width = c->columns;

	for (size_t i = 0; i < c->rows; i++) {
		const real *out_gradient = tensor_open(c->in[0], i * width, width, gradient_room);
		const real *in = tensor_open(c->in[1], i * width, width, in_room);
		real mean = statistics[2 * i], scale = statistics[2 * i + 1], g_mean = 0, gx_mean = 0;
		real *in_gradient = (real *)c->out[0].at + i * width;

		for (size_t j = 0; j < width; j++) {
			real x = (in[j] - mean) * scale, g = out_gradient[j] * gain[j];

			g_mean += g;
			gx_mean += g * x;
			gain_gradient[j] += out_gradient[j] * x;
			bias_gradient[j] += out_gradient[j];
		}
		g_mean /= (real)width;
		gx_mean /= (real)width;
		for (size_t j = 0; j < width; j++) {
			real x = (in[j] - mean) * scale, g = out_gradient[j] * gain[j];

			in_gradient[j] += (g - g_mean - x * gx_mean) * scale;
		}
	}
}

static void cross_entropy(const struct call *c)
{
	const int32_t *targets = c->in[0].at;
	size_t vocabulary = c->columns;
	double loss = 0;

	for (size_t i = 0; i < c->rows; i++) {
		real *row = (real *)c->out[0].at + i * vocabulary, highest = row[0], target = row[targets[i]],
		     sum = 0;

		for (size_t j = 1; j < vocabulary; j++)
			highest = row[j] > highest ? row[j] : highest;
		for (size_t j = 0; j < vocabulary; j++)
			row[j] = exponential(row[j] - highest);
		for (size_t j = 0; j < vocabulary; j++)
			sum += row[j];
		loss += log((double)sum) - (double)(target - highest);
		real scale = (real)(c->scale / (double)sum);
		for (size_t j = 0; j < vocabulary; j++)
			row[j] *= scale;
		row[targets[i]] -= (real)c->scale;
	}
	*(double *)c->out[1].at += c->scale * loss;
}

/* Number by number, in pieces that fit the stack. */

enum { PIECE = 512 };

static void sum_rows(const struct call *c)
{
	real room[PIECE], *out = c->out[0].at;

	for (size_t from = 0; from < c->columns; from += PIECE)
		for (size_t i = 0; i < c->rows; i++) {
			size_t count = least(PIECE, c->columns - from);
			const real *in = tensor_open(c->in[0], i * c->columns + from, count, room);

			for (size_t j = 0; j < count; j++)
				out[from + j] += in[j];
		}
}

static void convert(const struct call *c) { tensor_close(c->out[0], 0, tensor_count(c->out[0]), c->in[0].at); }

static void add(const struct call *c)
{
	real in_room[PIECE], out_room[PIECE];

	for (size_t from = 0; from < tensor_count(c->out[0]); from += PIECE) {
		size_t count = least(PIECE, tensor_count(c->out[0]) - from);
		const real *in = tensor_open(c->in[0], from, count, in_room);
		real *out = tensor_open(c->out[0], from, count, out_room);

		for (size_t i = 0; i < count; i++)
			out[i] += in[i];
		tensor_close(c->out[0], from, count, out);
	}
}

/* x * (1 + tanh u) / 2 = x / (1 + e^-2u) with u = sqrt(2 / pi) (x + 0.044715 x^3) */
static const real GELU_LINEAR = (real)0.797884560802865, GELU_CUBIC = (real)0.044715;

INLINE_REAL gelu_share(real x) { return 1 / (1 + exponential(-2 * GELU_LINEAR * (x + GELU_CUBIC * x * x * x))); }

static void gelu(const struct call *c)
{
	real in_room[PIECE], out_room[PIECE];

	for (size_t from = 0; from < tensor_count(c->out[0]); from += PIECE) {
		size_t count = least(PIECE, tensor_count(c->out[0]) - from);
		const real *in = tensor_open(c->in[0], from, count, in_room);
		real *out = tensor_place(c->out[0], from, out_room);

		for (size_t i = 0; i < count; i++)
			out[i] = in[i] * gelu_share(in[i]);
		tensor_close(c->out[0], from, count, out);
	}
}

static void gelu_backward(const struct call *c)
{
	real in_room[PIECE], gradient_room[PIECE];

	for (size_t from = 0; from < tensor_count(c->out[0]); from += PIECE) {
		size_t count = least(PIECE, tensor_count(c->out[0]) - from);
		const real *in = tensor_open(c->in[0], from, count, in_room);
		real *gradient = tensor_open(c->out[0], from, count, gradient_room);

		for (size_t i = 0; i < count; i++) {
			real x = in[i], share = gelu_share(x);

			gradient[i] *=
				share + x * share * (1 - share) * 2 * GELU_LINEAR * (1 + 3 * GELU_CUBIC * x * x);
		}
		tensor_close(c->out[0], from, count, gradient);
	}
}

static void adamw(const struct call *c)
{
	const real keep1 = (real)0.9, keep2 = (real)0.99, *gradients = c->in[0].at;
	real correct1 = (real)(1 / (1 - pow(0.9, (double)c->step)));
	real correct2 = (real)(1 / (1 - pow(0.99, (double)c->step)));
	real rate = (real)c->rate, shrink = (real)(1 - c->rate * c->decay);
	real *value = c->out[0].at, *moments1 = c->out[1].at, *moments2 = c->out[2].at;

	for (size_t i = 0; i < tensor_count(c->out[0]); i++) {
		real gradient = gradients[i];
		real moment1 = moments1[i] = keep1 * moments1[i] + (1 - keep1) * gradient;
		real moment2 = moments2[i] = keep2 * moments2[i] + (1 - keep2) * gradient * gradient;

		value[i] = shrink * value[i] -
			   rate * moment1 * correct1 / (square_root(moment2 * correct2) + (real)1e-8);
	}
}

/* The table, and the launch. */

static const struct {
	const char *name;
	void (*run)(const struct call *);
	double operations; /* floating point, for each number that a call's sizes span */
} kernels[] = {
	[KERNEL_FILL] = {"fill", fill, 1},
	[KERNEL_CONVERT] = {"convert", convert, 0},
	[KERNEL_ADD] = {"add", add, 1},
	[KERNEL_TRANSPOSE] = {"transpose", transpose, 0},
	[KERNEL_SUM_ROWS] = {"sum_rows", sum_rows, 1},
	[KERNEL_MATMUL] = {"matmul", matmul, 2},
	[KERNEL_MATMUL_TRANSPOSED] = {"matmul_transposed", matmul_transposed, 2},
	[KERNEL_EMBED] = {"embed", embed, 1},
	[KERNEL_EMBED_BACKWARD] = {"embed_backward", embed_backward, 2},
	[KERNEL_NORM] = {"norm", norm, 8},
	[KERNEL_NORM_BACKWARD] = {"norm_backward", norm_backward, 16},
	[KERNEL_ATTENTION] = {"attention", kernel_attention, 4},
	[KERNEL_ATTENTION_BACKWARD] = {"attention_backward", kernel_attention_backward, 8},
	[KERNEL_EFFICIENT] = {"attention_efficient", kernel_efficient, 4},
	[KERNEL_EFFICIENT_BACKWARD] = {"attention_efficient_backward", kernel_efficient_backward, 10},
	[KERNEL_GELU] = {"gelu", gelu, 16},
	[KERNEL_GELU_BACKWARD] = {"gelu_backward", gelu_backward, 24},
	[KERNEL_CROSS_ENTROPY] = {"cross_entropy", cross_entropy, 16},
	[KERNEL_ADAMW] = {"adamw", adamw, 16},
};

static void run(void *arguments)
{
	const struct call *call = arguments;

	kernels[call->kernel].run(call);
}

void launch(struct gpu *gpu, enum kernel kernel, struct call call)
{
	size_t span =
		call.rows ? call.rows * call.columns * (call.inner ? call.inner : 1) : tensor_count(call.out[0]);
	struct gpu_work work = {.name = kernels[kernel].name,
				.function = run,
				.arguments = &call,
				.argument_bytes = sizeof call,
				.operations = kernels[kernel].operations * (double)span};

	call.kernel = kernel;
	for (size_t i = 0; i < sizeof call.out / sizeof *call.out; i++)
		if (call.out[i].at)
			work.ranges[work.range_count++] =
				(struct neap_sim_range){(uintptr_t)call.out[i].at, call.out[i].bytes, 1};
	for (size_t i = 0; i < sizeof call.in / sizeof *call.in; i++)
		if (call.in[i].at)
			work.ranges[work.range_count++] =
				(struct neap_sim_range){(uintptr_t)call.in[i].at, call.in[i].bytes, 0};
	gpu_launch(gpu, &work);
}

struct tensor tensor_new(struct gpu *gpu, const char *tag, size_t count, bool half)
{
	size_t bytes = tensor_bytes(half, count);

	return (struct tensor){gpu_new(gpu, tag, bytes), bytes, half};
}
