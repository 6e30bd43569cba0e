/* top/grid.h: a screen as data: cells of one character and one style each. Frames are drawn into it; then it is
 * printed to a terminal or a file. One thread.
 *
 * A character takes one column. Make text from outside printable first. A character that terminals draw wider than
 * one column, or on top of another, becomes '?', so that the columns stay aligned.
 */
#ifndef NEAP_TOP_GRID_H
#define NEAP_TOP_GRID_H

#include "base/buffer.h"

#include <stdbool.h>
#include <stddef.h>
#include <stdint.h>

/* The meaning of a cell; the terminal chooses the colour. The parts of the ledger have the ledger's order. */
enum neap_top_style {
	NEAP_TOP_PLAIN,
	NEAP_TOP_TITLE,
	NEAP_TOP_DIM,
	NEAP_TOP_WARN,
	NEAP_TOP_MATCH, /* a match of the search */
	NEAP_TOP_KEY,   /* a key in the help line */
	NEAP_TOP_PART_RESERVED,
	NEAP_TOP_PART_CONTEXT,
	NEAP_TOP_PART_ALLOCATED,
	NEAP_TOP_PART_CACHED,
	NEAP_TOP_PART_NOT_ATTACHED,
	NEAP_TOP_PART_UNEXPLAINED,
	NEAP_TOP_PART_FREE,
	NEAP_TOP_STYLES
};

struct neap_top_cell {
	char text[5]; /* one character in UTF-8; "" a space */
	uint8_t style;
	bool selected; /* the row is chosen: shown reversed */
};

struct neap_top_grid {
	size_t width, height;
	struct neap_top_cell *cells; /* rows one after another */
	bool ascii;                  /* characters beyond ASCII become '?' */
};

/* Errors: NEAP_ENOMEM; more than 1000 columns or 10000 rows are NEAP_EINVAL. */
enum neap_status neap_top_grid_init(size_t width, size_t height, bool ascii, struct neap_top_grid *ret_grid,
				    struct neap_error *err);
void neap_top_grid_fini(struct neap_top_grid *grid);

struct neap_top_place {
	size_t row, column, end; /* text stops before column `end`; 0: at the grid's width */
	enum neap_top_style style;
};

/* Writes `text`, cut to what fits into the grid. Returns the column after it. */
size_t neap_top_put(struct neap_top_grid *grid, struct neap_top_place place, const char *text);
size_t neap_top_putf(struct neap_top_grid *grid, struct neap_top_place place, const char *format, ...)
	NEAP_PRINTF(3, 4);
/* The same so that the text ends before column `end`. */
void neap_top_put_right(struct neap_top_grid *grid, struct neap_top_place place, const char *text);
/* One character, `count` times. Returns the column after it. */
size_t neap_top_fill(struct neap_top_grid *grid, struct neap_top_place place, const char *character, size_t count);
/* Marks a whole row as chosen. */
void neap_top_select(struct neap_top_grid *grid, size_t row);
/* Columns that `text` takes. */
size_t neap_top_columns(const char *text);

/* Appends the grid as lines of text without spaces at their ends; with `color`, SGR sequences between the cells. */
void neap_top_grid_print(const struct neap_top_grid *grid, bool color, struct neap_buffer *buffer);

#endif
