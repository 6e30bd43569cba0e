/* charlm/attention_efficient.c: the same attention without the weights of all samples: they are computed a tile of
 * queries by keys at a time, and again on the way back. (Rabe and Staats 2021, arXiv:2112.05682; Dao et al. 2022,
 * arXiv:2205.14135.)
 *
 *   forward: for each tile, with m the highest score of a query so far and sum that of e^(score - m) so far:
 *            when m rises, sum and out shrink by e^(old m - new m);  out += e^(scores - m) x value;  at last out /=
 * sum logs   = m + log(sum), so that backward has weights = e^(scores - logs) at once backward: gradient of scores =
 * weights (gradient of weights - sum of gradient of out * out)
 */
#include "attention.h"
#include "exponential.h"

#include <math.h>

enum { TILE = 32 };

size_t attention_scratch(size_t context, size_t head_width, bool efficient)
{
	/* The larger one of forward and backward, as they lay it out. */
	return efficient ? 10 * context * head_width + 2 * TILE * TILE + 2 * TILE
			 : 6 * context * head_width + 2 * context * context;
}

static size_t least(size_t a, size_t b) { return a < b ? a : b; }

/* out[rows, columns] (+)= a x b, where rows of a, b and out are so far apart; a is read transposed where a_row is 1
 */
static void multiply(real *out, size_t out_row, const real *a, size_t a_row, size_t a_column, const real *b,
		     size_t b_row, size_t rows, size_t inner, size_t columns, bool add)
{
	kernel_matmul(&(struct matmul){.out = whole(out),
				       .a = whole(a),
				       .b = whole(b),
				       .rows = rows,
				       .inner = inner,
				       .columns = columns,
				       .a_row = a_row,
				       .a_column = a_column,
				       .b_row = b_row,
				       .out_row = out_row,
				       .add = add});
}

/* The keys of a tile that the query at position t looks at. */
static size_t seen(size_t t, size_t from, size_t keys) { return t < from ? 0 : least(t - from + 1, keys); }

/* Scores of queries from t on and keys from s on become e^(score - highest); what was summed up before shrinks. */
static void tile_forward(real *scores, size_t t, size_t queries, size_t s, size_t keys, real scale, real *highest,
			 real *sum, real *out, size_t head_width)
{
	for (size_t i = 0; i < queries; i++) {
		size_t count = seen(t + i, s, keys);
		real *row = scores + i * TILE, most = s ? highest[i] : row[0] * scale;

		for (size_t j = 0; j < count; j++)
			most = row[j] * scale > most ? row[j] * scale : most;
		real shrink = s ? exponential(highest[i] - most) : 0;

		highest[i] = most;
		sum[i] *= shrink;
		for (size_t j = 0; j < head_width; j++)
			out[i * head_width + j] *= shrink;
		for (size_t j = 0; j < count; j++)
			row[j] = exponential(row[j] * scale - most);
		for (size_t j = count; j < keys; j++)
			row[j] = 0;
		for (size_t j = 0; j < count; j++)
			sum[i] += row[j];
	}
}

/* All of one head: out and logs from query, flipped key and value. */
static void head_forward(const struct attention *a, size_t head_width, const real *query, const real *flipped,
			 const real *value, real *out, real *logs, real *room)
{
	real *scores = room, *highest = scores + TILE * TILE, *sum = highest + TILE;
	real scale = 1 / square_root((real)head_width);

	memset(out, 0, a->context * head_width * sizeof(*out));
	for (size_t t = 0; t < a->context; t += TILE) {
		size_t queries = least(TILE, a->context - t);
		real *out_tile = out + t * head_width;

		memset(sum, 0, TILE * sizeof(*sum));
		for (size_t s = 0; s < t + queries; s += TILE) {
			size_t keys = least(TILE, a->context - s);

			multiply(scores, TILE, query + t * head_width, head_width, 1, flipped + s, a->context,
				 queries, head_width, keys, false);
			tile_forward(scores, t, queries, s, keys, scale, highest, sum, out_tile, head_width);
			multiply(out_tile, head_width, scores, TILE, 1, value + s * head_width, head_width, queries,
				 keys, head_width, true);
		}
		for (size_t i = 0; i < queries; i++) {
			for (size_t j = 0; j < head_width; j++)
				out_tile[i * head_width + j] /= sum[i];
			logs[t + i] = highest[i] + (real)log((double)sum[i]);
		}
	}
}

void kernel_attention_efficient(const struct attention *a)
{
	size_t head_width = a->width / a->heads, wide = 3 * a->width, matrix = a->context * head_width;
	real *query = a->scratch, *key = query + matrix, *value = key + matrix, *flipped = value + matrix;
	real *out = flipped + matrix, *room = out + matrix;

	for (size_t i = 0; i < a->samples * a->heads; i++) {
		size_t row = i / a->heads * a->context, column = i % a->heads * head_width;
		struct numbers qkv = numbers_from(a->qkv, row * wide + column);

		take(query, qkv, a->context, head_width, wide);
		take(key, numbers_from(qkv, a->width), a->context, head_width, wide);
		take(value, numbers_from(qkv, 2 * a->width), a->context, head_width, wide);
		flip(flipped, key, a->context, head_width);
		head_forward(a, head_width, query, flipped, value, out, a->logs + i * a->context, room);
		put(numbers_from(a->out, row * a->width + column), out, a->context, head_width, a->width);
	}
}

/* One head on its way back, as matrices of context x head_width; flipped ones the other way round. */
struct head {
	real *query, *key, *value, *out, *out_gradient, *key_flipped, *value_flipped;
	real *query_gradient, *key_gradient, *value_gradient; /* added to */
	real *weights, *scores;                               /* a tile each */
	const real *logs;
};

/* Scores become weights, and the gradient of the weights that of query x key^T. */
static void tile_backward(const struct head *head, size_t t, size_t queries, size_t s, size_t keys, size_t head_width,
			  real scale)
{
	for (size_t i = 0; i < queries; i++) {
		const real *out = head->out + (t + i) * head_width;
		const real *out_gradient = head->out_gradient + (t + i) * head_width;
		real *weight = head->weights + i * TILE, *score = head->scores + i * TILE, mean = 0;
		size_t count = seen(t + i, s, keys);

		for (size_t j = 0; j < head_width; j++)
			mean += out[j] * out_gradient[j];
		for (size_t j = 0; j < count; j++)
			weight[j] = exponential(weight[j] * scale - head->logs[t + i]);
		for (size_t j = 0; j < count; j++)
			score[j] = weight[j] * (score[j] - mean) * scale;
		for (size_t j = count; j < keys; j++)
			weight[j] = score[j] = 0;
	}
}

static void head_backward(const struct head *head, size_t context, size_t width)
{
	real scale = 1 / square_root((real)width);

	for (size_t t = 0; t < context; t += TILE) {
		size_t queries = least(TILE, context - t);
		const real *query = head->query + t * width, *out_gradient = head->out_gradient + t * width;

		for (size_t s = 0; s < t + queries; s += TILE) {
			size_t keys = least(TILE, context - s);

			multiply(head->weights, TILE, query, width, 1, head->key_flipped + s, context, queries, width,
				 keys, false);
			multiply(head->scores, TILE, out_gradient, width, 1, head->value_flipped + s, context,
				 queries, width, keys, false);
			tile_backward(head, t, queries, s, keys, width, scale);
			multiply(head->value_gradient + s * width, width, head->weights, 1, TILE, out_gradient, width,
				 keys, queries, width, true);
			multiply(head->query_gradient + t * width, width, head->scores, TILE, 1,
				 head->key + s * width, width, queries, keys, width, true);
			multiply(head->key_gradient + s * width, width, head->scores, 1, TILE, query, width, keys,
				 queries, width, true);
		}
	}
}

void kernel_attention_efficient_backward(const struct attention_backward *a)
{
	size_t head_width = a->width / a->heads, wide = 3 * a->width, matrix = a->context * head_width;
	struct head head;
	real **parts[] = {&head.query,        &head.key,           &head.value,         &head.out,
			  &head.out_gradient, &head.key_flipped,   &head.value_flipped, &head.query_gradient,
			  &head.key_gradient, &head.value_gradient};

	for (size_t k = 0; k < sizeof(parts) / sizeof(*parts); k++)
		*parts[k] = a->scratch + k * matrix;
	head.weights = a->scratch + 10 * matrix;
	head.scores = head.weights + TILE * TILE;
	for (size_t i = 0; i < a->samples * a->heads; i++) {
		size_t row = i / a->heads * a->context, column = i % a->heads * head_width;
		struct numbers qkv = numbers_from(a->qkv, row * wide + column);
		struct numbers qkv_gradient = numbers_from(a->qkv_gradient, row * wide + column);

		head.logs = a->logs + i * a->context;
		take(head.query, qkv, a->context, head_width, wide);
		take(head.key, numbers_from(qkv, a->width), a->context, head_width, wide);
		take(head.value, numbers_from(qkv, 2 * a->width), a->context, head_width, wide);
		take(head.out, numbers_from(a->out, row * a->width + column), a->context, head_width, a->width);
		take(head.out_gradient, numbers_from(a->out_gradient, row * a->width + column), a->context,
		     head_width, a->width);
		flip(head.key_flipped, head.key, a->context, head_width);
		flip(head.value_flipped, head.value, a->context, head_width);
		memset(head.query_gradient, 0, 3 * matrix * sizeof(real));
		head_backward(&head, a->context, head_width);
		put(qkv_gradient, head.query_gradient, a->context, head_width, wide);
		put(numbers_from(qkv_gradient, a->width), head.key_gradient, a->context, head_width, wide);
		put(numbers_from(qkv_gradient, 2 * a->width), head.value_gradient, a->context, head_width, wide);
	}
}
