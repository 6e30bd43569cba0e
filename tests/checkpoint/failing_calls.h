/* Makes system calls of file systems fail, or kills the process before one. Linked into a test it takes its orders
 * from the struct; preloaded into a program by the environment:
 *
 *   FAILING_CALLS_KILL=N    SIGKILL before the Nth call (from 1) that writes: open for writing, write, fsync, rename
 *   FAILING_CALLS_COUNT=F   F gets the number of those calls, then the numbers of those that are not write(2)
 *
 * Calls on /proc are not counted: how many there are depends on the other processes. */
#ifndef FAILING_CALLS_H
#define FAILING_CALLS_H

#include <stdbool.h>

struct failing_calls {
	bool armed, writing_only;
	unsigned long asked;   /* since it was armed */
	unsigned long fail_at; /* 0: none */
	unsigned long kill_at;
	int error;                /* errno of the failing call */
	unsigned long flushed_at; /* number of the first fsync since it was armed, and of what; 0: none */
	unsigned long flushed_inode;
	bool plain_renames;      /* renameat2 is not to be had, as on NFS */
	bool no_locks;           /* flock is not to be had */
	void (*meanwhile)(void); /* what another process does just before the next renameat or linkat; once */
	const char *proc;        /* opendir("/proc") opens this instead; NULL: /proc */
};

extern struct failing_calls failing_calls;

#endif
