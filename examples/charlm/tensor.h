/* charlm/tensor.h: numbers in device memory, whole or in half.
 *
 * Half is bfloat16: the upper 16 bits of a float, rounded to the nearest (ties to even). It has a float's range, so
 * nothing under- or overflows and no loss scale is needed. It has 8 bits of precision: enough for numbers that are
 * kept between kernels, not for sums. So a kernel opens a range of a tensor as `real`, computes in real and closes
 * the range again. The unpacked numbers are on the stack, where a GPU uses registers.
 */
#ifndef CHARLM_TENSOR_H
#define CHARLM_TENSOR_H

#include <stdbool.h>
#include <stddef.h>
#include <stdint.h>
#include <string.h>

/* The gradient tests compile everything in double, so that finite differences are sharp. */
#ifdef CHARLM_DOUBLE
typedef double real;
#else
typedef float real;
#endif

struct tensor {
	void *at; /* real, or uint16_t if half; NULL: none */
	size_t bytes;
	bool half;
};

static inline size_t tensor_bytes(bool half, size_t count)
{
	return count * (half ? sizeof(uint16_t) : sizeof(real));
}

static inline size_t tensor_count(struct tensor tensor) { return tensor.bytes / tensor_bytes(tensor.half, 1); }

static inline struct tensor whole(const real *at, size_t count)
{
	return (struct tensor){(void *)at, count * sizeof(real), false};
}

/* The rest of it from its number `index` on. */
static inline struct tensor tensor_from(struct tensor tensor, size_t index)
{
	size_t skip = tensor_bytes(tensor.half, index);

	return (struct tensor){(char *)tensor.at + skip, tensor.bytes - skip, tensor.half};
}

static inline real from_half(uint16_t half)
{
	uint32_t bits = (uint32_t)half << 16;
	float number;

	memcpy(&number, &bits, sizeof number);
	return (real)number;
}

static inline uint16_t to_half(real number)
{
	float rounded = (float)number;
	uint32_t bits;

	memcpy(&bits, &rounded, sizeof bits);
	if ((bits & 0x7FFFFFFF) > 0x7F800000) /* NaN stays NaN */
		return (uint16_t)(bits >> 16 | 0x40);
	return (uint16_t)((bits + 0x7FFF + (bits >> 16 & 1)) >> 16);
}

/* The place at which to compute the numbers from index `from` on: in place, or in `scratch` if they are halves. */
static inline real *tensor_place(struct tensor tensor, size_t from, real *scratch)
{
	return tensor.half ? scratch : (real *)tensor.at + from;
}

/* The same, with their present values. */
static inline real *tensor_open(struct tensor tensor, size_t from, size_t count, real *scratch)
{
	for (size_t i = 0; tensor.half && i < count; i++)
		scratch[i] = from_half(((const uint16_t *)tensor.at)[from + i]);
	return tensor_place(tensor, from, scratch);
}

/* Copies numbers out of a tensor, or into it. */
static inline void tensor_load(struct tensor tensor, size_t from, size_t count, real *out)
{
	if (tensor_open(tensor, from, count, out) != out)
		memcpy(out, (real *)tensor.at + from, count * sizeof *out);
}

/* Stores the numbers that were computed at that place. */
static inline void tensor_close(struct tensor tensor, size_t from, size_t count, const real *computed)
{
	for (size_t i = 0; tensor.half && i < count; i++)
		((uint16_t *)tensor.at)[from + i] = to_half(computed[i]);
}

static inline void tensor_store(struct tensor tensor, size_t from, size_t count, const real *in)
{
	if (!tensor.half)
		memcpy((real *)tensor.at + from, in, count * sizeof *in);
	tensor_close(tensor, from, count, in);
}

#endif
