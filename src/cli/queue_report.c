/* cli/queue_report.c: see queue_report.h. */
#include "cli/queue_report.h"

#include "analyze/saturate.h"
#include "base/clock.h"
#include "base/units.h"
#include "cli/print.h"
#include "machine/who.h"
#include "queue/lease.h"
#include "queue/queue_json.h"

#include <inttypes.h>
#include <stdio.h>

#define COMMAND_COLUMNS 50

static void print_devices(const struct neap_queue_sample *sample)
{
	for (size_t i = 0; i < sample->device_count; i++)
		if (*sample->uuids[i])
			printf("GPU %zu  %s: %s free of %s, %s of it promised\n", i, NEAP_PRINTABLE(sample->names[i]),
			       NEAP_SIZE(sample->devices[i].free_bytes), NEAP_SIZE(sample->devices[i].total_bytes),
			       NEAP_SIZE(neap_queue_promised(sample, i)));
		else
			printf("GPU %zu  cannot be read\n", i);
}

void queue_print(const struct neap_queue *queue, const struct neap_tickets *tickets,
		 const struct neap_queue_sample *sample)
{
	char user[64], gpus[64], time[NEAP_WHO_TIME_CAPACITY], needs[80], words[40], command[64];
	print_devices(sample);
	if (!tickets->count) {
		printf("The queue is empty (%s); 'neap history' lists what ran\n", NEAP_PRINTABLE(queue->folder));
		return;
	}
	printf("\n%5s  %-10s %-18s %9s  %-5s %-22s %s\n", "ID", "USER", "STATE", "FOR", "GPU", "NEEDS", "COMMAND");
	for (size_t i = 0; i < tickets->count; i++) {
		const struct neap_ticket *ticket = &tickets->items[i];
		neap_lease_needs(ticket, needs, sizeof needs);
		printf("%5" PRIu64 "  %-10s %-18s %9s  %-5s %-22s %s\n", ticket->number,
		       neap_ticket_user(ticket, user), neap_ticket_state_text(tickets, sample, i, words),
		       neap_who_time_format(neap_less(neap_wall_ns(), ticket->since_wall_ns), time),
		       neap_ticket_gpus(ticket, sample, gpus), needs,
		       neap_who_cut(NEAP_PRINTABLE(ticket->command), COMMAND_COLUMNS, command, sizeof command));
	}
}
