/* cli/run_processes.h: the attached processes of a run, one by one: the ranks of a distributed training. */
#ifndef NEAP_CLI_RUN_PROCESSES_H
#define NEAP_CLI_RUN_PROCESSES_H

#include <stdio.h>

/* A line for each recording in the run's folder, by rank, where there are at least two. */
void run_processes_print(const char *folder, FILE *out);

#endif
