/* alloc/plan/layout.c: lays blocks out by first fit, and searches for the best order.
 *
 * A try takes the blocks in some order and puts each at the lowest offset where it overlaps no earlier one. Some
 * order gives a best layout: the order of that layout's offsets. The search for an order:
 *
 *   sorted     by three keys: pressure (the most bytes live at once during the block's life), life, bytes. Several
 *              orders of these keys are tried
 *   skyline    in the same orders, but the lowest valley is served first: it gets the first block that lives within
 *              its span. If there is none, the valley is filled up to the lower of its sides
 *   improved   begins with each sorted order and with the best order so far. The block at which a try becomes no
 *              better than the best came too late: it moves to a random earlier place, and the next try begins
 *
 * A try ends as soon as it is no better than the best one.
 */
#include "alloc/plan/plan.h"
#include "base/error.h"

#include <stdbool.h>
#include <stdlib.h>
#include <string.h>

#define ROUNDS 20 /* the search has rounds: one ends after this part of the work without a better layout */

enum key { PRESSURE, LIFE, BYTES, KEYS };

/* Descending by each key in turn. */
static const enum key orders[][KEYS] = {
	{PRESSURE, LIFE, BYTES}, {PRESSURE, BYTES, LIFE}, {BYTES, LIFE, PRESSURE}, {LIFE, BYTES, PRESSURE}};

#define ORDERS (sizeof orders / sizeof orders[0])

/* A block as the tries use it: live in the ranks [from, to). Ranks replace events, since only their order counts. */
struct item {
	uint64_t key[KEYS];
	uint32_t from, to, number;
};

struct placed {
	uint64_t offset, end;
	uint32_t from, to;
};

/* The ranks [from, to), over which the skyline is level. */
struct valley {
	uint64_t height;
	uint32_t from, to;
};

struct edge {
	uint64_t event;
	uint32_t number;
	bool begins;
};

struct search {
	uint32_t count, ranks;
	struct item *items;               /* by number */
	struct item *sorted;              /* by the current keys */
	uint32_t *order, *best_order;     /* numbers */
	uint32_t *next;                   /* links the sorted items that are not in the skyline yet */
	uint64_t *offsets, *best_offsets; /* by number */
	struct placed *placed;            /* by offset */
	struct valley *valleys;           /* by rank */
	struct edge *edges;
	uint64_t *maxima; /* a tree of maxima over the bytes live at each rank; its leaves begin at `ranks` */
	uint64_t best, bound;
	uint64_t tries, work, most_work;
	uint64_t random;
};

static uint64_t greater(uint64_t a, uint64_t b) { return a > b ? a : b; }

static int compare_items(const void *left, const void *right, void *context)
{
	const struct item *a = left, *b = right;
	const enum key *keys = context;
	for (int i = 0; i < KEYS; i++)
		if (a->key[keys[i]] != b->key[keys[i]])
			return a->key[keys[i]] > b->key[keys[i]] ? -1 : 1;
	return a->number < b->number ? -1 : 1;
}

static int compare_edges(const void *left, const void *right)
{
	const struct edge *a = left, *b = right;
	if (a->event != b->event)
		return a->event < b->event ? -1 : 1;
	return a->number < b->number ? -1 : a->number > b->number;
}

/* The lowest offset at which the item overlaps no placed item. */
static uint64_t find_offset(struct search *search, uint32_t placed, const struct item *item)
{
	uint64_t offset = 0;
	uint32_t i = 0;
	for (; i < placed; i++) {
		const struct placed *other = &search->placed[i];
		if (other->offset >= offset + item->key[BYTES])
			break;
		if (other->from < item->to && item->from < other->to && other->end > offset)
			offset = other->end;
	}
	search->work += i + 1;
	return offset;
}

static void place(struct search *search, uint32_t placed, const struct item *item, uint64_t offset)
{
	uint32_t low = 0, high = placed;
	while (low < high) {
		uint32_t middle = low + (high - low) / 2;
		if (search->placed[middle].offset <= offset)
			low = middle + 1;
		else
			high = middle;
	}
	memmove(search->placed + low + 1, search->placed + low, (placed - low) * sizeof *search->placed);
	search->placed[low] = (struct placed){offset, offset + item->key[BYTES], item->from, item->to};
	search->offsets[item->number] = offset;
}

/* Places the blocks in this order. Returns the index of the first block at which the try was no better than the best
 * one; `count` if it is the new best. */
static uint32_t try_order(struct search *search)
{
	uint64_t total = 0;
	search->tries++;
	for (uint32_t i = 0; i < search->count; i++) {
		const struct item *item = &search->items[search->order[i]];
		uint64_t offset = find_offset(search, i, item), end = offset + item->key[BYTES];
		if (end >= search->best)
			return i;
		place(search, i, item, offset);
		total = greater(total, end);
	}
	search->best = total;
	memcpy(search->best_order, search->order, search->count * sizeof *search->order);
	memcpy(search->best_offsets, search->offsets, search->count * sizeof *search->offsets);
	return search->count;
}

static bool ended(const struct search *search)
{
	return search->best == search->bound || search->work >= search->most_work;
}

/* Puts `item` onto its part of the valley; the rest of the valley on either side stays. Returns the new number of
 * valleys. */
static uint32_t valley_build(struct valley *valleys, uint32_t count, uint32_t at, const struct item *item)
{
	struct valley was = valleys[at], parts[3];
	uint32_t part_count = 0;
	if (item->from > was.from)
		parts[part_count++] = (struct valley){was.height, was.from, item->from};
	parts[part_count++] = (struct valley){was.height + item->key[BYTES], item->from, item->to};
	if (item->to < was.to)
		parts[part_count++] = (struct valley){was.height, item->to, was.to};
	memmove(valleys + at + part_count, valleys + at + 1, (count - at - 1) * sizeof *valleys);
	memcpy(valleys + at, parts, part_count * sizeof *valleys);
	return count + part_count - 1;
}

/* Joins the valley with neighbours of the same height. Returns the new number of valleys. */
static uint32_t valley_join(struct valley *valleys, uint32_t count, uint32_t at)
{
	uint32_t first = at, last = at;
	while (first > 0 && valleys[first - 1].height == valleys[at].height)
		first--;
	while (last + 1 < count && valleys[last + 1].height == valleys[at].height)
		last++;
	valleys[first].to = valleys[last].to;
	memmove(valleys + first + 1, valleys + last + 1, (count - last - 1) * sizeof *valleys);
	return count - (last - first);
}

static uint64_t lower_side(const struct valley *valleys, uint32_t count, uint32_t at)
{
	uint64_t left = at > 0 ? valleys[at - 1].height : UINT64_MAX;
	uint64_t right = at + 1 < count ? valleys[at + 1].height : UINT64_MAX;
	return left < right ? left : right;
}

static uint32_t lowest_valley(const struct valley *valleys, uint32_t count)
{
	uint32_t lowest = 0;
	for (uint32_t i = 1; i < count; i++)
		lowest = valleys[i].height < valleys[lowest].height ? i : lowest;
	return lowest;
}

/* Makes the order in which a skyline takes the sorted items. */
static void order_by_skyline(struct search *search)
{
	struct valley *valleys = search->valleys;
	uint32_t *next = search->next, valley_count = 1, taken = 0;
	for (uint32_t i = 0; i <= search->count; i++)
		next[i] = i;
	valleys[0] = (struct valley){0, 0, search->ranks};
	while (taken < search->count) {
		uint32_t at = lowest_valley(valleys, valley_count), *link = next, work = 0;
		/* next[0] is the first item not placed yet; next[i + 1] follows item i. */
		for (; *link < search->count; link = &next[*link + 1], work++) {
			const struct item *item = &search->sorted[*link];
			if (item->from >= valleys[at].from && item->to <= valleys[at].to)
				break;
		}
		search->work += work + 1;
		if (*link == search->count) {
			valleys[at].height = lower_side(valleys, valley_count, at);
			valley_count = valley_join(valleys, valley_count, at);
			continue;
		}
		const struct item *item = &search->sorted[*link];
		search->order[taken++] = item->number;
		valley_count = valley_build(valleys, valley_count, at, item);
		*link = next[*link + 1];
	}
}

static void order_by_keys(struct search *search, const enum key keys[KEYS])
{
	enum key context[KEYS] = {keys[0], keys[1], keys[2]};
	memcpy(search->sorted, search->items, search->count * sizeof *search->items);
	qsort_r(search->sorted, search->count, sizeof *search->sorted, compare_items, context);
	for (uint32_t i = 0; i < search->count; i++)
		search->order[i] = search->sorted[i].number;
}

static void try_keys(struct search *search, const enum key keys[KEYS])
{
	order_by_keys(search, keys);
	try_order(search);
	if (ended(search))
		return;
	order_by_skyline(search);
	try_order(search);
}

/* xorshift64 gives the same numbers on every machine. */
static uint64_t draw(struct search *search, uint64_t below)
{
	search->random ^= search->random << 13;
	search->random ^= search->random >> 7;
	search->random ^= search->random << 17;
	return search->random % below;
}

/* Restarts from the sorted orders in turn, then from the best order so far. */
static void start_over(struct search *search, size_t round)
{
	if (round % (ORDERS + 1) < ORDERS)
		order_by_keys(search, orders[round % (ORDERS + 1)]);
	else
		memcpy(search->order, search->best_order, search->count * sizeof *search->order);
}

static void improve(struct search *search)
{
	uint64_t patience = search->most_work / ROUNDS + 1, until = 0;
	for (size_t round = 0; !ended(search);) {
		if (search->work >= until) {
			start_over(search, round++);
			until = search->work + patience;
		}
		/* `late` is not 0: the first block alone ends at or below the bound. */
		uint32_t late = try_order(search);
		if (late == search->count) {
			until = search->work + patience;
			continue;
		}
		uint32_t to = (uint32_t)draw(search, late), number = search->order[late];
		memmove(search->order + to + 1, search->order + to, (late - to) * sizeof *search->order);
		search->order[to] = number;
	}
}

static enum neap_status check(const struct neap_layout_block *blocks, size_t count, struct neap_error *err)
{
	uint64_t sum = 0;
	if (count > NEAP_LAYOUT_BLOCKS_MAX)
		return neap_fail(err, NEAP_EINVAL, "a layout of %zu blocks: at most %u are laid out", count,
				 NEAP_LAYOUT_BLOCKS_MAX);
	for (size_t i = 0; i < count; i++) {
		if (!blocks[i].bytes || blocks[i].from >= blocks[i].to)
			return neap_fail(err, NEAP_EINVAL, "block %zu of a layout has no %s", i,
					 blocks[i].bytes ? "life" : "bytes");
		if (blocks[i].bytes > INT64_MAX - sum)
			return neap_fail(err, NEAP_EINVAL, "the blocks of a layout are too large together");
		sum += blocks[i].bytes;
	}
	return NEAP_OK;
}

static bool search_init(struct search *search, size_t count)
{
	*search = (struct search){.count = (uint32_t)count, .best = UINT64_MAX, .random = 0x9e3779b97f4a7c15u};
	/* One more than needed: calloc of nothing may return NULL. */
	search->items = calloc(count + 1, sizeof *search->items);
	search->sorted = calloc(count + 1, sizeof *search->sorted);
	search->order = calloc(count + 1, sizeof *search->order);
	search->best_order = calloc(count + 1, sizeof *search->best_order);
	search->next = calloc(count + 1, sizeof *search->next);
	search->offsets = calloc(count + 1, sizeof *search->offsets);
	search->best_offsets = calloc(count + 1, sizeof *search->best_offsets);
	search->placed = calloc(count + 1, sizeof *search->placed);
	search->valleys = calloc(2 * count + 1, sizeof *search->valleys);
	search->edges = calloc(2 * count + 1, sizeof *search->edges);
	search->maxima = calloc(4 * count + 1, sizeof *search->maxima);
	return search->items && search->sorted && search->order && search->best_order && search->next &&
	       search->offsets && search->best_offsets && search->placed && search->valleys && search->edges &&
	       search->maxima;
}

static void search_fini(struct search *search)
{
	void *all[] = {search->items,   search->sorted,  search->order,        search->best_order,
		       search->next,    search->offsets, search->best_offsets, search->placed,
		       search->valleys, search->edges,   search->maxima};
	for (size_t i = 0; i < sizeof all / sizeof all[0]; i++)
		free(all[i]);
}

/* Replaces events by their ranks. */
static void rank(struct search *search, const struct neap_layout_block *blocks)
{
	struct edge *edges = search->edges;
	uint32_t edge_count = 2 * search->count;
	for (uint32_t i = 0; i < search->count; i++) {
		edges[2 * i] = (struct edge){blocks[i].from, i, true};
		edges[2 * i + 1] = (struct edge){blocks[i].to, i, false};
	}
	qsort(edges, edge_count, sizeof *edges, compare_edges);
	for (uint32_t i = 0, at = 0; i < edge_count; i++) {
		struct item *item = &search->items[edges[i].number];
		at += i > 0 && edges[i].event != edges[i - 1].event;
		item->number = edges[i].number;
		if (edges[i].begins)
			item->from = at;
		else
			item->to = at;
		search->ranks = at;
	}
}

/* Computes the bytes live at each rank, and the bound. */
static void measure(struct search *search, const struct neap_layout_block *blocks)
{
	uint64_t *maxima = search->maxima, *live = maxima + search->ranks;
	/* First differences, then sums: negative differences wrap, sums do not. The one after the last rank is
	 * unused. */
	for (uint32_t i = 0; i < search->count; i++) {
		const struct item *item = &search->items[i];
		live[item->from] += blocks[i].bytes;
		live[item->to] -= blocks[i].bytes;
	}
	for (uint32_t at = 0; at < search->ranks; at++) {
		live[at] += at ? live[at - 1] : 0;
		search->bound = greater(search->bound, live[at]);
	}
	for (uint32_t node = search->ranks; node-- > 1;)
		maxima[node] = greater(maxima[2 * node], maxima[2 * node + 1]);
}

static uint64_t pressure_of(const struct search *search, const struct item *item)
{
	uint64_t most = 0;
	uint32_t from = item->from + search->ranks, to = item->to + search->ranks;
	for (; from < to; from /= 2, to /= 2) {
		if (from % 2)
			most = greater(most, search->maxima[from++]);
		if (to % 2)
			most = greater(most, search->maxima[--to]);
	}
	return most;
}

static void run(struct search *search, const struct neap_layout_block *blocks)
{
	rank(search, blocks);
	measure(search, blocks);
	for (uint32_t i = 0; i < search->count; i++) {
		struct item *item = &search->items[i];
		item->key[PRESSURE] = pressure_of(search, item);
		item->key[LIFE] = blocks[i].to - blocks[i].from;
		item->key[BYTES] = blocks[i].bytes;
	}
	for (size_t i = 0; i < ORDERS && (i == 0 || !ended(search)); i++)
		try_keys(search, orders[i]);
	improve(search);
}

enum neap_status neap_layout_make(struct neap_layout_block *blocks, size_t count, uint64_t work,
				  struct neap_layout *ret_layout, struct neap_error *err)
{
	struct search search = {0};
	enum neap_status status = check(blocks, count, err);
	if (status)
		return status;
	if (!search_init(&search, count)) {
		status = neap_fail(err, NEAP_ENOMEM, "no host memory for a layout of %zu blocks", count);
		goto out;
	}
	search.most_work = work;
	run(&search, blocks);
	for (size_t i = 0; i < count; i++)
		blocks[i].offset = search.best_offsets[i];
	*ret_layout = (struct neap_layout){search.best, search.bound, search.tries, search.work};
out:
	search_fini(&search);
	return status;
}
