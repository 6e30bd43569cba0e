/* charlm/attention.c: causal self-attention, one head of one sample at a time.
 *
 *   weights = softmax(query x key^T / sqrt(head width)), zero above the diagonal        out = weights x value
 *
 * The plain form keeps all weights[samples, heads, context, context] for the way back. The efficient one keeps only
 * logs[samples, heads, context], for each query the logarithm of the sum of e^score, and computes its weights twice:
 * e^(score - log). So it needs them for a few queries at a time only: a strip of queries, by all the keys they see.
 * (Rabe and Staats 2021, arXiv:2112.05682.) The plain form is one strip of all queries.
 */
#include "exponential.h"
#include "kernels.h"
#include "matmul.h"

#include <math.h>

static size_t least(size_t a, size_t b) { return a < b ? a : b; }

enum { STRIP = 16 }; /* queries, in the efficient form */

/* One head's matrices of context x head width, unpacked from rows of device memory; the flipped ones are transposed.
 */
enum part { QUERY, KEY, VALUE, KEY_FLIPPED, VALUE_FLIPPED, OUT, GRADIENT, PARTS = GRADIENT + 3 };

/* Where in the scratch each part lies: two share a place where one ends before the other begins. OUT is also the
 * gradient of out; from GRADIENT on lie those of query, key and value. */
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

static struct head head_of(const struct call *c, real *scratch, bool efficient)
{
	size_t context = c->inner, width = c->columns / c->heads;
	struct head head = {.efficient = efficient,
			    .context = context,
			    .width = width,
			    .strip = efficient ? STRIP : context,
			    .scale = 1 / square_root((real)width)};

	for (size_t i = 0; i < PARTS; i++)
		head.part[i] = scratch + (efficient ? efficient_places : plain_places)[i] * context * width;
	head.weights = scratch + (efficient ? EFFICIENT_PLACES : PLAIN_PLACES) * context * width;
	head.scores = head.weights + head.strip * context;
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

/* Queries first..end, which see keys 0..end. `weights` is the first row of theirs, `logs` of the whole head. */
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

/* The same weights again, from what was kept. */
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

/* From the last strip on: it sees all keys and begins their gradients, to which the others add. */
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

static void forward(const struct call *c, bool efficient)
{
	struct head head = head_of(c, c->out[2].at, efficient);
	size_t width = c->columns;

	for (size_t i = 0; i < c->rows / head.context * c->heads; i++) {
		size_t row = i / c->heads * head.context, column = i % c->heads * head.width;

		take(&head, QUERY, tensor_from(c->in[0], 3 * row * width + column), width, 3 * width);
		head_forward(&head, kept_of(&head, c->out[1], i));
		put(&head, OUT, tensor_from(c->out[0], row * width + column), width, width);
	}
}

static void backward(const struct call *c, bool efficient)
{
	struct head head = head_of(c, c->out[1].at, efficient);
	size_t width = c->columns;

	for (size_t i = 0; i < c->rows / head.context * c->heads; i++) {
		size_t row = i / c->heads * head.context, column = i % c->heads * head.width;

		take(&head, QUERY, tensor_from(c->in[0], 3 * row * width + column), width, 3 * width);
		take(&head, OUT, tensor_from(c->in[2], row * width + column), width, width);
		head_backward(&head, kept_of(&head, c->in[1], i));
		put(&head, GRADIENT, tensor_from(c->out[0], 3 * row * width + column), width, 3 * width);
	}
}

void kernel_attention(const struct call *c) { forward(c, false); }
void kernel_attention_backward(const struct call *c) { backward(c, false); }
void kernel_efficient(const struct call *c) { forward(c, true); }
void kernel_efficient_backward(const struct call *c) { backward(c, true); }
