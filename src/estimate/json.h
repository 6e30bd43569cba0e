/* estimate/json.h: an estimate as JSON, schema 1. */
#ifndef NEAP_ESTIMATE_JSON_H
#define NEAP_ESTIMATE_JSON_H

#include "estimate/text.h"

#include <jansson.h>

/* Makes the JSON, which the caller owns. If memory runs out, neap_json_failures counts it. */
json_t *neap_estimate_json(const struct neap_estimate_report *report);

#endif
