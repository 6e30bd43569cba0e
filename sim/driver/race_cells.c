/* sim/driver/race_cells.c: see the header. A use cuts the cells at its ends, so that each cell has one set of uses.
 *
 *   before   |------ w1 ------|            |- w2 -|
 *   a read           |----------- r ----------|
 *   after    |- w1 --|- w1 r -|---- r -----|w2 r|w2|
 *
 * If there is no memory for a cell, its uses are lost, and `full` is set. */
#include "sim/driver/race_cells.h"

#include <stdlib.h>
#include <string.h>

static struct race_cell *cell_of(struct sim_span *span) { return (struct race_cell *)(void *)span; }

static struct race_cell *next_of(struct race_cell *cell) { return cell_of(cell->span.next[0]); }

static struct race_cell *cell_create(struct race_cells *cells, uint64_t begin, uint64_t end)
{
	struct race_cell *cell = cells->count < RACE_CELLS_MOST ? calloc(1, sizeof *cell) : NULL;

	if (!cell) {
		cells->full = true;
		return NULL;
	}
	cells->count++;
	cell->span.begin = begin;
	cell->span.end = end;
	sim_spans_add(&cells->spans, &cell->span);
	return cell;
}

static void cell_destroy(struct race_cells *cells, struct race_cell *cell)
{
	sim_spans_remove(&cells->spans, &cell->span);
	cells->count--;
	free(cell->uses);
	free(cell);
}

static void cell_add(struct race_cells *cells, struct race_cell *cell, const struct race_use *use)
{
	if (cell->count == cell->capacity) {
		uint32_t capacity = cell->capacity ? 2 * cell->capacity : 2;
		struct race_use *uses = realloc(cell->uses, capacity * sizeof *uses);

		if (!uses) {
			cells->full = true;
			return;
		}
		cell->uses = uses;
		cell->capacity = capacity;
	}
	cell->uses[cell->count++] = *use;
}

/* Makes the part from `at` on a cell of its own. */
static void cell_split(struct race_cells *cells, struct race_cell *cell, uint64_t at)
{
	uint64_t end = cell->span.end;

	cell->span.end = at;
	struct race_cell *right = cell_create(cells, at, end);
	for (uint32_t i = 0; right && i < cell->count; i++)
		cell_add(cells, right, &cell->uses[i]);
}

/* Cuts the cell that spans `at`, if there is one. */
static void cut(struct race_cells *cells, uint64_t at)
{
	struct race_cell *cell = cell_of(sim_spans_from(&cells->spans, at));

	if (cell && cell->span.begin < at)
		cell_split(cells, cell, at);
}

static bool is_replaced(const struct race_use *old, const struct race_use *use, const struct race_clock *clock,
			const struct race_clock *host)
{
	if (race_seen(old, host))
		return true;
	if (old->lane == use->lane && old->use == use->use && old->life == use->life)
		return true;
	return old->use == NEAP_SIM_READS && use->use == NEAP_SIM_READS && old->life == use->life &&
	       race_seen(old, clock);
}

static void cell_use(struct race_cells *cells, struct race_cell *cell, const struct race_use *use,
		     const struct race_clock *clock, const struct race_clock *host)
{
	uint32_t kept = 0;

	for (uint32_t i = 0; i < cell->count; i++)
		if (!is_replaced(&cell->uses[i], use, clock, host))
			cell->uses[kept++] = cell->uses[i];
	cell->count = kept;
	cell_add(cells, cell, use);
}

/* Records a write of all the bytes, as one cell. Later uses that are sparse or of unknown kind then do not see the
 * earlier lives of the block. */
static void overwrite(struct race_cells *cells, uint64_t begin, uint64_t end, const struct race_use *use)
{
	race_cells_drop(cells, begin, end, NULL);
	struct race_cell *cell = cell_create(cells, begin, end);
	if (cell)
		cell_add(cells, cell, use);
}

void race_cells_use(struct race_cells *cells, uint64_t begin, uint64_t end, const struct race_use *use,
		    const struct race_clock *clock, const struct race_clock *host)
{
	uint64_t at = begin;

	if (race_is_dense_write(use)) {
		overwrite(cells, begin, end, use);
		return;
	}
	cut(cells, begin);
	cut(cells, end);
	while (at < end) {
		struct race_cell *cell = cell_of(sim_spans_from(&cells->spans, at));
		uint64_t until = cell && cell->span.begin < end ? cell->span.begin : end;

		if (at < until)
			cell = cell_create(cells, at, until);
		if (!cell)
			return;
		cell_use(cells, cell, use, clock, host);
		at = cell->span.end;
	}
}

static void cell_drop(struct race_cell *cell, const struct race_clock *clock)
{
	uint32_t kept = 0;

	for (uint32_t i = 0; clock && i < cell->count; i++)
		if (!race_seen(&cell->uses[i], clock))
			cell->uses[kept++] = cell->uses[i];
	cell->count = kept;
}

void race_cells_drop(struct race_cells *cells, uint64_t begin, uint64_t end, const struct race_clock *clock)
{
	cut(cells, begin);
	cut(cells, end);
	struct race_cell *cell = cell_of(sim_spans_from(&cells->spans, begin)), *next;
	for (; cell && cell->span.begin < end; cell = next) {
		next = next_of(cell);
		cell_drop(cell, clock);
		if (!cell->count)
			cell_destroy(cells, cell);
	}
}

void race_cells_fini(struct race_cells *cells)
{
	struct sim_span *span;

	while ((span = cells->spans.head.next[0]) != NULL)
		cell_destroy(cells, cell_of(span));
}
