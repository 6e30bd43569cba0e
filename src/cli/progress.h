/* cli/progress.h: one line at the bottom of a terminal, written over in place, beside which other lines go their way.
 *
 *   progress_begin   only where the stream is a terminal that can go back in a line; else nothing is ever drawn
 *   progress_draw    what a series is doing, cut to the terminal's width as it is now
 *   progress_clear   before anything else is written to the terminal, and at the end
 *
 * One thread.
 */
#ifndef NEAP_CLI_PROGRESS_H
#define NEAP_CLI_PROGRESS_H

#include "series/series_progress.h"

#include <stdbool.h>
#include <stdio.h>

struct progress_line {
	FILE *stream;    /* NULL: not a terminal, or a dumb one */
	char text[1001]; /* what is shown; "" nothing */
};

void progress_begin(struct progress_line *line, FILE *stream);
void progress_draw(struct progress_line *line, const struct neap_series_progress *progress);
void progress_clear(struct progress_line *line);

/* The line's text, at most `width` columns; "" where nothing runs or nothing would fit. Pure.
 * `capacity`: of `text`. */
void progress_format(const struct neap_series_progress *progress, size_t width, char *text, size_t capacity);

#endif
