/* cli/who.h: what a person needs to tell one process from another: its user, how long it has run, its command line.
 */
#ifndef NEAP_CLI_WHO_H
#define NEAP_CLI_WHO_H

#include <stddef.h>
#include <stdint.h>
#include <sys/types.h>

#define WHO_UNKNOWN UINT64_MAX
/* Room for a run time. */
#define WHO_TIME_ROOM 24

/* All of it fit to print. Of a process that has ended, or of another PID namespace, all texts are "" and
 * run_ns is WHO_UNKNOWN. */
struct who {
	uid_t uid;            /* with `user` */
	char user[64];        /* its number where it has no name */
	char name[64];        /* the start of the command line, its program without the folder */
	uint64_t run_ns;      /* since it was started, WHO_UNKNOWN */
	pid_t parent;         /* 0 */
	uint64_t start_ticks; /* 0 */
	char command[1024];   /* the whole command line, its program without the folder; cut with "..." */
};

/* `known`, or NULL: a process that was read a moment ago; if it is the same user's, the user's name is not looked up.
 */
void who_read(pid_t pid, const struct who *known, struct who *ret_who);

/* As ps does: "00:07", "12:34", "1:02:03", "3-01:02:03" (days); "?" for WHO_UNKNOWN. Returns `text`. */
const char *who_time_format(uint64_t run_ns, char text[WHO_TIME_ROOM]);

/* Copies `text`, cut at a character's end to `columns` with "..." in the last three; 0: not cut. Returns `ret_text`.
 */
const char *who_cut(const char *text, size_t columns, char *ret_text, size_t room);

#endif
