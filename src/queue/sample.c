/* queue/sample.c: see sample.h. */
#include "queue/sample.h"

#include "base/error.h"
#include "base/process.h"

#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#define TRIES 4
#define DEPTH 64

static bool same(const struct neap_reading *a, const struct neap_reading *b)
{
	return a->free_bytes == b->free_bytes && a->process_count == b->process_count &&
	       !memcmp(a->processes, b->processes, a->process_count * sizeof *a->processes);
}

/* Reads a device. *ret_stable: two readings agreed. */
static enum neap_status read_device(struct neap_monitor *monitor, size_t index, struct neap_reading *ret_reading,
				    bool *ret_stable, struct neap_error *err)
{
	struct neap_reading before = {0};
	enum neap_status status = neap_monitor_read(monitor, index, &before, err);
	*ret_stable = false;
	for (int tries = 0; !status && !*ret_stable && tries < TRIES; tries++) {
		*ret_reading = (struct neap_reading){0};
		status = neap_monitor_read(monitor, index, ret_reading, err);
		*ret_stable = !status && same(&before, ret_reading) && ret_reading->processes_known;
		before = *ret_reading;
	}
	return status;
}

static bool is_supervisor(const struct neap_ticket *ticket, const struct neap_process *process)
{
	return ticket->pid == process->pid && ticket->start_ticks == process->start_ticks &&
	       ticket->uid == process->uid;
}

/* Returns the index of the ticket whose run the process belongs to; `count`: none. */
static size_t ticket_of(const struct neap_tickets *tickets, pid_t pid)
{
	struct neap_process process = {0};
	for (int depth = 0; depth < DEPTH && pid > 1; depth++) {
		if (neap_process_read(pid, &process, NULL))
			break;
		for (size_t i = 0; i < tickets->count; i++)
			if (tickets->items[i].holds && is_supervisor(&tickets->items[i], &process))
				return i;
		pid = process.parent;
	}
	return tickets->count;
}

static void count_use(const struct neap_tickets *tickets, const struct neap_reading *reading, size_t device,
		      struct neap_queue_sample *sample)
{
	for (size_t i = 0; i < reading->process_count; i++) {
		const struct neap_reading_process *process = &reading->processes[i];
		size_t at = process->bytes == NEAP_BYTES_UNKNOWN ? tickets->count : ticket_of(tickets, process->pid);
		if (at < tickets->count)
			sample->entries[at].used_bytes[device] += process->bytes;
	}
}

static void add_device(const struct neap_reading *reading, struct neap_queue_sample *sample)
{
	static const struct neap_needs whole = {NEAP_NEEDS_DEVICE, 0};
	size_t at = sample->device_count++;
	sample->devices[at] = (struct neap_queue_device){
		.total_bytes = reading->total_bytes > reading->reserved_bytes
				       ? reading->total_bytes - reading->reserved_bytes
				       : 0,
		.free_bytes = reading->free_bytes,
		.empty = neap_needs_headroom(&whole, reading) == NEAP_ROOM_NOW,
	};
	memcpy(sample->uuids[at], reading->uuid_text, sizeof sample->uuids[at]);
	snprintf(sample->names[at], sizeof sample->names[at], "%s", reading->name);
}

/* Whether the ticket cannot start now: its user paused it, or its process is stopped, or it has none. */
static bool is_aside(const struct neap_ticket *ticket)
{
	struct neap_process process;
	if (ticket->paused || !ticket->alive)
		return true;
	/* The process is of another PID namespace */
	if (!ticket->pid || neap_process_read(ticket->pid, &process, NULL))
		return false;
	return is_supervisor(ticket, &process) && (process.state == 'T' || process.state == 't');
}

static void fill_entry(const struct neap_ticket *ticket, const struct neap_queue_sample *sample,
		       struct neap_queue_entry *entry)
{
	entry->order = ticket->order;
	entry->holds = ticket->holds && ticket->alive;
	entry->aside = !entry->holds && is_aside(ticket);
	entry->needs = ticket->needs;
	entry->gpus = ticket->gpus;
	for (size_t i = 0; i < ticket->device_count; i++)
		for (size_t d = 0; d < sample->device_count; d++)
			if (!strcmp(ticket->devices[i], sample->uuids[d]))
				entry->devices |= 1u << d;
}

enum neap_status neap_queue_sample_take(const struct neap_tickets *tickets, struct neap_monitor *monitor,
					struct neap_queue_sample *ret_sample, struct neap_error *err)
{
	struct neap_reading *reading = calloc(1, sizeof *reading);
	struct neap_queue_sample *sample = ret_sample;
	enum neap_status status = NEAP_OK;
	bool stable;
	*sample = (struct neap_queue_sample){.count = tickets->count};
	sample->entries = calloc(tickets->count + 1, sizeof *sample->entries);
	sample->answers = calloc(tickets->count + 1, sizeof *sample->answers);
	if (!reading || !sample->entries || !sample->answers)
		status = neap_fail(err, NEAP_ENOMEM, "out of host memory while looking at the queue");
	size_t devices = monitor ? neap_monitor_device_count(monitor) : 0;
	for (size_t i = 0; !status && i < devices && i < NEAP_GPUS; i++) {
		if (read_device(monitor, i, reading, &stable, NULL)) {
			sample->device_count++; /* no run starts there */
			continue;
		}
		add_device(reading, sample);
		if (stable)
			count_use(tickets, reading, i, sample);
	}
	for (size_t i = 0; !status && i < tickets->count; i++)
		fill_entry(&tickets->items[i], sample, &sample->entries[i]);
	if (!status)
		neap_queue_decide(sample->devices, sample->device_count, sample->entries, sample->count,
				  sample->answers);
	free(reading);
	if (status)
		neap_queue_sample_fini(sample);
	return status;
}

void neap_queue_sample_fini(struct neap_queue_sample *sample)
{
	free(sample->entries);
	free(sample->answers);
	*sample = (struct neap_queue_sample){0};
}

uint64_t neap_queue_promised(const struct neap_queue_sample *sample, size_t device)
{
	uint64_t promised = 0;
	for (size_t i = 0; i < sample->count; i++) {
		const struct neap_queue_entry *entry = &sample->entries[i];
		if (!entry->holds || !(entry->devices >> device & 1))
			continue;
		uint64_t bytes = entry->needs.kind == NEAP_NEEDS_DEVICE ? sample->devices[device].total_bytes
									: entry->needs.bytes;
		promised += bytes > entry->used_bytes[device] ? bytes - entry->used_bytes[device] : 0;
	}
	return promised;
}
