/* series/slurm_internal.h: one series that Slurm runs; for slurm.c, slurm_gather.c and slurm_submit.c. */
#ifndef NEAP_SERIES_SLURM_INTERNAL_H
#define NEAP_SERIES_SLURM_INTERNAL_H

#include "series/series_internal.h"
#include "series/slurm.h"
#include "series/slurm_text.h"

struct neap_slurm {
	struct neap_series series; /* its `running` are of no meaning */
	const struct neap_slurm_options *options;
	struct neap_slurm_summary *summary;
	char *folder;                 /* absolute */
	bool *withheld;               /* per experiment: the user cancelled it while we waited: not submitted again */
	bool first_look;              /* what was cancelled before it is what the user wants run again */
	struct neap_slurm_seen *seen; /* per experiment: what Slurm said of its open attempt, at the last look */
	bool asked;                   /* Slurm could be asked at the last look */
	uint32_t *told;               /* per experiment: the attempt of which was said that it runs */
};

/* slurm_gather.c */

/* Asks Slurm, and takes what has ended. Fills the summary's running, pending and jobs. */
enum neap_status neap_slurm_gather(struct neap_slurm *slurm, struct neap_error *err);

/* To the summary's list of jobs, once. */
void neap_slurm_add_job(struct neap_slurm_summary *summary, uint32_t job);

/* slurm_submit.c */

/* The cluster's MaxArraySize, or Slurm's default. */
uint32_t neap_slurm_ask_max_array(void);

/* Submits every experiment that has neither ended nor an attempt under way, gives up those lost too often. */
enum neap_status neap_slurm_submit(struct neap_slurm *slurm, struct neap_error *err);

/* Takes one attempt back: false when a task has begun it. */
enum neap_status neap_slurm_withdraw(struct neap_slurm *slurm, size_t at, bool *ret_withdrawn,
				     struct neap_error *err);

#endif
