/* base/process.h: reads facts about a process from /proc. A process is named by PID *and* start time: a PID alone may
 * be reused. Any thread. */
#ifndef NEAP_BASE_PROCESS_H
#define NEAP_BASE_PROCESS_H

#include "neap/status.h"

#include <stdbool.h>
#include <sys/syscall.h>
#include <sys/types.h>
#include <unistd.h>

struct neap_process {
	pid_t pid;
	pid_t parent;
	pid_t group, session;
	uint64_t start_ticks; /* field 22 of /proc/PID/stat */
	uid_t uid;
	char state;                 /* R, S, D, T, Z ... */
	bool kernel;                /* a thread of the kernel */
	char command[64];           /* comm, or the start of the command line where it can be read */
	uint64_t rss_bytes, cpu_ns; /* resident bytes; processor time of all its threads */
};

/* Errors: NEAP_ENOENT when there is no such process (any more). */
enum neap_status neap_process_read(pid_t pid, struct neap_process *ret_process, struct neap_error *err);

/* As neap_process_read, and the first bytes of its command line, fewer than `capacity`: a NUL ends each argument but
 * the last. *ret_length is 0 if there is none, or it cannot be read. */
enum neap_status neap_process_read_line(pid_t pid, struct neap_process *ret_process, char *ret_line, size_t capacity,
					size_t *ret_length, struct neap_error *err);

/* pidfd_open(2) and pidfd_send_signal(2), which the C library has since glibc 2.36 only. Both return -1 and set errno
 * on failure. The descriptor is closed on exec, and readable once the process has ended. */
static inline int neap_pidfd_open(pid_t pid) { return (int)syscall(SYS_pidfd_open, pid, 0); }

static inline int neap_pidfd_signal(int fd, int number)
{
	return (int)syscall(SYS_pidfd_send_signal, fd, number, NULL, 0);
}

/* A pidfd of exactly this process, never of one that has its PID now; -1: it has ended, or cannot be opened. */
int neap_process_open(pid_t pid, uint64_t start_ticks);

/* True while a process with this PID and this start time exists and is not a zombie. */
bool neap_process_alive(pid_t pid, uint64_t start_ticks);

/* The same without the command line: `command` is comm. Half the system calls, for searches of all processes. */
enum neap_status neap_process_read_stat(pid_t pid, struct neap_process *ret_process, struct neap_error *err);

/* Calls `visit` for every visible process, as neap_process_read_stat reads it, until `visit` returns false. Errors:
 * NEAP_EIO without /proc. */
enum neap_status neap_process_each(bool (*visit)(void *context, const struct neap_process *process), void *context,
				   struct neap_error *err);

/* Copies the value of NAME in the *starting* environment of `pid` into `text`. Errors: NEAP_ENOENT when it is not
 * set; NEAP_EPERM when the process is not ours to read. */
enum neap_status neap_process_environment(pid_t pid, const char *name, char *text, size_t capacity);

#endif
