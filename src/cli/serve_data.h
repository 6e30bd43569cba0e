/* cli/serve_data.h: what `neap serve` shows: the last look, ten minutes of it for each device, and the texts made of
 * them, each at most once per look.
 *
 * Threads: one takes looks, another asks for texts.
 */
#ifndef NEAP_CLI_SERVE_DATA_H
#define NEAP_CLI_SERVE_DATA_H

#include "cli/look.h"
#include "cli/serve_http.h"

#define SERVE_POINTS 600 /* looks that the curves keep */

struct serve_data;

/* `every_ns`: between looks, for the page. The monitor stays the caller's. Errors: NEAP_ENOMEM. */
enum neap_status serve_data_create(struct neap_monitor *monitor, const char *runtime_folder, uint64_t every_ns,
				   struct serve_data **ret_data, struct neap_error *err);
void serve_data_destroy(struct serve_data *data);

/* Looks. On failure what was seen before is forgotten: the texts say why there is nothing. Errors: as look_take. */
enum neap_status serve_data_look(struct serve_data *data, struct neap_error *err);

/* An answer of struct serve_http_options; `context` is the data. */
void serve_data_answer(void *context, const char *path, struct serve_reply *ret_reply);

#endif
