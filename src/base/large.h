/* base/large.h: zeroed memory for tables that are read at random: on huge pages, where they fill some and the kernel
 * has them, because a miss in the table of pages costs more than one in the cache. free() frees it.
 */
#ifndef NEAP_BASE_LARGE_H
#define NEAP_BASE_LARGE_H

#include <stddef.h>

#define NEAP_HUGE_PAGE_BYTES ((size_t)2 << 20)
#define NEAP_LARGE_ALIGNMENT ((size_t)64) /* at least */

/* NULL: the host is out of memory. */
void *neap_large_alloc(size_t bytes);

#endif
