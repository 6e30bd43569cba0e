/* base/array.h: an array that grows by one item at a time. libc only.
 *
 *   if (!neap_array_grow(&list->items, list->count, sizeof *list->items))
 *           out of memory
 *   list->items[list->count++] = item;
 *
 * The count determines the capacity: 8 items, doubled at 8, 16, 32 and so on. So only this function may allocate the
 * array. The caller frees it with free().
 */
#ifndef NEAP_BASE_ARRAY_H
#define NEAP_BASE_ARRAY_H

#include <stdbool.h>
#include <stddef.h>

/* Makes room for item number `count` in the array that `array` points to (a T **, NULL at first), which may move.
 * False: the host is out of memory, and the array is as it was. */
bool neap_array_grow(void *array, size_t count, size_t item_bytes);

#endif
