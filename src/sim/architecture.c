/* sim/architecture.c: see the header. */
#include "sim/architecture.h"

#include <stddef.h>

#define KIB 1024

/* Oldest first. */
static const struct sim_architecture architectures[] = {
	{7, 0, 2048, 32, 96 * KIB, 96 * KIB, 0, 2, 64, false, false},
	{7, 5, 1024, 16, 64 * KIB, 64 * KIB, 0, 32, 64, false, false},
	{8, 0, 2048, 32, 164 * KIB, 163 * KIB, 1 * KIB, 2, 64, false, true},
	{8, 6, 1536, 16, 100 * KIB, 99 * KIB, 1 * KIB, 32, 64, false, true},
	{8, 9, 1536, 24, 100 * KIB, 99 * KIB, 1 * KIB, 64, 64, false, true},
	{9, 0, 2048, 32, 228 * KIB, 227 * KIB, 1 * KIB, 2, 64, true, true},
	{10, 0, 2048, 32, 228 * KIB, 227 * KIB, 1 * KIB, 2, 64, true, true},
	{12, 0, 1536, 24, 100 * KIB, 99 * KIB, 1 * KIB, 64, 64, true, true},
};

const struct sim_architecture *sim_architecture_find(int major, int minor)
{
	const struct sim_architecture *found = &architectures[0];

	for (size_t i = 0; i < sizeof architectures / sizeof architectures[0]; i++)
		if (architectures[i].major * 100 + architectures[i].minor <= major * 100 + minor)
			found = &architectures[i];
	return found;
}
