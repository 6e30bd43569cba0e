#include "base/large.h"

#include <stdlib.h>
#include <string.h>
#include <sys/mman.h>

void *neap_large_alloc(size_t bytes)
{
	if (bytes < NEAP_HUGE_PAGE_BYTES)
		return calloc(1, bytes);
	size_t rounded = (bytes + NEAP_HUGE_PAGE_BYTES - 1) / NEAP_HUGE_PAGE_BYTES * NEAP_HUGE_PAGE_BYTES;
	void *memory = rounded < bytes ? NULL : aligned_alloc(NEAP_HUGE_PAGE_BYTES, rounded);
	if (!memory)
		return NULL;
	madvise(memory, rounded, MADV_HUGEPAGE); /* advice: without it the pages are small ones */
	memset(memory, 0, bytes);
	return memory;
}
