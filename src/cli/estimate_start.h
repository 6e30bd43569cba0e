/* cli/estimate_start.h: the runs of `neap estimate`: each a `neap run` of the command on the simulator, several side
 * by side, in folders of their own. */
#ifndef NEAP_CLI_ESTIMATE_START_H
#define NEAP_CLI_ESTIMATE_START_H

#include "estimate/estimate.h"

#include <stdbool.h>
#include <stddef.h>
#include <sys/types.h>

#define ESTIMATE_ROOM 4096

/* Borrowed until the runs are over. */
struct estimate_command {
	char *const *words; /* NULL-terminated; {NAME} not replaced yet */
	char **parameters;  /* "NAME=VALUE", NULL-terminated */
	const char *steps;  /* of --max-steps */
	const char *time_limit;
	const char *forwards; /* of a program without optimizer, at most; NULL: to its end */
	const char *ranks;    /* that the program is to take itself for the first of; NULL: as many as it starts */
};

struct estimate_job {
	char folder[ESTIMATE_ROOM];
	char spec[256];        /* NEAP_SIM */
	char label[64];        /* for the progress line: "sm_90, 132 multiprocessors" */
	const char *parameter; /* "batch=48": instead of the one of that name among the command's; NULL: none */
	pid_t pid;             /* of its `neap run`; 0: not started, or over */
	bool over;
	long peak_kib; /* of host memory, of its largest process */
};

/* A run of the plan in a folder below `folder`, whose name ends with `suffix`. `memory_bytes` as in
 * neap_estimate_spec. */
void estimate_job_prepare(const struct neap_estimate_plan *plan, size_t run, uint64_t memory_bytes,
			  const char *folder, const char *suffix, struct estimate_job *ret_job);

/* Starts all that are not over, `at_once` side by side (0: as many as the machine has room for, after the first one
 * has shown what host memory it takes), and waits for their ends. Shows progress on a terminal. Errors:
 * NEAP_ECANCELED after SIGINT or SIGTERM, when all of them have ended; those of starting a process. */
enum neap_status estimate_jobs_run(const struct estimate_command *command, struct estimate_job *jobs, size_t count,
				   size_t at_once, struct neap_error *err);

/* SIGINT and SIGTERM are noted from here on; 0: none came. */
void estimate_catch_signals(void);
int estimate_interrupted(void);

/* Removes a folder with all that is in it. Failures are ignored. */
void estimate_remove(const char *folder);

#endif
