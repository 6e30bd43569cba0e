/* Our declarations of the driver ABI against CUDA's cuda.h. Building this program proves that prototypes and
 * constants agree (conformity_cuda.c); running it compares sizes and offsets. */
#include "device/cuda_api.h"

#include "layouts.h"

#include <stdio.h>
#include <string.h>

const struct layout neap_layouts[] = {LAYOUTS};
const size_t neap_layout_count = sizeof neap_layouts / sizeof neap_layouts[0];

#ifdef NEAP_HAVE_CUDA_H
int main(void)
{
	int wrong = neap_layout_count != cuda_layout_count;

	for (size_t i = 0; i < neap_layout_count && i < cuda_layout_count; i++) {
		if (strcmp(neap_layouts[i].what, cuda_layouts[i].what) == 0 &&
		    neap_layouts[i].value == cuda_layouts[i].value)
			continue;
		fprintf(stderr, "%s: %zu here, %zu in cuda.h\n", neap_layouts[i].what, neap_layouts[i].value,
			cuda_layouts[i].value);
		wrong = 1;
	}
	return wrong;
}
#else
int main(void)
{
	puts("no cuda.h of CUDA 13 or newer on this machine: skipped");
	return 77;
}
#endif
