/* machine/who.h: what a person needs to tell processes apart: the user, the run time, the command line. */
#ifndef NEAP_MACHINE_WHO_H
#define NEAP_MACHINE_WHO_H

#include <stddef.h>
#include <stdint.h>
#include <sys/types.h>

#define NEAP_WHO_UNKNOWN UINT64_MAX
/* Enough for a run time. */
#define NEAP_WHO_TIME_CAPACITY 24

/* All texts are printable. For a process that has ended, or is in another PID namespace, they are "", and run_ns is
 * NEAP_WHO_UNKNOWN. */
struct neap_who {
	uid_t uid;                  /* with `user` */
	char user[64];              /* the user's name, or its number if it has none */
	char name[64];              /* the start of the command line, its program without the folder */
	uint64_t run_ns;            /* since it was started, NEAP_WHO_UNKNOWN */
	pid_t parent;               /* 0: unknown */
	uint64_t rss_bytes, cpu_ns; /* 0: resident host memory, and processor time of all its threads */
	uint64_t start_ticks;       /* 0: unknown */
	char command[1024];         /* the whole command line, its program without the folder; cut with "..." */
};

/* Reads a process. `known` (may be NULL): a process read a moment ago. If it has the same user, the user's name is
 * copied, not looked up again. */
void neap_who_read(pid_t pid, const struct neap_who *known, struct neap_who *ret_who);

/* As ps does: "00:07", "12:34", "1:02:03", "3-01:02:03" (days); "?" for NEAP_WHO_UNKNOWN. Returns `text`. */
const char *neap_who_time_format(uint64_t run_ns, char text[NEAP_WHO_TIME_CAPACITY]);

/* Copies `text`. If it is longer than `columns` (0: any length), cuts it at a character's end, with "..." in the last
 * three columns. Returns `ret_text`. */
const char *neap_who_cut(const char *text, size_t columns, char *ret_text, size_t capacity);

#endif
