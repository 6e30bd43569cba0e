/* cli/top_look.h: one look at devices and processes as a sample of `neap top`, with what /proc says of each process.
 * One thread. */
#ifndef NEAP_CLI_TOP_LOOK_H
#define NEAP_CLI_TOP_LOOK_H

#include "cli/look.h"
#include "top/sample.h"

/* A process stands below the nearest ancestor that uses a GPU. A parent that uses none and started two or more that
 * do is added, so that these stand together. Errors: those of look_take. */
enum neap_status top_look(struct neap_monitor *monitor, const char *runtime_folder,
			  struct neap_top_sample *ret_sample, struct neap_error *err);

#endif
