/* run/folder_text.h: the texts of a run's folder, as lines for a terminal. Unless a function says otherwise, it
 * replaces characters that a terminal would obey (base/printable.h). One thread. */
#ifndef NEAP_RUN_FOLDER_TEXT_H
#define NEAP_RUN_FOLDER_TEXT_H

#include "base/buffer.h"

#include <stdbool.h>

/* Writes the end of each log in the folder. False: there is none. */
bool neap_run_folder_logs(struct neap_buffer *out, const char *folder);

/* Writes the last lines of what the program wrote to stderr, else to stdout, as they are. */
void neap_run_folder_last_lines(struct neap_buffer *out, const char *folder, size_t most);

/* Writes the notes that the run's Python processes left in its folder ("note.PID" files), each on a line. */
void neap_run_folder_notes(struct neap_buffer *out, const char *folder);

#endif
