/* cli/run_folder.h: what a run's folder holds, for commands that are given one: its result, its recordings, its logs.
 * One thread. */
#ifndef NEAP_CLI_RUN_FOLDER_H
#define NEAP_CLI_RUN_FOLDER_H

#include "neap/status.h"

#include <stdbool.h>
#include <stdio.h>

#define RUN_FOLDER_PATH 4200

bool run_folder_is(const char *path);

/* The recording to explain a run by: that of the process with the highest peak. *ret_others: how many more
 * there are. Errors: NEAP_ENOENT without one (for a series' folder the message says so), and when none can be read
 * those of reading. */
enum neap_status run_folder_recording(const char *folder, char ret_path[RUN_FOLDER_PATH], size_t *ret_others,
				      struct neap_error *err);

/* Prints the end of each log in the folder, made fit for a terminal. False: there is none. */
bool run_folder_print_logs(const char *folder, FILE *out);

#endif
