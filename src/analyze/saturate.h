/* analyze/saturate.h: saturating arithmetic, for bytes that a file claims: sums stop at UINT64_MAX, differences at
 * 0. */
#ifndef NEAP_ANALYZE_SATURATE_H
#define NEAP_ANALYZE_SATURATE_H

#include <stdint.h>

static inline uint64_t neap_plus(uint64_t a, uint64_t b) { return a > UINT64_MAX - b ? UINT64_MAX : a + b; }

static inline uint64_t neap_less(uint64_t from, uint64_t bytes) { return from > bytes ? from - bytes : 0; }

static inline uint64_t neap_apart(uint64_t a, uint64_t b) { return a > b ? a - b : b - a; }

/* A computed figure, as bytes. */
static inline uint64_t neap_to_bytes(double bytes)
{
	return bytes >= 18e18 ? UINT64_MAX : bytes > 0 ? (uint64_t)bytes : 0;
}

#endif
