/* serve/data.h: the data of `neap serve`: the last sample, the last 600 points of each device, and the texts made
 * from them. Each text is made at most once per sample.
 *
 * Threads: one takes samples, another requests texts.
 */
#ifndef NEAP_SERVE_DATA_H
#define NEAP_SERVE_DATA_H

#include "machine/sample.h"
#include "serve/http.h"

#define NEAP_SERVE_POINTS 600 /* samples kept for each device's curve */

struct neap_serve_data;

/* Makes the data. `every_ns`: the time between samples, for the page. The caller still owns the monitor. Errors:
 * NEAP_ENOMEM. */
enum neap_status neap_serve_data_create(struct neap_monitor *monitor, const char *runtime_folder, uint64_t every_ns,
					struct neap_serve_data **ret_data, struct neap_error *err);
void neap_serve_data_destroy(struct neap_serve_data *data);

/* Takes a sample. If that fails, drops the last one, and the texts say why there is no data. Errors: those of
 * neap_sample_take. */
enum neap_status neap_serve_data_sample(struct neap_serve_data *data, struct neap_error *err);

/* The function `answer` of struct neap_serve_http_options; `context` is the data. */
void neap_serve_data_answer(void *context, const char *path, struct neap_serve_reply *ret_reply);

#endif
