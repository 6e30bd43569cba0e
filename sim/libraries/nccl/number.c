/* sim/libraries/nccl/number.c: see the header. */
#include "sim/libraries/nccl/number.h"

#include <math.h>
#include <string.h>

enum family {
	SIGNED,
	UNSIGNED,
	DOUBLE,
	FLOAT,
	SMALL, /* floating point of 16 or 8 bits */
};

struct type {
	const char *name;
	size_t bytes;
	enum family family;
	/* SMALL: bits of exponent and mantissa; the codes of the largest finite number, of infinity (0: none, so
	 * numbers that are too large become the largest finite one) and of NaN */
	int exponent, mantissa;
	uint32_t largest, infinity, nan;
	bool all_ones_is_finite; /* codes with the highest exponent are numbers too, except NaN */
};

static const struct type types[] = {
	[ncclInt8] = {"int8", 1, SIGNED},
	[ncclUint8] = {"uint8", 1, UNSIGNED},
	[ncclInt32] = {"int32", 4, SIGNED},
	[ncclUint32] = {"uint32", 4, UNSIGNED},
	[ncclInt64] = {"int64", 8, SIGNED},
	[ncclUint64] = {"uint64", 8, UNSIGNED},
	[ncclFloat16] = {"float16", 2, SMALL, 5, 10, 0x7bff, 0x7c00, 0x7e00, false},
	[ncclFloat32] = {"float32", 4, FLOAT},
	[ncclFloat64] = {"float64", 8, DOUBLE},
	[ncclBfloat16] = {"bfloat16", 2, SMALL, 8, 7, 0x7f7f, 0x7f80, 0x7fc0, false},
	[ncclFloat8e4m3] = {"float8_e4m3", 1, SMALL, 4, 3, 0x7e, 0, 0x7f, true},
	[ncclFloat8e5m2] = {"float8_e5m2", 1, SMALL, 5, 2, 0x7b, 0, 0x7e, false},
};

static const struct type *find(int type)
{
	return type >= 0 && type < (int)(sizeof types / sizeof types[0]) ? &types[type] : NULL;
}

size_t nccl_type_bytes(int type) { return find(type) ? find(type)->bytes : 0; }
const char *nccl_type_name(int type) { return find(type) ? find(type)->name : "no data type"; }
bool nccl_type_is_float8(int type) { return type == ncclFloat8e4m3 || type == ncclFloat8e5m2; }

static double decode(const struct type *type, uint32_t code)
{
	uint32_t ones = (1u << type->exponent) - 1, fraction = code & ((1u << type->mantissa) - 1);
	uint32_t exponent = code >> type->mantissa & ones;
	int bias = (int)(ones >> 1);
	double magnitude;

	if (exponent == ones && !type->all_ones_is_finite)
		magnitude = fraction ? NAN : INFINITY;
	else if ((code & ~(1u << (type->exponent + type->mantissa))) == type->nan)
		magnitude = NAN;
	else if (exponent == 0)
		magnitude = ldexp(fraction, 1 - bias - type->mantissa);
	else
		magnitude = ldexp(fraction + (1u << type->mantissa), (int)exponent - bias - type->mantissa);
	return code >> (type->exponent + type->mantissa) ? -magnitude : magnitude;
}

/* To the nearest whole number, ties to even, whatever the thread's rounding mode. */
static double nearest(double value)
{
	double below = floor(value), rest = value - below;

	return rest > 0.5 || (rest == 0.5 && fmod(below, 2) != 0) ? below + 1 : below;
}

static uint32_t encode(const struct type *type, double value)
{
	uint32_t sign = signbit(value) ? 1u << (type->exponent + type->mantissa) : 0, code;
	int bias = (1 << (type->exponent - 1)) - 1, exponent;
	double steps;

	if (isnan(value))
		return sign | type->nan;
	if (value == 0)
		return sign;
	if (isinf(value))
		return sign | (type->infinity ? type->infinity : type->largest);
	frexp(value, &exponent);
	exponent = exponent - 1 < 1 - bias ? 1 - bias
					   : exponent - 1; /* of the leading bit; subnormals share the lowest */
	steps = nearest(ldexp(fabs(value), type->mantissa - exponent));
	if (exponent > bias + 1)
		code = type->largest + 1;
	else /* the leading bit of a normal number adds one to the exponent below it */
		code = ((uint32_t)(exponent + bias - 1) << type->mantissa) + (uint32_t)steps;
	if (code > type->largest)
		code = type->infinity ? type->infinity : type->largest;
	return sign | code;
}

static uint64_t load(const struct type *type, const unsigned char *from)
{
	uint64_t value = 0;

	memcpy(&value, from, type->bytes); /* little-endian, as CUDA is */
	if (type->family == SIGNED && type->bytes < 8 && value >> (8 * type->bytes - 1))
		value |= ~0ull << (8 * type->bytes);
	return value;
}

void nccl_widen(int number, const void *from, size_t count, union nccl_wide *ret_to)
{
	const struct type *type = find(number);
	const unsigned char *bytes = from;
	size_t i;

	for (i = 0; i < count; i++, bytes += type->bytes) {
		uint64_t code = load(type, bytes);
		float single;

		if (type->family == FLOAT) {
			memcpy(&single, bytes, sizeof single);
			ret_to[i].real = single;
		} else if (type->family == SMALL) {
			ret_to[i].real = decode(type, (uint32_t)code);
		} else {
			ret_to[i].whole = code; /* of a double: its bits */
		}
	}
}

static double combine_reals(enum nccl_reduction reduction, double a, double b)
{
	switch (reduction) {
	case NCCL_REDUCE_PRODUCT:
		return a * b;
	case NCCL_REDUCE_MAXIMUM:
		return fmax(a, b);
	case NCCL_REDUCE_MINIMUM:
		return fmin(a, b);
	default:
		return a + b;
	}
}

static uint64_t combine_wholes(enum nccl_reduction reduction, bool is_signed, uint64_t a, uint64_t b)
{
	bool less = is_signed ? (int64_t)a < (int64_t)b : a < b;

	switch (reduction) {
	case NCCL_REDUCE_PRODUCT:
		return a * b;
	case NCCL_REDUCE_MAXIMUM:
		return less ? b : a;
	case NCCL_REDUCE_MINIMUM:
		return less ? a : b;
	default:
		return a + b;
	}
}

void nccl_combine(int number, enum nccl_reduction reduction, size_t count, union nccl_wide *into,
		  const union nccl_wide *from)
{
	const struct type *type = find(number);
	size_t i;

	for (i = 0; i < count; i++) {
		if (type->family == SIGNED || type->family == UNSIGNED)
			into[i].whole =
				combine_wholes(reduction, type->family == SIGNED, into[i].whole, from[i].whole);
		else
			into[i].real = combine_reals(reduction, into[i].real, from[i].real);
	}
}

static void store(const struct type *type, union nccl_wide value, unsigned char *to)
{
	uint64_t code = value.whole; /* integers, and a double's bits */
	float single;

	if (type->family == FLOAT) {
		single = (float)value.real;
		memcpy(to, &single, sizeof single);
		return;
	}
	if (type->family == SMALL)
		code = encode(type, value.real);
	memcpy(to, &code, type->bytes);
}

static union nccl_wide divide(const struct type *type, union nccl_wide sum, int ranks)
{
	unsigned char wrapped[8];

	if (type->family != SIGNED && type->family != UNSIGNED) {
		sum.real /= ranks;
		return sum;
	}
	store(type, sum, wrapped);
	sum.whole = load(type, wrapped);
	if (type->family == SIGNED)
		sum.whole = (uint64_t)((int64_t)sum.whole / ranks);
	else
		sum.whole /= (uint64_t)ranks;
	return sum;
}

void nccl_narrow(int number, enum nccl_reduction reduction, int ranks, size_t count, const union nccl_wide *from,
		 void *ret_to)
{
	const struct type *type = find(number);
	size_t i;

	for (i = 0; i < count; i++)
		store(type, reduction == NCCL_REDUCE_AVERAGE ? divide(type, from[i], ranks) : from[i],
		      (unsigned char *)ret_to + i * type->bytes);
}

void nccl_multiply(int number, size_t count, void *elements, const void *scalar)
{
	const struct type *type = find(number);
	union nccl_wide factor, element;
	size_t i;

	nccl_widen(number, scalar, 1, &factor);
	for (i = 0; i < count; i++) {
		unsigned char *at = (unsigned char *)elements + i * type->bytes;

		nccl_widen(number, at, 1, &element);
		nccl_combine(number, NCCL_REDUCE_PRODUCT, 1, &element, &factor);
		store(type, element, at);
	}
}
