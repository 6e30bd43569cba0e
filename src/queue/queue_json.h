/* queue/queue_json.h: the queue as JSON, docs/schemas/queue.schema.json, and a ticket's words in it. One thread. */
#ifndef NEAP_QUEUE_QUEUE_JSON_H
#define NEAP_QUEUE_QUEUE_JSON_H

#include "queue/sample.h"

#include <jansson.h>

/* "runs", "waits", "paused", ... */
const char *neap_ticket_state(const struct neap_ticket *ticket, const struct neap_queue_answer *answer);

/* The name of the ticket's user, printable, or the number of one without a name. Returns text. */
const char *neap_ticket_user(const struct neap_ticket *ticket, char text[64]);

/* The state for people: "waits for 17". Returns text, or a static string. */
const char *neap_ticket_state_text(const struct neap_tickets *tickets, const struct neap_queue_sample *sample,
				   size_t at, char text[40]);

/* The GPUs that it has: "0", "0,1"; "-" while it waits. Returns text. */
const char *neap_ticket_gpus(const struct neap_ticket *ticket, const struct neap_queue_sample *sample, char text[64]);

/* Returns a new reference; NULL: out of memory. */
json_t *neap_queue_json(const struct neap_queue *queue, const struct neap_tickets *tickets,
			const struct neap_queue_sample *sample);

#endif
