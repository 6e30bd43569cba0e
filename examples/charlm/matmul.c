/* charlm/matmul.c: the one function where the time goes. A tile of out, 4 rows by two vectors, stays in registers
 * while `inner` goes by; rows and inner are cut so that what a tile reads stays in the caches. */
#include "kernels.h"

#include <string.h>

enum {
	VECTOR_BYTES = 16,
	LANES = VECTOR_BYTES / sizeof(real),
	TILE_ROWS = 4,
	TILE_COLUMNS = 2 * LANES,
	CHUNK_ROWS = 64,
	CHUNK_INNER = 256,
};

typedef real vector __attribute__((vector_size(VECTOR_BYTES), aligned(sizeof(real)), may_alias));

/* out[0..rows) x [0..TILE_COLUMNS) += a x b over `inner`. `rows` is a constant where this is inlined. */
static inline __attribute__((always_inline)) void tile(const struct matmul *m, real *out, const real *a,
						       const real *b, size_t rows, size_t inner)
{
	vector sum[TILE_ROWS][2];

	for (size_t i = 0; i < rows; i++) {
		sum[i][0] = *(const vector *)(out + i * m->out_row);
		sum[i][1] = *(const vector *)(out + i * m->out_row + LANES);
	}
	for (size_t k = 0; k < inner; k++) {
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

/* The columns that are left, one row. */
static inline __attribute__((always_inline)) void rest(const struct matmul *m, real *out, const real *a,
						       const real *b, size_t columns, size_t inner)
{
	for (size_t k = 0; k < inner; k++)
		for (size_t j = 0; j < columns; j++)
			out[j] += a[k * m->a_column] * b[k * m->b_row + j];
}

static inline __attribute__((always_inline)) void chunk(const struct matmul *m, size_t row, size_t rows, size_t from,
							size_t inner)
{
	const real *a = m->a + row * m->a_row + from * m->a_column, *b = m->b + from * m->b_row;
	real *out = m->out + row * m->out_row;
	size_t column = 0;

	for (; column + TILE_COLUMNS <= m->columns; column += TILE_COLUMNS) {
		size_t i = 0;

		for (; i + TILE_ROWS <= rows; i += TILE_ROWS)
			tile(m, out + i * m->out_row + column, a + i * m->a_row, b + column, TILE_ROWS, inner);
		for (; i < rows; i++)
			tile(m, out + i * m->out_row + column, a + i * m->a_row, b + column, 1, inner);
	}
	for (size_t i = 0; i < rows && column < m->columns; i++)
		rest(m, out + i * m->out_row + column, a + i * m->a_row, b + column, m->columns - column, inner);
}

static size_t least(size_t a, size_t b) { return a < b ? a : b; }

void kernel_matmul(const struct matmul *m)
{
	for (size_t i = 0; i < m->rows && !m->add; i++) {
		if (m->bias)
			memcpy(m->out + i * m->out_row, m->bias, m->columns * sizeof(real));
		else
			memset(m->out + i * m->out_row, 0, m->columns * sizeof(real));
	}
	for (size_t from = 0; from < m->inner; from += CHUNK_INNER)
		for (size_t row = 0; row < m->rows; row += CHUNK_ROWS)
			chunk(m, row, least(CHUNK_ROWS, m->rows - row), from, least(CHUNK_INNER, m->inner - from));
}
