/* queue/edit.h: what a person changes in the queue: his own tickets alone, also as root's own; root changes all. Each
 * takes the queue's lock. `number`: of a ticket. Errors: NEAP_ENOENT: there is no such ticket; NEAP_EPERM: another
 * user's; NEAP_EBUSY: the queue is locked. One thread. */
#ifndef NEAP_QUEUE_EDIT_H
#define NEAP_QUEUE_EDIT_H

#include "queue/queue.h"

/* Pauses, or resumes, a ticket that waits; `number` 0: all of them that may be changed. A paused one keeps its place,
 * and does not start. Resuming also tries a command again that had given up. *ret_count: how many were changed.
 * Errors: also NEAP_ESTATE: it has started. */
enum neap_status neap_queue_pause(struct neap_queue *queue, uint64_t number, bool pause, size_t *ret_count,
				  struct neap_error *err);

/* Moves a ticket that waits to the place `place` (from 1; UINT64_MAX: the last) among those that wait and may be
 * changed. They exchange their places: nobody else's changes. Errors: also NEAP_ESTATE: it has started. */
enum neap_status neap_queue_move(struct neap_queue *queue, uint64_t number, uint64_t place, struct neap_error *err);

/* Ends a ticket: its run gets SIGTERM, as by Ctrl-C; an added one is not started again. *ret_signalled: it had a
 * process. Errors: also NEAP_ESTATE: its process is not to be found. */
enum neap_status neap_queue_end(struct neap_queue *queue, uint64_t number, bool *ret_signalled,
				struct neap_error *err);

#endif
