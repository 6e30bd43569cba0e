/* queue/lease.h: a run's way through the queue: the run takes a ticket when it first asks, waits, holds a lease, and
 * leaves.
 *
 * A killed process leaves the queue too, since its lock ends with it (queue.h). A run inside a run that holds a lease
 * (NEAP_LEASE in its environment) takes no lease of its own: the outer lease covers its needs. One thread. */
#ifndef NEAP_QUEUE_LEASE_H
#define NEAP_QUEUE_LEASE_H

#include "queue/queue.h"
#include "run/turn.h"

struct neap_lease_wanted {
	struct neap_needs needs; /* not NEAP_NEEDS_NONE */
	uint32_t gpus;           /* devices, at least 1 */
	/* An index, or a UUID or its beginning: only this device; NULL: any that programs may use */
	const char *device;
	const char *run_id, *folder;
	char *const *command; /* NULL-terminated */
	int ticket_fd;        /* the file of a ticket that is locked already (added.h); -1: none */
	uint64_t ticket;      /* its number */
};

struct neap_lease;

/* The lease opens nothing before it first asks. *ret_turn: for the supervisor; belongs to the lease. `wanted` is
 * borrowed while the lease lives. Errors: NEAP_ENOMEM. */
enum neap_status neap_lease_create(const struct neap_lease_wanted *wanted, struct neap_lease **ret_lease,
				   struct neap_turn **ret_turn, struct neap_error *err);

/* Removes the ticket, and gives up its lock. `over`: the run has its result. Without a result, an added ticket stays.
 * If `again` is set, the failure may pass, as a full disk does, and the runner decides by the run's folder what to do
 * (added.h); else the ticket has given up. An added ticket that had not joined the queue yet stays unchanged. */
void neap_lease_destroy(struct neap_lease *lease, bool over, bool again);

/* For an added run that had not joined the queue: the runner does not try its ticket again before the user
 * resumes it. */
void neap_lease_give_up(uint64_t ticket);

/* Fills a ticket for a run of this process: its devices, needs, command. Errors: NEAP_ENODEVICE. */
enum neap_status neap_lease_describe(const struct neap_lease_wanted *wanted, struct neap_monitor *monitor,
				     struct neap_ticket *ticket, struct neap_error *err);

/* Whether this process runs inside a run that holds a lease. */
bool neap_lease_inside(enum neap_backend backend);

/* Says what the ticket at `at` waits for, in one line: "behind 17, which has waited longer". "" if the ticket holds a
 * lease. */
struct neap_queue_sample;
void neap_lease_explain(const struct neap_tickets *tickets, const struct neap_queue_sample *sample, size_t at,
			char *text, size_t capacity);

/* "4.00 GiB of a GPU", "2 whole GPUs": what a ticket needs. */
void neap_lease_needs(const struct neap_ticket *ticket, char *text, size_t capacity);

#endif
