/* trace/ranges.c: see ranges.h. */
#include "trace/ranges.h"

#include <string.h>

/* Returns the number of the first range that ends after the address. */
static size_t first_behind(const struct neap_ranges *ranges, uint64_t address)
{
	size_t low = 0, high = ranges->count;

	while (low < high) {
		size_t middle = low + (high - low) / 2;
		if (ranges->items[middle].end <= address)
			low = middle + 1;
		else
			high = middle;
	}
	return low;
}

static void insert(struct neap_ranges *ranges, size_t at, struct neap_range range)
{
	if (ranges->count == NEAP_RANGES_MAX)
		return;
	memmove(&ranges->items[at + 1], &ranges->items[at], (ranges->count++ - at) * sizeof range);
	ranges->items[at] = range;
}

static void drop(struct neap_ranges *ranges, size_t at)
{
	memmove(&ranges->items[at], &ranges->items[at + 1], (--ranges->count - at) * sizeof ranges->items[0]);
}

void neap_ranges_remove(struct neap_ranges *ranges, uint64_t address, uint64_t bytes)
{
	uint64_t end = bytes > UINT64_MAX - address ? UINT64_MAX : address + bytes;
	size_t at = first_behind(ranges, address);

	while (at < ranges->count && ranges->items[at].begin < end) {
		struct neap_range *range = &ranges->items[at], rest = *range;
		rest.begin = end;
		bool left = range->begin < address, right = end < range->end;
		if (left)
			range->end = address;
		else if (right)
			*range = rest;
		else
			drop(ranges, at);
		if (left && right)
			insert(ranges, at + 1, rest);
		if (right)
			return;
		at += left;
	}
}

void neap_ranges_add(struct neap_ranges *ranges, uint64_t address, uint64_t bytes, uint64_t pool)
{
	struct neap_range range = {address, address + bytes, pool};

	if (bytes == 0 || bytes > UINT64_MAX - address)
		return;
	neap_ranges_remove(ranges, address, bytes);
	size_t at = first_behind(ranges, address);
	bool before = at > 0 && ranges->items[at - 1].end == range.begin && ranges->items[at - 1].pool == pool;
	bool after = at < ranges->count && ranges->items[at].begin == range.end && ranges->items[at].pool == pool;
	if (before && after) {
		ranges->items[at - 1].end = ranges->items[at].end;
		drop(ranges, at);
	} else if (before) {
		ranges->items[at - 1].end = range.end;
	} else if (after) {
		ranges->items[at].begin = range.begin;
	} else {
		insert(ranges, at, range);
	}
}

uint64_t neap_ranges_pool(const struct neap_ranges *ranges, uint64_t address)
{
	size_t at = first_behind(ranges, address);
	return at < ranges->count && ranges->items[at].begin <= address ? ranges->items[at].pool : 0;
}
