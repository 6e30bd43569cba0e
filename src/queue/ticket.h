/* queue/ticket.h: one ticket of a queue: a run that waits, with its needs, or that holds a lease. A file of lines
 * "KEY VALUE":
 *
 *   QUEUE/NUMBER     always NEAP_TICKET_BYTES long, padded with newlines: written in one call, in place
 *
 * Another user may have written the file: if it does not parse, it is no ticket, and its texts may be unfit for a
 * terminal. The ticket belongs to the file's owner, whatever the text says. Pure.
 */
#ifndef NEAP_QUEUE_TICKET_H
#define NEAP_QUEUE_TICKET_H

#include "machine/gpus.h"
#include "run/drain.h"

#define NEAP_TICKET_BYTES 4096
#define NEAP_QUEUE_LOST   3 /* an added command gives up after so many lost runs */
#define NEAP_QUEUE_TRIES  5 /* and after so many starts in a row that did not reach the queue */

struct neap_ticket {
	/* in the file */
	uint64_t order; /* its place among the tickets */
	pid_t pid;      /* the supervisor; 0: none yet */
	uint64_t start_ticks;
	bool holds;     /* a lease on `devices`; else it waits */
	bool paused;    /* it may not start */
	bool added;     /* `neap queue add`: it outlives its process, until its run is over */
	bool dropped;   /* added, then ended by the user: it goes with its process */
	uint32_t lost;  /* added: its runs that were killed; NEAP_QUEUE_LOST also: given up for another reason */
	uint32_t tries; /* added: how often it was started without getting on; one that waits in the queue has 0 */
	struct neap_needs needs;
	uint32_t gpus;
	char devices[NEAP_GPUS][48]; /* UUIDs of the devices that it may use, or holds */
	size_t device_count;
	uint64_t since_wall_ns; /* since when it waits, or holds its lease */
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

/* How long an added command waits after a start that failed: by then the missing thing (the driver, room on the disk)
 * may be back. `tries`, from 1, is the number of failed starts: 1, 10, 100 and 1000 s. */
uint64_t neap_ticket_pause_ns(uint32_t tries);

/* Errors: NEAP_EINVAL: it does not fit. */
enum neap_status neap_ticket_write(const struct neap_ticket *ticket, char ret_bytes[NEAP_TICKET_BYTES],
				   struct neap_error *err);

/* Fills the members that are in the file. Errors: NEAP_EPARSE. */
enum neap_status neap_ticket_read(const char bytes[NEAP_TICKET_BYTES], struct neap_ticket *ret_ticket,
				  struct neap_error *err);

#endif
