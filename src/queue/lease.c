/* queue/lease.c: see lease.h. */
#include "queue/lease.h"

#include "base/clock.h"
#include "base/descriptor.h"
#include "base/error.h"
#include "base/process.h"
#include "base/units.h"
#include "queue/added.h"
#include "queue/sample.h"
#include "run/argv.h"

#include <inttypes.h>
#include <signal.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <strings.h>

#define LOCK_NS (200 * NEAP_NS_PER_MS)
/* How often the first in line asks; each place further back waits a little longer */
#define WAIT_NS      (100 * NEAP_NS_PER_MS)
#define WAIT_MORE_NS (25 * NEAP_NS_PER_MS)
#define WAIT_MOST_NS NEAP_NS_PER_S
#define INSIDE_NS    (5 * NEAP_NS_PER_S)

struct neap_lease {
	const struct neap_lease_wanted *wanted;
	struct neap_turn turn;
	struct neap_queue queue;
	struct neap_ticket ticket;
	bool joined;
	/* Of an added run: the number of starts, this one included, since a start last joined the queue */
	uint32_t tries;
};

/* --- words --- */

void neap_lease_needs(const struct neap_ticket *ticket, char *text, size_t capacity)
{
	char size[NEAP_UNITS_CAPACITY], several[32] = "a GPU";
	bool whole = ticket->needs.kind == NEAP_NEEDS_DEVICE;
	if (ticket->gpus > 1)
		snprintf(several, sizeof several, "%u GPUs each", ticket->gpus);
	if (!whole)
		snprintf(text, capacity, "%s of %s", neap_size_format(ticket->needs.bytes, size), several);
	else if (ticket->gpus > 1)
		snprintf(text, capacity, "%u whole GPUs", ticket->gpus);
	else
		snprintf(text, capacity, "a whole GPU");
}

void neap_lease_explain(const struct neap_tickets *tickets, const struct neap_queue_sample *sample, size_t at,
			char *text, size_t capacity)
{
	const struct neap_queue_answer *answer = &sample->answers[at];
	const struct neap_ticket *other = answer->behind < tickets->count ? &tickets->items[answer->behind] : NULL;
	const struct neap_ticket *ticket = &tickets->items[at];
	char whose[24] = "another", needs[80];
	if (other)
		snprintf(whose, sizeof whose, "%" PRIu64, other->number);
	text[0] = '\0';
	switch (answer->verdict) {
	case NEAP_QUEUE_HOLDS:
		break;
	case NEAP_QUEUE_START:
		snprintf(text, capacity, "its turn");
		break;
	case NEAP_QUEUE_LEASED:
		snprintf(text, capacity, "memory is promised to %s", whose);
		break;
	case NEAP_QUEUE_BEHIND:
		snprintf(text, capacity, "behind %s, which has waited longer", whose);
		break;
	case NEAP_QUEUE_USED:
		snprintf(text, capacity, "programs outside the queue use it");
		break;
	case NEAP_QUEUE_ASIDE:
		snprintf(text, capacity, "%s",
			 neap_ticket_is_given_up(ticket) ? "given up"
			 : ticket->paused                ? "paused"
			 : !ticket->alive                ? "its process has ended"
							 : "its process is stopped");
		break;
	case NEAP_QUEUE_NEVER:
		neap_lease_needs(ticket, needs, sizeof needs);
		snprintf(text, capacity, "%s: more than there is to choose from", needs);
		break;
	}
}

/* --- joining --- */

/* Finds the devices that the run may use. It may have to ask CUDA, which is slow. */
static enum neap_status find_devices(const struct neap_lease_wanted *wanted, struct neap_monitor *monitor,
				     struct neap_ticket *ticket, struct neap_error *err)
{
	struct neap_reading reading = {0};
	struct neap_gpus gpus;
	uint64_t number = 0;
	bool numbered = wanted->device && !neap_u64_parse(wanted->device, &number, NULL);
	enum neap_status status = wanted->device ? NEAP_OK : neap_gpus_find(&gpus, err);
	ticket->device_count = 0;
	for (size_t i = 0; !status && !wanted->device && i < gpus.count; i++)
		memcpy(ticket->devices[ticket->device_count++], gpus.items[i].uuid, sizeof *ticket->devices);
	for (size_t i = 0; wanted->device && i < neap_monitor_device_count(monitor); i++) {
		if (neap_monitor_read(monitor, i, &reading, NULL) ||
		    (numbered ? number != i
			      : strncmp(reading.uuid_text, wanted->device, strlen(wanted->device)) != 0))
			continue;
		memcpy(ticket->devices[0], reading.uuid_text, sizeof *ticket->devices);
		ticket->device_count = 1;
		break;
	}
	if (!status && !ticket->device_count)
		status = neap_fail(err, NEAP_ENODEVICE, "no GPU is visible");
	return status;
}

enum neap_status neap_lease_describe(const struct neap_lease_wanted *wanted, struct neap_monitor *monitor,
				     struct neap_ticket *ticket, struct neap_error *err)
{
	struct neap_process self = {0};
	size_t length = 0;
	enum neap_status status = find_devices(wanted, monitor, ticket, err);
	if (status)
		return status;
	neap_process_read(getpid(), &self, NULL);
	ticket->pid = getpid();
	ticket->start_ticks = self.start_ticks;
	ticket->needs = wanted->needs;
	ticket->gpus = wanted->gpus;
	snprintf(ticket->run_id, sizeof ticket->run_id, "%s", wanted->run_id);
	snprintf(ticket->folder, sizeof ticket->folder, "%s", wanted->folder);
	for (size_t i = 0; wanted->command[i] && length < sizeof ticket->command; i++)
		length += (size_t)snprintf(ticket->command + length, sizeof ticket->command - length, "%s%s",
					   i ? " " : "", wanted->command[i]);
	return NEAP_OK;
}

/* `neap queue end` ended the ticket, perhaps before its process could get a signal: the process sends itself SIGTERM.
 * If it ignores SIGTERM, it fails when it asks again. */
static enum neap_status end_dropped(struct neap_lease *lease, struct neap_error *err)
{
	bool again = lease->ticket.dropped;
	lease->ticket.dropped = true;
	if (!again && !kill(getpid(), SIGTERM))
		return NEAP_OK;
	return neap_fail(err, NEAP_ECANCELED, "'neap queue end' ended ticket %" PRIu64, lease->ticket.number);
}

/* With the queue's lock: continues with a ticket that exists already. */
static enum neap_status resume(struct neap_lease *lease, struct neap_error *err)
{
	struct neap_tickets tickets = {0};
	struct neap_ticket ticket = lease->ticket;
	enum neap_status status = neap_queue_read(&lease->queue, &tickets, err);
	const struct neap_ticket *given = status ? NULL : neap_tickets_find(&tickets, lease->wanted->ticket);
	if (!status && !given)
		status = neap_fail(err, NEAP_ENOENT, "ticket %" PRIu64 " is not in the queue %.120s",
				   lease->wanted->ticket, lease->queue.folder);
	if (!status) {
		ticket.number = given->number;
		ticket.order = given->order;
		ticket.uid = given->uid;
		ticket.paused = given->paused;
		ticket.added = given->added;
		ticket.dropped = given->dropped;
		ticket.lost = given->lost;
		ticket.since_wall_ns = given->since_wall_ns;
		status = neap_queue_write(&lease->queue, &ticket, err);
	}
	if (!status) {
		lease->ticket = ticket;
		lease->tries = given->tries;
		lease->ticket.dropped = false; /* this process has not seen the mark yet */
	}
	free(tickets.items);
	return status;
}

/* With the queue's lock: makes the run's ticket. */
static enum neap_status join(struct neap_lease *lease, struct neap_error *err)
{
	lease->ticket.since_wall_ns = neap_wall_ns();
	enum neap_status status = lease->wanted->ticket_fd >= 0
					  ? resume(lease, err)
					  : neap_queue_claim(&lease->queue, &lease->ticket, &lease->turn.fd, err);
	if (!status) {
		lease->joined = true;
		snprintf(lease->turn.name, sizeof lease->turn.name, "%" PRIu64, lease->ticket.number);
	}
	return status;
}

/* --- asking --- */

static void fill_devices(const struct neap_queue_sample *sample, uint32_t set, struct neap_turn_answer *answer)
{
	for (size_t i = 0; i < sample->device_count; i++) {
		if (!(set >> i & 1))
			continue;
		answer->devices[answer->device_count] = i;
		memcpy(answer->uuids[answer->device_count++], sample->uuids[i], sizeof *answer->uuids);
	}
}

/* Takes the lease that decide.h gave. */
static enum neap_status hold(struct neap_lease *lease, const struct neap_turn_answer *answer, struct neap_error *err)
{
	struct neap_ticket ticket = lease->ticket;
	ticket.holds = true;
	ticket.since_wall_ns = neap_wall_ns();
	ticket.device_count = answer->device_count;
	memcpy(ticket.devices, answer->uuids, sizeof ticket.devices);
	enum neap_status status = neap_queue_write(&lease->queue, &ticket, err);
	if (!status)
		lease->ticket = ticket;
	return status;
}

/* Whether all devices that the ticket names can be read. */
static bool sees_all(const struct neap_ticket *ticket, const struct neap_queue_entry *entry)
{
	return (size_t)__builtin_popcount(entry->devices) == ticket->device_count;
}

static enum neap_status answer(struct neap_lease *lease, struct neap_monitor *monitor,
			       struct neap_turn_answer *ret_answer, struct neap_error *err)
{
	struct neap_tickets tickets = {0};
	struct neap_queue_sample sample = {0};
	enum neap_status status = neap_queue_read(&lease->queue, &tickets, err);
	struct neap_ticket *ticket = status ? NULL : neap_tickets_find(&tickets, lease->ticket.number);
	if (!status && !ticket)
		status = neap_fail(err, NEAP_ENOENT, "somebody removed ticket %" PRIu64 " from the queue %.120s",
				   lease->ticket.number, lease->queue.folder);
	if (!status && ticket->dropped) {
		status = end_dropped(lease, err);
		goto out;
	}
	if (!status) {
		ticket->holds = false; /* a ticket that still asks holds nothing, even after a failed write */
		status = neap_queue_sample_take(&tickets, monitor, &sample, err);
	}
	if (status)
		goto out;
	lease->ticket = *ticket; /* its user may have moved or paused it */
	size_t at = (size_t)(ticket - tickets.items);
	const struct neap_queue_answer *decided = &sample.answers[at];
	char reason[240], needs[80];
	neap_lease_needs(ticket, needs, sizeof needs);
	neap_lease_explain(&tickets, &sample, at, reason, sizeof reason);
	ret_answer->others = decided->verdict != NEAP_QUEUE_USED;
	uint64_t back = decided->position ? decided->position - 1 : 0;
	ret_answer->wait_ns =
		back < (WAIT_MOST_NS - WAIT_NS) / WAIT_MORE_NS ? WAIT_NS + back * WAIT_MORE_NS : WAIT_MOST_NS;
	bool starts = decided->verdict == NEAP_QUEUE_START;
	fill_devices(&sample, starts ? decided->devices : sample.entries[at].devices, ret_answer);
	if (starts) {
		ret_answer->found = NEAP_ROOM_NOW;
		ret_answer->narrowed = !lease->wanted->device && ticket->device_count > 1;
		status = hold(lease, ret_answer, err);
	} else if (decided->verdict == NEAP_QUEUE_NEVER && sees_all(ticket, &sample.entries[at])) {
		ret_answer->found = NEAP_ROOM_NEVER;
	} else {
		const char *whose = decided->behind < tickets.count ? tickets.items[decided->behind].command : "";
		snprintf(ret_answer->text, sizeof ret_answer->text,
			 "Waiting for %s (ticket %" PRIu64 ", place %zu): %s%s%.120s%s", needs, ticket->number,
			 decided->position, reason, *whose ? " (" : "", whose, *whose ? ")" : "");
	}
out:
	neap_queue_sample_fini(&sample);
	free(tickets.items);
	return status;
}

/* Whether to ask again after a failure. If the run has a ticket, the next try may succeed, unless the ticket is gone
 * or was ended. `locked`: another process has the queue's lock. */
static enum neap_status put_off(const struct neap_lease *lease, bool locked, const struct neap_error *why,
				struct neap_turn_answer *ret_answer, struct neap_error *err)
{
	bool later = lease->joined && why->status != NEAP_ENOENT && why->status != NEAP_ECANCELED;
	if (!later && !locked) {
		if (err)
			*err = *why;
		return why->status;
	}
	*ret_answer = (struct neap_turn_answer){
		.found = NEAP_ROOM_LATER, .others = true, .wait_ns = locked ? WAIT_NS : WAIT_MOST_NS};
	snprintf(ret_answer->text, sizeof ret_answer->text, "Waiting: %s", why->message);
	return NEAP_OK;
}

static enum neap_status ask(void *context, struct neap_monitor *monitor, struct neap_turn_answer *ret_answer,
			    struct neap_error *err)
{
	struct neap_lease *lease = context;
	*ret_answer = (struct neap_turn_answer){.found = NEAP_ROOM_LATER, .wait_ns = WAIT_NS};
	struct neap_error why = {0};
	const struct neap_lease_wanted *wanted = lease->wanted;
	enum neap_status status = NEAP_OK;
	if (!lease->queue.folder[0])
		status = neap_queue_open(neap_monitor_backend(monitor), &lease->queue, err);
	if (!status && !lease->ticket.device_count)
		status = neap_lease_describe(wanted, monitor, &lease->ticket, err);
	if (status) {
		ret_answer->wait_ns = WAIT_MOST_NS; /* it sampled through CUDA, which is slow */
		return status;
	}
	if (lease->ticket.device_count < wanted->gpus) {
		ret_answer->found = NEAP_ROOM_NEVER;
		snprintf(ret_answer->text, sizeof ret_answer->text,
			 "Needs %u GPUs, and %zu can be chosen from (CUDA_VISIBLE_DEVICES names several by UUID)",
			 wanted->gpus, lease->ticket.device_count);
		return NEAP_OK;
	}
	status = neap_queue_lock(&lease->queue, LOCK_NS, &why);
	if (status)
		return put_off(lease, status == NEAP_EBUSY, &why, ret_answer, err);
	if (!lease->joined)
		status = join(lease, &why);
	if (!status)
		status = answer(lease, monitor, ret_answer, &why);
	neap_queue_unlock(&lease->queue);
	return status ? put_off(lease, false, &why, ret_answer, err) : NEAP_OK;
}

enum neap_status neap_lease_create(const struct neap_lease_wanted *wanted, struct neap_lease **ret_lease,
				   struct neap_turn **ret_turn, struct neap_error *err)
{
	struct neap_lease *lease = calloc(1, sizeof *lease);
	if (!lease)
		return neap_fail(err, NEAP_ENOMEM, "out of host memory");
	lease->wanted = wanted;
	lease->queue.folder_fd = lease->queue.lock_fd = -1;
	lease->turn = (struct neap_turn){
		.ask = ask, .context = lease, .any_device = !wanted->device, .fd = wanted->ticket_fd};
	*ret_lease = lease;
	*ret_turn = &lease->turn;
	return NEAP_OK;
}

/* Rewrites the ticket of an added run that ends without a result. `tries` 0: the ticket has given up. Else it has no
 * process, and counts that many failed starts. */
static void put_back(struct neap_queue *queue, uint64_t number, uint32_t tries)
{
	struct neap_tickets tickets = {0};
	if (neap_queue_lock(queue, INSIDE_NS, NULL))
		return;
	struct neap_ticket *ticket =
		neap_queue_read(queue, &tickets, NULL) ? NULL : neap_tickets_find(&tickets, number);
	if (ticket) {
		if (tries)
			ticket->tries = tries;
		else
			ticket->lost = NEAP_QUEUE_LOST;
		ticket->holds = false;
		ticket->pid = 0;
		neap_queue_write(queue, ticket, NULL);
	}
	free(tickets.items);
	neap_queue_unlock(queue);
}

void neap_lease_give_up(uint64_t ticket)
{
	struct neap_queue queue;
	if (neap_queue_open(NEAP_BACKEND_DEFAULT, &queue, NULL))
		return;
	put_back(&queue, ticket, 0);
	neap_queue_close(&queue);
}

void neap_lease_destroy(struct neap_lease *lease, bool over, bool again)
{
	if (!lease)
		return;
	if (lease->wanted->ticket_fd >= 0 && (over || lease->ticket.dropped))
		neap_added_forget(lease->wanted->folder);
	if (lease->joined && lease->wanted->ticket_fd >= 0 && !over)
		put_back(&lease->queue, lease->wanted->ticket, again ? lease->tries : 0);
	else if (lease->joined)
		neap_queue_remove(&lease->queue, lease->ticket.number);
	neap_fd_close(&lease->turn.fd);
	neap_queue_close(&lease->queue);
	free(lease);
}

bool neap_lease_inside(enum neap_backend backend)
{
	const char *name = getenv("NEAP_LEASE");
	struct neap_tickets tickets = {0};
	struct neap_queue queue;
	uint64_t number;
	bool inside = false;
	if (!name || neap_u64_parse(name, &number, NULL) || neap_queue_open(backend, &queue, NULL))
		return false;
	if (!neap_queue_lock(&queue, INSIDE_NS, NULL) && !neap_queue_read(&queue, &tickets, NULL)) {
		const struct neap_ticket *ticket = neap_tickets_find(&tickets, number);
		inside = ticket && ticket->alive && ticket->holds && ticket->uid == geteuid();
	}
	free(tickets.items);
	neap_queue_close(&queue);
	return inside;
}
