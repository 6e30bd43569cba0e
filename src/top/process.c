/* top/process.c: the table of processes. On a narrow screen other columns are left out in favour of the command. */
#include "top/parts.h"

#include <stdio.h>
#include <string.h>

#define COMMAND_LEAST 20

enum column { PID, USER, DEVICE, TIME, HELD, ALLOCATED, CACHED, CONTEXT, OTHER, GROWTH, BUSY, CPU, HOST, COLUMNS };

/* The columns from left to right. `rank`: the order in which they get space. */
static const struct {
	const char *title;
	size_t width;
	int rank;
	bool left;
	enum neap_top_style style;
} columns[COLUMNS] = {
	[PID] = {"PID", 7, 0},
	[USER] = {"USER", 8, 1, .left = true},
	[DEVICE] = {"GPU", 4, 2},
	[TIME] = {"TIME", 8, 4},
	[HELD] = {"IN ALL", 6, 3},
	[ALLOCATED] = {"ALLOC", 6, 5, .style = NEAP_TOP_PART_ALLOCATED},
	[CACHED] = {"CACHED", 6, 6, .style = NEAP_TOP_PART_CACHED},
	[CONTEXT] = {"CONTXT", 6, 11, .style = NEAP_TOP_PART_CONTEXT},
	[OTHER] = {"OTHER", 6, 12, .style = NEAP_TOP_PART_UNEXPLAINED},
	[GROWTH] = {"+/MIN", 6, 7},
	[BUSY] = {"SM%", 3, 8},
	[CPU] = {"CPU%", 5, 9},
	[HOST] = {"HOST", 6, 10},
};

/* Chooses the columns that fit beside a command of COMMAND_LEAST characters. */
static void choose(size_t width, bool ret_shown[COLUMNS])
{
	size_t taken = COMMAND_LEAST;
	memset(ret_shown, 0, COLUMNS * sizeof *ret_shown);
	for (int rank = 0; rank < COLUMNS; rank++) {
		for (size_t i = 0; i < COLUMNS; i++) {
			if (columns[i].rank != rank)
				continue;
			if (taken + columns[i].width + 1 > width)
				return;
			taken += columns[i].width + 1;
			ret_shown[i] = true;
		}
	}
}

const char *neap_top_device_set(uint64_t devices, char text[32])
{
	size_t at = 0;
	text[0] = '\0';
	for (unsigned i = 0; i < NEAP_TOP_DEVICES && at + 8 < 32; i++) {
		unsigned last = i;
		if (!(devices >> i & 1))
			continue;
		while (last + 1 < NEAP_TOP_DEVICES && devices >> (last + 1) & 1)
			last++;
		const char *comma = at ? "," : "";
		if (last == i)
			at += (size_t)snprintf(text + at, 32 - at, "%s%u", comma, i);
		else
			at += (size_t)snprintf(text + at, 32 - at, "%s%u-%u", comma, i, last);
		i = last;
	}
	return text;
}

static const char *cell_text(const struct neap_top_row *row, size_t column, char text[64])
{
	const struct neap_top_process *process = row->process;
	snprintf(text, 64, "-");
	switch (column) {
	case PID:
		snprintf(text, 64, "%d", (int)process->pid);
		break;
	case USER:
		return process->user[0] ? process->user : "?";
	case DEVICE:
		return process->launcher ? "" : neap_top_device_set(process->devices, text);
	case TIME:
		return process->run_time;
	case HELD:
		if (process->launcher || (!process->bytes_known && !process->attached))
			return process->launcher ? "" : "?";
		return neap_top_size(neap_top_held(process), text);
	case ALLOCATED:
		return process->attached ? neap_top_size(process->allocated, text) : process->launcher ? "" : "-";
	case CACHED:
		return process->attached ? neap_top_size(process->cached, text) : process->launcher ? "" : "-";
	case CONTEXT:
		return process->attached ? neap_top_size(process->context, text) : process->launcher ? "" : "-";
	case OTHER:
		return process->attached ? neap_top_change(process->other, text) : process->launcher ? "" : "-";
	case BUSY:
		if (process->busy_percent >= 0)
			snprintf(text, 64, "%d", process->busy_percent);
		return process->launcher ? "" : text;
	case CPU:
		if (row->cpu_percent >= 0)
			snprintf(text, 64, "%d", row->cpu_percent);
		return text;
	case HOST:
		return process->host_bytes ? neap_top_size(process->host_bytes, text) : text;
	case GROWTH:
		return row->growth_known ? neap_top_change(row->growth, text) : "";
	}
	return text;
}

static enum neap_top_style cell_style(const struct neap_top_row *row, size_t column)
{
	const struct neap_top_process *process = row->process;
	if (column == GROWTH && row->growth_known && row->growth > 0)
		return NEAP_TOP_WARN;
	if (column == HELD && !process->attached && !process->launcher)
		return NEAP_TOP_PART_NOT_ATTACHED;
	if (column == OTHER && process->other == 0)
		return NEAP_TOP_PLAIN;
	return process->attached ? columns[column].style : NEAP_TOP_PLAIN;
}

/* Draws the tree's lines before a command. Returns the column after them. */
static size_t draw_branch(struct neap_top_grid *grid, const struct neap_top_row *row, struct neap_top_place place)
{
	place.style = NEAP_TOP_DIM;
	for (unsigned depth = 1; depth < row->depth; depth++)
		place.column = neap_top_put(grid, place,
					    !(row->open >> depth & 1) ? "  "
					    : grid->ascii             ? "| "
								      : "\xe2\x94\x82 ");
	if (row->depth > 0)
		place.column = neap_top_put(grid, place,
					    grid->ascii ? (row->last ? "`-" : "|-")
					    : row->last ? "\xe2\x94\x94\xe2\x94\x80"
							: "\xe2\x94\x9c\xe2\x94\x80");
	return place.column;
}

static void draw_row(struct neap_top_grid *grid, const struct neap_top_view *view, const struct neap_top_row *row,
		     const bool shown[COLUMNS], size_t at)
{
	size_t column = 0;
	char text[64];
	for (size_t i = 0; i < COLUMNS; i++) {
		if (!shown[i])
			continue;
		struct neap_top_place place = {at, column, column + columns[i].width, cell_style(row, i)};
		if (columns[i].left)
			neap_top_put(grid, place, cell_text(row, i, text));
		else
			neap_top_put_right(grid, place, cell_text(row, i, text));
		column += columns[i].width + 1;
	}
	bool found = view->search[0] && neap_top_matches(row->process, view->search);
	struct neap_top_place place = {.row = at, .column = column};
	place.column = draw_branch(grid, row, place);
	place.style = found ? NEAP_TOP_MATCH : row->process->launcher ? NEAP_TOP_DIM : NEAP_TOP_PLAIN;
	neap_top_put(grid, place, row->process->command[0] ? row->process->command : "?");
}

static void draw_head(struct neap_top_grid *grid, const struct neap_top_view *view, const bool shown[COLUMNS],
		      size_t row)
{
	static const int sorted[NEAP_TOP_SORTS] = {HELD, GROWTH, BUSY, CPU, HOST, TIME, PID, USER, COLUMNS};
	size_t column = 0;
	for (size_t i = 0; i < COLUMNS; i++) {
		if (!shown[i])
			continue;
		struct neap_top_place place = {row, column, column + columns[i].width,
					       sorted[view->sort] == (int)i ? NEAP_TOP_TITLE : NEAP_TOP_DIM};
		if (columns[i].left)
			neap_top_put(grid, place, columns[i].title);
		else
			neap_top_put_right(grid, place, columns[i].title);
		column += columns[i].width + 1;
	}
	struct neap_top_place place = {.row = row, .column = column, .style = NEAP_TOP_DIM};
	if (sorted[view->sort] == COLUMNS)
		place.style = NEAP_TOP_TITLE;
	place.column = neap_top_put(grid, place, "COMMAND");
	place.style = NEAP_TOP_DIM;
	neap_top_putf(grid, place, "  by %s%s", neap_top_sort_name(view->sort), view->reversed ? " ^" : "");
}

/* The first row to show, so that the selected row stands in the middle if there are enough rows. */
static size_t first_row(const struct neap_top_rows *rows, size_t selected, size_t capacity)
{
	if (selected >= rows->count || rows->count <= capacity)
		return 0;
	size_t first = selected > capacity / 2 ? selected - capacity / 2 : 0;
	return first + capacity > rows->count ? rows->count - capacity : first;
}

void neap_top_draw_processes(struct neap_top_grid *grid, const struct neap_top_view *view,
			     const struct neap_top_rows *rows, size_t row, size_t count)
{
	bool shown[COLUMNS];
	if (count == 0)
		return;
	choose(grid->width, shown);
	draw_head(grid, view, shown, row);
	size_t capacity = count - 1, selected = view->once ? rows->count : neap_top_rows_selected(rows, view);
	size_t first = first_row(rows, selected, capacity);
	for (size_t i = first; i < rows->count && i - first < capacity; i++) {
		size_t at = row + 1 + i - first;
		draw_row(grid, view, &rows->rows[i], shown, at);
		if (i == selected)
			neap_top_select(grid, at);
	}
	if (rows->count == 0 && capacity > 0)
		neap_top_put(grid, (struct neap_top_place){.row = row + 1, .column = 1, .style = NEAP_TOP_DIM},
			     view->filter[0] ? "no process matches the filter (& changes it)"
					     : "no process uses a GPU");
}
