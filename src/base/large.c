/* base/large.c: see the header. */
#include "base/large.h"

#include <stdlib.h>
#include <string.h>
#include <sys/mman.h>

void *neap_large_alloc(size_t bytes)
{
	size_t unit = bytes < NEAP_HUGE_PAGE_BYTES ? NEAP_LARGE_ALIGNMENT : NEAP_HUGE_PAGE_BYTES;
	size_t rounded = (bytes + unit - 1) / unit * unit;
	void *memory = rounded < bytes ? NULL : aligned_alloc(unit, rounded);
	if (!memory)
		return NULL;
	if (unit == NEAP_HUGE_PAGE_BYTES)
		madvise(memory, rounded, MADV_HUGEPAGE); /* only advice: the kernel may use small pages */
	memset(memory, 0, bytes);
	return memory;
}
