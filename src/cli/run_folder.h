/* cli/run_folder.h: what commands print of a run's folder. One thread. */
#ifndef NEAP_CLI_RUN_FOLDER_H
#define NEAP_CLI_RUN_FOLDER_H

#include "run/folder.h"

#include <stdio.h>

/* As neap_run_folder_trace; prints after "neap VERB: " on stderr which it is, where there are several. */
enum neap_status run_folder_trace(const char *verb, const char *path, char ret_path[NEAP_RUN_FOLDER_PATH],
				  struct neap_error *err);

/* Prints after "neap COMMAND: " that `neap run` was killed before it had a result, and what to do. */
void run_folder_print_lost(const char *command, FILE *out);

/* Prints the end of each log in the folder, made fit for a terminal. False: there is none. */
bool run_folder_print_logs(const char *folder, FILE *out);

#endif
