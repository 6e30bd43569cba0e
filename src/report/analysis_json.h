/* report/analysis_json.h: an analysis of a trace as JSON, schema 1. */
#ifndef NEAP_REPORT_ANALYSIS_JSON_H
#define NEAP_REPORT_ANALYSIS_JSON_H

#include "analyze/analysis.h"

#include <jansson.h>

/* Lists have at most `top` items. The caller owns the result. Failed allocations are counted (neap_json_failures). */
json_t *neap_analysis_json(const struct neap_analysis *analysis, const char *path, size_t top);

#endif
