/* neap/sim.h: the simulator's public calls, beyond the driver API. For examples and tests: on a real GPU
 * neap_driver_sim returns NULL.
 *
 * Time is virtual and per process: every driver call advances it by a settable latency, and a synchronisation
 * advances it to the end of the awaited work. A held clock moves only by `step`. Queued work completes when the
 * virtual clock reaches its end; its function runs then, in stream order, on the thread that moved the clock.
 */
#ifndef NEAP_SIM_H
#define NEAP_SIM_H

#include <stddef.h>
#include <stdint.h>

#ifdef __cplusplus
extern "C" {
#endif

/* A range of device memory a kernel touches. */
struct neap_sim_range {
	uint64_t address;
	uint64_t bytes;
	int write; /* 0: reads only */
};

struct neap_sim_kernel {
	const char *name; /* for the call log and for messages; static text */
	uint64_t duration_ns;
	const struct neap_sim_range *ranges; /* copied */
	size_t range_count;
	void (*function)(void *argument); /* does the work; device addresses are valid host pointers. NULL: none */
	void *argument;                   /* yours until `function` has run */
};

struct neap_sim_fault_report {
	char text[512]; /* the first detected error of this process: a race, use of freed memory, ...; "" if none */
	uint64_t races, illegal_addresses, injected;
};

struct neap_sim_calls {
	uint32_t version; /* of this struct: 1 */
	/* Queues a kernel on a CUstream. Returns 0 or a CUresult: CUDA_ERROR_ILLEGAL_ADDRESS for a range that is not
	 * mapped, and for every call after a detected error (sticky, as on a device). */
	int (*launch)(void *stream, const struct neap_sim_kernel *kernel);
	uint64_t (*now_ns)(void);
	void (*hold)(int held); /* 1: the clock moves by `step` only, and waiting for unfinished work fails with
				   CUDA_ERROR_NOT_READY instead of blocking forever */
	void (*step)(uint64_t ns);
	/* Fails calls of driver function NAME ("cuMemCreate"; "*": any): lets `skip` more calls pass, then fails
	 * `count` calls (0: all) with CUresult `code`. Several can be set; a NULL name removes all. */
	int (*fault)(const char *name, uint64_t skip, uint64_t count, int code);
	void (*latency)(const char *name, uint64_t ns);
	/* Calls of NAME so far ("*": all). */
	uint64_t (*calls)(const char *name);
	void (*report)(struct neap_sim_fault_report *ret_report);
	/* Clears the sticky error and the reports, for the next test. */
	void (*forgive)(void);
	/* Returns 0 if NEAP_SIM has backing=none: device memory then has addresses but no bytes. Call it after
	 * cuInit. */
	int (*keeps_bytes)(void);
	/* Finds the first part of [address, address + bytes) that other processes may also have mapped and that the
	 * host may read and write. Returns 1, or 0 if there is none. */
	int (*shared)(uint64_t address, uint64_t bytes, uint64_t *ret_start, uint64_t *ret_bytes);
	/* Calls `function` whenever the driver call named `call` has shared memory of this process (opened: 0) or
	 * opened memory of another (opened: 1), before that driver call returns. NULL: removes it. */
	void (*watch_shares)(void (*function)(const char *call, int opened));
	/* From now on the caller computes what kernels would, on the host, at the device's addresses (struct
	 * neap_sim_values). Returns 0 if NEAP_SIM forbids it: values=none, backing=none. Call it after cuInit, before
	 * there is device memory. */
	int (*keep_values)(void);
	/* The bytes of host memory that the devices' memory of this process takes now. */
	uint64_t (*resident)(void);
};

/* Functions of neap's libcudart for a library that computes what kernels would, on the host: for PyTorch,
 * src/torch/values.cpp. From `start` on the bytes of device memory lie at its addresses, readable and writable by the
 * host. libcudart exports `const struct neap_sim_values *neap_sim_get_values(void)`. Any thread. */
struct neap_sim_values {
	uint32_t version; /* of this struct: 1 */
	/* Initialises CUDA; to be called before there is device memory. Returns 0 if NEAP_SIM forbids it. */
	int (*start)(void);
	/* Waits until what a collective brings to this range is there. Call it before reading the range. */
	void (*open)(uint64_t address, size_t bytes);
	/* 1: until 0, copies and sets of this thread leave device memory as it is, and copies from it give zeros: the
	 * call that makes them launches kernels whose results are not there yet. Calls nest. Returns how
	 * many copies gave zeros since the outermost 1. */
	int (*blind)(int on);
	/* The bytes of host memory that the devices' memory of this process takes now. */
	uint64_t (*bytes)(void);
};

#ifdef __cplusplus
}
#endif
#endif
