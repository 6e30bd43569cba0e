/* CUDA's own header against runtime/api.h. Prints each number that differs, by its place in layouts.h. */
#include <cuda_runtime_api.h>
#include <stdio.h>

#include "layouts.h"

extern const size_t ours[];
extern const size_t our_count;

static const size_t theirs[] = {LAYOUT};

int main(void)
{
	int bad = our_count != sizeof theirs / sizeof theirs[0];

	for (size_t i = 0; i < our_count && !bad; i++)
		if (ours[i] != theirs[i])
			bad = printf("number %zu: ours %zu, CUDA's %zu\n", i, ours[i], theirs[i]);
	return bad != 0;
}
