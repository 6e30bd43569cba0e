/* sim/architecture.h: what all devices of one compute capability have in common. The numbers are those of the table
 * "Technical Specifications per Compute Capability" of the CUDA C++ Programming Guide. Pure. Any thread.
 */
#ifndef NEAP_SIM_ARCHITECTURE_H
#define NEAP_SIM_ARCHITECTURE_H

#include <stdbool.h>

#define SIM_REGISTERS         65536 /* of a multiprocessor, and what one block may have */
#define SIM_THREADS_PER_BLOCK 1024
#define SIM_SHARED_PER_BLOCK  (48 << 10) /* without opting in to more */
#define SIM_WARP              32

struct sim_architecture {
	int major, minor;
	int threads, blocks;     /* at once on a multiprocessor */
	int shared_bytes;        /* shared memory of a multiprocessor */
	int shared_optin_bytes;  /* of it, the most that a block may have */
	int shared_reserved;     /* bytes that CUDA takes of each block */
	int single_double_ratio; /* of single precision performance to double */
	int l2_fetch_bytes;      /* how much the L2 cache fetches at a time, where nothing else was set */
	bool clusters,
		residency; /* thread block clusters, tensor maps; data that may be told to stay in the L2 cache */
};

/* One that is not in the table gets the newest that is older; never NULL. */
const struct sim_architecture *sim_architecture_find(int major, int minor);

#endif
