/* Values: the host computes the results of PyTorch's kernels (src/torch/values.cpp), at the device's addresses.
 *
 *   an operation   1. blind(1), its CUDA function: allocates, launches kernels that do nothing, copies sizes to the
 *                     host
 *                  2. blind(0), its CPU function, on the same addresses
 *
 * During step 1 a thread is blind, because its copies would read results that are not computed yet. PyTorch might
 * take a number that another tensor left there for a number of elements, and allocate that much memory.
 */
#include "sim/runtime/runtime.h"

#include <dlfcn.h>
#include <pthread.h>
#include <stdatomic.h>
#include <string.h>

static _Thread_local int blind, invented;
static atomic_bool started;

NEAP_API const struct neap_sim_values *neap_sim_get_values(void);

bool values_kept(void) { return atomic_load_explicit(&started, memory_order_relaxed); }

bool values_blind(void) { return blind > 0; }

void values_invented(void) { invented++; }

/* Ends a blind phase. An interrupted caller may end one that it had not begun. */
static int see(int on)
{
	if (on && blind++ == 0)
		invented = 0;
	else if (!on && blind > 0)
		blind--;
	return invented;
}

/* Returns a function of the library that computes. NULL: Python computes, which does not know single ranges. */
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

void values_launched(const char *symbol, void **arguments)
{
	void (*launched)(const char *symbol, void *const *arguments) = NULL;
	void *found;

	if (!values_kept() || values_blind())
		return;
	found = computing("neap_values_launched");
	memcpy(&launched, &found, sizeof launched);
	if (launched)
		launched(symbol, arguments);
}

/* Called for a kernel that the program loaded through the driver's API. */
static void loaded(const struct neap_sim_launch *launch)
{
	void (*launched)(const struct neap_sim_launch *launch) = NULL;
	void *found;

	if (values_blind())
		return;
	found = computing("neap_values_loaded");
	memcpy(&launched, &found, sizeof launched);
	if (launched)
		launched(launch);
}

static int start(void)
{
	if (runtime_open() != CUDA_SUCCESS || !runtime_sim->keep_values())
		return 0;
	atomic_store(&started, true);
	runtime_keep(KEPT_VALUES, true);
	runtime_sim->watch_launches(loaded);
	return 1;
}

typedef void (*block_function)(uint64_t address, int64_t bytes);

static block_function tell_block;

static void find_block(void)
{
	void *found = computing("neap_values_block");

	memcpy(&tell_block, &found, sizeof tell_block);
}

void values_block(uint64_t address, int64_t count)
{
	static pthread_once_t once = PTHREAD_ONCE_INIT;

	if (!values_kept())
		return;
	pthread_once(&once, find_block);
	if (tell_block)
		tell_block(address, count);
}

static uint64_t bytes(void) { return runtime_sim->resident(); }

/* -- races ------------------------------------------------------------------------------------------------------- */

static atomic_bool watched;

static const struct neap_sim_races *races(void)
{
	atomic_store(&watched, true);
	return runtime_sim->races;
}

bool values_late(void) { return atomic_load(&watched) && runtime_sim->races->delays(); }

/* Returns the number of the program's current place, which the library that asked for races assigns. */
static uint32_t place(void)
{
	uint32_t (*number)(void) = NULL;
	void *symbol = computing("neap_races_place");

	memcpy(&number, &symbol, sizeof number);
	return number ? number() : 0;
}

void values_used(void *stream, const char *name, const struct neap_sim_touch *touches, size_t count)
{
	struct neap_sim_uses uses = {.name = name, .touches = touches, .count = count};

	if (!atomic_load_explicit(&watched, memory_order_relaxed) || values_blind())
		return;
	uses.stack = place();
	runtime_sim->races->settle(stream); /* the caller moves the bytes at once */
	runtime_sim->races->work(stream, &uses);
}

const struct neap_sim_values *neap_sim_get_values(void)
{
	static const struct neap_sim_values values = {
		.version = 1, .start = start, .open = gate_open_range, .blind = see, .bytes = bytes, .races = races};

	return &values;
}
