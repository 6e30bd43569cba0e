/* charlm/exponential.h: e^x and the square root in forms that compilers turn into vector instructions. */
#ifndef CHARLM_EXPONENTIAL_H
#define CHARLM_EXPONENTIAL_H

#include "tensor.h"

#include <math.h>

#define INLINE_REAL static inline __attribute__((always_inline)) real

#ifdef CHARLM_DOUBLE
INLINE_REAL exponential(real x) { return exp(x); }
INLINE_REAL square_root(real x) { return sqrt(x); }
#else
/* x = n ln 2 + r with |r| <= ln 2 / 2: 2^n goes into the exponent's bits, e^r is the series up to r^6 / 720 (its next
 * term is below 2^-22 of the whole). x is clamped to -87 and 88. */
INLINE_REAL exponential(real x)
{
	x = fminf(fmaxf(x, -87.0f), 88.0f);

	float scaled = x * 1.44269504f;
	int32_t n = (int32_t)(scaled + copysignf(0.5f, scaled));
	float r = x - (float)n * 0.693359375f + (float)n * 2.12194440e-4f;
	float series =
		1 + r * (1 + r * (1.0f / 2 + r * (1.0f / 6 + r * (1.0f / 24 + r * (1.0f / 120 + r * (1.0f / 720))))));
	int32_t bits = (n + 127) << 23;
	float power;

	memcpy(&power, &bits, sizeof power);
	return series * power;
}

INLINE_REAL square_root(real x) { return sqrtf(x); }
#endif

#endif
