/* sim/libraries/stand_in.h: the common parts of every library's stand-in.
 *
 *   cublas.txt --tools/make_stand_in.py--> plain functions, version script
 *   cublas.c    (functions with logic)           |
 *   stand_in.c  (this header)  ------------------+--> libcublas.so.12, libcublas.so.13
 *
 * A library is compiled once for each soname, with STAND_IN_MAJOR, the number at the soname's end. Its C defines the
 * functions that its table calls `written`, with the documented signature, int for each enum. It needs no export
 * attribute: the table lists the exports, and the build fails if the C lacks a function of the table.
 *
 * Without neap's libcudart in the process (stand_in_services() is NULL) nothing is counted or queued: creating a
 * library's handle fails with the library's "not initialized", so that no program runs on half a simulation.
 *
 * Threads: every function, any thread.
 */
#ifndef NEAP_RUNTIME_LIBRARIES_STAND_IN_H
#define NEAP_RUNTIME_LIBRARIES_STAND_IN_H

#include "sim/runtime/services.h"

/* This library; the generated C defines it. */
struct stand_in_library {
	const char *name; /* its name in reports */
	intptr_t refused; /* its "not supported" */
	intptr_t failed;  /* returned if a computation's launch failed */
};
extern const struct stand_in_library stand_in_library;

/* neap's libcudart, or NULL. Looks it up until found. */
const struct runtime_services *stand_in_services(void);

/* A computation: queues work that does nothing on `stream` and counts it. Returns 0, or the library's `failed`. */
intptr_t stand_in_compute(const char *function, void *stream);
/* Counts a result that was not computed. Returns 0. */
intptr_t stand_in_values(const char *function);
/* Counts a call that is not simulated, and returns the library's `refused`. */
intptr_t stand_in_refuse(const char *function);
/* Counts a size that the real library chooses between `low` and `high` bytes, and that we answered with `low`.
 * STAND_IN_UNBOUNDED: the most is not known. */
#define STAND_IN_UNBOUNDED UINT64_MAX
void stand_in_workspace(const char *function, uint64_t low, uint64_t high);

/* A size that a function returns, in units of `unit` bytes. The real library returns at least `low` and at most
 * `high`; if these are equal, the size is known. */
struct stand_in_size {
	uint64_t low;
	uint64_t high;
	uint64_t unit;
};
/* Returns the size for `kind` and four numbers of a line of the library's table (-1: absent). False: a number is
 * invalid. */
typedef bool stand_in_sizes(const char *function, const char *kind, const int64_t *numbers,
			    struct stand_in_size *ret_size);
/* Stores the low size at `to` (unless that is NULL), as an integer of `bytes`, and counts the interval. False:
 * `sizes` returned false, or the size is too large for the integer. */
bool stand_in_size(const char *function, const char *kind, const int64_t *numbers, stand_in_sizes *sizes,
		   uintptr_t to, size_t bytes);
/* An int argument as a number of parts; 0 if it is negative. */
static inline size_t stand_in_parts(uintptr_t argument)
{
	return (int32_t)argument > 0 ? (size_t)(int32_t)argument : 0;
}

/* Writes zeros to a host address; ignores NULL. */
void stand_in_zero(uintptr_t to, size_t bytes);
/* Zeros device memory that the real function writes and a program reads: a status. Ignores NULL. */
void stand_in_forget(uintptr_t address, size_t bytes);
/* Creates an empty object, and stores its address at `to` (unless it is NULL). False: host out of memory. */
bool stand_in_create(uintptr_t to);
/* Frees an object of stand_in_create or malloc; ignores NULL. */
void stand_in_destroy(uintptr_t object);

#endif
