/* queue/queue.h: the folder of a queue and its tickets.
 *
 *   QUEUE             NEAP_QUEUE; else NEAP_QUEUE_SHARED, where the machine's administrator has made it (not for
 *                     simulated devices); else STATE/queue/HOST
 *   QUEUE/NUMBER      a ticket (ticket.h), locked by its process for as long as that lives. The lock is of an open
 *                     file description, and the guard of a command shares it. So a run whose supervisor was killed
 *                     keeps its lease until its command has ended
 *   QUEUE/lock        held while tickets are read, written, made and removed, so that a reader sees whole tickets. It
 *                     has the last number, so that no number is given twice, and the PID of the last process that
 *                     took it. In a shared folder its owner may remove it; then the next process makes another
 *   QUEUE/runner.UID  locked by the user's runner (added.h)
 *
 * There is no server. Each process that waits reads the tickets and the devices, decides with decide.h, and may give
 * a lease to itself only, all under the lock. So a process that is killed at any instant either has its lease or does
 * not.
 *
 * A shared folder has the mode 1777 (or 3770 with a group): every user may add tickets, and change only their own. A
 * malicious user can hold up such a queue, by holding its lock or a ticket for all memory, but can neither take away
 * a lease nor make another user's run start on promised memory.
 *
 * Where STATE is on a file system without locks, the queue is RUNTIME/queue, which does not survive a restart of the
 * machine. One thread.
 */
#ifndef NEAP_QUEUE_QUEUE_H
#define NEAP_QUEUE_QUEUE_H

#include "queue/ticket.h"

#define NEAP_QUEUE_SHARED  "/var/lib/neap/queue"
#define NEAP_QUEUE_TICKETS 1024 /* at most; further ones are refused */
#define NEAP_QUEUE_SHARE   256  /* of these, for each user of a shared queue */

struct neap_queue {
	char folder[4096];
	int folder_fd, lock_fd;
};

struct neap_tickets {
	struct neap_ticket *items; /* in their order */
	size_t count;
};

/* Opens the queue, and makes its folder if it is not a shared one. Errors: NEAP_EPERM: others could change tickets in
 * the folder, or it may not be written; NEAP_ENOTSUP: its file system has no locks; NEAP_ENOENT, NEAP_EIO. */
enum neap_status neap_queue_open(enum neap_backend backend, struct neap_queue *ret_queue, struct neap_error *err);
void neap_queue_close(struct neap_queue *queue);

/* Takes the queue's lock. Errors: NEAP_EBUSY after `limit_ns`; the message names the process with the lock. */
enum neap_status neap_queue_lock(struct neap_queue *queue, uint64_t limit_ns, struct neap_error *err);
void neap_queue_unlock(struct neap_queue *queue);

/* The functions below need the lock. */

/* Reads all tickets, and removes our own tickets whose process has ended. The caller frees `items`. Errors:
 * NEAP_EBUSY: too many files; NEAP_ENOMEM, NEAP_EIO. */
enum neap_status neap_queue_read(struct neap_queue *queue, struct neap_tickets *ret_tickets, struct neap_error *err);

/* Makes a ticket, last in order: fills its number, order and uid. *ret_fd: its file, locked. Errors: NEAP_EBUSY: too
 * many; NEAP_ENOSPC, NEAP_EIO. */
enum neap_status neap_queue_claim(struct neap_queue *queue, struct neap_ticket *ticket, int *ret_fd,
				  struct neap_error *err);

/* Opens a ticket whose process has ended, and locks it for the caller. Errors: NEAP_EBUSY: it is locked. */
enum neap_status neap_queue_take(struct neap_queue *queue, uint64_t number, int *ret_fd, struct neap_error *err);

/* Rewrites a ticket. */
enum neap_status neap_queue_write(struct neap_queue *queue, const struct neap_ticket *ticket, struct neap_error *err);

/* Removes a ticket. The process that has the ticket's lock may call this without the queue's lock. */
void neap_queue_remove(struct neap_queue *queue, uint64_t number);

/* Finds a ticket by its number. NULL: there is none. */
struct neap_ticket *neap_tickets_find(const struct neap_tickets *tickets, uint64_t number);

#endif
