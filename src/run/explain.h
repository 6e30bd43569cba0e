/* run/explain.h: how a run ended and why, from its folder: its result, its recording, its logs. One thread. */
#ifndef NEAP_RUN_EXPLAIN_H
#define NEAP_RUN_EXPLAIN_H

#include "base/buffer.h"

#include <jansson.h>

/* `number`: as in report/recording.h. Errors: NEAP_ENOENT if the folder has nothing to explain; those of reading.
 * After an error `out` may have part of the text. */
enum neap_status neap_run_explain_text(struct neap_buffer *out, const char *folder, uint64_t number,
				       struct neap_error *err);

/* The same as one object, which the caller owns. */
enum neap_status neap_run_explain_json(const char *folder, uint64_t number, json_t **ret_root,
				       struct neap_error *err);

#endif
