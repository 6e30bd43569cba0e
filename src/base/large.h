/* base/large.h: zeroed memory for tables that are read at random places. A table that fills a huge page gets huge
 * pages, if the kernel has them, because a miss in the page tables costs more than a miss in the cache. Free it with
 * free().
 */
#ifndef NEAP_BASE_LARGE_H
#define NEAP_BASE_LARGE_H

#include <stddef.h>

#define NEAP_HUGE_PAGE_BYTES ((size_t)2 << 20)
#define NEAP_LARGE_ALIGNMENT ((size_t)64) /* bytes, at least */

/* NULL: the host is out of memory. */
void *neap_large_alloc(size_t bytes);

#endif
