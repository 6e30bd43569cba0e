/* sim/libraries/stand_in.c: see the header. */
#include "sim/libraries/stand_in.h"

#include <stdatomic.h>
#include <stdlib.h>

const struct runtime_services *stand_in_services(void)
{
	static _Atomic(const struct runtime_services *) found;
	const struct runtime_services *services = atomic_load_explicit(&found, memory_order_acquire);

	if (services)
		return services;
	services = runtime_services();
	if (services)
		atomic_store_explicit(&found, services, memory_order_release);
	return services;
}

static void tally(enum runtime_gap gap, const char *function, uint64_t low, uint64_t high)
{
	const struct runtime_services *services = stand_in_services();

	if (services)
		services->tally(gap, stand_in_library.name, function, low, high);
}

intptr_t stand_in_compute(const char *function, void *stream)
{
	const struct runtime_services *services = stand_in_services();

	if (!services || services->launch(stream, function) != 0)
		return stand_in_library.failed;
	tally(GAP_VALUES, function, 0, 0);
	return 0;
}

intptr_t stand_in_values(const char *function)
{
	tally(GAP_VALUES, function, 0, 0);
	return 0;
}

intptr_t stand_in_refuse(const char *function)
{
	tally(GAP_REFUSED, function, 0, 0);
	return stand_in_library.refused;
}

void stand_in_workspace(const char *function, uint64_t low, uint64_t high)
{
	tally(GAP_WORKSPACE, function, low, high);
}

bool stand_in_size(const char *function, const char *kind, const int64_t *numbers, stand_in_sizes *sizes,
		   uintptr_t to, size_t bytes)
{
	struct stand_in_size size = {.unit = 1};
	int32_t narrow;

	if (!sizes(function, kind, numbers, &size) || (bytes == sizeof narrow && size.low > INT32_MAX))
		return false;
	narrow = (int32_t)size.low;
	if (to)
		memcpy((void *)to, bytes == sizeof narrow ? (void *)&narrow : (void *)&size.low, bytes);
	if (size.high > size.low)
		stand_in_workspace(function, size.low * size.unit, size.high * size.unit);
	return true;
}

void stand_in_zero(uintptr_t to, size_t bytes)
{
	if (to)
		memset((void *)to, 0, bytes);
}

void stand_in_forget(uintptr_t address, size_t bytes)
{
	const struct runtime_services *services = stand_in_services();

	if (address && bytes && services)
		services->forget(address, bytes);
}

bool stand_in_create(uintptr_t to)
{
	void *object;

	if (!to)
		return true;
	object = malloc(1);
	if (!object)
		return false;
	memcpy((void *)to, &object, sizeof object);
	return true;
}

void stand_in_destroy(uintptr_t object) { free((void *)object); }
