/* machine/gpus.h: the GPUs that programs started from here may use: those that NVML lists or, if CUDA_VISIBLE_DEVICES
 * is set, those of them that it names by UUID. If it names them in another way, only CUDA's first GPU: the driver
 * alone knows the others. One thread. */
#ifndef NEAP_MACHINE_GPUS_H
#define NEAP_MACHINE_GPUS_H

#include "device/monitor.h"

#define NEAP_GPUS 32

struct neap_gpu {
	size_t number; /* NVML's */
	char name[96], uuid[48];
	uint64_t total_bytes, reserved_bytes; /* reserved: the driver's own; 0: not reported */
};

struct neap_gpus {
	struct neap_gpu items[NEAP_GPUS];
	size_t count;
};

/* Finds them. Errors: the driver's, and that there is none; `ret_gpus` is empty then. */
enum neap_status neap_gpus_find(struct neap_gpus *ret_gpus, struct neap_error *err);

#endif
