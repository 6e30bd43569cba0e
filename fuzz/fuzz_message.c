/* fuzz/fuzz_message.c: any bytes as a log: every message in it is read and reported, and the search ends. */
#include "analyze/oom_text.h"
#include "report/explain.h"

#include <stdint.h>
#include <stdlib.h>

int LLVMFuzzerTestOneInput(const uint8_t *data, size_t size);

int LLVMFuzzerTestOneInput(const uint8_t *data, size_t size)
{
	struct neap_oom_text found;
	size_t position = 0, before = 0;
	while (neap_oom_text_next((const char *)data, size, &position, &found, NULL) == NEAP_OK) {
		struct neap_buffer text = {0};
		if (position <= before || position > size || found.position >= position)
			abort();
		before = position;
		neap_report_oom_text(&text, &found);
		if (neap_buffer_status(&text, NULL) != NEAP_OK)
			abort();
		neap_buffer_fini(&text);
	}
	return 0;
}
