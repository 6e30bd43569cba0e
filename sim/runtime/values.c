/* values=full: what PyTorch's kernels would have computed is computed on the host (src/torch/values.cpp), at the device's
 * addresses.
 *
 *   an operation   1. blind(1), its CUDA function: allocates, launches kernels that do nothing, copies sizes to the host
 *                  2. blind(0), its CPU function, on the same addresses
 *
 * A thread is blind during 1 because what its copies would read is not computed yet: a number of elements that is left
 * from another tensor would be asked for as memory.
 */
#include "sim/runtime/runtime.h"

#include <stdatomic.h>

static _Thread_local int blind;

NEAP_API const struct neap_sim_values *neap_sim_get_values(void);

bool values_kept(void)
{
	static atomic_int known; /* 1: no, 2: yes */
	int kept = atomic_load_explicit(&known, memory_order_relaxed);

	if (!kept && runtime_sim && runtime_open() == CUDA_SUCCESS) {
		kept = runtime_sim->keeps_values() ? 2 : 1;
		atomic_store_explicit(&known, kept, memory_order_relaxed);
	}
	return kept == 2;
}

bool values_blind(void) { return blind > 0; }

static int kept(void) { return runtime_open() == CUDA_SUCCESS && values_kept(); }

static void see(int on) { blind += on ? 1 : -1; }

const struct neap_sim_values *neap_sim_get_values(void)
{
	static const struct neap_sim_values values = {
		.version = 1, .kept = kept, .open = gate_open_range, .blind = see};

	return &values;
}
