/* run/last_output.h: makes the end of a command's output readable: its last lines, and the line that says why it
 * failed. Pure, any thread.
 *
 * The text is untrusted and may hold any bytes. Escape sequences are dropped. A line that a progress bar rewrote is
 * kept in its last form. Every line goes through base/printable.h.
 */
#ifndef NEAP_RUN_LAST_OUTPUT_H
#define NEAP_RUN_LAST_OUTPUT_H

#include <stddef.h>

#define NEAP_LAST_LINES 16
#define NEAP_LAST_BYTES 4096

/* How many bytes are read from the end: more than the lines that are kept, since a traceback is longer. */
#define NEAP_LAST_READ_BYTES 65536

struct neap_last_output {
	char of[24];                 /* the source: "stderr", "stdout and stderr"; "" none was readable */
	char error[200];             /* the line of Python's exception, else the last line; "" nothing was written */
	char lines[NEAP_LAST_BYTES]; /* whole lines, the last NEAP_LAST_LINES that are not blank; "" none */
};

/* Fills `error` and `lines` from the end of a log; `text` needs no terminator. Of several exceptions it chooses the
 * last, but the child's own exception wins over torchrun's report that a child failed. */
void neap_last_output_find(const char *text, size_t length, struct neap_last_output *ret_output);

#endif
