/* fuzz/fuzz_fatbin.c: any bytes, as a fat binary and as a cubin, must be measured or refused, never a fault; and no
 * kernel is larger than its module. */
#include "estimate/fatbin.h"

#include <stdlib.h>

int LLVMFuzzerTestOneInput(const uint8_t *data, size_t size);

static void measure(const unsigned char *cubin, size_t length)
{
	const char *const names[] = {"first", "second"};
	struct neap_cubin_sizes sizes;
	if (neap_cubin_measure(cubin, length, names, 2, &sizes))
		return;
	if (sizes.kernel_bytes > sizes.code_bytes || sizes.code_bytes > sizes.module_bytes)
		abort();
}

int LLVMFuzzerTestOneInput(const uint8_t *data, size_t size)
{
	static const unsigned int capabilities[] = {0, 80, 86, 90, 100, 4000000000u};
	for (size_t i = 0; i < sizeof capabilities / sizeof capabilities[0]; i++) {
		struct neap_fatbin_image images[NEAP_FATBIN_IMAGES];
		size_t count = neap_fatbin_find(data, size, capabilities[i], images);
		for (size_t j = 0; j < count; j++) {
			unsigned char *cubin;
			if (images[j].bytes < data || images[j].length > (size_t)(data + size - images[j].bytes))
				abort();
			if (images[j].plain_length > 1u << 20 || neap_fatbin_expand(&images[j], &cubin))
				continue;
			measure(cubin, images[j].plain_length);
			free(cubin);
		}
	}
	measure(data, size);
	return 0;
}
