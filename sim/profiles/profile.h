/* sim/profiles/profile.h: parses NEAP_SIM: what to simulate.
 *
 *   h100-80gb   2xa100-40gb   mem=6GiB,gpus=2   rtx4090-24gb,world=mine,release_delay=300ms
 *
 * Words are separated by commas. A word without '=' names a profile, with an optional count before it. Keys:
 *
 *   mem=SIZE            the device's whole memory, as NVML reports    gpus=N            1 to SIM_DEVICE_LIMIT
 *   reserved=SIZE       the part that the driver keeps for itself     context=SIZE      taken by each process
 *   release_delay=TIME  between a process's end and its memory's release world=NAME        which shared state
 *   backing=memory|none none: addresses only, no bytes behind them    vmm=on|off        virtual memory management
 *   values=none|auto|full how much of what PyTorch's kernels would write is computed (src/torch/values.cpp)
 *   values_memory=SIZE   host memory that those values may take
 *   order=pci|reversed   how CUDA numbers the devices: as NVML does, or in reverse, like a driver that puts the
 *                        fastest first; CUDA_DEVICE_ORDER=PCI_BUS_ID overrides it
 *
 * An existing world must match only the keys that are given; `world=NAME` alone joins it as it is. Pure: no files, no
 * environment. Any thread.
 */
#ifndef NEAP_SIM_PROFILE_H
#define NEAP_SIM_PROFILE_H

#include "neap/status.h"

#include <stdbool.h>
#include <stddef.h>
#include <stdint.h>

#define SIM_DEVICE_LIMIT   16
#define SIM_WORLD_CAPACITY 64
#define SIM_PAGE_BYTES     (2ull << 20) /* granularity of physical memory */
#define SIM_DEFAULT_SPEC   "h100-80gb"
#define SIM_MEMORY_LIMIT   (1ull << 44)

struct sim_profile {
	const char *name;     /* "h100-80gb" */
	const char *gpu_name; /* as the driver names it */
	uint32_t total_mib, reserved_mib, context_mib;
	int multiprocessors, compute_major, compute_minor;
	int clock_mhz, memory_mhz; /* the highest of the multiprocessors, and of the memory */
	int bus_bits, l2_kib, copy_engines, watts;
	uint32_t pci_id;           /* device, then vendor */
	bool data_center;          /* ECC is on, and devices can read each other's memory */
	uint32_t context_seen_mib; /* a context size that others published, of this or a similar GPU; 0: none */
	const char *context_seen;  /* its source: which GPU, who, and when */
};

/* The built-in GPUs; borrowed, static. Sizes are as NVML reports them on such a device. */
const struct sim_profile *sim_profiles(size_t *ret_count);
/* The profile with this driver name, else the first of this compute capability, else the first; never NULL. */
const struct sim_profile *sim_profile_of(const char *gpu_name, int major, int minor);

struct sim_spec {
	char world[SIM_WORLD_CAPACITY];
	char gpu_name[96];
	uint32_t device_count;
	uint64_t total_bytes, reserved_bytes, context_bytes; /* each device */
	uint64_t release_delay_ns;
	uint64_t values_memory_bytes; /* of the host, for this process */
	int multiprocessors, compute_major, compute_minor;
	bool no_backing, no_vmm, reversed, no_values; /* of this process only */
	bool capacity_given, count_given, reserved_given, context_given, delay_given, values_memory_given;
};

/* NULL or "" is SIM_DEFAULT_SPEC. Errors: NEAP_EPARSE with the column and what was expected. */
enum neap_status sim_spec_parse(const char *text, struct sim_spec *ret_spec, struct neap_error *err);

#endif
