/* charlm/attention.c: causal self-attention, one head of one sample at a time.
 *
 *   weights = softmax(query x key^T / sqrt(head width)), zero above the diagonal        out = weights x value
 *
 * The plain form keeps all weights[samples, heads, context, context] for the way back. The efficient one keeps only
 * logs[samples, heads, context], the logarithm of the sum that each query's weights were divided by, and computes
 * weights twice, a tile of queries by keys at a time. (Rabe and Staats 2021, arXiv:2112.05682; Dao et al. 2022,
 * arXiv:2205.14135.)
 *
 *   forward: for each tile, with m the highest score of a query so far and sum the sum of e^(score - m) so far:
 *              when m rises, sum and out shrink by e^(old m - new m);  out += e^(scores - m) x value
 *            at last out /= sum, and logs = m + log(sum)
 *   backward: weights = e^(scores - logs) at once
 *              gradient of scores = weights (gradient of weights - sum of gradient of out * out)
 */
#include "exponential.h"
#include "kernels.h"
#include "matmul.h"

#include <math.h>

static size_t least(size_t a, size_t b) { return a < b ? a : b; }

enum { TILE = 32 };

/* One head's matrices of context x head width, unpacked from rows of device memory; the flipped ones are transposed.
 */
enum part { QUERY, KEY, VALUE, KEY_FLIPPED, VALUE_FLIPPED, OUT, OUT_GRADIENT, GRADIENT, PARTS = GRADIENT + 3 };

/* Where in the scratch each part lies. In the plain form parts share a place where one ends before the other begins.
 * From GRADIENT on lie those of query, key and value. */
static const unsigned char plain_places[PARTS] = {0, 1, 2, 3, 3, 4, 4, 5, 3, 2};
static const unsigned char efficient_places[PARTS] = {0, 1, 2, 3, 4, 5, 6, 7, 8, 9};

enum { PLAIN_PLACES = 6, EFFICIENT_PLACES = 10 };

struct head {
	size_t context, width;
	real scale; /* of scores */
	real *part[PARTS];
	real *weights, *scores; /* a square of the context each, or a tile */
	real *highest, *sum;    /* of a tile's queries so far */
};

size_t attention_scratch(size_t context, size_t head_width, bool efficient)
{
	return efficient ? EFFICIENT_PLACES * context * head_width + 2 * TILE * TILE + 2 * TILE
			 : PLAIN_PLACES * context * head_width + 2 * context * context;
}

static struct head head_of(const struct call *c, real *scratch, bool efficient)
{
	size_t context = c->inner, width = c->columns / c->heads, matrix = context * width;
	size_t square = efficient ? TILE * TILE : context * context;
	struct head head = {.context = context, .width = width, .scale = 1 / square_root((real)width)};

	for (size_t i = 0; i < PARTS; i++)
		head.part[i] = scratch + (efficient ? efficient_places : plain_places)[i] * matrix;
	head.weights = scratch + (efficient ? EFFICIENT_PLACES : PLAIN_PLACES) * matrix;
	head.scores = head.weights + square;
	head.highest = head.scores + square;
	head.sum = head.highest + TILE;
	return head;
}

/* Copies the head's columns of rows `apart` wide into parts, from `part` on: as many as there are in a row. */
static void take(const struct head *head, enum part part, struct tensor rows, size_t columns, size_t apart)
{
	for (size_t column = 0; column < apart; column += columns, part++)
		for (size_t i = 0; i < head->context; i++) {
			real *out = head->part[part] + i * head->width;
			const real *row = tensor_open(rows, i * apart + column, head->width, out);

			if (!rows.half)
				memcpy(out, row, head->width * sizeof *out);
		}
}

static void put(const struct head *head, enum part part, struct tensor rows, size_t columns, size_t apart)
{
	for (size_t column = 0; column < apart; column += columns, part++)
		for (size_t i = 0; i < head->context; i++) {
			real *in = head->part[part] + i * head->width;
			real *row = tensor_place(rows, i * apart + column, in);

			if (!rows.half)
				memcpy(row, in, head->width * sizeof *in);
			tensor_close(rows, i * apart + column, head->width, in);
		}
}

static void flip(const struct head *head, enum part out, enum part in)
{
	for (size_t i = 0; i < head->context; i++)
		for (size_t j = 0; j < head->width; j++)
			head->part[out][j * head->context + i] = head->part[in][i * head->width + j];
}

/* Stretches of parts: rows from `from` on, and of flipped ones columns from `from` on. */
static struct matrix rows_of(const struct head *head, enum part part, size_t from, size_t rows)
{
	return matrix_of(whole(head->part[part] + from * head->width, rows * head->width), rows, head->width,
			 head->width);
}

static struct matrix columns_of(const struct head *head, enum part part, size_t from, size_t columns)
{
	return matrix_of(whole(head->part[part] + from, 0), head->width, columns, head->context);
}

/* Turns row t of a square of scores into the weights of positions 0..t. */
static void causal_softmax(real *scores, size_t context, real scale)
{
	for (size_t t = 0; t < context; t++) {
		real *row = scores + t * context, highest = row[0], sum = 0;

		for (size_t s = 1; s <= t; s++)
			highest = row[s] > highest ? row[s] : highest;
		for (size_t s = 0; s <= t; s++)
			row[s] = exponential((row[s] - highest) * scale);
		for (size_t s = 0; s <= t; s++)
			sum += row[s];
		for (size_t s = 0; s <= t; s++)
			row[s] /= sum;
		for (size_t s = t + 1; s < context; s++)
			row[s] = 0;
	}
}

/* Turns the gradient of the weights into that of query x key^T. */
static void causal_softmax_backward(real *gradient, const real *weights, size_t context, real scale)
{
	for (size_t t = 0; t < context; t++) {
		real *row = gradient + t * context, mean = 0;
		const real *weight = weights + t * context;

		for (size_t s = 0; s <= t; s++)
			mean += row[s] * weight[s];
		for (size_t s = 0; s <= t; s++)
			row[s] = weight[s] * (row[s] - mean) * scale;
		for (size_t s = t + 1; s < context; s++)
			row[s] = 0;
	}
}

static void plain_forward(const struct head *head, struct tensor kept)
{
	size_t n = head->context;
	real *weights = tensor_place(kept, 0, head->weights);
	struct matrix square = matrix_of(whole(weights, n * n), n, n, n);

	flip(head, KEY_FLIPPED, KEY);
	multiply(square, rows_of(head, QUERY, 0, n), columns_of(head, KEY_FLIPPED, 0, n), NULL, false);
	causal_softmax(weights, n, head->scale);
	tensor_close(kept, 0, n * n, weights);
	multiply(rows_of(head, OUT, 0, n), square, rows_of(head, VALUE, 0, n), NULL, false);
}

static void plain_backward(const struct head *head, struct tensor kept)
{
	size_t n = head->context;
	const real *weights = tensor_open(kept, 0, n * n, head->weights);
	struct matrix square = matrix_of(whole(weights, n * n), n, n, n);
	struct matrix scores = matrix_of(whole(head->scores, n * n), n, n, n);
	struct matrix out_gradient = rows_of(head, OUT_GRADIENT, 0, n);

	flip(head, VALUE_FLIPPED, VALUE);
	multiply(rows_of(head, GRADIENT + VALUE, 0, n), transposed(square), out_gradient, NULL, false);
	multiply(scores, out_gradient, columns_of(head, VALUE_FLIPPED, 0, n), NULL, false);
	causal_softmax_backward(head->scores, weights, n, head->scale);
	multiply(rows_of(head, GRADIENT + QUERY, 0, n), scores, rows_of(head, KEY, 0, n), NULL, false);
	multiply(rows_of(head, GRADIENT + KEY, 0, n), transposed(scores), rows_of(head, QUERY, 0, n), NULL, false);
}

/* A tile: queries from t on, keys from s on. */
struct tile {
	size_t t, queries, s, keys;
};

static struct matrix tile_matrix(const real *at, const struct tile *tile)
{
	return matrix_of(whole(at, TILE * TILE), tile->queries, tile->keys, TILE);
}

/* How many of the tile's keys its query i looks at. */
static size_t seen(const struct tile *tile, size_t i)
{
	return tile->t + i < tile->s ? 0 : least(tile->t + i - tile->s + 1, tile->keys);
}

/* Turns scores into e^(score - highest); what was summed up before shrinks. */
static void tile_softmax(const struct head *head, const struct tile *tile, real *out)
{
	for (size_t i = 0; i < tile->queries; i++) {
		size_t count = seen(tile, i);
		real *row = head->scores + i * TILE, scale = head->scale;
		real most = tile->s ? head->highest[i] : row[0] * scale;

		for (size_t j = 0; j < count; j++)
			most = row[j] * scale > most ? row[j] * scale : most;
		real shrink = tile->s ? exponential(head->highest[i] - most) : 0, sum = head->sum[i] * shrink;

		for (size_t j = 0; j < head->width; j++)
			out[i * head->width + j] *= shrink;
		for (size_t j = 0; j < count; j++)
			row[j] = exponential(row[j] * scale - most);
		for (size_t j = count; j < tile->keys; j++)
			row[j] = 0;
		for (size_t j = 0; j < count; j++)
			sum += row[j];
		head->highest[i] = most;
		head->sum[i] = sum;
	}
}

static void efficient_forward(const struct head *head, struct tensor kept)
{
	size_t context = head->context, width = head->width;
	real *logs = kept.at;

	flip(head, KEY_FLIPPED, KEY);
	memset(head->part[OUT], 0, context * width * sizeof(real));
	for (size_t t = 0; t < context; t += TILE) {
		size_t queries = least(TILE, context - t);
		real *out = head->part[OUT] + t * width;

		memset(head->sum, 0, TILE * sizeof *head->sum);
		for (size_t s = 0; s < t + queries; s += TILE) {
			struct tile tile = {t, queries, s, least(TILE, context - s)};
			struct matrix scores = tile_matrix(head->scores, &tile);

			multiply(scores, rows_of(head, QUERY, t, queries),
				 columns_of(head, KEY_FLIPPED, s, tile.keys), NULL, false);
			tile_softmax(head, &tile, out);
			multiply(rows_of(head, OUT, t, queries), scores, rows_of(head, VALUE, s, tile.keys), NULL,
				 true);
		}
		for (size_t i = 0; i < queries; i++) {
			for (size_t j = 0; j < width; j++)
				out[i * width + j] /= head->sum[i];
			logs[t + i] = head->highest[i] + (real)log((double)head->sum[i]);
		}
	}
}

/* Turns query x key^T into weights, and the gradient of the weights into that of query x key^T. */
static void tile_softmax_backward(const struct head *head, const struct tile *tile, const real *logs)
{
	for (size_t i = 0; i < tile->queries; i++) {
		const real *out = head->part[OUT] + (tile->t + i) * head->width;
		const real *out_gradient = head->part[OUT_GRADIENT] + (tile->t + i) * head->width;
		real *weight = head->weights + i * TILE, *score = head->scores + i * TILE, mean = 0;
		size_t count = seen(tile, i);

		for (size_t j = 0; j < head->width; j++)
			mean += out[j] * out_gradient[j];
		for (size_t j = 0; j < count; j++)
			weight[j] = exponential(weight[j] * head->scale - logs[tile->t + i]);
		for (size_t j = 0; j < count; j++)
			score[j] = weight[j] * (score[j] - mean) * head->scale;
		for (size_t j = count; j < tile->keys; j++)
			weight[j] = score[j] = 0;
	}
}

static void tile_backward(const struct head *head, const struct tile *tile, const real *logs)
{
	size_t t = tile->t, s = tile->s, queries = tile->queries, keys = tile->keys;
	struct matrix weights = tile_matrix(head->weights, tile), scores = tile_matrix(head->scores, tile);
	struct matrix query = rows_of(head, QUERY, t, queries),
		      out_gradient = rows_of(head, OUT_GRADIENT, t, queries);

	multiply(weights, query, columns_of(head, KEY_FLIPPED, s, keys), NULL, false);
	multiply(scores, out_gradient, columns_of(head, VALUE_FLIPPED, s, keys), NULL, false);
	tile_softmax_backward(head, tile, logs);
	multiply(rows_of(head, GRADIENT + VALUE, s, keys), transposed(weights), out_gradient, NULL, true);
	multiply(rows_of(head, GRADIENT + QUERY, t, queries), scores, rows_of(head, KEY, s, keys), NULL, true);
	multiply(rows_of(head, GRADIENT + KEY, s, keys), transposed(scores), query, NULL, true);
}

static void efficient_backward(const struct head *head, struct tensor kept)
{
	size_t context = head->context;

	flip(head, KEY_FLIPPED, KEY);
	flip(head, VALUE_FLIPPED, VALUE);
	memset(head->part[GRADIENT], 0, 3 * context * head->width * sizeof(real));
	for (size_t t = 0; t < context; t += TILE)
		for (size_t s = 0; s < least(t + TILE, context); s += TILE) {
			struct tile tile = {t, least(TILE, context - t), s, least(TILE, context - s)};

			tile_backward(head, &tile, kept.at);
		}
}

static void forward(const struct call *c, bool efficient)
{
	struct head head = head_of(c, c->out[2].at, efficient);
	size_t width = c->columns, kept = efficient ? head.context : head.context * head.context;

	for (size_t i = 0; i < c->rows / head.context * c->heads; i++) {
		size_t row = i / c->heads * head.context, column = i % c->heads * head.width;

		take(&head, QUERY, tensor_from(c->in[0], 3 * row * width + column), width, 3 * width);
		(efficient ? efficient_forward : plain_forward)(&head, tensor_from(c->out[1], i * kept));
		put(&head, OUT, tensor_from(c->out[0], row * width + column), width, width);
	}
}

static void backward(const struct call *c, bool efficient)
{
	struct head head = head_of(c, c->out[1].at, efficient);
	size_t width = c->columns, kept = efficient ? head.context : head.context * head.context;

	for (size_t i = 0; i < c->rows / head.context * c->heads; i++) {
		size_t row = i / c->heads * head.context, column = i % c->heads * head.width;

		take(&head, QUERY, tensor_from(c->in[0], 3 * row * width + column), width, 3 * width);
		if (efficient)
			take(&head, OUT, tensor_from(c->in[3], row * width + column), width, width);
		take(&head, OUT_GRADIENT, tensor_from(c->in[2], row * width + column), width, width);
		(efficient ? efficient_backward : plain_backward)(&head, tensor_from(c->in[1], i * kept));
		put(&head, GRADIENT, tensor_from(c->out[0], 3 * row * width + column), width, 3 * width);
	}
}

void kernel_attention(const struct call *c) { forward(c, false); }
void kernel_attention_backward(const struct call *c) { backward(c, false); }
void kernel_efficient(const struct call *c) { forward(c, true); }
void kernel_efficient_backward(const struct call *c) { backward(c, true); }
