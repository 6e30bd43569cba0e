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

/* Matrices of context x head width, unpacked from rows of device memory; the flipped ones are transposed. */
enum part {
	QUERY,
	KEY,
	VALUE,
	KEY_FLIPPED,
	VALUE_FLIPPED,
	OUT,
	OUT_GRADIENT,
	QUERY_GRADIENT,
	KEY_GRADIENT,
	VALUE_GRADIENT,
	PARTS
};

/* Where in the scratch each part lies. In the plain form parts share a place where one ends before the other begins.
 */
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
				memcpy(out, row, head->width * sizeof(*out));
		}
}

static void put(const struct head *head, enum part part, struct tensor rows, size_t columns, size_t apart)
{
	for (size_t column = 0; column < apart; column += columns, part++)
		for (size_t i = 0; i < head->context; i++) {
			real *in = head->part[part] + i * head->width;
			real *row = tensor_place(rows, i * apart + column, in);

			if (!rows.half)
				memcpy(row, in, head->width * sizeof(*in));
			tensor_close(rows, i * apart + column, head->width, in);
		}
}

static void flip(const struct head *head, enum part out, enum part in)
{
	for (size_t i = 0; i < head->context; i++)
		for (size_t j = 0; j < head->width; j++)
			head->part[out][j * head->context + i] = head->part[in][i * head->width + j];
}

static struct matrix rows(const real *at, size_t apart) { return (struct matrix){{(void *)at, 0, false}, apart, 1}; }
static struct matrix flipped(const real *at, size_t apart)
{
	return (struct matrix){{(void *)at, 0, false}, 1, apart};
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
	size_t context = head->context, width = head->width;
	real *weights = tensor_place(kept, 0, head->weights), *const *part = head->part;
	struct product scores = {rows(weights, context),
				 rows(part[QUERY], width),
				 rows(part[KEY_FLIPPED], context),
				 context,
				 width,
				 context,
				 NULL,
				 false};
	struct product out = {rows(part[OUT], width),
			      rows(weights, context),
			      rows(part[VALUE], width),
			      context,
			      context,
			      width,
			      NULL,
			      false};

	flip(head, KEY_FLIPPED, KEY);
	multiply(&scores);
	causal_softmax(weights, context, head->scale);
	tensor_close(kept, 0, context * context, weights);
	multiply(&out);
}

static void plain_backward(const struct head *head, struct tensor kept)
{
	size_t context = head->context, width = head->width;
	const real *weights = tensor_open(kept, 0, context * context, head->weights);
	real *scores = head->scores, *const *part = head->part;
	struct matrix out_gradient = rows(part[OUT_GRADIENT], width);
	struct product value = {rows(part[VALUE_GRADIENT], width),
				flipped(weights, context),
				out_gradient,
				context,
				context,
				width,
				NULL,
				false};
	struct product score = {rows(scores, context),
				out_gradient,
				rows(part[VALUE_FLIPPED], context),
				context,
				width,
				context,
				NULL,
				false};
	struct product query = {rows(part[QUERY_GRADIENT], width),
				rows(scores, context),
				rows(part[KEY], width),
				context,
				context,
				width,
				NULL,
				false};
	struct product key = {rows(part[KEY_GRADIENT], width),
			      flipped(scores, context),
			      rows(part[QUERY], width),
			      context,
			      context,
			      width,
			      NULL,
			      false};

	flip(head, VALUE_FLIPPED, VALUE);
	multiply(&value);
	multiply(&score);
	causal_softmax_backward(scores, weights, context, head->scale);
	multiply(&query);
	multiply(&key);
}

/* A tile: queries from t on, keys from s on. */
struct tile {
	size_t t, queries, s, keys;
};

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
	real *logs = kept.at, *const *part = head->part;

	flip(head, KEY_FLIPPED, KEY);
	memset(part[OUT], 0, context * width * sizeof(real));
	for (size_t t = 0; t < context; t += TILE) {
		struct tile tile = {.t = t, .queries = least(TILE, context - t)};
		real *out = part[OUT] + t * width;

		memset(head->sum, 0, TILE * sizeof(*head->sum));
		for (size_t s = 0; s < t + tile.queries; s += TILE) {
			tile.s = s;
			tile.keys = least(TILE, context - s);
			multiply(&(struct product){rows(head->scores, TILE), rows(part[QUERY] + t * width, width),
						   rows(part[KEY_FLIPPED] + s, context), tile.queries, width,
						   tile.keys, NULL, false});
			tile_softmax(head, &tile, out);
			multiply(&(struct product){rows(out, width), rows(head->scores, TILE),
						   rows(part[VALUE] + s * width, width), tile.queries, tile.keys,
						   width, NULL, true});
		}
		for (size_t i = 0; i < tile.queries; i++) {
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
	size_t context = head->context, width = head->width, queries = tile->queries, keys = tile->keys;
	size_t t = tile->t * width, s = tile->s * width;
	real *const *part = head->part;
	struct matrix query = rows(part[QUERY] + t, width), out_gradient = rows(part[OUT_GRADIENT] + t, width);

	multiply(&(struct product){rows(head->weights, TILE), query, rows(part[KEY_FLIPPED] + tile->s, context),
				   queries, width, keys, NULL, false});
	multiply(&(struct product){rows(head->scores, TILE), out_gradient,
				   rows(part[VALUE_FLIPPED] + tile->s, context), queries, width, keys, NULL, false});
	tile_softmax_backward(head, tile, logs);
	multiply(&(struct product){rows(part[VALUE_GRADIENT] + s, width), flipped(head->weights, TILE), out_gradient,
				   keys, queries, width, NULL, true});
	multiply(&(struct product){rows(part[QUERY_GRADIENT] + t, width), rows(head->scores, TILE),
				   rows(part[KEY] + s, width), queries, keys, width, NULL, true});
	multiply(&(struct product){rows(part[KEY_GRADIENT] + s, width), flipped(head->scores, TILE), query, keys,
				   queries, width, NULL, true});
}

static void efficient_backward(const struct head *head, struct tensor kept)
{
	size_t context = head->context;

	flip(head, KEY_FLIPPED, KEY);
	flip(head, VALUE_FLIPPED, VALUE);
	memset(head->part[QUERY_GRADIENT], 0, 3 * context * head->width * sizeof(real));
	for (size_t t = 0; t < context; t += TILE)
		for (size_t s = 0; s < least(t + TILE, context); s += TILE)
			tile_backward(head, &(struct tile){t, least(TILE, context - t), s, least(TILE, context - s)},
				      kept.at);
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
		put(&head, QUERY_GRADIENT, tensor_from(c->out[0], 3 * row * width + column), width, 3 * width);
	}
}

void kernel_attention(const struct call *c) { forward(c, false); }
void kernel_attention_backward(const struct call *c) { backward(c, false); }
void kernel_efficient(const struct call *c) { forward(c, true); }
void kernel_efficient_backward(const struct call *c) { backward(c, true); }
