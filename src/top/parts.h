/* top/parts.h: draws the parts of a frame, each from a given row on. Only for src/top. */
#ifndef NEAP_TOP_PARTS_H
#define NEAP_TOP_PARTS_H

#include "top/grid.h"
#include "top/view.h"

#define NEAP_TOP_SIZE_CAPACITY 16

/* "1.73M", "79.6G", "512": three digits, the unit's first letter; "0". Returns `text`. */
const char *neap_top_size(uint64_t bytes, char text[NEAP_TOP_SIZE_CAPACITY]);
/* "+1.73M", "-79.6G", "0". */
const char *neap_top_change(int64_t bytes, char text[NEAP_TOP_SIZE_CAPACITY]);

/* Splits a bar of `width` cells among the parts of the ledger, in the order of enum neap_top_style from PART_RESERVED
 * on. The sum is `width`. A part that is not zero gets at least one cell, if there are enough. */
#define NEAP_TOP_PARTS (NEAP_TOP_PART_FREE - NEAP_TOP_PART_RESERVED + 1)
void neap_top_split(const struct neap_ledger *ledger, size_t width, size_t ret_cells[NEAP_TOP_PARTS]);

/* Draw a device: the first in two rows, the second in one. */
void neap_top_draw_device(struct neap_top_grid *grid, const struct neap_top_sample *sample,
			  const struct neap_top_view *view, size_t device, struct neap_top_place place);
void neap_top_draw_device_line(struct neap_top_grid *grid, const struct neap_top_sample *sample,
			       const struct neap_top_view *view, size_t device, struct neap_top_place place);
/* Draws the legend with a device's figures, and returns its rows. `grid` NULL: only counts the rows, for `width`. */
size_t neap_top_draw_legend(struct neap_top_grid *grid, const struct neap_top_device *device, size_t width,
			    bool ascii, size_t row);
/* Draws the curve of the view's device in `rows` rows, title included. */
void neap_top_draw_curve(struct neap_top_grid *grid, const struct neap_top_history *history,
			 const struct neap_top_view *view, size_t row, size_t rows);

/* Draws the table of processes in `count` rows from `row` on, head included. */
void neap_top_draw_processes(struct neap_top_grid *grid, const struct neap_top_view *view,
			     const struct neap_top_rows *rows, size_t row, size_t count);

/* "0", "0,2", "0-3". Returns `text`. */
const char *neap_top_device_set(uint64_t devices, char text[32]);

#endif
