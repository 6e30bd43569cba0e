/* trace/memo.c: see memo.h. */
#include "trace/memo.h"

#include <stdlib.h>
#include <string.h>

#define FORGET_ENTRIES 64u /* most entries that are moved to close a gap */
#define FORGET_PAGES   4u

/* Adds the low numbers up to this one. A new number begins as forgotten. */
static bool add_low(struct neap_memo *memo, uint64_t number)
{
	if (number >= memo->low_capacity) {
		size_t capacity = memo->low_capacity ? memo->low_capacity : 256;
		while (capacity <= number)
			capacity *= 2;
		uint64_t *low = realloc(memo->low, capacity * sizeof *low);
		if (!low)
			return false;
		for (size_t i = memo->low_capacity; i < capacity; i++)
			low[i] = NEAP_MEMO_FORGOTTEN;
		memo->low = low;
		memo->low_capacity = capacity;
	}
	return true;
}

static size_t page_of(uint64_t number) { return (size_t)(number / 64 - NEAP_MEMO_LOW / 64); }

static bool grow_pages(struct neap_memo *memo, uint64_t number)
{
	/* All low numbers are made before the first page is. */
	if (!add_low(memo, number < NEAP_MEMO_LOW ? number : NEAP_MEMO_LOW - 1))
		return false;
	if (number < NEAP_MEMO_LOW)
		return true;
	size_t wanted = page_of(number) + 1;
	if (wanted > memo->page_capacity) {
		size_t capacity = memo->page_capacity ? memo->page_capacity + memo->page_capacity / 2 : 16;
		capacity = capacity < wanted ? wanted : capacity;
		struct neap_memo_page *pages = realloc(memo->pages, capacity * sizeof *pages);
		if (!pages)
			return false;
		memo->pages = pages;
		memo->page_capacity = capacity;
	}
	while (memo->page_count < wanted)
		memo->pages[memo->page_count++] = (struct neap_memo_page){.first = memo->entry_count};
	return true;
}

/* Adds the pages up to the page of `number`. Most calls find that page. */
static bool add_pages(struct neap_memo *memo, uint64_t number)
{
	if (number < NEAP_MEMO_LOW ? number < memo->low_capacity : page_of(number) < memo->page_count)
		return true;
	return grow_pages(memo, number);
}

enum neap_memo_result neap_memo_put(struct neap_memo *memo, uint64_t number, uint64_t entry)
{
	if (number < memo->next) {
		uint64_t *known = neap_memo_get(memo, number);
		if (!known)
			return NEAP_MEMO_ORDER;
		*known = entry;
		return NEAP_MEMO_DONE;
	}
	if (!add_pages(memo, number))
		return NEAP_MEMO_NO_MEMORY;
	if (number < NEAP_MEMO_LOW) {
		memo->low[number] = entry;
		memo->next = number + 1;
		return NEAP_MEMO_DONE;
	}
	if (memo->entry_count == memo->entry_capacity) {
		size_t capacity = memo->entry_capacity ? memo->entry_capacity + memo->entry_capacity / 2 : 64;
		uint64_t *entries = realloc(memo->entries, capacity * sizeof *entries);
		if (!entries)
			return NEAP_MEMO_NO_MEMORY;
		memo->entries = entries;
		memo->entry_capacity = capacity;
	}
	memo->entries[memo->entry_count++] = entry;
	memo->pages[page_of(number)].bits |= 1ull << number % 64;
	memo->next = number + 1;
	return NEAP_MEMO_DONE;
}

enum neap_memo_result neap_memo_skip(struct neap_memo *memo, uint64_t number)
{
	if (number < memo->next)
		return NEAP_MEMO_ORDER;
	if (!add_pages(memo, number))
		return NEAP_MEMO_NO_MEMORY;
	memo->next = number + 1;
	return NEAP_MEMO_DONE;
}

bool neap_memo_forget(struct neap_memo *memo, uint64_t number)
{
	uint64_t *entry = neap_memo_get(memo, number);

	if (!entry)
		return false;
	if (number < NEAP_MEMO_LOW) {
		*entry = NEAP_MEMO_FORGOTTEN;
		return true;
	}
	size_t after = memo->entry_count - (size_t)(entry - memo->entries) - 1, page = page_of(number);
	if (after > FORGET_ENTRIES || memo->page_count - page > FORGET_PAGES)
		return false;
	memmove(entry, entry + 1, after * sizeof *entry);
	memo->entry_count--;
	memo->pages[page].bits &= ~(1ull << number % 64);
	while (++page < memo->page_count)
		memo->pages[page].first--;
	return true;
}

void neap_memo_fini(struct neap_memo *memo)
{
	free(memo->low);
	free(memo->pages);
	free(memo->entries);
	*memo = (struct neap_memo){0};
}
