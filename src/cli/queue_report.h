/* cli/queue_report.h: the output of `neap queue`. One thread. */
#ifndef NEAP_CLI_QUEUE_REPORT_H
#define NEAP_CLI_QUEUE_REPORT_H

#include "queue/sample.h"

void queue_print(const struct neap_queue *queue, const struct neap_tickets *tickets,
		 const struct neap_queue_sample *sample);

#endif
