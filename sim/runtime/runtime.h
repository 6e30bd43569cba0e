/* sim/runtime/runtime.h: neap's libcudart inside one process, shared by its source files.
 *
 *   exports.c   the exported functions: each calls runtime_NAME (one of the files below) and keeps its error
 *   driver.c    the simulated driver underneath: found, opened, its functions
 *   device.c    devices, the calling thread's device and context     properties.c  device properties
 *   memory.c    device, pinned and managed memory, pools, pointers   copy.c        copies and sets
 *   contents.c  the known bytes of device memory                     gate.c        results that arrive when read
 *   stream.c    streams and events                                   graph.c       capture and graphs
 *   kernel.c    registered kernels and variables, launches           tally.c       counts calls not modelled
 *   code.c      names the kernels that were used, for neap estimate
 *   values.c    lets the host compute what kernels would have
 *   torch.c     PyTorch's blocks: memory that is allocated again reads as zeros
 *
 * An implementation returns an error and never keeps it. No lock is held while the driver or a gate runs.
 */
#ifndef NEAP_RUNTIME_RUNTIME_H
#define NEAP_RUNTIME_RUNTIME_H

#include "neap/sim.h"
#include "neap/status.h"
#include "sim/runtime/api.h"
#include "sim/runtime/services.h"

#include <stdbool.h>

/* -- driver.c ---------------------------------------------------------------------------------------------------- */

/* The simulated driver's functions and its public calls, opened and initialised (cuInit) at the first use. Returns 0
 * or the error: cudaErrorInsufficientDriver if the libcuda.so.1 of the process is not neap's. */
int runtime_open(void);
/* Valid after runtime_open() has returned 0. Functions that the driver lacks are NULL. */
extern struct neap_cuda runtime_cuda;
extern neap_get_proc_address runtime_get_proc_address;
extern const struct neap_sim_calls *runtime_sim;
/* False: the device has no bytes (backing=none), so only small contents are kept. */
bool runtime_keeps_bytes(void);
/* Finds the first part of the range that is shared with other processes. False: none is. */
bool runtime_shared(uint64_t address, uint64_t bytes, uint64_t *ret_start, uint64_t *ret_bytes);

/* -- values.c ---------------------------------------------------------------------------------------------------- */

/* Whether device memory has its bytes at its addresses, so that the host can compute the results of kernels. */
bool values_kept(void);
/* Whether this thread's copies and sets leave device memory as it is. */
bool values_blind(void);
/* Whether streams run their work late. Then a write that happens at once may come before earlier work. */
bool values_late(void);
/* Notes that a copy of this thread returned zeros because the thread is blind. */
void values_invented(void);
/* Notes that an extension's kernel is launched with these arguments: the bytes that it writes are unknown from now
 * on. */
void values_launched(const char *symbol, void **arguments);
/* Notes that PyTorch's allocator allocates a block or, with `bytes` below 0, frees one. */
void values_block(uint64_t address, int64_t bytes);
/* As in services.h. */
enum runtime_known values_known(uint64_t address, size_t bytes, bool large, bool exact);
void values_mark(uint64_t address, size_t bytes, enum runtime_known known);

/* Reports to struct neap_sim_races that work of this stream, outside any operation of PyTorch, uses memory. */
void values_used(void *stream, const char *name, const struct neap_sim_touch *touches, size_t count);

/* -- exports.c --------------------------------------------------------------------------------------------------- */

/* Explains why the calling thread's current call returns CUDA_ERROR_NOT_SUPPORTED: cudaGetErrorString of that code
 * returns `text` until the thread's next error. Static text. */
void runtime_explain(const char *text);

/* -- device.c ---------------------------------------------------------------------------------------------------- */

/* Before any call that needs a context: makes the calling thread's device current. 0 or an error. */
int runtime_ready(void);
/* The calling thread's device, without a context. */
int runtime_device(void);
int runtime_attribute(int attribute, int device);

/* -- contents.c: see services.h ---------------------------------------------------------------------------------- */

void contents_read(uint64_t address, void *to, size_t bytes);
bool contents_write(uint64_t address, const void *from, size_t bytes);
void contents_set(uint64_t address, int value, size_t bytes);
void contents_forget(uint64_t address, size_t bytes);
bool contents_hold(uint64_t address, size_t bytes);
/* Call when the range is freed. As contents_forget, but shared bytes stay for the other processes. */
void contents_release(uint64_t address, size_t bytes);
/* Call when memory of this process becomes shared: moves the stored bytes into the memory itself. */
void contents_share(void);
/* Copies the contents of [from, from + bytes), zeros included, to `to`. The ranges may overlap. */
bool contents_move(uint64_t to, uint64_t from, size_t bytes);

/* -- gate.c: see services.h -------------------------------------------------------------------------------------- */

bool gate_add(CUstream stream, uint64_t address, size_t bytes, const struct runtime_gate *functions, void *argument);
void gate_recorded(CUevent event, CUstream stream);
void gate_waited(CUstream stream, CUevent event);
void gate_forget_event(CUevent event);
void gate_forget_stream(CUstream stream);
/* Open the gates that must be open before the host continues: those of a stream (the null stream: all), an event, or
 * a range.
 */
void gate_open_stream(CUstream stream);
void gate_open_event(CUevent event);
void gate_open_range(uint64_t address, size_t bytes);
/* For a query: opens the gates that open without blocking. False: a gate is still closed, so the stream or event is
 * not ready. */
bool gate_try_stream(CUstream stream);
bool gate_try_event(CUevent event);
/* Call before the program overwrites the range: supersedes the gates that write within it, and opens others over
 * it. */
void gate_overwrite_range(uint64_t address, size_t bytes);
/* Call when the range was freed or allocated again: supersedes the gates that write within it. Does not block. */
void gate_free_range(uint64_t address, size_t bytes);

/* -- torch.c ----------------------------------------------------------------------------------------------------- */

/* Kinds of data that a block may have to forget when PyTorch allocates it. While there are none, PyTorch pays for one
 * branch. */
enum runtime_kept { KEPT_CONTENTS = 1, KEPT_GATES = 2, KEPT_VALUES = 4 };
void runtime_keep(enum runtime_kept what, bool kept);

/* -- tally.c ----------------------------------------------------------------------------------------------------- */

/* `library` and `function` stay valid until the process ends. */
void tally_count(enum runtime_gap gap, const char *library, const char *function, uint64_t low, uint64_t high);
/* Counts a function of this library that is not simulated, and returns CUDA_ERROR_NOT_SUPPORTED. */
int tally_refuse(const char *function);

/* -- kernel.c ---------------------------------------------------------------------------------------------------- */

/* Queues work that does nothing. */
int runtime_launch(CUstream stream, const char *name, uint64_t duration_ns);
/* Finds the simulated address and the size of a registered __device__ variable. */
int runtime_symbol(const void *symbol, uint64_t *ret_address, size_t *ret_bytes);
/* Whether the address is in such a variable. */
bool runtime_is_variable(const void *pointer);
/* Whether the stream is being captured. */
bool runtime_capturing(CUstream stream);

/* The implementations: runtime_cudaMalloc and so on. */
#define X(name, parameters, arguments) int runtime_##name parameters;
#include "sim/runtime/functions.h"
#undef X

#endif
