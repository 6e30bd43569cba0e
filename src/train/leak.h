/* train/leak.h: tests whether memory grows with the steps. The public header is neap/leak.h. */
#ifndef NEAP_TRAIN_LEAK_H
#define NEAP_TRAIN_LEAK_H

#include "neap/leak.h"

#include <stdbool.h>

/* neap_leak_test if only some steps are known: `numbers` has their numbers, ascending. The result is per step, not
 * per known step: levels between two known steps are assumed to lie on a line. Overwrites low_bytes. */
void neap_leak_test_numbered(uint64_t *low_bytes, const uint64_t *numbers, size_t count, uint64_t free_bytes,
			     struct neap_leak *ret_leak);

#endif
