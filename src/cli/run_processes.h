/* cli/run_processes.h: the attached processes of a run, one by one: the ranks of a distributed training. */
#ifndef NEAP_CLI_RUN_PROCESSES_H
#define NEAP_CLI_RUN_PROCESSES_H

#include "store/result.h"

#include <stdio.h>

/* Whether there is more to tell than the run's own figures do: several processes, or a rank. */
bool run_processes_worth(const struct neap_result *result);

/* A line for each, ranks first. Nothing where there is nothing worth it. */
void run_processes_print(const struct neap_result *result, FILE *out);

#endif
