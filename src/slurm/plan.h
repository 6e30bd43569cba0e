/* slurm/plan.h: turns experiments into job arrays: groups them, computes the resources to ask Slurm for, and makes
 * sbatch's argv and script. Pure.
 *
 *   experiments 1..1500, MaxArraySize 1001; 3 and 4 need no device
 *
 *   --array=1-1000   --gres=gpu:1     experiments 1, 2, 5, ..., 1002
 *   --array=1-498    --gres=gpu:1     experiments 1003, ..., 1500
 *   --array=1-2                       experiments 3 and 4
 *
 * All tasks of an array ask for the same resources: the time and memory of its largest experiment. If the file limits
 * how many run at a time, each array waits for the previous one.
 */
#ifndef NEAP_SLURM_PLAN_H
#define NEAP_SLURM_PLAN_H

#include "base/buffer.h"
#include "series/spec.h"

#define NEAP_SLURM_MAX_ARRAY 1001 /* Slurm's default, if the cluster gives no value */

/* One job array: as many tasks as experiments. Any task may run any of them. */
struct neap_slurm_batch {
	size_t *members;    /* experiments, ascending */
	size_t count;       /* at least 1 */
	bool device;        /* its tasks need a device */
	uint64_t minutes;   /* --time; 0: the partition's default */
	uint64_t mebibytes; /* --mem; 0: the partition's default */
};

struct neap_slurm_plan {
	struct neap_slurm_batch *batches;
	size_t count;
};

/* Plans all experiments whose `wanted` is true. `max_array`: MaxArraySize. Errors: NEAP_ENOMEM; NEAP_ENOTSUP if the
 * cluster allows no arrays. */
enum neap_status neap_slurm_plan_make(const struct neap_spec *spec, const bool *wanted, uint32_t max_array,
				      struct neap_slurm_plan *ret_plan, struct neap_error *err);
void neap_slurm_plan_fini(struct neap_slurm_plan *plan);

/* Checks a series file. Errors: NEAP_EPARSE for a setting that Slurm decides (`device`), with the experiment's name.
 */
enum neap_status neap_slurm_check(const struct neap_spec *spec, const char *file, struct neap_error *err);

/* Makes the path FOLDER/slurm/SUBMISSION.sh. */
enum neap_status neap_slurm_script_path(const char *folder, uint32_t submission, char path[4096],
					struct neap_error *err);

/* Makes sbatch's argv. `after`: the job that the array waits for; 0 none. `test_only`: sbatch only checks and does
 * not submit. Errors: NEAP_ENOMEM; NEAP_EINVAL for a folder whose name Slurm would change. */
enum neap_status neap_slurm_argv(const struct neap_spec *spec, const struct neap_slurm_batch *batch,
				 const char *folder, uint32_t submission, uint32_t after, bool test_only,
				 struct neap_argv *ret_argv, struct neap_error *err);

/* Makes the script of a submission, with sbatch's argv in a comment. `program`: neap's absolute path. */
enum neap_status neap_slurm_script(const struct neap_spec *spec, const struct neap_argv *argv, const char *program,
				   const char *folder, uint32_t submission, struct neap_buffer *script,
				   struct neap_error *err);

#endif
