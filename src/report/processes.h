/* report/processes.h: the attached processes of a run, one by one: the ranks of a distributed training. */
#ifndef NEAP_REPORT_PROCESSES_H
#define NEAP_REPORT_PROCESSES_H

#include "base/buffer.h"
#include "store/result.h"

/* Whether the processes show more than the run's own figures: there are several, or one has a rank. */
bool neap_report_processes_known(const struct neap_result *result);

/* Appends a line for each, ranks first; nothing if they show no more than the run. */
void neap_report_processes(struct neap_buffer *out, const struct neap_result *result);

#endif
