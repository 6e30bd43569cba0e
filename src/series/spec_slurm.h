/* series/spec_slurm.h: the mapping `slurm:` of a series file: options to submit a series to Slurm.
 *
 *   slurm:
 *     partition: gpu
 *     gres: gpu:a100:1        # default gpu:1 for experiments that need device memory; none: ask for no device
 *     time: 4h                # default: from the experiments' time_limit
 *     mem: 32GiB              # default: from the experiments' max_host
 *     sbatch: [--constraint=nvme, --nice=100]
 *
 * Every value is checked when the file is read. It becomes a word of sbatch's argv; no shell reads it.
 */
#ifndef NEAP_SERIES_SPEC_SLURM_H
#define NEAP_SERIES_SPEC_SLURM_H

#include "run/argv.h"
#include "series/spec_yaml.h"

/* As written, checked; NULL: not given. */
struct neap_spec_slurm {
	char *partition, *account, *qos, *gres;
	char *time;              /* a duration */
	char *mem;               /* a size */
	char *cpus;              /* of each task; a number above 0 */
	struct neap_argv sbatch; /* further options, each "--NAME" or "--NAME=VALUE" */
};

/* Fills `settings` (zeroed before; the caller frees it in any case). Errors: NEAP_EPARSE, NEAP_ENOMEM. */
enum neap_status neap_spec_slurm_read(struct neap_yaml mapping, struct neap_spec_slurm *settings,
				      struct neap_error *err);
void neap_spec_slurm_fini(struct neap_spec_slurm *settings);

#endif
