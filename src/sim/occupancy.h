/* sim/occupancy.h: how much of a kernel fits a device at once. Pure but for the functions of the driver. */
#ifndef NEAP_SIM_OCCUPANCY_H
#define NEAP_SIM_OCCUPANCY_H

#include "sim/module.h"

#define SIM_CLUSTER_PORTABLE 8  /* blocks that every device with clusters takes */
#define SIM_CLUSTER_LIMIT    16 /* and, if the kernel says so, those of compute capability 9.0 and 10.0 */

/* Blocks on one multiprocessor; 0: not even one fits. */
int sim_occupancy(const struct sim_device *device, int block_size, size_t shared_bytes);
int sim_cluster_limit(const struct CUfunc_st *function);
/* Blocks in a cluster, as the attributes of the launch say; 0: they say nothing. */
int64_t sim_cluster_blocks(const CUlaunchConfig *config);

#endif
