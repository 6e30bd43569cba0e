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

/* What a program launched through the driver's API. */
struct neap_sim_launch {
	const char *name;        /* the kernel's */
	void *const *parameters; /* where each one lies; NULL: they are packed, or there are none */
	size_t count;            /* of them; 0: not known */
	const void *packed;      /* one behind the other */
	size_t packed_bytes;
};

struct neap_sim_races;

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
	const struct neap_sim_races *races; /* see there */
	/* Calls `function` after each launch of a kernel that the process loaded itself (cuModuleLoad,
	 * cuLibraryLoad), on the thread that launches it. NULL: removes it. */
	void (*watch_launches)(void (*function)(const struct neap_sim_launch *launch));
};

/* Functions of neap's libcudart for a library that computes what kernels would, on the host: for PyTorch,
 * src/torch/values.cpp. From `start` on the bytes of device memory lie at its addresses, readable and writable by the
 * host. libcudart exports `const struct neap_sim_values *neap_sim_get_values(void)`. Any thread. */
struct neap_sim_values {
	uint32_t version; /* of this struct: 1 */
	/* Initialises CUDA; to be called before there is device memory. Returns 0 if NEAP_SIM forbids it. */
	int (*start)(void);
	/* Waits until a collective's data for this range has arrived. Call it before reading the range. */
	void (*open)(uint64_t address, size_t bytes);
	/* 1 begins and 0 ends a call of this thread that launches kernels whose results are not there yet. In
	 * between, its copies and sets leave device memory as it is, and copies from device memory give zeros. Calls
	 * nest. Returns how many copies gave zeros since the outermost 1. */
	int (*blind)(int on);
	/* The bytes of host memory that the devices' memory of this process takes now. */
	uint64_t (*bytes)(void);
	/* After `start`. */
	const struct neap_sim_races *(*races)(void);
};

/* How work uses memory. */
enum neap_sim_use {
	NEAP_SIM_READS = 1,
	NEAP_SIM_WRITES = 2,
	NEAP_SIM_UNKNOWN = 4, /* it may read or write: counts only between two lives of a block */
	NEAP_SIM_SPARSE = 8,  /* beside one of the others: only some bytes of the range */
};

struct neap_sim_touch {
	uint64_t address, bytes;
	uint32_t use; /* of enum neap_sim_use */
};

struct neap_sim_uses {
	const char *name; /* of the work; static text */
	uint32_t stack;   /* the caller's number for the place that requested it; 0: not known */
	const struct neap_sim_touch *touches;
	size_t count;
};

enum neap_sim_race_kind {
	NEAP_SIM_RACE_DATA,     /* two uses of one byte, one writes, nothing orders them */
	NEAP_SIM_RACE_LIFETIME, /* likewise, and the block was given out again in between */
	NEAP_SIM_RACE_FREED,    /* work uses a block that was freed */
	/* the host uses memory that a device's work may still write, or writes memory that it may still read */
	NEAP_SIM_RACE_HOST,
	NEAP_SIM_RACE_UNMAPPED, /* memory that work may still use went back to the driver */
};

struct neap_sim_race_side {
	const char *name; /* "": the host, or the allocator */
	uint32_t stack, use;
	uint32_t stream; /* by first use, from 1; 0: a null stream; UINT32_MAX: the host */
	uint32_t device;
};

struct neap_sim_race_block {
	uint64_t address, bytes;   /* 0: the block is not known */
	uint32_t allocated, freed; /* stacks */
	uint32_t stream, device;   /* that it was allocated on */
};

struct neap_sim_race {
	enum neap_sim_race_kind kind;
	struct neap_sim_race_side first, second; /* in the order in which they were requested */
	uint64_t address, bytes;                 /* that both use */
	struct neap_sim_race_block block;        /* that the first use was of */
};

/* Finds memory that is used too late, or by two streams at once. src/torch/races.cpp reports each use to it. A
 * stream is a CUstream; a null one is that of the calling thread's device. Uses on a stream that is captured
 * count at each launch of the graph. Threads: any. */
struct neap_sim_races {
	uint32_t version; /* of this struct: 3 */
	/* Starts to watch. Calls `report` once for each pair of places, and `limited` (static text) once for each
	 * kind of thing that it stops watching because there are too many. Returns 0 if the host is out of memory.
	 * Call it after cuInit. */
	int (*start)(void (*report)(const struct neap_sim_race *race), void (*limited)(const char *what));
	void (*work)(void *stream, const struct neap_sim_uses *uses);
	void (*host)(const struct neap_sim_uses *uses);
	/* Report that an allocator allocated a block; that the block was freed; that the allocator's pool has it
	 * again. `kept`: from a graph's pool, whose blocks the graph uses after they are freed. */
	void (*allocated)(uint64_t address, uint64_t bytes, void *stream, uint32_t device, uint32_t stack, int kept);
	void (*freed)(uint64_t address, uint32_t stack);
	void (*reusable)(uint64_t address);
	/* Reports that the bytes lose their memory, without waiting for work on them, or after waiting for all of it
	 * (`waited`). */
	void (*unmapped)(uint64_t address, uint64_t bytes, uint32_t stack, int waited);
	/* Reports that pinned memory gets another use; its allocator has waited for the work that it knew of. */
	void (*forget)(uint64_t address, uint64_t bytes);
	/* From now on the calling thread's queries of events are the program's own (`own`), or PyTorch's. If the
	 * program learns that an event has finished, later work comes after it. */
	void (*asks)(int own);
	/* Reports that the program queried a stream, which had finished. */
	void (*saw_stream)(void *stream);
	/* Whether this is memory of the host that devices reach. */
	int (*is_pinned)(uint64_t address);
	/* From now on, reports again the pairs of places that were reported before, and the limits that still
	 * hold. */
	void (*again)(void);
	/* From now on, delays values on streams that the seed chooses (0: all but the default ones, 1: only the
	 * default ones): `later` runs a function when the host waits for it, or for work after it. So the function
	 * finds the bytes that a race would leave. Call it after `start`; else it returns 0. */
	int (*delay)(uint64_t seed);
	int (*delays)(void);
	/* The function runs while this or another thread is in a call of the driver, on that thread; or never. It
	 * makes no such call itself. */
	void (*later)(void *stream, void (*function)(void *argument), void *argument);
	/* Runs the late functions before the stream's next work, which the caller does now. Orders nothing. */
	void (*settle)(void *stream);
	/* Reports that late work failed an assertion of the device: calls fail from now on, and so does the wait that
	 * ran it. */
	void (*fail)(void);
};

#ifdef __cplusplus
}
#endif
#endif
