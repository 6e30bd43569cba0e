/* run/holders.h: who has a device's file open, which keeps memory that the driver lists for nobody: the worker of
 * a loader that outlived its parent, say.
 *
 * Only root sees the files of other users' processes; how many could not be looked at is told. Named, never ended:
 * what belongs to a run is found by run/orphans.h. Left out are this program, and the driver's own daemon, which
 * holds files and no memory.
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
	size_t unseen; /* processes whose files we may not see */
};

/* Finds the processes with a file open whose path is `prefix` and then digits: "/dev/nvidia". Errors: NEAP_EIO
 * without /proc. */
enum neap_status neap_holders_find(const char *prefix, struct neap_holders *ret_holders, struct neap_error *err);

/* "process 12 (python) has /dev/nvidia0 open; 3 processes of other users cannot be looked at". */
void neap_holders_text(const struct neap_holders *holders, struct neap_buffer *out);

#endif
