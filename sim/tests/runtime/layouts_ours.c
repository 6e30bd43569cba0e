/* Our declarations, for the major version of the header that is installed. */
#include "sim/runtime/api.h"

#include "layouts.h"

extern const size_t ours[];
extern const size_t our_count;
const size_t ours[] = {LAYOUT};
const size_t our_count = sizeof ours / sizeof ours[0];
