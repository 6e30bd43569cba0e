/* run/folder_text.h: what a run's folder has to read, as lines for a terminal. Characters that would act on one are
 * replaced (base/printable.h) where nothing else is said. One thread. */
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
