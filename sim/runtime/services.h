/* sim/runtime/services.h: the services of neap's libcudart for the other stand-ins (cuBLAS, cuDNN, NCCL, ...).
 *
 * A program loads one libcudart (.so.12 or .so.13). It exports one symbol of neap's own, neap_runtime_get_services,
 * which the other stand-ins look up with runtime_services(): so they need not link one version of libcudart, and
 * notice if the process's libcudart is not neap's.
 *
 *        libtorch_cuda.so
 *     |        |        |            entry points of the documented APIs
 *   cublas   cudnn    nccl
 *     |        |        |            this table: contents, gates, tally
 *     +--- libcudart.so.13 (neap) --- libcuda.so.1 (neap's simulator)
 *
 * Contents. No kernel runs, so device memory holds only bytes that a program copied or set there, or a collective
 * brought. All other memory reads as zeros. libcudart stores those bytes by address, outside the simulated memory;
 * only the bytes of shared memory are in it.
 *
 * Gates. A call such as ncclAllReduce returns before its peers have called it. This process needs the data only when
 * it synchronises with the stream or reads the destination. A gate is a function that libcudart calls then, once; it
 * blocks until the data is there and stores it with `write`. A stream or event that waited for the gate's stream has
 * the gate too. A query of such a stream or event answers "not ready" until the gate opens without blocking. A
 * program that overwrites or frees the destination first supersedes the gate: it opens as before, but stores nothing.
 *
 * Tally. libcudart counts each call whose memory or result neap does not model, so that a report can name it.
 *
 * Threads: every function, any thread. No function is called with a lock of libcudart held, so a gate's function may
 * call all of them. Errors are CUresult values (cuda_api.h), which cudaError_t shares.
 */
#ifndef NEAP_RUNTIME_SERVICES_H
#define NEAP_RUNTIME_SERVICES_H

#include "neap/sim.h"

#include <dlfcn.h>
#include <stdbool.h>
#include <stddef.h>
#include <stdint.h>
#include <string.h>

#define RUNTIME_SERVICES_VERSION 4

enum runtime_gap {
	GAP_VALUES,    /* a result that was not computed; memory is right */
	GAP_WORKSPACE, /* a size that the real library chooses: between `low` and `high` bytes, answered with `low` */
	GAP_REFUSED,   /* not simulated: answered with the library's "not supported" */
	GAP_TRANSFER,  /* data that did not move between ranks or processes */
	GAP_KERNEL,    /* a kernel of a CUDA extension, which did nothing */
};

/* How well bytes are known, if the host computes values (values.c). */
enum runtime_known {
	KNOWN_NOTHING_COMPUTED, /* values are not computed: only stored bytes count */
	KNOWN_TRUE,
	KNOWN_LIKELY,  /* a plausible value */
	KNOWN_MISSING, /* not transferred: the bytes have no meaning */
};

/* The functions of a gate. Each gets the gate's argument; libcudart holds no lock when it calls one. It calls exactly
 * one of `open` and `drop`, once and last; that function owns the argument. */
struct runtime_gate {
	/* Blocks until the data is there, and stores it. Runs on the thread that synchronises, reads or queries. */
	void (*open)(void *argument);
	/* Called instead of `open` if the gate has no effect, because its stream is capturing. */
	void (*drop)(void *argument);
	/* Whether `open` would return without blocking. */
	bool (*ready)(void *argument);
	/* The program has overwritten the whole destination, or freed it: `open` must not store. When this returns,
	 * no thread stores there on the gate's behalf. */
	void (*supersede)(void *argument);
};

struct runtime_services {
	uint32_t version;

	/* The calling thread's device, by CUDA's ordinal. Does not create a context. */
	int (*device)(void);
	/* Compute capability (90 for 9.0) and multiprocessors. False: no such device. */
	bool (*architecture)(int device, int *ret_capability, int *ret_multiprocessors);

	/* Copies the known bytes of [address, address + bytes) to `to`, zeros elsewhere. Runs the gates over that
	 * range. */
	void (*read)(uint64_t address, void *to, size_t bytes);
	/* Stores bytes, like a copy to the device. False: host out of memory, nothing is stored. */
	bool (*write)(uint64_t address, const void *from, size_t bytes);
	/* Makes the range read as zeros; leaves it as it is where the thread is blind (struct neap_sim_values). */
	void (*forget)(uint64_t address, size_t bytes);
	/* Whether any byte of the range was ever stored. False: the range reads as zeros. Runs the gates over it.
	 */
	bool (*holds)(uint64_t address, size_t bytes);

	/* Returns how well the range is known, once the gates over it have opened: that of its worst byte. Returns
	 * KNOWN_MISSING also for data that is not worth moving: `large` says that the call moves much data, `exact`
	 * that the data are whole numbers. If a library calls this on its caller's thread, even for 0 bytes, it must
	 * `mark` the data that the call brings. */
	enum runtime_known (*known)(uint64_t address, size_t bytes, bool large, bool exact);
	/* Sets how well the data that a call brought to the range is known. Does nothing if values are not
	 * computed. */
	void (*mark)(uint64_t address, size_t bytes, enum runtime_known known);

	/* Adds a gate at the end of `stream`, for the destination [address, address + bytes) (bytes may be 0).
	 * `functions` is static. False: host out of memory, none of them is called. */
	bool (*gate)(void *stream, uint64_t address, size_t bytes, const struct runtime_gate *functions,
		     void *argument);
	/* Queues work that does nothing on a stream: a kernel of a library. Returns 0 or a CUresult. During a capture
	 * it becomes a node. */
	int (*launch)(void *stream, const char *name);
	/* Reports the memory that the last queued work uses. `name` is static text. */
	void (*uses)(void *stream, const char *name, const struct neap_sim_touch *touches, size_t count);

	/* Counts one call. `library` and `function` are static text. low/high: GAP_WORKSPACE only, else 0. */
	void (*tally)(enum runtime_gap gap, const char *library, const char *function, uint64_t low, uint64_t high);
};

/* NULL: the process's libcudart is not neap's, or is not loaded yet. */
static inline const struct runtime_services *runtime_services(void)
{
	const struct runtime_services *(*get)(void) = NULL;
	void *symbol = dlsym(RTLD_DEFAULT, "neap_runtime_get_services");
	const struct runtime_services *services;

	if (!symbol)
		return NULL;
	memcpy(&get, &symbol, sizeof get);
	services = get();
	return services && services->version == RUNTIME_SERVICES_VERSION ? services : NULL;
}

#endif
