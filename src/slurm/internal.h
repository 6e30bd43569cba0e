/* slurm/internal.h: the state of a series that Slurm runs; shared by the files of this folder. */
#ifndef NEAP_SLURM_INTERNAL_H
#define NEAP_SLURM_INTERNAL_H

#include "series/series_internal.h"
#include "slurm/claim.h"
#include "slurm/slurm.h"

/* Where an experiment that has not ended was at the last check. */
enum neap_slurm_place {
	NEAP_SLURM_READY,  /* no task runs it or will run it: submit it */
	NEAP_SLURM_QUEUED, /* a task for it is in the queue, or may be */
	NEAP_SLURM_BEGUN,  /* a task has claimed its next attempt */
};

struct neap_slurm_checked {
	enum neap_slurm_place place;
	uint32_t attempt;              /* the attempt that is open in the journal, or the next one */
	bool claimed;                  /* a task had claimed it at the start of the check: `claim` is set */
	struct neap_slurm_claim claim; /* of that attempt */
	bool withheld;                 /* the user cancelled it while we waited: do not submit it again */
	uint32_t shown_running;        /* the attempt last reported as running */
	uint32_t shown_cancelled;      /* the submission whose task was reported as cancelled */
};

struct neap_slurm {
	struct neap_series series; /* its `running` is unused */
	const struct neap_slurm_options *options;
	struct neap_slurm_summary *summary;
	char *folder;                       /* absolute */
	struct neap_slurm_checked *checked; /* one per experiment */
	bool first_check;                   /* the first check: run again tasks that were cancelled before it */
	bool asked;                         /* squeue answered at the last check */
	uint64_t *listed;                   /* the tasks in the queue at that check, as neap_slurm_key, ascending */
	size_t listed_count;
};

/* queue.c */

/* Asks squeue which of the user's tasks are pending or running: fills `asked` and `listed`. If the answer cannot be
 * used, reports that to the user and returns NEAP_OK. Errors: NEAP_ENOTSUP without squeue; NEAP_ENOMEM, NEAP_EIO. */
enum neap_status neap_slurm_queue_ask(struct neap_slurm *slurm, struct neap_error *err);
bool neap_slurm_queue_has(const struct neap_slurm *slurm, uint32_t job, uint32_t task);

/* Returns the cluster's MaxArraySize; Slurm's default if the cluster does not answer. */
uint32_t neap_slurm_ask_max_array(void);

/* gather.c */

/* Takes the results of ended attempts and finds where the others are. Fills the summary's running, pending and jobs.
 */
enum neap_status neap_slurm_gather(struct neap_slurm *slurm, struct neap_error *err);

/* The job whose task will run the next attempt of an experiment; 0: unknown. */
uint32_t neap_slurm_job_of(const struct neap_slurm *slurm, size_t at);

/* Whether the experiment must be submitted. */
bool neap_slurm_is_ready(const struct neap_slurm *slurm, size_t at);

/* Adds a job to the summary's list, once. */
void neap_slurm_add_job(struct neap_slurm_summary *summary, uint32_t job);

/* submit.c */

/* Submits every experiment that is NEAP_SLURM_READY and not withheld; gives up those that were lost too often. */
enum neap_status neap_slurm_submit(struct neap_slurm *slurm, struct neap_error *err);

#endif
