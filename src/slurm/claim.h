/* slurm/claim.h: records the task that runs an attempt, for a folder shared by several machines.
 *
 *   RUN/claim   "job 12 task 3 restart 0 node n17 run ID"
 *
 * A claim is written to a temporary file, which is then linked to its name. So it exists whole or not at all, and
 * only one task can make it, even over NFS, where locks between machines are unreliable. It is never changed or
 * removed. A task runs only the attempt it has claimed. So if an array was submitted twice, or its number was lost in
 * a crash, nothing runs twice.
 */
#ifndef NEAP_SLURM_CLAIM_H
#define NEAP_SLURM_CLAIM_H

#include "run/supervise.h"

struct neap_slurm_claim {
	uint32_t job, task;
	uint32_t restarts; /* how often Slurm had requeued the task before */
	char node[64];
	char run_id[NEAP_RUN_ID_CAPACITY];
};

/* Makes the attempt's folder and claims the attempt. NEAP_EEXIST: it is claimed already, see neap_slurm_claim_read.
 */
enum neap_status neap_slurm_claim_make(const char *folder, const struct neap_slurm_claim *claim,
				       struct neap_error *err);

/* Reads the claim in this folder. Errors: NEAP_ENOENT: no task has claimed it; NEAP_EPARSE for a file that neap did
 * not write. */
enum neap_status neap_slurm_claim_read(const char *folder, struct neap_slurm_claim *ret_claim,
				       struct neap_error *err);

#endif
