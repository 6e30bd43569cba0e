/* charlm/kernels.c: the mathematics: number by number, row by row, whole matrices, attention; at the end the list of
 * kernels and the launch. A kernel takes one struct call (kernels.h lists its tensors) and computes in `real`,
 * whatever the tensors hold. matmul.c has the matrix product.
 */
#include "kernels.h"

#include "matmul.h"

#include <math.h>

static size_t least(size_t a, size_t b) { return a < b ? a : b; }

/* e^x and the square root in forms that compilers turn into vector instructions. */
#define INLINE_REAL static inline __attribute__((always_inline)) real

#ifdef CHARLM_DOUBLE
INLINE_REAL exponential(real x) { return exp(x); }
INLINE_REAL square_root(real x) { return sqrt(x); }
#else
/* x = n ln 2 + r with |r| <= ln 2 / 2: 2^n goes into the exponent's bits, e^r is the series up to r^6 / 720 (its next
 * term is below 2^-22 of the whole). x is clamped to -87 and 88. */
INLINE_REAL exponential(real x)
{
	x = fminf(fmaxf(x, -87.0f), 88.0f);

	float scaled = x * 1.44269504f;
	int32_t n = (int32_t)(scaled + copysignf(0.5f, scaled));
	float r = x - (float)n * 0.693359375f + (float)n * 2.12194440e-4f;
	float series =
		1 + r * (1 + r * (1.0f / 2 + r * (1.0f / 6 + r * (1.0f / 24 + r * (1.0f / 120 + r * (1.0f / 720))))));
	int32_t bits = (n + 127) << 23;
	float power;

	memcpy(&power, &bits, sizeof power);
	return series * power;
}

INLINE_REAL square_root(real x) { return sqrtf(x); }
#endif

/* Number by number, in pieces that fit the stack. Each function gets a piece of the first output and of the first
 * input. */

enum { PIECE = 512 };

static void by_pieces(const struct call *c, void (*kernel)(real *out, const real *in, size_t count))
{
	real in_room[PIECE], out_room[PIECE];

	for (size_t from = 0, total = tensor_count(c->out[0]); from < total; from += PIECE) {
		size_t count = least(PIECE, total - from);
		real *out = tensor_open(c->out[0], from, count, out_room);

		kernel(out, tensor_open(c->in[0], from, count, in_room), count);
		tensor_close(c->out[0], from, count, out);
	}
}

static void convert(real *out, const real *in, size_t count) { memcpy(out, in, count * sizeof *out); }

static void add(real *out, const real *in, size_t count)
{
	for (size_t i = 0; i < count; i++)
		out[i] += in[i];
}

/* x * (1 + tanh u) / 2 = x / (1 + e^-2u) with u = sqrt(2 / pi) (x + 0.044715 x^3) */
static const real GELU_LINEAR = (real)0.797884560802865, GELU_CUBIC = (real)0.044715;

INLINE_REAL gelu_share(real x) { return 1 / (1 + exponential(-2 * GELU_LINEAR * (x + GELU_CUBIC * x * x * x))); }

static void gelu(real *out, const real *in, size_t count)
{
	for (size_t i = 0; i < count; i++)
		out[i] = in[i] * gelu_share(in[i]);
}

static void gelu_backward(real *gradient, const real *in, size_t count)
{
	for (size_t i = 0; i < count; i++) {
		real x = in[i], share = gelu_share(x);

		gradient[i] *= share + x * share * (1 - share) * 2 * GELU_LINEAR * (1 + 3 * GELU_CUBIC * x * x);
	}
}

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

/* Row by row. */

static void embed(const struct call *c)
{
	const real *tokens = c->in[0].at, *positions = c->in[1].at;
	const int32_t *ids = c->in[2].at;
	size_t width = c->columns, context = tensor_count(c->in[1]) / width;
	real scratch[ROW_MAX];

	for (size_t i = 0; i < c->rows; i++) {
		const real *token = tokens + (size_t)ids[i] * width, *position = positions + i % context * width;
		real *out = tensor_place(c->out[0], i * width, scratch);

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
	real scratch[ROW_MAX];

	for (size_t i = 0; i < c->rows; i++) {
		real *token = tokens + (size_t)ids[i] * width, *position = positions + i % context * width;
		const real *gradient = tensor_open(c->in[0], i * width, width, scratch);

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

static void sum_rows(const struct call *c)
{
	real scratch[PIECE], *out = c->out[0].at;

	for (size_t from = 0; from < c->columns; from += PIECE)
		for (size_t i = 0; i < c->rows; i++) {
			size_t count = least(PIECE, c->columns - from);
			const real *in = tensor_open(c->in[0], i * c->columns + from, count, scratch);

			for (size_t j = 0; j < count; j++)
				out[from + j] += in[j];
		}
}

/* Whole matrices. */

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

/* Causal self-attention, one head of one sample at a time.
 *
 *   weights = softmax(query x key^T / sqrt(head width)), zero above the diagonal        out = weights x value
 *
 * The plain form keeps all weights[samples, heads, context, context] for the way back. The efficient form keeps only
 * logs[samples, heads, context]: for each query the logarithm of the sum of e^score. It computes the weights again on
 * the way back, as e^(score - log), so it holds them for one strip of queries at a time, with the keys that these
 * see. (Rabe and Staats 2021, arXiv:2112.05682.) The plain form is one strip of all queries.
 */
enum { STRIP = 16 }; /* queries, in the efficient form */

/* One head's matrices of context x head width, unpacked from rows of device memory; the flipped ones are transposed.
 */
enum part { QUERY, KEY, VALUE, KEY_FLIPPED, VALUE_FLIPPED, OUT, GRADIENT, PARTS = GRADIENT + 3 };

/* Where each part is in the scratch. Two parts share a place if one ends before the other begins. OUT is also the
 * gradient of out; the gradients of query, key and value are from GRADIENT on. */
static const unsigned char plain_places[PARTS] = {0, 1, 2, 3, 3, 4, 5, 3, 2};
static const unsigned char efficient_places[PARTS] = {0, 1, 2, 3, 4, 5, 6, 7, 2};

enum { PLAIN_PLACES = 6, EFFICIENT_PLACES = 8 };

struct head {
	bool efficient;
	size_t context, width, strip; /* strip: how many queries at a time */
	real scale;                   /* of scores */
	real *part[PARTS];
	real *weights, *scores; /* [strip, context] each */
};

size_t attention_scratch(size_t context, size_t head_width, bool efficient)
{
	return efficient ? context * (EFFICIENT_PLACES * head_width + 2 * STRIP)
			 : context * (PLAIN_PLACES * head_width + 2 * context);
}

static struct head head_of(const struct call *c, real *scratch)
{
	size_t context = c->inner, width = c->columns / c->heads;
	real scale = 1 / square_root((real)width);
	struct head head = {c->efficient, context, width, c->efficient ? STRIP : context, scale, .part = {0}};

	for (size_t i = 0; i < PARTS; i++)
		head.part[i] = scratch + (c->efficient ? efficient_places : plain_places)[i] * context * width;
	head.weights = scratch + (c->efficient ? EFFICIENT_PLACES : PLAIN_PLACES) * context * width;
	head.scores = head.weights + head.strip * context;
	return head;
}

/* Copies the head's columns, of rows `apart` wide, into parts from `part` on: as many parts as fit into a row. */
static void take(const struct head *head, enum part part, struct tensor rows, size_t columns, size_t apart)
{
	for (size_t column = 0; column < apart; column += columns, part++)
		for (size_t i = 0; i < head->context; i++)
			tensor_load(rows, i * apart + column, head->width, head->part[part] + i * head->width);
}

static void put(const struct head *head, enum part part, struct tensor rows, size_t columns, size_t apart)
{
	for (size_t column = 0; column < apart; column += columns, part++)
		for (size_t i = 0; i < head->context; i++)
			tensor_store(rows, i * apart + column, head->width, head->part[part] + i * head->width);
}

static void flip(const struct head *head, enum part out, enum part in)
{
	for (size_t i = 0; i < head->context; i++)
		for (size_t j = 0; j < head->width; j++)
			head->part[out][j * head->context + i] = head->part[in][i * head->width + j];
}

/* Rows of a part from `from` on. */
static struct matrix rows_of(const struct head *head, enum part part, size_t from, size_t rows)
{
	return matrix_of(whole(head->part[part] + from * head->width, 0), rows, head->width, head->width);
}

/* The first columns of a flipped part. */
static struct matrix columns_of(const struct head *head, enum part part, size_t columns)
{
	return matrix_of(whole(head->part[part], 0), head->width, columns, head->context);
}

/* Queries first..end, which see keys 0..end. `weights` is the first row of theirs, `logs` those of the whole head. */
struct strip {
	size_t first, end;
	real *weights, *logs;
};

static struct matrix strip_matrix(const struct head *head, const struct strip *strip, const real *at)
{
	return matrix_of(whole(at, 0), strip->end - strip->first, strip->end, head->context);
}

/* weights = query x key^T, not yet scaled. */
static void score(const struct head *head, const struct strip *strip)
{
	multiply(strip_matrix(head, strip, strip->weights),
		 rows_of(head, QUERY, strip->first, strip->end - strip->first),
		 columns_of(head, KEY_FLIPPED, strip->end), NULL, false);
}

/* Turns scores into weights: query t sees keys 0..t. */
static void softmax(const struct head *head, const struct strip *strip)
{
	real *row = strip->weights;

	for (size_t t = strip->first; t < strip->end; t++, row += head->context) {
		real highest = row[0], sum = 0;

		for (size_t s = 1; s <= t; s++)
			highest = row[s] > highest ? row[s] : highest;
		for (size_t s = 0; s <= t; s++)
			row[s] = exponential((row[s] - highest) * head->scale);
		for (size_t s = 0; s <= t; s++)
			sum += row[s];
		for (size_t s = 0; s <= t; s++)
			row[s] /= sum;
		for (size_t s = t + 1; s < strip->end; s++)
			row[s] = 0;
		if (head->efficient)
			strip->logs[t] = highest * head->scale + (real)log((double)sum);
	}
}

/* Computes the weights again, from the kept logs. */
static void softmax_again(const struct head *head, const struct strip *strip)
{
	real *row = strip->weights;

	for (size_t t = strip->first; t < strip->end; t++, row += head->context) {
		for (size_t s = 0; s <= t; s++)
			row[s] = exponential(row[s] * head->scale - strip->logs[t]);
		for (size_t s = t + 1; s < strip->end; s++)
			row[s] = 0;
	}
}

/* Turns the gradient of the weights, in head->scores, into that of query x key^T. */
static void softmax_backward(const struct head *head, const struct strip *strip)
{
	real *row = head->scores;
	const real *weight = strip->weights;

	for (size_t t = strip->first; t < strip->end; t++, row += head->context, weight += head->context) {
		real mean = 0;

		for (size_t s = 0; s <= t; s++)
			mean += row[s] * weight[s];
		for (size_t s = 0; s <= t; s++)
			row[s] = weight[s] * (row[s] - mean) * head->scale;
		for (size_t s = t + 1; s < strip->end; s++)
			row[s] = 0;
	}
}

static void head_forward(const struct head *head, struct tensor kept)
{
	size_t n = head->context;
	real *weights = head->efficient ? head->weights : tensor_place(kept, 0, head->weights);

	flip(head, KEY_FLIPPED, KEY);
	for (size_t t = 0; t < n; t += head->strip) {
		struct strip strip = {t, least(t + head->strip, n), weights, kept.at};

		score(head, &strip);
		softmax(head, &strip);
		multiply(rows_of(head, OUT, t, strip.end - t), strip_matrix(head, &strip, weights),
			 rows_of(head, VALUE, 0, strip.end), NULL, false);
	}
	if (!head->efficient)
		tensor_close(kept, 0, n * n, weights);
}

/* Goes backward from the last strip: it sees all keys and starts their gradients, and the others add to them. */
static void head_backward(const struct head *head, struct tensor kept)
{
	size_t n = head->context;
	real *weights = head->efficient ? head->weights : tensor_open(kept, 0, n * n, head->weights);

	flip(head, VALUE_FLIPPED, VALUE);
	if (head->efficient)
		flip(head, KEY_FLIPPED, KEY);
	for (size_t end = n, t; end > 0; end = t) {
		t = (end - 1) / head->strip * head->strip;
		struct strip strip = {t, end, weights, kept.at};
		struct matrix weight = strip_matrix(head, &strip, weights);
		struct matrix scores = strip_matrix(head, &strip, head->scores);
		struct matrix query = rows_of(head, QUERY, t, end - t), out_gradient = rows_of(head, OUT, t, end - t);

		if (head->efficient) {
			score(head, &strip);
			softmax_again(head, &strip);
		}
		multiply(rows_of(head, GRADIENT + VALUE, 0, end), transposed(weight), out_gradient, NULL, end < n);
		multiply(scores, out_gradient, columns_of(head, VALUE_FLIPPED, end), NULL, false);
		softmax_backward(head, &strip);
		multiply(rows_of(head, GRADIENT + QUERY, t, end - t), scores, rows_of(head, KEY, 0, end), NULL,
			 false);
		multiply(rows_of(head, GRADIENT + KEY, 0, end), transposed(scores), query, NULL, end < n);
	}
}

/* What is kept of head number `i` of all samples. */
static struct tensor kept_of(const struct head *head, struct tensor kept, size_t i)
{
	return tensor_from(kept, i * head->context * (head->efficient ? 1 : head->context));
}

static void attention(const struct call *c)
{
	struct head head = head_of(c, c->out[2].at);
	size_t width = c->columns;

	for (size_t i = 0; i < c->rows / head.context * c->heads; i++) {
		size_t row = i / c->heads * head.context, column = i % c->heads * head.width;

		take(&head, QUERY, tensor_from(c->in[0], 3 * row * width + column), width, 3 * width);
		head_forward(&head, kept_of(&head, c->out[1], i));
		put(&head, OUT, tensor_from(c->out[0], row * width + column), width, width);
	}
}

static void attention_backward(const struct call *c)
{
	struct head head = head_of(c, c->out[1].at);
	size_t width = c->columns;

	for (size_t i = 0; i < c->rows / head.context * c->heads; i++) {
		size_t row = i / c->heads * head.context, column = i % c->heads * head.width;

		take(&head, QUERY, tensor_from(c->in[0], 3 * row * width + column), width, 3 * width);
		take(&head, OUT, tensor_from(c->in[2], row * width + column), width, width);
		head_backward(&head, kept_of(&head, c->in[1], i));
		put(&head, GRADIENT, tensor_from(c->out[0], 3 * row * width + column), width, 3 * width);
	}
}

/* The list, and the launch. */

struct kernel {
	const char *name;
	double operations; /* floating point, for each number that a call's sizes span */
	void (*run)(const struct call *);
	void (*run_piece)(real *out, const real *in, size_t count);
};

const struct kernel CONVERT = {"convert", 0, .run_piece = convert};
const struct kernel ADD = {"add", 1, .run_piece = add};
const struct kernel GELU = {"gelu", 16, .run_piece = gelu};
const struct kernel GELU_BACKWARD = {"gelu_backward", 24, .run_piece = gelu_backward};
const struct kernel FILL = {"fill", 1, fill};
const struct kernel ADAMW = {"adamw", 16, adamw};
const struct kernel EMBED = {"embed", 1, embed};
const struct kernel EMBED_BACKWARD = {"embed_backward", 2, embed_backward};
const struct kernel NORM = {"norm", 8, norm};
const struct kernel NORM_BACKWARD = {"norm_backward", 16, norm_backward};
const struct kernel CROSS_ENTROPY = {"cross_entropy", 16, cross_entropy};
const struct kernel SUM_ROWS = {"sum_rows", 1, sum_rows};
const struct kernel TRANSPOSE = {"transpose", 0, transpose};
const struct kernel MATMUL = {"matmul", 2, matmul};
const struct kernel MATMUL_TRANSPOSED = {"matmul_transposed", 2, matmul_transposed};
const struct kernel ATTENTION = {"attention", 4, attention};
const struct kernel ATTENTION_BACKWARD = {"attention_backward", 8, attention_backward};

static void run(void *arguments)
{
	const struct call *call = arguments;

	if (call->kernel->run)
		call->kernel->run(call);
	else
		by_pieces(call, call->kernel->run_piece);
}

/* What the call touches: its tensors. Returns how many. */
static size_t ranges_of(const struct call *call, struct neap_sim_range *ranges)
{
	size_t count = 0;

	for (size_t i = 0; i < sizeof call->out / sizeof *call->out; i++)
		if (call->out[i].at)
			ranges[count++] = (struct neap_sim_range){(uintptr_t)call->out[i].at, call->out[i].bytes, 1};
	for (size_t i = 0; i < sizeof call->in / sizeof *call->in; i++)
		if (call->in[i].at)
			ranges[count++] = (struct neap_sim_range){(uintptr_t)call->in[i].at, call->in[i].bytes, 0};
	return count;
}

void launch(struct gpu *gpu, const struct kernel *kernel, struct call call)
{
	size_t inner = call.inner ? call.inner : 1;
	size_t span = call.rows ? call.rows * call.columns * inner : tensor_count(call.out[0]);
	struct gpu_work work = {.name = kernel->name,
				.function = run,
				.arguments = &call,
				.argument_bytes = sizeof call,
				.operations = kernel->operations * (double)span};

	call.kernel = kernel;
	work.range_count = ranges_of(&call, work.ranges);
	gpu_launch(gpu, &work);
}

struct tensor tensor_new(struct gpu *gpu, const char *tag, size_t count, bool half)
{
	size_t bytes = tensor_bytes(half, count);

	return (struct tensor){gpu_new(gpu, tag, bytes), bytes, half};
}
