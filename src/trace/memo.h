/* trace/memo.h: a pickle's memo: the values stored under 0, 1, 2, ... A pickler numbers every dict, so half of the
 * entries are events to which nothing refers again. The reader forgets them; a forgotten entry costs one bit.
 *
 *   low       entries of the numbers below NEAP_MEMO_LOW, as an array: values that are used often come early
 *   pages     one per 64 numbers from there on: a bit per number, and the index of its first entry
 *   entries   those whose bit is set, in order
 *
 *   invariant: pages[p + 1].first = pages[p].first + popcount(pages[p].bits); numbers >= next were never put
 */
#ifndef NEAP_TRACE_MEMO_H
#define NEAP_TRACE_MEMO_H

#include <stdbool.h>
#include <stddef.h>
#include <stdint.h>

#define NEAP_MEMO_LOW       (1u << 17)
#define NEAP_MEMO_FORGOTTEN UINT64_MAX /* no entry has this value */

struct neap_memo {
	uint64_t *low;
	size_t low_capacity;
	struct neap_memo_page {
		uint64_t bits;
		uint64_t first;
	} * pages;
	uint64_t *entries;
	size_t page_count, page_capacity, entry_count, entry_capacity;
	uint64_t next; /* one more than the highest number ever put */
};

enum neap_memo_result { NEAP_MEMO_DONE, NEAP_MEMO_NO_MEMORY, NEAP_MEMO_ORDER };

/* Stores an entry under a number that is new, or that was stored and is not forgotten. ORDER: the number is neither;
 * no pickler does that. */
enum neap_memo_result neap_memo_put(struct neap_memo *memo, uint64_t number, uint64_t entry);
/* Skips a number, as if its entry were put and forgotten. */
enum neap_memo_result neap_memo_skip(struct neap_memo *memo, uint64_t number);
/* Forgets an entry that was added recently, or has a number below NEAP_MEMO_LOW; keeps others. Returns whether it
 * forgot the entry. */
bool neap_memo_forget(struct neap_memo *memo, uint64_t number);
void neap_memo_fini(struct neap_memo *memo);

static inline unsigned neap_memo_bits(uint64_t bits)
{
	bits -= bits >> 1 & 0x5555555555555555ull;
	bits = (bits & 0x3333333333333333ull) + (bits >> 2 & 0x3333333333333333ull);
	bits = (bits + (bits >> 4)) & 0x0f0f0f0f0f0f0f0full;
	return (unsigned)(bits * 0x0101010101010101ull >> 56);
}

/* Returns the entry of a number; NULL if it was never stored, or is forgotten. */
static inline uint64_t *neap_memo_get(const struct neap_memo *memo, uint64_t number)
{
	if (number >= memo->next)
		return NULL;
	if (number < NEAP_MEMO_LOW)
		return memo->low[number] == NEAP_MEMO_FORGOTTEN ? NULL : &memo->low[number];
	const struct neap_memo_page *page = &memo->pages[number / 64 - NEAP_MEMO_LOW / 64];
	uint64_t bit = 1ull << number % 64;
	if (!(page->bits & bit))
		return NULL;
	return &memo->entries[page->first + neap_memo_bits(page->bits & (bit - 1))];
}

#endif
