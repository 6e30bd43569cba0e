/* run/tee.h: a process that passes a command's output on and keeps the end of it.
 *
 *   command --pipe--> tee --write--> our own stderr (a pipe, a socket, /dev/null)
 *                      `--> ring, shared with the supervisor: the last NEAP_LAST_LOOK bytes
 *
 * The command must never wait for the supervisor, which may be stopped, slow or dead: so it is not the supervisor
 * that passes the output on. The supervisor holds the reading end as well: while it does, a tee that is killed takes
 * no writer along by SIGPIPE, and another one is started. Where the reader of our own stderr is gone, the tee ends
 * and the reading end is closed: the command gets its SIGPIPE as it would without us.
 *
 * There is none where stderr is a terminal (what a terminal shows and isatty(2) stay as they are), where it is a file
 * (whose end can be read there), and where it is closed. Where stdout leads to the same pipe as stderr, both go
 * through the tee: their order stays.
 */
#ifndef NEAP_RUN_TEE_H
#define NEAP_RUN_TEE_H

#include <stdbool.h>
#include <stddef.h>
#include <stdint.h>
#include <sys/types.h>

struct neap_tee_ring;

/* A zeroed struct is none. */
struct neap_tee {
	pid_t pid;                  /* 0: none */
	int write_fd;               /* for the command */
	int read_fd;                /* kept open; -1: the reader of our output is gone */
	bool both;                  /* stdout too */
	struct neap_tee_ring *ring; /* NULL: there is no tee */
};

/* Starts one where it is of use. Where that fails there is none, and the command writes where we do. */
void neap_tee_start(struct neap_tee *ret_tee);

/* How many bytes have passed: the beginning of what a start of the command writes. */
uint64_t neap_tee_passed(const struct neap_tee *tee);

/* Waits, not for long, until what was written has been passed on. */
void neap_tee_flush(const struct neap_tee *tee);

/* Copies the end of what passed since `from` into `ret_text`; returns its length. */
size_t neap_tee_read(const struct neap_tee *tee, uint64_t from, char *ret_text, size_t room);

/* Tells that `pid` was reaped, with this status. */
void neap_tee_reaped(struct neap_tee *tee, pid_t pid, int wait_status);
/* Starts another one in place of one that was killed. To be called often. */
void neap_tee_keep_up(struct neap_tee *tee);

/* Ends it: it goes on alone for as long as a process has its pipe open. */
void neap_tee_end(struct neap_tee *tee);

#endif
