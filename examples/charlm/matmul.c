/* charlm/matmul.c: the one function that takes the time. A tile of out, 4 rows by two vectors, stays in registers
 * while `inner` advances. Everything is cut into blocks, so that what a tile reads stays in the caches. Halves are
 * unpacked block by block, and summed as whole numbers:
 *
 *   out block  =  sum over inner of  a block x b block
 */
#include "matmul.h"

enum {
	VECTOR_BYTES = 16,
	LANES = VECTOR_BYTES / sizeof(real),
	TILE_ROWS = 4,
	TILE_COLUMNS = 2 * LANES,
	BLOCK_ROWS = 64,
	BLOCK_INNER = 128,
	BLOCK_COLUMNS = 128,
};

typedef real vector __attribute__((vector_size(VECTOR_BYTES), aligned(sizeof(real)), may_alias));

struct product {
	struct matrix out, a, b;
	const real *bias;
	bool add;
};

/* One block of each, unpacked. */
struct block {
	real *out;
	const real *a, *b;
	size_t rows, inner, columns;
	size_t a_row, a_column, b_row, out_row;
};

/* out[0..rows) x [0..TILE_COLUMNS) += a x b. `rows` is a constant where this is inlined. */
static inline __attribute__((always_inline)) void tile(const struct block *m, real *out, const real *a, const real *b,
						       size_t rows)
{
	vector sum[TILE_ROWS][2];

	for (size_t i = 0; i < rows; i++) {
		sum[i][0] = *(const vector *)(out + i * m->out_row);
		sum[i][1] = *(const vector *)(out + i * m->out_row + LANES);
	}
	for (size_t k = 0; k < m->inner; k++) {
		vector left = *(const vector *)(b + k * m->b_row),
		       right = *(const vector *)(b + k * m->b_row + LANES);

		for (size_t i = 0; i < rows; i++) {
			real factor = a[i * m->a_row + k * m->a_column];

			sum[i][0] += factor * left;
			sum[i][1] += factor * right;
		}
	}
	for (size_t i = 0; i < rows; i++) {
		*(vector *)(out + i * m->out_row) = sum[i][0];
		*(vector *)(out + i * m->out_row + LANES) = sum[i][1];
	}
}

/* The remaining columns, one row. */
static inline __attribute__((always_inline)) void rest(const struct block *m, real *out, const real *a, const real *b,
						       size_t columns)
{
	for (size_t k = 0; k < m->inner; k++)
		for (size_t j = 0; j < columns; j++)
			out[j] += a[k * m->a_column] * b[k * m->b_row + j];
}

/* Not inlined: it needs all registers for itself. */
static __attribute__((noinline)) void multiply_block(const struct block *m)
{
	size_t column = 0;

	for (; column + TILE_COLUMNS <= m->columns; column += TILE_COLUMNS) {
		size_t i = 0;

		for (; i + TILE_ROWS <= m->rows; i += TILE_ROWS)
			tile(m, m->out + i * m->out_row + column, m->a + i * m->a_row, m->b + column, TILE_ROWS);
		for (; i < m->rows; i++)
			tile(m, m->out + i * m->out_row + column, m->a + i * m->a_row, m->b + column, 1);
	}
	for (size_t i = 0; i < m->rows && column < m->columns; i++)
		rest(m, m->out + i * m->out_row + column, m->a + i * m->a_row, m->b + column, m->columns - column);
}

static size_t least(size_t a, size_t b) { return a < b ? a : b; }

/* Copies a's block at (row, from) in the direction in which a is contiguous. */
static void open_a(const struct product *m, size_t row, size_t from, struct block *block, real *scratch)
{
	bool by_columns = m->a.row == 1 && m->a.column != 1;
	size_t lines = by_columns ? block->inner : block->rows, length = by_columns ? block->rows : block->inner;
	size_t apart = by_columns ? m->a.column : m->a.row, start = row * m->a.row + from * m->a.column;

	for (size_t i = 0; i < lines; i++)
		tensor_load(m->a.in, start + i * apart, length, scratch + i * length);
	block->a = scratch;
	block->a_row = by_columns ? 1 : length;
	block->a_column = by_columns ? length : 1;
}

static void open_b(const struct product *m, size_t from, size_t column, struct block *block, real *scratch)
{
	block->b = tensor_place(m->b.in, from * m->b.row + column, scratch);
	block->b_row = m->b.in.half ? block->columns : m->b.row;
	for (size_t k = 0; k < block->inner && m->b.in.half; k++)
		tensor_open(m->b.in, (from + k) * m->b.row + column, block->columns, scratch + k * block->columns);
}

/* Starts out's block with its present numbers, the bias, or zero. */
static void open_out(const struct product *m, size_t row, size_t column, struct block *block, real *scratch)
{
	block->out = tensor_place(m->out.in, row * m->out.row + column, scratch);
	block->out_row = m->out.in.half ? block->columns : m->out.row;
	for (size_t i = 0; i < block->rows; i++) {
		real *out = block->out + i * block->out_row;

		if (m->add)
			tensor_open(m->out.in, (row + i) * m->out.row + column, block->columns, out);
		else if (m->bias)
			memcpy(out, m->bias + column, block->columns * sizeof(real));
		else
			memset(out, 0, block->columns * sizeof(real));
	}
}

void multiply(struct matrix out, struct matrix a, struct matrix b, const real *bias, bool add)
{
	real a_room[BLOCK_ROWS * BLOCK_INNER], b_room[BLOCK_INNER * BLOCK_COLUMNS];
	real out_room[BLOCK_ROWS * BLOCK_COLUMNS];
	const struct product m = {out, a, b, bias, add};

	for (size_t column = 0; column < out.columns; column += BLOCK_COLUMNS)
		for (size_t row = 0; row < out.rows; row += BLOCK_ROWS) {
			struct block block = {.rows = least(BLOCK_ROWS, out.rows - row),
					      .columns = least(BLOCK_COLUMNS, out.columns - column)};

			open_out(&m, row, column, &block, out_room);
			for (size_t from = 0; from < a.columns; from += BLOCK_INNER) {
				block.inner = least(BLOCK_INNER, a.columns - from);
				open_a(&m, row, from, &block, a_room);
				open_b(&m, from, column, &block, b_room);
				multiply_block(&block);
			}
			for (size_t i = 0; i < block.rows; i++)
				tensor_close(out.in, (row + i) * out.row + column, block.columns,
					     block.out + i * block.out_row);
		}
}
