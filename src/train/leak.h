/* train/leak.h: tests whether memory grows with the steps. The public header is neap/leak.h. */
#ifndef NEAP_TRAIN_LEAK_H
#define NEAP_TRAIN_LEAK_H

#include "neap/leak.h"

#include <stdbool.h>

/* neap_leak_test of steps of which not every one is known: `numbers` says which ones, and rises. Levels between two
 * known steps lie on the line between them, so that the result is per step and not per known step. Overwrites
 * low_bytes. */
void neap_leak_test_numbered(uint64_t *low_bytes, const uint64_t *numbers, size_t count, uint64_t free_bytes,
			     struct neap_leak *ret_leak);

#endif
