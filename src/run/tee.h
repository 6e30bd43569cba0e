/* run/tee.h: a process that passes a command's output on to our stderr and keeps its last bytes.
 *
 *   command --pipe--> tee --write--> our own stderr (a pipe, a socket, /dev/null)
 *                      `--> ring, shared with the supervisor: the last NEAP_LAST_READ_BYTES bytes
 *
 * The command must never wait for the supervisor, which may be stopped, slow or dead. So a separate process passes
 * the output on. The supervisor keeps the reading end open too: if the tee is killed, no writer gets SIGPIPE, and the
 * supervisor starts another tee. If the reader of our own stderr is gone, the tee ends and the supervisor closes the
 * reading end: the command gets SIGPIPE as it would without neap.
 *
 * There is no tee if stderr is a terminal (its display and isatty(2) stay as they are), a file (its end can be read
 * there) or closed. If stdout leads to the same pipe as stderr, both go through the tee and keep their order.
 */
#ifndef NEAP_RUN_TEE_H
#define NEAP_RUN_TEE_H

#include <stdbool.h>
#include <stddef.h>
#include <stdint.h>
#include <sys/types.h>

struct neap_tee_ring;

/* A zeroed struct is no tee. */
struct neap_tee {
	pid_t pid;                  /* 0: none */
	int write_fd;               /* for the command */
	int read_fd;                /* kept open; -1: the reader of our output is gone */
	bool both;                  /* stdout too */
	struct neap_tee_ring *ring; /* NULL: there is no tee */
};

/* Starts a tee if one is useful. If it cannot be started, the command writes directly to our stderr. */
void neap_tee_start(struct neap_tee *ret_tee);

/* How many bytes have passed: the offset at which the output of a new start begins. */
uint64_t neap_tee_passed(const struct neap_tee *tee);

/* For a process that closed the descriptors of the tee, as the guard did: opens the reading end again, so that
 * neap_tee_flush works there. */
void neap_tee_join(struct neap_tee *tee);

/* Waits briefly until all written bytes have been passed on. */
void neap_tee_flush(const struct neap_tee *tee);

/* Copies the last bytes that passed since `from` into `ret_text`; returns their number. */
size_t neap_tee_read(const struct neap_tee *tee, uint64_t from, char *ret_text, size_t capacity);

/* Call for every reaped child, with its status: it may be the tee. */
void neap_tee_reaped(struct neap_tee *tee, pid_t pid, int wait_status);
/* Restarts a tee that was killed. Call often. */
void neap_tee_keep_up(struct neap_tee *tee);

/* Releases the tee: it continues alone as long as a process has its pipe open. */
void neap_tee_end(struct neap_tee *tee);

#endif
