/* cli/run_folder.h: prints parts of a run's folder. One thread. */
#ifndef NEAP_CLI_RUN_FOLDER_H
#define NEAP_CLI_RUN_FOLDER_H

#include "run/folder.h"

#include <stdio.h>

/* As neap_run_folder_trace; if there are several traces, prints on stderr, after "neap VERB: ", which one it
 * chose. */
enum neap_status run_folder_trace(const char *verb, const char *path, char ret_path[NEAP_RUN_FOLDER_PATH],
				  struct neap_error *err);

/* Prints after "neap COMMAND: " that `neap run` was killed before it had a result, and what to do. */
void run_folder_print_lost(const char *command, FILE *out);

/* Prints the notes that the run's Python processes left in its folder ("note.PID" files), each on a line. */
void run_folder_print_notes(const char *folder, FILE *out);

#endif
