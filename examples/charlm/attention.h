/* charlm/attention.h: one head of one sample, between rows of device memory and a matrix of its own. */
#ifndef CHARLM_ATTENTION_H
#define CHARLM_ATTENTION_H

#include "kernels.h"

/* Takes `columns` numbers of each of `rows` rows, `apart` from one another, into a matrix; and puts one there. */
static inline void take(real *out, struct numbers in, size_t rows, size_t columns, size_t apart)
{
	for (size_t i = 0; i < rows; i++) {
		const real *row = numbers_open(in, i * apart, columns, out + i * columns);

		if (!in.half)
			memcpy(out + i * columns, row, columns * sizeof(*out));
	}
}

static inline void put(struct numbers out, const real *in, size_t rows, size_t columns, size_t apart)
{
	for (size_t i = 0; i < rows; i++) {
		real *row = numbers_place(out, i * apart, (real *)in + i * columns);

		if (!out.half)
			memcpy(row, in + i * columns, columns * sizeof(*in));
		numbers_close(out, i * apart, columns, in + i * columns);
	}
}

static inline void flip(real *out, const real *in, size_t rows, size_t columns)
{
	for (size_t i = 0; i < rows; i++)
		for (size_t j = 0; j < columns; j++)
			out[j * rows + i] = in[i * columns + j];
}

#endif
