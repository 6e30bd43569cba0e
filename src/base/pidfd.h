/* base/pidfd.h: pidfd_open(2) and pidfd_send_signal(2), which the C library has since glibc 2.36 only. Both return -1
 * and set errno on failure. */
#ifndef NEAP_BASE_PIDFD_H
#define NEAP_BASE_PIDFD_H

#include <sys/syscall.h>
#include <sys/types.h>
#include <unistd.h>

/* A descriptor of the process, closed on exec; readable once the process has ended. */
static inline int neap_pidfd_open(pid_t pid) { return (int)syscall(SYS_pidfd_open, pid, 0); }

static inline int neap_pidfd_signal(int fd, int number)
{
	return (int)syscall(SYS_pidfd_send_signal, fd, number, NULL, 0);
}

#endif
