/* base/units.h: reads and writes bytes, durations and numbers. */
#ifndef NEAP_BASE_UNITS_H
#define NEAP_BASE_UNITS_H

#include "neap/status.h"

#include <stddef.h>

#define NEAP_KIB 1024ull
#define NEAP_MIB (1024ull * NEAP_KIB)
#define NEAP_GIB (1024ull * NEAP_MIB)

/* Enough for any size or duration these functions write, terminator included. */
#define NEAP_UNITS_CAPACITY 32

/* Parses "1536", "1.5GiB", "20 MiB", "512KiB", "3T": a decimal number and an optional unit; K, KB, KiB, M, ... all
 * mean powers of 1024 (as nvidia-smi and PyTorch use them); letter case does not matter. Errors: NEAP_EPARSE with the
 * column and what was expected; also when the value does not fit 64 bits or is negative. */
enum neap_status neap_size_parse(const char *text, uint64_t *ret_bytes, struct neap_error *err);

/* Parses "250ms", "2s", "1.5m", "3h", "2d"; a bare number is seconds. Errors as neap_size_parse. */
enum neap_status neap_duration_parse(const char *text, uint64_t *ret_ns, struct neap_error *err);

/* Parses a whole unsigned decimal number, with nothing else in the text. Errors: NEAP_EPARSE. */
enum neap_status neap_u64_parse(const char *text, uint64_t *ret_value, struct neap_error *err);

/* Parses a finite decimal number, with nothing else in the text. Its point is '.' in every locale. */
enum neap_status neap_double_parse(const char *text, double *ret_value, struct neap_error *err);

/* Parses a share: a number above 0 and at most 1. Errors: NEAP_EPARSE. */
enum neap_status neap_fraction_parse(const char *text, double *ret_fraction, struct neap_error *err);

/* Formats bytes with three significant digits: "0 B", "512 B", "1.50 KiB", "23.4 MiB", "79.3 GiB". Returns `text`. */
const char *neap_size_format(uint64_t bytes, char text[NEAP_UNITS_CAPACITY]);
/* The same, in storage that lasts until the end of the enclosing block. */
#define NEAP_SIZE(bytes) neap_size_format((bytes), (char[NEAP_UNITS_CAPACITY]){0})

/* As neap_size_format, with a sign: "+3.00 MiB", "-512 B", "0 B". */
const char *neap_size_format_delta(int64_t bytes, char text[NEAP_UNITS_CAPACITY]);

/* Formats an ordinal number: "1st", "2nd", "11th". Returns `text`. */
const char *neap_nth(uint64_t number, char text[NEAP_UNITS_CAPACITY]);

/* Formats a duration: "850 ns", "12.3 us", "4.56 ms", "1.23 s", "2 m 05 s", "3 h 04 m". */
const char *neap_duration_format(uint64_t ns, char text[NEAP_UNITS_CAPACITY]);

#endif
