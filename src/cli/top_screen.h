/* cli/top_screen.h: the terminal of `neap top`: draws frames, reads keys, and leaves the terminal as it was. only
 * top_screen.c uses ncurses. One screen, one thread. */
#ifndef NEAP_CLI_TOP_SCREEN_H
#define NEAP_CLI_TOP_SCREEN_H

#include "top/grid.h"

/* Errors: NEAP_ENOTSUP: the terminal cannot move its cursor, or is not known. */
enum neap_status top_screen_begin(bool color, struct neap_error *err);
void top_screen_end(void); /* idempotent */

/* The terminal's current size, up to 1000 columns and rows. */
void top_screen_size(size_t *ret_width, size_t *ret_height);
void top_screen_draw(const struct neap_top_grid *grid);

/* The next key that was pressed, of top/view.h; false: there is none. */
bool top_screen_key(uint32_t *ret_key);

#endif
