/* trace/memo.h: a pickle's memo: what was put under 0, 1, 2, ... A pickler numbers every dict, so half of the entries
 * stand for events that nobody refers to again. Those are forgotten, and a forgotten entry costs a bit.
 *
 *   pages     one per 64 numbers: a bit per number, and where its entries begin
 *   entries   those whose bit is set, in order
 *
 *   invariant: pages[p + 1].first = pages[p].first + popcount(pages[p].bits); numbers >= next were never put
 */
#ifndef NEAP_TRACE_MEMO_H
#define NEAP_TRACE_MEMO_H

#include <stdbool.h>
#include <stddef.h>
#include <stdint.h>

struct neap_memo {
	struct neap_memo_page {
		uint64_t bits;
		uint64_t first;
	} * pages;
	uint64_t *entries;
	size_t page_count, page_room, entry_count, entry_room;
	uint64_t next; /* one more than the highest number ever put */
};

enum neap_memo_result { NEAP_MEMO_DONE, NEAP_MEMO_NO_MEMORY, NEAP_MEMO_ORDER };

/* Puts under a number that is new, or still known. ORDER: neither (no pickler does that). */
enum neap_memo_result neap_memo_put(struct neap_memo *memo, uint64_t number, uint64_t entry);
/* Passes over a number, as put and forgotten. */
enum neap_memo_result neap_memo_skip(struct neap_memo *memo, uint64_t number);
/* Forgets an entry put lately; one put long ago stays as it is. True when it was forgotten. */
bool neap_memo_forget(struct neap_memo *memo, uint64_t number);
void neap_memo_fini(struct neap_memo *memo);

/* NULL when it was never put, or is forgotten. */
static inline uint64_t *neap_memo_get(const struct neap_memo *memo, uint64_t number)
{
	if (number >= memo->next)
		return NULL;
	const struct neap_memo_page *page = &memo->pages[number / 64];
	uint64_t bit = 1ull << number % 64;
	if (!(page->bits & bit))
		return NULL;
	return &memo->entries[page->first + (uint64_t)__builtin_popcountll(page->bits & (bit - 1))];
}

#endif
