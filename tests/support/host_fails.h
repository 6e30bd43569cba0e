/* tests/support/host_fails.h: makes one allocation of host memory fail, in a test linked with the arguments
 * host_fails of tests/meson.build. One file of the test includes it. */
#ifndef NEAP_TESTS_HOST_FAILS_H
#define NEAP_TESTS_HOST_FAILS_H

#include <stddef.h>

static long host_countdown = -1; /* how many succeed before the failing one; below 0: all succeed */

void *__real_malloc(size_t bytes);
void *__real_calloc(size_t count, size_t bytes);
void *__real_realloc(void *pointer, size_t bytes);
void *__real_aligned_alloc(size_t alignment, size_t bytes);
void *__wrap_malloc(size_t bytes);
void *__wrap_calloc(size_t count, size_t bytes);
void *__wrap_realloc(void *pointer, size_t bytes);
void *__wrap_aligned_alloc(size_t alignment, size_t bytes);

static int host_fails(void) { return host_countdown >= 0 && host_countdown-- == 0; }
void *__wrap_malloc(size_t bytes) { return host_fails() ? NULL : __real_malloc(bytes); }
void *__wrap_calloc(size_t count, size_t bytes) { return host_fails() ? NULL : __real_calloc(count, bytes); }
void *__wrap_realloc(void *pointer, size_t bytes) { return host_fails() ? NULL : __real_realloc(pointer, bytes); }
void *__wrap_aligned_alloc(size_t alignment, size_t bytes)
{
	return host_fails() ? NULL : __real_aligned_alloc(alignment, bytes);
}

#endif
