/* sim/driver/occupancy.h: how many blocks of a kernel fit on a device at once. */
#ifndef NEAP_SIM_OCCUPANCY_H
#define NEAP_SIM_OCCUPANCY_H

#include "sim/driver/module.h"

#define SIM_CLUSTER_PORTABLE 8  /* blocks that every device with clusters supports */
#define SIM_CLUSTER_LIMIT    16 /* on compute capability 9.0 and 10.0, if the kernel opts in */

/* Blocks on one multiprocessor; 0: not even one fits. */
int sim_occupancy(const struct sim_device *device, int block_size, size_t shared_bytes);
int sim_cluster_limit(const struct CUfunc_st *function);
/* Blocks in a cluster, from the launch attributes; 0: not set. */
int64_t sim_cluster_blocks(const CUlaunchConfig *config);

#endif
