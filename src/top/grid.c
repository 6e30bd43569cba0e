/* top/grid.c: see grid.h. */
#include "top/grid.h"

#include "base/error.h"
#include "base/printable.h"

#include <stdarg.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#define COLUMNS_MOST 1000
#define ROWS_MOST    10000

enum neap_status neap_top_grid_init(size_t width, size_t height, bool ascii, struct neap_top_grid *ret_grid,
				    struct neap_error *err)
{
	if (width == 0 || width > COLUMNS_MOST || height == 0 || height > ROWS_MOST)
		return neap_fail(err, NEAP_EINVAL, "a screen of %zu x %zu cells: 1 to %d columns, 1 to %d rows",
				 width, height, COLUMNS_MOST, ROWS_MOST);
	struct neap_top_cell *cells = calloc(width * height, sizeof *cells);
	if (!cells)
		return neap_fail(err, NEAP_ENOMEM, "a screen of %zu x %zu cells: out of memory", width, height);
	*ret_grid = (struct neap_top_grid){.width = width, .height = height, .cells = cells, .ascii = ascii};
	return NEAP_OK;
}

void neap_top_grid_fini(struct neap_top_grid *grid)
{
	if (!grid)
		return;
	free(grid->cells);
	*grid = (struct neap_top_grid){0};
}

/* Whether every terminal draws the character in one column. True for Latin, Greek and Cyrillic letters, and for the
 * arrows, lines, blocks and braille that the frames draw. */
static bool is_narrow(uint32_t character)
{
	return (character >= 0x20 && character < 0x300) || (character >= 0x370 && character < 0x483) ||
	       (character >= 0x2010 && character < 0x2028) || (character >= 0x2190 && character < 0x2194) ||
	       (character >= 0x2500 && character < 0x25a0) || (character >= 0x2800 && character < 0x2900);
}

static void put_character(struct neap_top_grid *grid, size_t row, size_t column, const char *bytes, size_t length,
			  enum neap_top_style style)
{
	struct neap_top_cell *cell = &grid->cells[row * grid->width + column];
	memset(cell->text, 0, sizeof cell->text);
	memcpy(cell->text, bytes, length < sizeof cell->text ? length : 1);
	cell->style = (uint8_t)style;
}

static size_t end_of(const struct neap_top_grid *grid, const struct neap_top_place *place)
{
	return place->end && place->end < grid->width ? place->end : grid->width;
}

size_t neap_top_put(struct neap_top_grid *grid, struct neap_top_place place, const char *text)
{
	size_t column = place.column, end = end_of(grid, &place);
	if (place.row >= grid->height)
		return column;
	for (size_t left = strlen(text); left > 0 && column < end; column++) {
		uint32_t character;
		size_t bytes = neap_utf8_next(text, left, &character);
		bool good =
			neap_printable_is(character) && is_narrow(character) && (!grid->ascii || character < 0x80);
		put_character(grid, place.row, column, good ? text : "?", good ? bytes : 1, place.style);
		text += bytes;
		left -= bytes;
	}
	return column;
}

size_t neap_top_putf(struct neap_top_grid *grid, struct neap_top_place place, const char *format, ...)
{
	char text[1024];
	va_list list;
	va_start(list, format);
	vsnprintf(text, sizeof text, format, list);
	va_end(list);
	return neap_top_put(grid, place, text);
}

size_t neap_top_columns(const char *text)
{
	size_t columns = 0;
	for (size_t left = strlen(text); left > 0; columns++) {
		uint32_t character;
		size_t bytes = neap_utf8_next(text, left, &character);
		text += bytes;
		left -= bytes;
	}
	return columns;
}

void neap_top_put_right(struct neap_top_grid *grid, struct neap_top_place place, const char *text)
{
	size_t columns = neap_top_columns(text), end = end_of(grid, &place);
	if (end > place.column && columns < end - place.column)
		place.column = end - columns;
	neap_top_put(grid, place, text);
}

size_t neap_top_fill(struct neap_top_grid *grid, struct neap_top_place place, const char *character, size_t count)
{
	while (count-- > 0)
		place.column = neap_top_put(grid, place, character);
	return place.column;
}

void neap_top_select(struct neap_top_grid *grid, size_t row)
{
	for (size_t column = 0; row < grid->height && column < grid->width; column++)
		grid->cells[row * grid->width + column].selected = true;
}

/* The SGR sequence of each style. Parts keep the terminal's background, so they suit light and dark terminals. */
static const char *const sgr[NEAP_TOP_STYLES] = {
	[NEAP_TOP_PLAIN] = "",
	[NEAP_TOP_TITLE] = "1",
	[NEAP_TOP_DIM] = "2",
	[NEAP_TOP_WARN] = "33",
	[NEAP_TOP_MATCH] = "1;33",
	[NEAP_TOP_KEY] = "1",
	[NEAP_TOP_PART_RESERVED] = "2",
	[NEAP_TOP_PART_CONTEXT] = "34",
	[NEAP_TOP_PART_ALLOCATED] = "32",
	[NEAP_TOP_PART_CACHED] = "36",
	[NEAP_TOP_PART_NOT_ATTACHED] = "35",
	[NEAP_TOP_PART_UNEXPLAINED] = "31",
	[NEAP_TOP_PART_FREE] = "2",
};

static bool is_blank(const struct neap_top_cell *cell) { return !cell->text[0] || strcmp(cell->text, " ") == 0; }

static void print_style(const struct neap_top_cell *cell, struct neap_buffer *buffer)
{
	neap_buffer_text(buffer, "\033[0");
	if (sgr[cell->style][0])
		neap_buffer_format(buffer, ";%s", sgr[cell->style]);
	neap_buffer_text(buffer, cell->selected ? ";7m" : "m");
}

static void print_row(const struct neap_top_cell *cells, size_t width, bool color, struct neap_buffer *buffer)
{
	const struct neap_top_cell *before = &(struct neap_top_cell){0};
	while (width > 0 && is_blank(&cells[width - 1]) && !(color && cells[width - 1].selected))
		width--;
	for (size_t column = 0; column < width; column++) {
		const struct neap_top_cell *cell = &cells[column];
		if (color && (cell->style != before->style || cell->selected != before->selected))
			print_style(cell, buffer);
		before = cell;
		neap_buffer_text(buffer, cell->text[0] ? cell->text : " ");
	}
	if (color && (before->style != NEAP_TOP_PLAIN || before->selected))
		neap_buffer_text(buffer, "\033[0m");
	neap_buffer_text(buffer, "\n");
}

void neap_top_grid_print(const struct neap_top_grid *grid, bool color, struct neap_buffer *buffer)
{
	for (size_t row = 0; row < grid->height; row++)
		print_row(&grid->cells[row * grid->width], grid->width, color, buffer);
}
