/* report/oom_json.h: the OOM card as JSON, from any source. Sizes in bytes; null if unknown. */
#ifndef NEAP_REPORT_OOM_JSON_H
#define NEAP_REPORT_OOM_JSON_H

#include "analyze/oom.h"

#include <jansson.h>

json_t *neap_oom_card_json(const struct neap_oom_card *card);
/* A table of settings, also without a failure. */
json_t *neap_oom_whatifs_json(const struct neap_whatifs *whatifs);

#endif
