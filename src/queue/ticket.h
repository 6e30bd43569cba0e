/* queue/ticket.h: one ticket of a queue: who waits for what, or holds which lease. A file of lines "KEY VALUE":
 *
 *   QUEUE/NUMBER     always NEAP_TICKET_BYTES long, padded with newlines: written in one call, in place
 *
 * Another user may have written it: whatever does not read as a ticket is none, and no text of it is trusted to be
 * fit for a terminal. The owner of the file says whose it is, not its text. Pure.
 */
#ifndef NEAP_QUEUE_TICKET_H
#define NEAP_QUEUE_TICKET_H

#include "machine/gpus.h"
#include "run/drain.h"

#define NEAP_TICKET_BYTES 4096
#define NEAP_QUEUE_LOST   3 /* so many lost runs of an added command, and it has given up */
#define NEAP_QUEUE_TRIES  5 /* likewise so many starts in a row that did not get as far as the queue */

struct neap_ticket {
	/* in the file */
	uint64_t order; /* its place among the tickets */
	pid_t pid;      /* the supervisor; 0: none yet */
	uint64_t start_ticks;
	bool holds;     /* a lease on `devices`; else it waits */
	bool paused;    /* it may not start */
	bool added;     /* `neap queue add`: it outlives its process, until its run is over */
	bool dropped;   /* added, and then ended by the user: it outlives nothing */
	uint32_t lost;  /* added: its runs that were killed; NEAP_QUEUE_LOST also: given up for another reason */
	uint32_t tries; /* added: how often it was started without getting on; one that waits in the queue has 0 */
	struct neap_needs needs;
	uint32_t gpus;
	char devices[NEAP_GPUS][48]; /* UUIDs: that it may use, or holds */
	size_t device_count;
	uint64_t since_wall_ns; /* it waits, or holds, since then */
	char run_id[64];
	char folder[1024]; /* of its run */
	char command[512]; /* for people, cut where it is longer */
	/* of the file */
	uint64_t number;
	uid_t uid;
	uint64_t written_wall_ns;
	bool alive; /* its lock is held: by its supervisor, or by the guard of one that was killed */
};

static inline bool neap_ticket_is_given_up(const struct neap_ticket *ticket)
{
	return ticket->lost >= NEAP_QUEUE_LOST;
}

/* How long an added command waits after a start that failed: what was missing may be there then (the driver, room on
 * the disk). `tries`, from 1, is how many there were: 1, 10, 100 and 1000 s. */
uint64_t neap_ticket_pause_ns(uint32_t tries);

/* Errors: NEAP_EINVAL where it does not fit. */
enum neap_status neap_ticket_write(const struct neap_ticket *ticket, char ret_bytes[NEAP_TICKET_BYTES],
				   struct neap_error *err);

/* Fills what is in the file. Errors: NEAP_EPARSE. */
enum neap_status neap_ticket_read(const char bytes[NEAP_TICKET_BYTES], struct neap_ticket *ret_ticket,
				  struct neap_error *err);

#endif
