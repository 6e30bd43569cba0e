/* device/fork_guard.h: tells whether this is still the process that opened the driver. Neither CUDA nor NVML survives
 * fork(), and a call into them in a child hangs or crashes it. Every allocation checks it, so it must not cost a
 * system call: it reads a page that the kernel wipes in the child, or compares the PID if the kernel cannot. Any
 * thread. */
#ifndef NEAP_DEVICE_FORK_GUARD_H
#define NEAP_DEVICE_FORK_GUARD_H

#include <stdbool.h>
#include <sys/types.h>

struct neap_fork_guard {
	volatile int *page; /* 1 in the process that created it, 0 in its children; NULL: compare `owner` */
	pid_t owner;
};

void neap_fork_guard_init(struct neap_fork_guard *guard);
bool neap_fork_guard_holds(const struct neap_fork_guard *guard);
void neap_fork_guard_fini(struct neap_fork_guard *guard);

#endif
