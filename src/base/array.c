/* base/array.c: see the header. */
#include "base/array.h"

#include <stdint.h>
#include <stdlib.h>
#include <string.h>

#define FIRST 8

bool neap_array_grow(void *array, size_t count, size_t item_bytes)
{
	void *items;
	const size_t capacity = count ? 2 * count : FIRST;
	if (count && (count < FIRST || count & (count - 1)))
		return true;
	if (capacity < count || capacity > SIZE_MAX / 2 / item_bytes)
		return false;
	memcpy(&items, array, sizeof items); /* the pointer may have any type */
	items = realloc(items, capacity * item_bytes);
	if (!items)
		return false;
	memcpy(array, &items, sizeof items);
	return true;
}
