/* run/last_output.h: the end of what a command wrote, made fit for people: its last lines, and the one that says
 * why it failed. Pure, any thread.
 *
 * The text is hostile: it may hold any bytes. Escape sequences are dropped, of a line that a progress bar wrote over
 * and over its last form is kept, and every line goes through base/printable.h.
 */
#ifndef NEAP_RUN_LAST_OUTPUT_H
#define NEAP_RUN_LAST_OUTPUT_H

#include <stddef.h>

#define NEAP_LAST_LINES 16
#define NEAP_LAST_BYTES 4096

/* So much of the end is looked at: a traceback is longer than the lines that are kept. */
#define NEAP_LAST_LOOK 65536

struct neap_last_output {
	char of[24];                 /* what was read: "stderr", "stdout and stderr"; "" nothing could be */
	char error[200];             /* the line of Python's exception, else the last line; "" nothing was written */
	char lines[NEAP_LAST_BYTES]; /* whole lines, the last NEAP_LAST_LINES that are not blank; "" none */
};

/* Fills `error` and `lines` from the end of a log; `text` needs no terminator. Of several exceptions the last counts,
 * but not the one by which torchrun says that a child failed, where the child's own is there. */
void neap_last_output_find(const char *text, size_t length, struct neap_last_output *ret_output);

#endif
