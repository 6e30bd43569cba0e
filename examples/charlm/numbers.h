/* charlm/numbers.h: numbers in device memory, whole or in half.
 *
 * Half is bfloat16: the upper 16 bits of a float, rounded to the nearest (to the even one of two equally near). It
 * has a float's range, so that nothing under- or overflows and no loss scale is needed, and 8 bits of precision: good
 * enough for what is kept between kernels, not for sums. So each kernel opens a stretch of numbers as `real`,
 * computes in real and closes the stretch again. The unpacked ones live on the stack, as a GPU has them in registers.
 */
#ifndef CHARLM_NUMBERS_H
#define CHARLM_NUMBERS_H

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

struct numbers {
	void *at; /* real, or uint16_t */
	bool half;
};

static inline struct numbers whole(const real *at) { return (struct numbers){(void *)at, false}; }

static inline size_t numbers_bytes(bool half, size_t count)
{
	return count * (half ? sizeof(uint16_t) : sizeof(real));
}

static inline struct numbers numbers_from(struct numbers numbers, size_t index)
{
	return (struct numbers){(char *)numbers.at + numbers_bytes(numbers.half, index), numbers.half};
}

static inline real from_half(uint16_t half)
{
	uint32_t bits = (uint32_t)half << 16;
	float number;

	memcpy(&number, &bits, sizeof(number));
	return (real)number;
}

static inline uint16_t to_half(real number)
{
	float rounded = (float)number;
	uint32_t bits;

	memcpy(&bits, &rounded, sizeof(bits));
	if ((bits & 0x7FFFFFFF) > 0x7F800000) /* not a number: stays one */
		return (uint16_t)(bits >> 16 | 0x40);
	return (uint16_t)((bits + 0x7FFF + (bits >> 16 & 1)) >> 16);
}

/* Where to compute `numbers` from their index `from` on: they themselves, or `room` for halves. */
static inline real *numbers_place(struct numbers numbers, size_t from, real *room)
{
	return numbers.half ? room : (real *)numbers.at + from;
}

/* The same, with what they are now. */
static inline real *numbers_open(struct numbers numbers, size_t from, size_t count, real *room)
{
	for (size_t i = 0; numbers.half && i < count; i++)
		room[i] = from_half(((const uint16_t *)numbers.at)[from + i]);
	return numbers_place(numbers, from, room);
}

/* What was computed there becomes theirs. */
static inline void numbers_close(struct numbers numbers, size_t from, size_t count, const real *computed)
{
	for (size_t i = 0; numbers.half && i < count; i++)
		((uint16_t *)numbers.at)[from + i] = to_half(computed[i]);
}

#endif
