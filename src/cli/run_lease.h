/* cli/run_lease.h: `neap run --needs`: the options of a run that takes its turn (queue/lease.h), and the line on the
 * terminal while it waits. */
#ifndef NEAP_CLI_RUN_LEASE_H
#define NEAP_CLI_RUN_LEASE_H

#include "cli/command.h"
#include "queue/lease.h"
#include "run/supervise.h"

struct run_lease {
	struct neap_lease_wanted wanted;
	struct neap_lease *lease; /* NULL: none is needed */
	bool begun;               /* everything before the lease succeeded */
	bool over;                /* the run has its result: an added ticket is not started again */
};

/* Reads --ticket-fd, before anything is started or can fail. `lease` is zeroed before. Returns 0, or an exit code. */
int run_lease_ticket(struct run_lease *lease, const struct neap_arguments *arguments);

/* Sets run->turn, and run->needs if only --gpus is given. Call it after run_lease_ticket, and run_lease_end
 * afterwards in any case. Returns 0, or an exit code. */
int run_lease_begin(struct run_lease *lease, const struct neap_arguments *arguments,
		    struct neap_supervise_options *run);

/* `code`: how the run ended. An added run without a result has given up. The exception is a run that lacked what may
 * be there later (disk space, memory; before it was in the queue a driver too): the queue's runner tries it again if
 * no command was started, and makes the result if the command's end is on disk. */
void run_lease_end(struct run_lease *lease, int code);

#endif
