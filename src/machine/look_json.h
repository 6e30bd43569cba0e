/* machine/look_json.h: the JSON of `neap info --json` and of `neap serve`. */
#ifndef NEAP_MACHINE_LOOK_JSON_H
#define NEAP_MACHINE_LOOK_JSON_H

#include "machine/look.h"

#include <jansson.h>

/* A look as JSON, which the caller owns. `wall_ns`: when the look was taken. Omits devices that are left out, and the
 * processes on them. */
json_t *neap_look_json(const struct neap_look *look, uint64_t wall_ns);

#endif
