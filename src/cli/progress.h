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

#include "estimate/runs.h"
#include "series/series_progress.h"

#include <stdbool.h>
#include <stdio.h>

/* Whether the stream is a terminal that can go back in a line. */
bool progress_able(FILE *stream);

struct progress_line {
	FILE *stream;    /* NULL: not a terminal, or a dumb one */
	char text[1001]; /* what is shown; "" nothing */
};

void progress_begin(struct progress_line *line, FILE *stream);
void progress_draw(struct progress_line *line, const struct neap_series_progress *progress);
void progress_clear(struct progress_line *line);

/* Draws one text on stderr, which is such a terminal; "": removes it. */
void progress_show(void *context, const char *text);

/* Runs of `neap estimate` and `neap check`: signals are noted, and stderr shows what goes on: on a terminal one line
 * that is written over, elsewhere a plain line every 10 s. */

/* SIGINT and SIGTERM are noted from here on; 0: none came. */
void estimate_catch_signals(void);
int estimate_interrupted(void);

struct estimate_progress {
	uint64_t next_ns; /* of what goes on, when it is shown again; 0: as soon as it may be */
};

/* The go_on of a struct neap_estimate_watch, whose context is a struct estimate_progress: until a signal has come. */
bool estimate_progress_go_on(void *context, const char *what, uint64_t elapsed_ns);

#endif
