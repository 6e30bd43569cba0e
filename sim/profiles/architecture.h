/* sim/profiles/architecture.h: values common to all devices of one compute capability, from the table "Technical
 * Specifications per Compute Capability" of the CUDA C++ Programming Guide. Pure. Any thread. */
#ifndef NEAP_SIM_ARCHITECTURE_H
#define NEAP_SIM_ARCHITECTURE_H

#include <stdbool.h>

#define SIM_REGISTERS         65536 /* of a multiprocessor; also the limit of one block */
#define SIM_THREADS_PER_BLOCK 1024
#define SIM_SHARED_PER_BLOCK  (48 << 10) /* without opting in to more than that */
#define SIM_WARP              32

struct sim_architecture {
	int major, minor;
	int threads, blocks;      /* at once on a multiprocessor */
	int shared_bytes;         /* shared memory of a multiprocessor */
	int shared_optin_bytes;   /* the part of it that one block may have */
	int shared_reserved;      /* bytes that CUDA reserves in each block */
	int single_double_ratio;  /* of single precision performance to double */
	int l2_fetch_bytes;       /* default L2 fetch granularity */
	bool clusters, residency; /* thread block clusters, tensor maps; L2 cache residency control */
};

/* For a capability that is not in the table: the newest older one. Never NULL. */
const struct sim_architecture *sim_architecture_find(int major, int minor);

#endif
