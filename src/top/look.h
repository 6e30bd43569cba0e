/* top/look.h: takes one sample of `neap top`: devices, processes, and each process's data from /proc. One thread. */
#ifndef NEAP_TOP_LOOK_H
#define NEAP_TOP_LOOK_H

#include "machine/look.h"
#include "top/sample.h"

/* A process's parent in the sample is its nearest ancestor there. A parent that uses no GPU is added if it started
 * two or more processes that use one, so that these stand together. Errors: those of neap_look_take. */
enum neap_status neap_top_look(struct neap_monitor *monitor, const char *runtime_folder,
			       struct neap_top_sample *ret_sample, struct neap_error *err);

#endif
