/* queue/edit.c: see edit.h. */
#include "queue/edit.h"

#include "base/clock.h"
#include "base/error.h"
#include "base/process.h"
#include "queue/added.h"

#include <errno.h>
#include <inttypes.h>
#include <signal.h>
#include <stdlib.h>
#include <string.h>

#define LOCK_NS (10 * NEAP_NS_PER_S)

static bool may_change(const struct neap_ticket *ticket) { return ticket->uid == geteuid() || !geteuid(); }

static enum neap_status begin(struct neap_queue *queue, struct neap_tickets *tickets, struct neap_error *err)
{
	enum neap_status status = neap_queue_lock(queue, LOCK_NS, err);
	if (!status && (status = neap_queue_read(queue, tickets, err)))
		neap_queue_unlock(queue);
	return status;
}

static void finish(struct neap_queue *queue, struct neap_tickets *tickets)
{
	neap_queue_unlock(queue);
	free(tickets->items);
}

static enum neap_status find(const struct neap_tickets *tickets, uint64_t number, struct neap_ticket **ret_ticket,
			     struct neap_error *err)
{
	struct neap_ticket *ticket = neap_tickets_find(tickets, number);
	if (!ticket)
		return neap_fail(err, NEAP_ENOENT, "there is no ticket %" PRIu64 " in the queue", number);
	if (!may_change(ticket))
		return neap_fail(err, NEAP_EPERM, "ticket %" PRIu64 " is another user's", number);
	*ret_ticket = ticket;
	return NEAP_OK;
}

static enum neap_status check_waits(const struct neap_ticket *ticket, struct neap_error *err)
{
	return ticket->holds && ticket->alive
		       ? neap_fail(err, NEAP_ESTATE,
				   "ticket %" PRIu64 " runs already: 'neap queue end %" PRIu64 "' ends it",
				   ticket->number, ticket->number)
		       : NEAP_OK;
}

enum neap_status neap_queue_pause(struct neap_queue *queue, uint64_t number, bool pause, size_t *ret_count,
				  struct neap_error *err)
{
	struct neap_tickets tickets = {0};
	struct neap_ticket *one = NULL;
	size_t count = 0;
	enum neap_status status = begin(queue, &tickets, err);
	if (status)
		return status;
	if (number)
		status = find(&tickets, number, &one, err);
	if (!status && one)
		status = check_waits(one, err);
	for (size_t i = 0; !status && i < tickets.count; i++) {
		struct neap_ticket *ticket = &tickets.items[i];
		bool waits = may_change(ticket) && !(ticket->holds && ticket->alive);
		bool tried = !pause && (neap_ticket_is_given_up(ticket) || (ticket->tries && !ticket->alive));
		if (!waits || (one && one != ticket) || (ticket->paused == pause && !tried))
			continue;
		ticket->paused = pause;
		if (tried)
			ticket->lost = ticket->tries = 0;
		status = neap_queue_write(queue, ticket, err);
		count += !status;
	}
	finish(queue, &tickets);
	if (!status)
		*ret_count = count;
	return status;
}

enum neap_status neap_queue_move(struct neap_queue *queue, uint64_t number, uint64_t place, struct neap_error *err)
{
	struct neap_tickets tickets = {0};
	struct neap_ticket *moved = NULL, **line = NULL;
	uint64_t *orders = NULL;
	size_t count = 0, from = 0;
	enum neap_status status = begin(queue, &tickets, err);
	if (status)
		return status;
	status = find(&tickets, number, &moved, err);
	if (!status)
		status = check_waits(moved, err);
	line = calloc(tickets.count + 1, sizeof *line);
	orders = calloc(tickets.count + 1, sizeof *orders);
	if (!status && (!line || !orders))
		status = neap_fail(err, NEAP_ENOMEM, "out of host memory");
	for (size_t i = 0; !status && i < tickets.count; i++) {
		struct neap_ticket *ticket = &tickets.items[i];
		if (!may_change(ticket) || (ticket->holds && ticket->alive))
			continue;
		from = ticket == moved ? count : from;
		orders[count] = ticket->order;
		line[count++] = ticket;
	}
	size_t to = place && place <= count ? place - 1 : count - 1;
	if (!status) {
		memmove(line + from, line + from + 1, (count - from - 1) * sizeof *line);
		memmove(line + to + 1, line + to, (count - to - 1) * sizeof *line);
		line[to] = moved;
	}
	for (size_t i = 0; !status && i < count; i++) {
		if (line[i]->order == orders[i])
			continue;
		line[i]->order = orders[i];
		status = neap_queue_write(queue, line[i], err);
	}
	free(line);
	free(orders);
	finish(queue, &tickets);
	return status;
}

/* Sends SIGTERM to the ticket's process, and not to a later process with the same PID. */
static enum neap_status signal_process(const struct neap_ticket *ticket, struct neap_error *err)
{
	struct neap_process process;
	enum neap_status status = NEAP_OK;
	int fd = ticket->pid > 1 ? neap_process_open(ticket->pid, ticket->start_ticks) : -1;
	if (fd < 0 || neap_process_read(ticket->pid, &process, NULL) || process.uid != ticket->uid)
		status = neap_fail(err, NEAP_ESTATE, "the process of ticket %" PRIu64 " is not to be found here",
				   ticket->number);
	else if (neap_pidfd_signal(fd, SIGTERM))
		status = neap_fail_errno(err, errno, "ending process %d of ticket %" PRIu64, (int)ticket->pid,
					 ticket->number);
	else
		neap_pidfd_signal(fd, SIGCONT); /* so that a stopped process ends too */
	if (fd >= 0)
		close(fd);
	return status;
}

enum neap_status neap_queue_end(struct neap_queue *queue, uint64_t number, bool *ret_signalled,
				struct neap_error *err)
{
	struct neap_tickets tickets = {0};
	struct neap_ticket *ticket = NULL;
	enum neap_status status = begin(queue, &tickets, err);
	if (status)
		return status;
	status = find(&tickets, number, &ticket, err);
	bool alive = !status && ticket->alive;
	if (!status && ticket->added) { /* before the signal: else the runner would start it again */
		ticket->dropped = true;
		status = neap_queue_write(queue, ticket, err);
	}
	if (!status && alive && (ticket->pid || !ticket->added)) /* else its process sees the mark soon */
		status = signal_process(ticket, err);
	if (!status && !alive) {
		if (ticket->uid == geteuid()) /* root does not follow a path that another user wrote */
			neap_added_forget(ticket->folder);
		neap_queue_remove(queue, number);
	}
	finish(queue, &tickets);
	if (!status)
		*ret_signalled = alive;
	return status;
}
