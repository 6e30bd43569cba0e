/* cli/info_json.h: the JSON of `neap info --json` and of `neap serve`. */
#ifndef NEAP_CLI_INFO_JSON_H
#define NEAP_CLI_INFO_JSON_H

#include "cli/look.h"

#include <jansson.h>

/* `wall_ns`: when it was looked. Devices that are left out are not in it, nor processes on them. The caller owns it.
 */
json_t *info_json(const struct look *look, uint64_t wall_ns);

/* The bytes of a process that is not attached, as the ledger counts them: 0 for an attached one. */
uint64_t info_not_attached(const struct neap_ledger_process *account);

#endif
