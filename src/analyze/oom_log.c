/* analyze/oom_log.c: the out-of-memory errors of a log, each once. */
#include "analyze/oom_text.h"

#include <string.h>

/* Whether an earlier message says exactly the same. vLLM writes its figures only before its first message. */
static bool repeated(const struct neap_oom_text *found, const struct neap_oom_text *all, size_t count)
{
	for (size_t i = 0; i < count; i++)
		if (all[i].gpu == found->gpu && all[i].wording == found->wording &&
		    all[i].tried_bytes == found->tried_bytes && all[i].free_bytes == found->free_bytes &&
		    all[i].allocated_bytes == found->allocated_bytes && strcmp(all[i].step, found->step) == 0 &&
		    (all[i].weights_bytes == found->weights_bytes || neap_oom_text_bare(found)) &&
		    strcmp(all[i].backend, found->backend) == 0)
			return true;
	return false;
}

size_t neap_oom_log_messages(const char *log, size_t length, struct neap_oom_text *ret_messages, size_t most,
			     size_t *ret_more)
{
	struct neap_oom_text found;
	size_t count = 0, position = 0, counted = 0;
	uint32_t line = 1;
	*ret_more = 0;
	while (neap_oom_text_next(log, length, &position, &found, NULL) == NEAP_OK) {
		for (; counted < found.position; counted++)
			line += log[counted] == '\n';
		found.line = line;
		if (count == most || repeated(&found, ret_messages, count))
			++*ret_more;
		else
			ret_messages[count++] = found;
	}
	return count;
}
