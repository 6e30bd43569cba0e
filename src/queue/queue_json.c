/* queue/queue_json.c: see queue_json.h. */
#include "queue/queue_json.h"

#include "base/printable.h"
#include "queue/lease.h"
#include "store/json_rows.h"

#include <inttypes.h>
#include <pwd.h>
#include <stdio.h>
#include <string.h>

#define SCHEMA 1

const char *neap_ticket_state(const struct neap_ticket *ticket, const struct neap_queue_answer *answer)
{
	if (ticket->holds && ticket->alive)
		return "runs";
	if (neap_ticket_is_given_up(ticket))
		return "given up";
	if (ticket->paused)
		return "paused";
	if (!ticket->alive)
		return "no process";
	return answer->verdict == NEAP_QUEUE_ASIDE ? "stopped" : "waits";
}

const char *neap_ticket_user(const struct neap_ticket *ticket, char text[64])
{
	const struct passwd *found = getpwuid(ticket->uid);
	snprintf(text, 64, "%u", (unsigned)ticket->uid);
	return found ? neap_printable(text, 64, found->pw_name) : text;
}

const char *neap_ticket_state_text(const struct neap_tickets *tickets, const struct neap_queue_sample *sample,
				   size_t at, char text[40])
{
	const struct neap_queue_answer *answer = &sample->answers[at];
	const char *state = neap_ticket_state(&tickets->items[at], answer);
	if (strcmp(state, "waits") != 0)
		return state;
	if (answer->behind < tickets->count)
		snprintf(text, 40, "waits for %" PRIu64, tickets->items[answer->behind].number);
	else
		strcpy(text, answer->verdict == NEAP_QUEUE_START   ? "starts"
			     : answer->verdict == NEAP_QUEUE_NEVER ? "has no GPU"
								   : "waits for memory");
	return text;
}

const char *neap_ticket_gpus(const struct neap_ticket *ticket, const struct neap_queue_sample *sample, char text[64])
{
	size_t length = 0;
	strcpy(text, "-");
	for (size_t i = 0; ticket->holds && ticket->alive && i < ticket->device_count; i++)
		for (size_t d = 0; d < sample->device_count && length < 60; d++)
			if (!strcmp(ticket->devices[i], sample->uuids[d]))
				length += (size_t)snprintf(text + length, 64 - length, "%s%zu", length ? "," : "", d);
	return text;
}

static json_t *device_json(const struct neap_queue_sample *sample, size_t at)
{
	return neap_json_put(json_object(), (struct neap_json_row[]){
						    {"index", neap_json_number(at)},
						    {"uuid", neap_json_text(sample->uuids[at])},
						    {"name", neap_json_text(sample->names[at])},
						    {"total", neap_json_number(sample->devices[at].total_bytes)},
						    {"free", neap_json_number(sample->devices[at].free_bytes)},
						    {"promised", neap_json_number(neap_queue_promised(sample, at))},
						    {0},
					    });
}

static json_t *ticket_json(const struct neap_tickets *tickets, const struct neap_queue_sample *sample, size_t at)
{
	const struct neap_ticket *ticket = &tickets->items[at];
	const struct neap_queue_answer *answer = &sample->answers[at];
	bool whole = ticket->needs.kind == NEAP_NEEDS_DEVICE;
	bool waits = !strcmp(neap_ticket_state(ticket, answer), "waits");
	char user[64], why[240];
	json_t *devices = json_array();
	for (size_t i = 0; i < ticket->device_count; i++)
		neap_json_add(devices, neap_json_text(ticket->devices[i]));
	neap_lease_explain(tickets, sample, at, why, sizeof why);
	return neap_json_put(
		json_object(),
		(struct neap_json_row[]){
			{"id", neap_json_number(ticket->number)},
			{"user", neap_json_text(neap_ticket_user(ticket, user))},
			{"state", neap_json_text(neap_ticket_state(ticket, answer))},
			{"place", neap_json_number_or_null(waits ? answer->position : 0, 0)},
			{"waits_for", neap_json_text(why)},
			{"behind", answer->behind < tickets->count
					   ? neap_json_number(tickets->items[answer->behind].number)
					   : json_null()},
			{"needs", whole ? neap_json_text("device") : neap_json_number(ticket->needs.bytes)},
			{"gpus", neap_json_number(ticket->gpus)},
			{"devices", devices},
			{"since_wall_ns", neap_json_number(ticket->since_wall_ns)},
			{"pid", neap_json_number_or_null(ticket->alive ? (uint64_t)ticket->pid : 0, 0)},
			{"added", json_boolean(ticket->added)},
			{"lost", neap_json_number(ticket->lost)},
			{"run_id", neap_json_text(ticket->run_id)},
			{"folder", neap_json_text(ticket->folder)},
			{"command", neap_json_text(ticket->command)},
			{0},
		});
}

json_t *neap_queue_json(const struct neap_queue *queue, const struct neap_tickets *tickets,
			const struct neap_queue_sample *sample)
{
	json_t *devices = json_array(), *items = json_array();
	for (size_t i = 0; i < sample->device_count; i++)
		neap_json_add(devices, device_json(sample, i));
	for (size_t i = 0; i < tickets->count; i++)
		neap_json_add(items, ticket_json(tickets, sample, i));
	return neap_json_put(json_object(), (struct neap_json_row[]){
						    {"schema", json_integer(SCHEMA)},
						    {"folder", neap_json_text(queue->folder)},
						    {"devices", devices},
						    {"tickets", items},
						    {0},
					    });
}
