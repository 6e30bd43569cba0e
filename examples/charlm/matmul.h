/* charlm/matmul.h: the matrix product on which the other kernels stand. */
#ifndef CHARLM_MATMUL_H
#define CHARLM_MATMUL_H

#include "tensor.h"

/* Number (i, k) is `row` * i + `column` * k numbers from the first. One of the two is 1. */
struct matrix {
	struct tensor in;
	size_t row, column;
};

/* out[rows, columns] = a[rows, inner] x b[inner, columns], plus bias[columns] if not NULL; `add`: plus what was in
 * out. The columns of b and out are 1 apart; `a` may be read transposed. */
struct product {
	struct matrix out, a, b;
	size_t rows, inner, columns;
	const real *bias;
	bool add;
};

void multiply(const struct product *product);

#endif
