/* run/holders.h: finds the processes that have a device's file open. Such a process can hold memory for which the
 * driver lists no process, for example a loader's worker that outlived its parent.
 *
 * Only root sees the files of other users' processes: the others are counted in `unseen`. This module only names
 * processes; run/orphans.h finds and ends those of a run. It leaves out this program and the driver's own daemon,
 * which holds files but no memory.
 */
#ifndef NEAP_RUN_HOLDERS_H
#define NEAP_RUN_HOLDERS_H

#include "base/buffer.h"
#include "base/process.h"

#include <stddef.h>

#define NEAP_HOLDERS 8 /* more are counted, not named */

struct neap_holders {
	struct {
		struct neap_process process;
		char path[256]; /* the first such file */
	} items[NEAP_HOLDERS];
	size_t count;  /* may be above NEAP_HOLDERS */
	size_t unseen; /* processes whose files we may not list */
};

/* Finds the processes with an open file whose path is `prefix` ("/dev/nvidia") and then digits. Errors: NEAP_EIO
 * without /proc. */
enum neap_status neap_holders_find(const char *prefix, struct neap_holders *ret_holders, struct neap_error *err);

/* "process 12 (python) has /dev/nvidia0 open; 3 processes of other users cannot be inspected". */
void neap_holders_text(const struct neap_holders *holders, struct neap_buffer *out);

#endif
