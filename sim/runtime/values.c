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

#include <dlfcn.h>
#include <stdatomic.h>
#include <string.h>

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

/* A function of the library that computes; NULL: where it does so in Python, which knows of no single range. */
static void *computing(const char *name) { return dlsym(RTLD_DEFAULT, name); }

enum runtime_known values_known(uint64_t address, size_t count, bool large, bool exact)
{
	int (*take)(uint64_t address, uint64_t count, int large, int exact) = NULL;
	void *symbol;

	if (!values_kept())
		return KNOWN_NOTHING_COMPUTED;
	gate_open_range(address, count);
	symbol = computing("neap_values_take");
	memcpy(&take, &symbol, sizeof take);
	return take ? (enum runtime_known)(KNOWN_TRUE + take(address, count, large, exact)) : KNOWN_TRUE;
}

void values_mark(uint64_t address, size_t count, enum runtime_known known)
{
	void (*mark)(uint64_t address, uint64_t count, int state) = NULL;
	void *symbol;

	if (!values_kept() || known < KNOWN_TRUE || count == 0)
		return;
	symbol = computing("neap_values_brought");
	memcpy(&mark, &symbol, sizeof mark);
	if (mark)
		mark(address, count, (int)known - (int)KNOWN_TRUE);
}

static uint64_t bytes(void) { return runtime_sim->resident(); }

const struct neap_sim_values *neap_sim_get_values(void)
{
	static const struct neap_sim_values values = {
		.version = 1, .start = start, .open = gate_open_range, .blind = see, .bytes = bytes};

	return &values;
}
