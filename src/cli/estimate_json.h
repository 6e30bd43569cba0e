/* cli/estimate_json.h: `neap estimate --json`. */
#ifndef NEAP_CLI_ESTIMATE_JSON_H
#define NEAP_CLI_ESTIMATE_JSON_H

#include "estimate/text.h"

/* Prints it; returns the exit code. */
int estimate_print_json(const struct neap_estimate_report *report);

#endif
