/* charlm/matmul.h: the matrix product on which the other kernels stand. */
#ifndef CHARLM_MATMUL_H
#define CHARLM_MATMUL_H

#include "tensor.h"

/* Number (i, k) is `row` * i + `column` * k numbers from the first. One of the two is 1. */
struct matrix {
	struct tensor in;
	size_t rows, columns;
	size_t row, column;
};

/* Stored by rows, `row` numbers apart. */
static inline struct matrix matrix_of(struct tensor in, size_t rows, size_t columns, size_t row)
{
	return (struct matrix){in, rows, columns, row, 1};
}

static inline struct matrix transposed(struct matrix m)
{
	return (struct matrix){m.in, m.columns, m.rows, m.column, m.row};
}

/* out = a x b, plus bias (a row) if not NULL; `add`: plus what was in out. Only `a` may be transposed. */
void multiply(struct matrix out, struct matrix a, struct matrix b, const real *bias, bool add);

#endif
