/* queue/queue_json.h: the queue as JSON, docs/schemas/queue.schema.json, and a ticket's words in it. One thread. */
#ifndef NEAP_QUEUE_QUEUE_JSON_H
#define NEAP_QUEUE_QUEUE_JSON_H

#include "queue/sample.h"

#include <jansson.h>

/* "runs", "waits", "paused", ... */
const char *neap_ticket_state(const struct neap_ticket *ticket, const struct neap_queue_answer *answer);

/* Writes the name of the ticket's user, printable, or the user's number if there is no name. Returns `text`. */
const char *neap_ticket_user(const struct neap_ticket *ticket, char text[64]);

/* Returns the state for people, such as "waits for 17": `text`, or a static string. */
const char *neap_ticket_state_text(const struct neap_tickets *tickets, const struct neap_queue_sample *sample,
				   size_t at, char text[40]);

/* Writes the GPUs of the ticket's lease, such as "0" or "0,1"; "-" while it waits. Returns `text`. */
const char *neap_ticket_gpus(const struct neap_ticket *ticket, const struct neap_queue_sample *sample, char text[64]);

/* Returns a new reference; NULL: out of memory. */
json_t *neap_queue_json(const struct neap_queue *queue, const struct neap_tickets *tickets,
			const struct neap_queue_sample *sample);

#endif
