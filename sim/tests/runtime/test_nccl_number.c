/* NCCL's data types against other implementations: the compiler's half, and all codes of small types compared one by
 * one. */
#include "nccl_test.h"

#include "sim/libraries/nccl/number.h"

#include <math.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

/* The value of a code, by the formula of its format. */
static double value_of(unsigned int code, int exponent_bits, int mantissa_bits, bool e4m3)
{
	int exponent = (int)(code >> mantissa_bits) & ((1 << exponent_bits) - 1),
	    bias = (1 << (exponent_bits - 1)) - 1;
	double fraction = (double)(code & ((1u << mantissa_bits) - 1)) / (1 << mantissa_bits);
	double sign = code >> (exponent_bits + mantissa_bits) ? -1 : 1;

	if (e4m3 && (code & 0x7f) == 0x7f)
		return NAN;
	if (!e4m3 && exponent == (1 << exponent_bits) - 1)
		return fraction != 0 ? NAN : sign * INFINITY;
	return exponent == 0 ? sign * fraction * pow(2, 1 - bias) : sign * (1 + fraction) * pow(2, exponent - bias);
}

static double widen(int type, const void *code)
{
	union nccl_wide wide;

	nccl_widen(type, code, 1, &wide);
	return wide.real;
}

static unsigned int narrow(int type, double value)
{
	union nccl_wide wide = {.real = value};
	unsigned int code = 0;

	nccl_narrow(type, NCCL_REDUCE_SUM, 1, 1, &wide, &code);
	return code;
}

struct format {
	int type, exponent_bits, mantissa_bits;
	bool e4m3, saturates;
};

static const struct format formats[] = {
	{ncclFloat16, 5, 10, false, false},
	{ncclBfloat16, 8, 7, false, false},
	{ncclFloat8e4m3, 4, 3, true, true},
	{ncclFloat8e5m2, 5, 2, false, true},
};

/* Every code reads as its value, and is written back as itself. */
static void every_code(void **state)
{
	size_t i;
	unsigned int code;

	(void)state;
	for (i = 0; i < sizeof formats / sizeof formats[0]; i++) {
		const struct format *format = &formats[i];
		unsigned int codes = 1u << (1 + format->exponent_bits + format->mantissa_bits);

		for (code = 0; code < codes; code++) {
			double value = value_of(code, format->exponent_bits, format->mantissa_bits, format->e4m3);
			double got = widen(format->type, &code);

			assert_true(isnan(value) ? isnan(got) : got == value && signbit(got) == signbit(value));
			if (isnan(value))
				assert_true(isnan(widen(format->type, &(unsigned int){narrow(format->type, got)})));
			else if (!isinf(value) || !format->saturates)
				assert_int_equal(narrow(format->type, value), code);
		}
	}
}

/* Between two neighbours the nearer one is chosen, in the middle the even one. */
static void every_middle(void **state)
{
	size_t i;
	unsigned int code;

	(void)state;
	for (i = 0; i < sizeof formats / sizeof formats[0]; i++) {
		const struct format *format = &formats[i];
		unsigned int codes = 1u << (format->exponent_bits + format->mantissa_bits);

		for (code = 0; code + 1 < codes; code++) {
			double low = value_of(code, format->exponent_bits, format->mantissa_bits, format->e4m3);
			double high = value_of(code + 1, format->exponent_bits, format->mantissa_bits, format->e4m3);
			double middle = (low + high) / 2;

			if (isnan(high) || isinf(high) || isnan(low) || isinf(low))
				continue;
			assert_int_equal(narrow(format->type, middle), code % 2 ? code + 1 : code);
			assert_int_equal(narrow(format->type, nextafter(middle, 0)), code);
			assert_int_equal(narrow(format->type, nextafter(middle, INFINITY)), code + 1);
			assert_int_equal(narrow(format->type, -nextafter(middle, 0)), code | codes);
		}
	}
}

static void too_large(void **state)
{
	(void)state;
	assert_int_equal(narrow(ncclFloat16, 65519.9), 0x7bff);
	assert_int_equal(narrow(ncclFloat16, 65520), 0x7c00);
	assert_int_equal(narrow(ncclFloat16, -1e300), 0xfc00);
	assert_int_equal(narrow(ncclBfloat16, 3.4e38), 0x7f80);
	assert_int_equal(narrow(ncclFloat8e4m3, 448), 0x7e);
	assert_int_equal(narrow(ncclFloat8e4m3, 1e9), 0x7e);
	assert_int_equal(narrow(ncclFloat8e5m2, -INFINITY), 0xfb);
	assert_int_equal(narrow(ncclFloat8e4m3, 1e-30), 0);
	assert_int_equal(narrow(ncclFloat16, -1e-30), 0x8000);
}

static void against_the_compiler(void **state)
{
	uint64_t random = test_seed();
	int i;

	(void)state;
	for (i = 0; i < 200000; i++) {
		double value =
			ldexp((double)(int64_t)next_random(&random), -64 + (int)random_below(&random, 24) - 12);
		_Float16 half = (_Float16)value;
		unsigned short code;

		memcpy(&code, &half, sizeof code);
		assert_int_equal(narrow(ncclFloat16, value), code);
	}
}

#define INTEGER(name, ctype, number)                                                                                 \
	static void name(void **state)                                                                               \
	{                                                                                                            \
		uint64_t random = test_seed();                                                                       \
		int i, j;                                                                                            \
                                                                                                                     \
		(void)state;                                                                                         \
		for (i = 0; i < 20000; i++) {                                                                        \
			ctype values[3], results[6], got;                                                            \
			union nccl_wide sum, next;                                                                   \
			int reduction;                                                                               \
                                                                                                                     \
			for (j = 0; j < 3; j++)                                                                      \
				values[j] = (ctype)next_random(&random);                                             \
			results[NCCL_REDUCE_SUM] =                                                                   \
				(ctype)((uint64_t)values[0] + (uint64_t)values[1] + (uint64_t)values[2]);            \
			results[NCCL_REDUCE_PRODUCT] =                                                               \
				(ctype)((uint64_t)values[0] * (uint64_t)values[1] * (uint64_t)values[2]);            \
			results[NCCL_REDUCE_MAXIMUM] = results[NCCL_REDUCE_MINIMUM] = values[0];                     \
			for (j = 1; j < 3; j++) {                                                                    \
				if (values[j] > results[NCCL_REDUCE_MAXIMUM])                                        \
					results[NCCL_REDUCE_MAXIMUM] = values[j];                                    \
				if (values[j] < results[NCCL_REDUCE_MINIMUM])                                        \
					results[NCCL_REDUCE_MINIMUM] = values[j];                                    \
			}                                                                                            \
			results[NCCL_REDUCE_AVERAGE] = (ctype)(results[NCCL_REDUCE_SUM] / 3);                        \
			for (reduction = 0; reduction < 5; reduction++) {                                            \
				nccl_widen(number, &values[0], 1, &sum);                                             \
				for (j = 1; j < 3; j++) {                                                            \
					nccl_widen(number, &values[j], 1, &next);                                    \
					nccl_combine(number, (enum nccl_reduction)reduction, 1, &sum, &next);        \
				}                                                                                    \
				nccl_narrow(number, (enum nccl_reduction)reduction, 3, 1, &sum, &got);               \
				assert_true(got == results[reduction]);                                              \
			}                                                                                            \
			got = values[0];                                                                             \
			nccl_multiply(number, 1, &got, &values[1]);                                                  \
			assert_true(got == (ctype)((uint64_t)values[0] * (uint64_t)values[1]));                      \
		}                                                                                                    \
	}
INTEGER(int8, int8_t, ncclInt8)
INTEGER(uint8, uint8_t, ncclUint8)
INTEGER(int32, int32_t, ncclInt32)
INTEGER(uint32, uint32_t, ncclUint32)
INTEGER(int64, int64_t, ncclInt64)
INTEGER(uint64, uint64_t, ncclUint64)

static void reals(void **state)
{
	float floats[3] = {1.5f, NAN, -2}, got;
	double doubles[2] = {0.1, 0.2}, sum;
	union nccl_wide wide[3];

	(void)state;
	nccl_widen(ncclFloat32, floats, 3, wide);
	nccl_combine(ncclFloat32, NCCL_REDUCE_MAXIMUM, 1, &wide[1], &wide[0]);
	nccl_combine(ncclFloat32, NCCL_REDUCE_MINIMUM, 1, &wide[1], &wide[2]);
	nccl_narrow(ncclFloat32, NCCL_REDUCE_MINIMUM, 3, 1, &wide[1], &got);
	assert_true(got == -2);
	nccl_widen(ncclFloat64, doubles, 2, wide);
	nccl_combine(ncclFloat64, NCCL_REDUCE_AVERAGE, 1, &wide[0], &wide[1]);
	nccl_narrow(ncclFloat64, NCCL_REDUCE_AVERAGE, 2, 1, wide, &sum);
	assert_true(sum == (0.1 + 0.2) / 2);
	nccl_multiply(ncclFloat32, 1, floats, &floats[2]);
	assert_true(floats[0] == -3);
}

static void names(void **state)
{
	(void)state;
	assert_int_equal(nccl_type_bytes(-1), 0);
	assert_int_equal(nccl_type_bytes(12), 0);
	assert_int_equal(nccl_type_bytes(ncclFloat64), 8);
	assert_int_equal(nccl_type_bytes(ncclBfloat16), 2);
	assert_string_equal(nccl_type_name(ncclFloat8e5m2), "float8_e5m2");
	assert_string_equal(nccl_type_name(99), "no data type");
}

int main(void)
{
	const struct CMUnitTest tests[] = {
		cmocka_unit_test(every_code), cmocka_unit_test(every_middle),
		cmocka_unit_test(too_large),  cmocka_unit_test(against_the_compiler),
		cmocka_unit_test(int8),       cmocka_unit_test(uint8),
		cmocka_unit_test(int32),      cmocka_unit_test(uint32),
		cmocka_unit_test(int64),      cmocka_unit_test(uint64),
		cmocka_unit_test(reals),      cmocka_unit_test(names),
	};

	return cmocka_run_group_tests(tests, NULL, NULL);
}
