/* series/slurm_claim.h: who may run an attempt, where several machines see one folder.
 *
 *   RUN/claim   "job 12 task 3 restart 0 node n17"   a task has begun it
 *               "withdrawn"                          the series has taken it back: no task may begin it
 *
 * A claim is written beside its place and linked into it: it is there whole or not at all, and only one can be, also
 * over NFS, where locks between machines cannot be relied on. It is never changed or removed. So an array that was
 * submitted twice, or that the series had given up on, or whose number was lost in a crash, runs nothing twice: a
 * task that does not get the claim ends.
 */
#ifndef NEAP_SERIES_SLURM_CLAIM_H
#define NEAP_SERIES_SLURM_CLAIM_H

#include "neap/status.h"

struct neap_slurm_claim {
	uint32_t job, task; /* job 0: withdrawn */
	uint32_t restarts;  /* how often Slurm had requeued the task before */
	char node[64];
};

/* Claims the attempt whose folder this is, making that. NEAP_EEXIST: someone has, ask neap_slurm_claim_read. */
enum neap_status neap_slurm_claim_make(const char *folder, const struct neap_slurm_claim *claim,
				       struct neap_error *err);

/* Errors: NEAP_ENOENT: nobody has; NEAP_EPARSE for a file that neap did not write. */
enum neap_status neap_slurm_claim_read(const char *folder, struct neap_slurm_claim *ret_claim,
				       struct neap_error *err);

#endif
