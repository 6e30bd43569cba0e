/* fuzz/fuzz_simulated.c: any bytes as a simulated process's file must give one line of printable text, never a fault.
 * The text is bounded, however many processes there are. */
#include "run/simulated.h"

#include <stdlib.h>

int LLVMFuzzerTestOneInput(const uint8_t *data, size_t size);

int LLVMFuzzerTestOneInput(const uint8_t *data, size_t size)
{
	static struct neap_simulated simulated;
	struct neap_buffer text = {0};
	simulated = (struct neap_simulated){0};
	for (int i = 0; i < 3; i++)
		neap_simulated_add(&simulated, (const char *)data, size);
	neap_simulated_text(&simulated, &text);
	if (simulated.processes != 3 || simulated.gap_count > NEAP_SIMULATED_GAPS || text.length > 4096)
		abort();
	for (size_t i = 0; i < text.length; i++)
		if (text.data[i] < 0x20 || text.data[i] >= 0x7f)
			abort();
	neap_buffer_fini(&text);
	return 0;
}
