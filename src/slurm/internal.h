/* slurm/internal.h: one series that Slurm runs; shared by the files of this folder. */
#ifndef NEAP_SLURM_INTERNAL_H
#define NEAP_SLURM_INTERNAL_H

#include "series/series_internal.h"
#include "slurm/claim.h"
#include "slurm/slurm.h"

/* An experiment that has not ended, at the last look. */
enum neap_slurm_place {
	NEAP_SLURM_READY,  /* no task runs it or is going to: to be submitted */
	NEAP_SLURM_QUEUED, /* a task for it is in the queue, or nobody knows */
	NEAP_SLURM_BEGUN,  /* a task has claimed its next attempt */
};

struct neap_slurm_look {
	enum neap_slurm_place place;
	uint32_t attempt;              /* the one that is open in the journal, or the next one */
	bool claimed;                  /* when the look began; then: */
	struct neap_slurm_claim claim; /* of that attempt */
	bool withheld;                 /* the user cancelled it while we waited: not submitted again */
	uint32_t told_running;         /* the attempt of which was said that it runs */
	uint32_t told_cancelled;       /* the submission whose task was said to be cancelled */
};

struct neap_slurm {
	struct neap_series series; /* its `running` are of no meaning */
	const struct neap_slurm_options *options;
	struct neap_slurm_summary *summary;
	char *folder;                  /* absolute */
	struct neap_slurm_look *looks; /* one per experiment */
	bool first_look;               /* what was cancelled before it is what the user wants run again */
	bool asked;                    /* squeue answered at the last look */
	uint64_t *listed;              /* the tasks in the queue then, as neap_slurm_key, ascending */
	size_t listed_count;
};

/* queue.c */

/* Asks squeue which tasks of the user's are pending or running: fills `asked` and `listed`. An answer that cannot be
 * used is reported to the user and returns NEAP_OK. Errors: NEAP_ENOTSUP without squeue; NEAP_ENOMEM, NEAP_EIO. */
enum neap_status neap_slurm_queue_ask(struct neap_slurm *slurm, struct neap_error *err);
bool neap_slurm_queue_has(const struct neap_slurm *slurm, uint32_t job, uint32_t task);

/* The cluster's MaxArraySize, or Slurm's default. */
uint32_t neap_slurm_ask_max_array(void);

/* gather.c */

/* Takes what has ended, and finds out where the others are. Fills the summary's running, pending and jobs. */
enum neap_status neap_slurm_gather(struct neap_slurm *slurm, struct neap_error *err);

/* The job whose task is to run the next attempt of an experiment; 0: none is known. */
uint32_t neap_slurm_job_of(const struct neap_slurm *slurm, size_t at);

/* To be submitted. */
bool neap_slurm_is_ready(const struct neap_slurm *slurm, size_t at);

/* To the summary's list of jobs, once. */
void neap_slurm_add_job(struct neap_slurm_summary *summary, uint32_t job);

/* submit.c */

/* Submits every experiment that is NEAP_SLURM_READY and not withheld; gives up those that were lost too often. */
enum neap_status neap_slurm_submit(struct neap_slurm *slurm, struct neap_error *err);

#endif
