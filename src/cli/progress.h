/* cli/progress.h: one line at the bottom of a terminal that is rewritten in place, while other lines scroll above it.
 *
 *   progress_begin   only where the stream is a terminal that can go back in a line; else nothing is ever drawn
 *   progress_draw    the state of a series, cut to the terminal's current width
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

/* Runs of `neap estimate` and `neap check`: signals are noted, and stderr shows the progress: on a terminal, one line
 * that is rewritten; elsewhere, a plain line every 10 s. */

/* From now on, notes SIGINT and SIGTERM; 0: none came. */
void estimate_catch_signals(void);
int estimate_interrupted(void);

struct estimate_progress {
	uint64_t next_ns; /* when the progress is shown next; 0: as soon as possible */
};

/* The go_on of a struct neap_estimate_watch, whose context is a struct estimate_progress: returns false once a signal
 * has come. */
bool estimate_progress_go_on(void *context, const char *what, uint64_t elapsed_ns);

#endif
