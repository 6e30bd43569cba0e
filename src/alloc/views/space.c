/* alloc/views/space.c: chooses the ends of pages that make a block together.
 *
 * If only part of an end is used, the rest lies between two blocks, where no view can use it. So the search chooses
 * the suffix and the prefix that exceed the request least. It prefers a pair that saves a whole page. If every pair
 * exceeds the request by much, it cuts a whole page instead, whose rest is a new end.
 */
#include "alloc/core/cache.h"
#include "alloc/views/views.h"

#include <stdlib.h>

#define FIRST_RUNS    256
#define SAVING_EXCESS (256ull << 10) /* this much may be lost to save a whole page */
#define EXCESS_BYTES  (128ull << 10) /* if more than this would be lost, a whole page is cut */

static bool run_add(struct neap_space *space, struct neap_block *first)
{
	struct neap_free_run run = {.first = first, .start = first->address, .end = block_end(first)};
	for (struct neap_block *block = first->next; block && block->state == NEAP_BLOCK_CACHED; block = block->next)
		run.end = block_end(block);
	run.pages_start = round_up(run.start, space->page_bytes);
	uint64_t pages_end = round_down(run.end, space->page_bytes);
	run.pages = pages_end > run.pages_start ? (pages_end - run.pages_start) / space->page_bytes : 0;
	if (space->count == space->capacity) {
		size_t capacity = space->capacity ? 2 * space->capacity : FIRST_RUNS;
		struct neap_free_run *grown = realloc(space->runs, capacity * sizeof *grown);
		if (!grown)
			return false;
		space->runs = grown;
		space->capacity = capacity;
	}
	space->runs[space->count++] = run;
	space->pages += run.pages;
	return true;
}

static bool cache_add(struct neap_space *space, const struct neap_cache *cache)
{
	struct neap_block *block = neap_cache_after(cache, 0, 0);
	for (; block; block = neap_cache_after(cache, block->bytes, block->address)) {
		bool begins = !block->previous || block->previous->state != NEAP_BLOCK_CACHED;
		if (begins && !run_add(space, block))
			return false;
	}
	return true;
}

static bool caches_add(struct neap_alloc *alloc, struct neap_space *space)
{
	for (struct neap_arena *arena = alloc->arenas; arena; arena = arena->next) {
		if (arena->pool || arena == alloc->region)
			continue;
		if (!cache_add(space, &arena->idle))
			return false;
		for (struct neap_cache *cache = arena->caches; cache; cache = cache->next_of_arena)
			if (!cache_add(space, cache))
				return false;
	}
	return true;
}

static int compare(uint64_t a, uint64_t b) { return (a > b) - (a < b); }

static int by_address(const void *a, const void *b)
{
	return compare(((const struct neap_free_run *)a)->start, ((const struct neap_free_run *)b)->start);
}

static int by_pages(const void *a, const void *b)
{
	const struct neap_free_run *first = *(struct neap_free_run *const *)a,
				   *second = *(struct neap_free_run *const *)b;
	int order = compare(first->pages, second->pages);
	return order ? order : compare(first->start, second->start);
}

bool neap_space_init(struct neap_alloc *alloc, struct neap_space *ret_space)
{
	struct neap_space space = {.page_bytes = alloc->page_bytes};
	bool added = caches_add(alloc, &space);
	space.taken = added ? calloc(space.pages + 1, sizeof *space.taken) : NULL;
	space.by_pages = added ? calloc(space.count + 1, sizeof(struct neap_free_run *)) : NULL;
	if (!space.taken || !space.by_pages) {
		neap_space_fini(&space);
		return false;
	}
	if (space.count)
		qsort(space.runs, space.count, sizeof *space.runs, by_address);
	size_t pages = 0;
	for (size_t i = 0; i < space.count; i++) {
		space.runs[i].taken = pages;
		pages += space.runs[i].pages;
		space.by_pages[i] = &space.runs[i];
	}
	qsort(space.by_pages, space.count, sizeof(struct neap_free_run *), by_pages);
	*ret_space = space;
	return true;
}

void neap_space_fini(struct neap_space *space)
{
	free(space->runs);
	free(space->taken);
	free(space->by_pages);
	*space = (struct neap_space){0};
}

struct neap_free_run *neap_space_run(const struct neap_space *space, uint64_t address)
{
	size_t low = 0, high = space->count;
	while (low < high) {
		size_t middle = low + (high - low) / 2;
		if (space->runs[middle].start <= address)
			low = middle + 1;
		else
			high = middle;
	}
	if (!low || space->runs[low - 1].end <= address)
		return NULL;
	return &space->runs[low - 1];
}

uint64_t neap_space_suffix(const struct neap_space *space, uint64_t page)
{
	uint64_t end = page + space->page_bytes;
	const struct neap_free_run *run = neap_space_run(space, end - 1);
	if (!run)
		return 0;
	return end - (run->start > page ? run->start : page);
}

uint64_t neap_space_prefix(const struct neap_space *space, uint64_t page)
{
	uint64_t end = page + space->page_bytes;
	const struct neap_free_run *run = neap_space_run(space, page);
	if (!run)
		return 0;
	return (run->end < end ? run->end : end) - page;
}

/* The page's flag in `taken`; NULL: the page is not free as a whole. */
static bool *flag(const struct neap_space *space, uint64_t page)
{
	const struct neap_free_run *run = neap_space_run(space, page);
	if (!run || run->end < page + space->page_bytes)
		return NULL;
	return &space->taken[run->taken + (page - run->pages_start) / space->page_bytes];
}

bool neap_space_whole(const struct neap_space *space, uint64_t page)
{
	const bool *taken = flag(space, page);
	return taken && !*taken;
}

void neap_space_take(struct neap_space *space, uint64_t page) { *flag(space, page) = true; }

uint64_t neap_space_take_any(struct neap_space *space)
{
	for (; space->next_run < space->count; space->next_run++, space->next_page = 0) {
		const struct neap_free_run *run = space->by_pages[space->next_run];
		for (; space->next_page < run->pages; space->next_page++) {
			bool *taken = &space->taken[run->taken + space->next_page];
			if (!*taken) {
				*taken = true;
				return run->pages_start + space->next_page * space->page_bytes;
			}
		}
	}
	return 0;
}

/* An end of a page. Ends are ordered by their bytes; the first of each kind has 0 bytes, and stands for no end. */
struct end {
	uint64_t bytes, page;
};
struct ends {
	struct end *suffixes, *prefixes;
	size_t suffix_count, prefix_count;
};

static int by_bytes(const void *a, const void *b)
{
	return compare(((const struct end *)a)->bytes, ((const struct end *)b)->bytes);
}

static bool ends_init(const struct neap_space *space, struct ends *ret_ends)
{
	struct ends ends = {.suffix_count = 1, .prefix_count = 1};
	ends.suffixes = calloc(2 * (space->count + 1), sizeof *ends.suffixes);
	if (!ends.suffixes)
		return false;
	ends.prefixes = ends.suffixes + space->count + 1;
	for (size_t i = 0; i < space->count; i++) {
		const struct neap_free_run *run = &space->runs[i];
		uint64_t first_end = run->pages_start, last = round_down(run->end, space->page_bytes);
		if (run->start < first_end && run->end >= first_end)
			ends.suffixes[ends.suffix_count++] =
				(struct end){first_end - run->start, first_end - space->page_bytes};
		if (run->end > last && run->start <= last)
			ends.prefixes[ends.prefix_count++] = (struct end){run->end - last, last};
	}
	qsort(ends.suffixes, ends.suffix_count, sizeof *ends.suffixes, by_bytes);
	qsort(ends.prefixes, ends.prefix_count, sizeof *ends.prefixes, by_bytes);
	*ret_ends = ends;
	return true;
}

/* Finds the pair that exceeds `bytes` least, by less than *excess. False: there is none. */
static bool pair_find(const struct ends *ends, uint64_t bytes, uint64_t *excess, struct neap_stitch *ret_stitch)
{
	bool found = false;
	for (size_t i = 0, j = ends->prefix_count; i < ends->suffix_count; i++) {
		const struct end *suffix = &ends->suffixes[i];
		while (j > 0 && suffix->bytes + ends->prefixes[j - 1].bytes >= bytes)
			j--;
		if (j == ends->prefix_count)
			continue;
		const struct end *prefix = &ends->prefixes[j];
		uint64_t over = suffix->bytes + prefix->bytes - bytes;
		if (over >= *excess)
			continue;
		*excess = over;
		uint64_t head = suffix->bytes < bytes ? suffix->bytes : bytes;
		*ret_stitch = (struct neap_stitch){.suffix_page = suffix->page,
						   .suffix_bytes = head,
						   .prefix_page = prefix->page,
						   .prefix_bytes = bytes - head};
		found = true;
	}
	return found;
}

/* Takes the largest suffix that does not exceed `bytes`. A whole page, which is chosen later, provides the rest. */
static void page_cut(const struct ends *ends, uint64_t bytes, struct neap_stitch *ret_stitch)
{
	size_t i = ends->suffix_count - 1;
	while (ends->suffixes[i].bytes > bytes)
		i--;
	*ret_stitch = (struct neap_stitch){.suffix_page = ends->suffixes[i].page,
					   .suffix_bytes = ends->suffixes[i].bytes,
					   .prefix_bytes = bytes - ends->suffixes[i].bytes};
}

bool neap_space_stitch(const struct neap_space *space, uint64_t bytes, uint64_t more, struct neap_stitch *ret_stitch)
{
	uint64_t whole = bytes / space->page_bytes, rest = bytes % space->page_bytes, pages = space->pages + more;
	uint64_t excess = SAVING_EXCESS + 1;
	struct neap_stitch stitch = {0};
	struct ends ends;
	if (!ends_init(space, &ends))
		return false;
	bool saving = whole && whole - 1 <= pages && pair_find(&ends, rest + space->page_bytes, &excess, &stitch);
	bool found = saving;
	stitch.whole_pages = whole - saving;
	if (!found) {
		excess = UINT64_MAX;
		found = whole <= pages && pair_find(&ends, rest, &excess, &stitch);
		stitch.whole_pages = whole;
	}
	if (excess > EXCESS_BYTES && !saving && whole + 1 <= pages) {
		page_cut(&ends, rest, &stitch);
		stitch.whole_pages = whole;
		found = true;
	} else if (!found && whole && whole - 1 <= pages) {
		found = pair_find(&ends, rest + space->page_bytes, &excess, &stitch);
		stitch.whole_pages = whole - 1;
	}
	free(ends.suffixes);
	if (found)
		*ret_stitch = stitch;
	return found;
}
