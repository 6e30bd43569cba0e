/* cli/summary.h: an allocator's counters as the box that PyTorch's users know (memory_summary): 75 columns between
 * the bars, the same rows, units and steps; the title names the process. */
#ifndef NEAP_CLI_SUMMARY_H
#define NEAP_CLI_SUMMARY_H

#include "neap/stats.h"

#include <stdio.h>

void summary_print(FILE *stream, const char *title, const struct neap_stats *stats);

#endif
