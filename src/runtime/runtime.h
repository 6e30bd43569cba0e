/* runtime/runtime.h: neap's libcudart inside one process: what its source files share.
 *
 *   exports.c   the exported functions: each calls runtime_NAME (one of the files below) and keeps its error
 *   driver.c    the simulated driver underneath: found, opened, its functions
 *   device.c    devices, the calling thread's device and context     properties.c  what a device is
 *   memory.c    device, pinned and managed memory, pools, pointers   copy.c        copies and sets
 *   contents.c  the bytes that device memory is known to hold        gate.c        results that come when looked at
 *   stream.c    streams and events                                   graph.c       capture and graphs
 *   kernel.c    registered kernels and variables, launches           tally.c       what is not modelled, counted
 *   torch.c     PyTorch's blocks: memory that is allocated again reads as zeros
 *
 * An implementation returns an error and never keeps it. No lock is held while the driver or a gate runs.
 */
#ifndef NEAP_RUNTIME_RUNTIME_H
#define NEAP_RUNTIME_RUNTIME_H

#include "neap/sim.h"
#include "neap/status.h"
#include "runtime/api.h"
#include "runtime/services.h"

#include <stdbool.h>

/* -- driver.c ---------------------------------------------------------------------------------------------------- */

/* The simulated driver's functions and its public calls, opened and initialised (cuInit) at the first use. 0, or why
 * not: cudaErrorInsufficientDriver where the libcuda.so.1 of the process is not neap's. */
int runtime_open(void);
/* After runtime_open() gave 0; one that the driver lacks is NULL. */
extern struct neap_cuda runtime_cuda;
extern neap_get_proc_address runtime_get_proc_address;
extern const struct neap_sim_calls *runtime_sim;
/* False: the device has no bytes (backing=none), so only small contents are kept. */
bool runtime_keeps_bytes(void);
/* The first part of the range that other processes may have, too. False: none. */
bool runtime_shared(uint64_t address, uint64_t bytes, uint64_t *ret_start, uint64_t *ret_bytes);

/* -- exports.c --------------------------------------------------------------------------------------------------- */

/* The calling thread's current call returns CUDA_ERROR_NOT_SUPPORTED: cudaGetErrorString of that says why from now
 * on, until another error of the thread. Static text. */
void runtime_explain(const char *text);

/* -- device.c ---------------------------------------------------------------------------------------------------- */

/* Before anything that needs a context: makes the calling thread's device current. 0 or an error. */
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
/* The range is freed: as forget, but what other processes may have, too, they keep. */
void contents_release(uint64_t address, size_t bytes);
/* Memory of this process has become shared: moves what is stored for it into the memory itself. */
void contents_share(void);
/* Takes what [from, from + bytes) holds, zeros included, to `to`. The ranges may overlap. */
bool contents_move(uint64_t to, uint64_t from, size_t bytes);

/* -- gate.c: see services.h -------------------------------------------------------------------------------------- */

bool gate_add(CUstream stream, uint64_t address, size_t bytes, const struct runtime_gate *functions, void *argument);
void gate_recorded(CUevent event, CUstream stream);
void gate_waited(CUstream stream, CUevent event);
void gate_forget_event(CUevent event);
void gate_forget_stream(CUstream stream);
/* Opens the gates that must be open before the host goes on: of a stream (the null stream: all), an event, a range.
 */
void gate_open_stream(CUstream stream);
void gate_open_event(CUevent event);
void gate_open_range(uint64_t address, size_t bytes);
/* For a query: opens what opens without blocking. False: a gate stays closed, so the stream or event is not ready. */
bool gate_try_stream(CUstream stream);
bool gate_try_event(CUevent event);
/* The program is about to overwrite the range: gates that write within it are superseded, others over it are opened.
 */
void gate_overwrite_range(uint64_t address, size_t bytes);
/* The range was freed, or begins a new life: gates that write within it are superseded. Does not block. */
void gate_free_range(uint64_t address, size_t bytes);

/* -- tally.c ----------------------------------------------------------------------------------------------------- */

void tally_count(enum runtime_gap gap, const char *library, const char *function, uint64_t low, uint64_t high);
/* Counts a function of this library that is not simulated, and returns CUDA_ERROR_NOT_SUPPORTED. */
int tally_refuse(const char *function);

/* -- kernel.c ---------------------------------------------------------------------------------------------------- */

/* Queues work that does nothing. */
int runtime_launch(CUstream stream, const char *name, uint64_t duration_ns);
/* The simulated address and size of a registered __device__ variable. */
int runtime_symbol(const void *symbol, uint64_t *ret_address, size_t *ret_bytes);
/* Whether it points into such a variable. */
bool runtime_is_variable(const void *pointer);
/* True while work given to the stream becomes a graph. */
bool runtime_capturing(CUstream stream);

/* The implementations: runtime_cudaMalloc and so on. */
#define X(name, parameters, arguments) int runtime_##name parameters;
#include "runtime/functions.h"
#undef X

#endif
