/* cli/analysis_json.h: an analysis of a trace as JSON, schema 1. */
#ifndef NEAP_CLI_ANALYSIS_JSON_H
#define NEAP_CLI_ANALYSIS_JSON_H

#include "analyze/analysis.h"

/* Prints it; lists have at most `top` items. Returns the exit code. */
int analysis_print_json(const struct neap_analysis *analysis, const char *path, size_t top);

#endif
