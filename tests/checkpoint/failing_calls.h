/* Makes system calls of file systems fail, or kills the process before one. Linked into a test it is controlled by
 * the struct; preloaded into a program, by the environment:
 *
 *   FAILING_CALLS_KILL=N    SIGKILL before the Nth call (from 1) that writes: open for writing, write, fsync, rename
 *   FAILING_CALLS_COUNT=F   F gets the number of those calls, then the numbers of those that are not write(2)
 *
 * Calls on /proc are not counted: their number depends on the other processes. */
#ifndef FAILING_CALLS_H
#define FAILING_CALLS_H

#include <stdbool.h>

struct failing_calls {
	bool armed, writing_only;
	unsigned long asked;   /* counted since it was armed */
	unsigned long fail_at; /* 0: none */
	unsigned long kill_at;
	int error;                /* errno of the failing call */
	unsigned long flushed_at; /* number and file of the first fsync since it was armed; 0: none */
	unsigned long flushed_inode;
	bool plain_renames;      /* renameat2 is missing, as on NFS */
	bool no_locks;           /* flock is missing */
	void (*meanwhile)(void); /* another process does this just before the next renameat or linkat; once */
	const char *proc;        /* opendir("/proc") opens this instead; NULL: /proc */
};

extern struct failing_calls failing_calls;

#endif
