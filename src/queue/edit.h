/* queue/edit.h: changes to the queue that a user asks for. Users change their own tickets only; root changes all.
 * Each function takes the queue's lock. `number`: a ticket's. Errors: NEAP_ENOENT: there is no such ticket;
 * NEAP_EPERM: another user's; NEAP_EBUSY: the queue is locked. One thread. */
#ifndef NEAP_QUEUE_EDIT_H
#define NEAP_QUEUE_EDIT_H

#include "queue/queue.h"

/* Pauses, or resumes, a ticket that waits; `number` 0: all of them that may be changed. A paused ticket keeps its
 * place, and does not start. Resuming also lets a ticket that had given up try its command again. *ret_count: how
 * many were changed. Errors: also NEAP_ESTATE: it has started. */
enum neap_status neap_queue_pause(struct neap_queue *queue, uint64_t number, bool pause, size_t *ret_count,
				  struct neap_error *err);

/* Moves a ticket that waits to the place `place` (from 1; UINT64_MAX: the last) among those that wait and may be
 * changed. These tickets exchange their places; the places of others stay the same. Errors: also NEAP_ESTATE: it has
 * started. */
enum neap_status neap_queue_move(struct neap_queue *queue, uint64_t number, uint64_t place, struct neap_error *err);

/* Ends a ticket. Its run gets SIGTERM and ends as by Ctrl-C; an added run does not start again. *ret_signalled: the
 * ticket had a process. Errors: also NEAP_ESTATE: its process was not found. */
enum neap_status neap_queue_end(struct neap_queue *queue, uint64_t number, bool *ret_signalled,
				struct neap_error *err);

#endif
