/* estimate/runs.h: the runs of `neap estimate`: each a `neap run` of the command on the simulator, several side
 * by side, in folders of their own. */
#ifndef NEAP_ESTIMATE_RUNS_H
#define NEAP_ESTIMATE_RUNS_H

#include "estimate/estimate.h"
#include "estimate/keeper.h"

#include <stdbool.h>
#include <stddef.h>
#include <sys/types.h>

#define NEAP_ESTIMATE_CAPACITY    4096
#define NEAP_ESTIMATE_JOB_CHANGES 10

/* How the runs are isolated from the user's files and network. */
struct neap_estimate_isolation {
	bool in_place; /* the runs are not isolated at all */
	bool no_network;
	bool temporary;           /* the folder of the runs is temporary: keeper.h */
	const char *keep;         /* a folder for what is written, in a folder for each run; NULL: none */
	enum neap_view_kind kind; /* what this system allows: found by the first run */
};

/* Required. Called often while runs are under way, or are judged. `what` has taken `elapsed_ns` so far: "run 1 of 5:
 * sm_90, 132 multiprocessors, 2 updates"; "": everything is over; NULL: there is nothing to show. False ends the
 * runs. */
struct neap_estimate_watch {
	bool (*go_on)(void *context, const char *what, uint64_t elapsed_ns);
	void *context;
};

/* Borrowed until the runs are over. */
struct neap_estimate_command {
	char *const *argv; /* NULL-terminated; {NAME} not replaced yet */
	char **parameters; /* "NAME=VALUE", NULL-terminated */
	const char *steps; /* of --max-steps; NULL: until memory is steady */
	const char *time_limit;
	const char *forwards; /* the most forward passes of a program without an optimizer; NULL: until it ends */
	struct neap_estimate_isolation *isolation;
	/* How many ranks the program believes there are (it is the first); NULL: as many as it starts. */
	const char *ranks;
	struct neap_estimate_watch watch;
};

struct neap_estimate_job {
	char folder[NEAP_ESTIMATE_CAPACITY];
	char spec[256]; /* NEAP_SIM */
	char label[64]; /* for the progress line: "sm_90, 132 multiprocessors" */
	/* "batch=48" replaces the command's parameter of that name; the list ends with NULL. */
	const char *changes[NEAP_ESTIMATE_JOB_CHANGES + 1];
	/* Runs for other GPUs, which this run's program forks (python/neap/_shared_runs.py); NULL: none. */
	struct neap_estimate_job *others;
	size_t other_count;
	pid_t pid; /* the PID of its `neap run`; 0: not started, or over */
	bool over;
	bool again;    /* neap ended it, and will restart it once there is memory for it */
	long peak_kib; /* peak host memory of its largest process */
};

/* Prepares a run of the plan, in a folder below `folder` whose name ends with `suffix`. `memory_bytes`: as in
 * neap_estimate_spec. */
void neap_estimate_job_prepare(const struct neap_estimate_plan *plan, size_t run, uint64_t memory_bytes,
			       const char *folder, const char *suffix, struct neap_estimate_job *ret_job);

/* Starts all jobs that are not over, `at_once` side by side (0: as many as the machine has memory for), and waits
 * until all have ended. Until one job has shown how much host memory it takes, each counts as 4 GiB. If that was too
 * little, the last ones are ended, and start again one after the other. Errors: NEAP_ECANCELED: the command's watch
 * ended them; NEAP_ENOTSUP where this system allows no isolation, and nothing was run; those of starting a
 * process. */
enum neap_status neap_estimate_jobs_run(const struct neap_estimate_command *command, struct neap_estimate_job *jobs,
					size_t count, size_t at_once, struct neap_error *err);

/* Call it when the job's run is over. Takes over the other runs that this run forked and that are complete: they
 * count as over, each in its own folder. */
void neap_estimate_job_take_others(struct neap_estimate_job *job);

/* Removes a folder with everything in it. Ignores failures. */
void neap_estimate_remove(const char *folder);

#endif
