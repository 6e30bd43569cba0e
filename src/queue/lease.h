/* queue/lease.h: a run's way through the queue: it takes a ticket when it first asks, waits, holds a lease, leaves.
 *
 * A process that is killed leaves too, since its lock ends with it (queue.h). A run inside a run that holds a lease
 * (NEAP_LEASE in its environment) takes none: what it needs is a part of that one's. One thread. */
#ifndef NEAP_QUEUE_LEASE_H
#define NEAP_QUEUE_LEASE_H

#include "queue/queue.h"
#include "run/turn.h"

struct neap_lease_wanted {
	struct neap_needs needs; /* not NEAP_NEEDS_NONE */
	uint32_t gpus;           /* devices, at least 1 */
	const char *device;      /* index or UUID, or its beginning: this one; NULL: any that programs may use */
	const char *run_id, *folder;
	char *const *command; /* NULL-terminated */
	int ticket_fd;        /* of a ticket that is locked already (added.h); -1: none */
	uint64_t ticket;      /* its number */
};

struct neap_lease;

/* Nothing is opened before it first asks. *ret_turn: for the supervisor; belongs to the lease. `wanted` is borrowed
 * while the lease lives. Errors: NEAP_ENOMEM. */
enum neap_status neap_lease_create(const struct neap_lease_wanted *wanted, struct neap_lease **ret_lease,
				   struct neap_turn **ret_turn, struct neap_error *err);

/* Removes the ticket, and gives up its lock. `over`: the run has its result. An added ticket without one stays: it
 * has given up, or with `again` (what failed may pass: a full disk) the runner starts it again (added.h). One that
 * had not joined the queue yet stays as it is. */
void neap_lease_destroy(struct neap_lease *lease, bool over, bool again);

/* Of an added run that had not joined the queue: its ticket is not tried again before its user says so. */
void neap_lease_give_up(uint64_t ticket);

/* Fills what a ticket says of a run of this process: its devices, needs, command. Errors: NEAP_ENODEVICE. */
enum neap_status neap_lease_describe(const struct neap_lease_wanted *wanted, struct neap_monitor *monitor,
				     struct neap_ticket *ticket, struct neap_error *err);

/* Whether this process runs inside a run that holds a lease. */
bool neap_lease_inside(enum neap_backend backend);

/* What the ticket at `at` waits for, in one line: "behind 17, which has waited longer". "" for one that holds a
 * lease. */
struct neap_queue_look;
void neap_lease_explain(const struct neap_tickets *tickets, const struct neap_queue_look *look, size_t at, char *text,
			size_t capacity);

/* "4.00 GiB of a GPU", "2 whole GPUs": what a ticket needs. */
void neap_lease_needs(const struct neap_ticket *ticket, char *text, size_t capacity);

#endif
