/* cli/oom_json.h: the OOM card as JSON, whatever it was made from. Bytes; null where nothing is known. */
#ifndef NEAP_CLI_OOM_JSON_H
#define NEAP_CLI_OOM_JSON_H

#include "analyze/oom.h"

#include <jansson.h>

json_t *oom_card_json(const struct neap_oom_card *card);
/* A table of settings, also without a failure. */
json_t *oom_whatifs_json(const struct neap_whatifs *whatifs);

#endif
