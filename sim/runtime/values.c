/* Values: what PyTorch's kernels would have computed is computed on the host (src/torch/values.cpp), at the
 * device's addresses.
 *
 *   an operation   1. blind(1), its CUDA function: allocates, launches kernels that do nothing, copies sizes to the
 *                     host
 *                  2. blind(0), its CPU function, on the same addresses
 *
 * A thread is blind during 1 because what its copies would read is not computed yet: a number of elements that is
 * left from another tensor would be asked for as memory.
 */
#include "sim/runtime/runtime.h"

#include <stdatomic.h>

static _Thread_local int blind, invented;
static atomic_bool started;

NEAP_API const struct neap_sim_values *neap_sim_get_values(void);

bool values_kept(void) { return atomic_load_explicit(&started, memory_order_relaxed); }

bool values_blind(void) { return blind > 0; }

static int start(void)
{
	if (runtime_open() != CUDA_SUCCESS || !runtime_sim->keep_values())
		return 0;
	atomic_store(&started, true);
	return 1;
}

void values_invented(void) { invented++; }

/* An interrupted caller may end what it had not begun. */
static int see(int on)
{
	if (on && blind++ == 0)
		invented = 0;
	else if (!on && blind > 0)
		blind--;
	return invented;
}

static uint64_t bytes(void) { return runtime_sim->resident(); }

const struct neap_sim_values *neap_sim_get_values(void)
{
	static const struct neap_sim_values values = {
		.version = 1, .start = start, .open = gate_open_range, .blind = see, .bytes = bytes};

	return &values;
}
