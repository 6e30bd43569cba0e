/* base/hostmem.h: how much memory the host still has for this process. Any thread. */
#ifndef NEAP_BASE_HOSTMEM_H
#define NEAP_BASE_HOSTMEM_H

#include "neap/status.h"

#include <stdbool.h>

struct neap_host_memory {
	/* The smaller of MemAvailable and the memory that each of our control groups still allows: its limit, minus
	 * its use, plus the file cache in that use, which the kernel drops first. */
	uint64_t available_bytes;
	bool by_group; /* a control group, not the host, sets the limit */
	/* MemTotal and MemAvailable of the whole host, regardless of control groups. */
	uint64_t host_total_bytes, host_available_bytes;
};

/* Reads ROOT/proc/meminfo, ROOT/proc/self/cgroup and ROOT/sys/fs/cgroup (version 2, and version 1's memory
 * controller). `root`: "" except in tests. Ignores a control group that it cannot read. Errors: NEAP_ENOENT and
 * NEAP_EIO if it cannot read the host's memory, NEAP_EPARSE, NEAP_ENOMEM. */
enum neap_status neap_host_memory_read(const char *root, struct neap_host_memory *ret_memory, struct neap_error *err);

#endif
