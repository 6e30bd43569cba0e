/* CUDA and NVML tables made by the test: one device. The calls are counted, and any one of them can be made to
 * fail. */
#ifndef TESTS_DEVICE_FAKE_DRIVER_H
#define TESTS_DEVICE_FAKE_DRIVER_H

#include "device/driver.h"

#include <stdbool.h>

extern struct fake {
	int calls;          /* CUDA calls so far */
	int fail_at;        /* the call (from 1) that fails; 0: none */
	CUresult code;      /* with this */
	const char *failed; /* the name of the call that failed */
	int retained;       /* primary context references */
	CUcontext stack[8];
	int depth;
	int vmm; /* whether the device has virtual memory management */
	/* NVML */
	bool has_memory_v2, bytes_known;
	nvmlReturn_t nvml_init;
	unsigned int process_count;
	unsigned int own_bytes;
	int nvml_running;
} fake;

void fake_reset(void);
/* Every REQUIRED function of the table exists; those that the tests do not call answer "not supported". */
struct neap_cuda fake_cuda(void);
struct neap_nvml fake_nvml(void);
extern const unsigned char fake_uuid[16];

#define FAKE_TOTAL (8ull << 30)

#endif
