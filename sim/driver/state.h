/* sim/driver/state.h: the simulated driver inside one process, shared by its source files.
 *
 *   exports.c     the exported functions: each is call_enter, sim_NAME (one of the files below), call_leave
 *   calls.c       entering and leaving a call: counters, latency, faults, sticky errors, the call log
 *   init.c        cuInit: the environment, the world, the devices
 *   device.c      devices                                        attributes.c   their attributes
 *   context.c     contexts, each thread's stack of them          settings.c     a context's settings
 *
 *   physical.c    handles and the bytes behind them              memory.c       address ranges: reserve, map
 *   virtual.c     the calls for both                             alloc.c        cuMemAlloc and its like
 *   pool.c        stream-ordered allocation                      host.c         pinned, registered, managed memory
 *   pointer.c     attributes of addresses                        peer.c         memory of other devices
 *   share.c       memory shared between processes                ipc.c          the calls for it
 *
 *   stream.c      streams                                        event.c        events
 *   work.c        submitting work                                copy.c, set.c  copies and sets
 *   capture.c     stream capture                                 graph.c        graphs and their nodes
 *   graph_exec.c  executable graphs                              user_object.c  resources that graphs keep alive
 *   host_call.c   functions of the host
 *
 *   module.c      modules, libraries, variables                  image.c        reads their images
 *   function.c    resources of kernels                           launch.c       launching them
 *   occupancy.c   how many blocks fit a device                   tensor_map.c   descriptors of tensors
 *
 *   simcalls.c    the public calls of neap/sim.h                 errors.c       the names of errors
 *   refused.c     functions that are not simulated               foreign.c      NVIDIA's own runtime over this driver
 *   account.c     this process's peaks, for neap estimate        python.c       a Python without neap's launcher
 *
 * Lock: sim.lock guards everything reachable from `sim` but the atomics. No thread holds it while the engine may run
 * the function of queued work (submit, advance, synchronise, query), so such a function may take as long as it likes.
 *
 * The simulator has one state per process, like the driver.
 */
#ifndef NEAP_SIM_STATE_H
#define NEAP_SIM_STATE_H

#include "base/map.h"
#include "device/cuda_api.h"
#include "neap/sim.h"
#include "neap/status.h"
#include "sim/driver/engine.h"
#include "sim/driver/world.h"

#include <pthread.h>
#include <stdatomic.h>
#include <stdbool.h>

enum sim_call {
#define X(need, name, symbol, parameters) SIM_CALL_##name,
#include "device/cuda_functions.h"
#undef X
	SIM_CALL_COUNT
};

/* The implementations: sim_cuInit and so on, in the files above. */
#define X(need, name, symbol, parameters) CUresult sim_##name parameters;
#include "device/cuda_functions.h"
#undef X

/* -- physical memory --------------------------------------------------------------------------------------------- */

struct sim_handle {
	uint64_t id;    /* names it to the program */
	uint64_t space; /* its bytes, in the engine: one for all handles of a share */
	uint64_t bytes, file_offset;
	struct sim_file *file;    /* the file with its bytes; NULL: this process's own */
	struct sim_share *share;  /* shared with other processes; NULL: it is not */
	uint64_t requested_bytes; /* of imported memory: the bytes of the original allocation */
	uint32_t device;          /* CUDA's ordinal */
	/* It is freed when both are 0. held: cuMemCreate and cuMemRetainAllocationHandle; mappings: cuMemMap */
	uint32_t held, mappings;
	bool named;                             /* made by cuMemCreate: the program has its handle */
	CUmemAllocationHandleType handle_types; /* allowed exports */
};

/* Returns the handle held once. CUDA_ERROR_OUT_OF_MEMORY if the device lacks the memory. Lock held. */
CUresult sim_physical_create(uint32_t device, uint64_t bytes, struct sim_handle **ret_handle);
/* Lock held. The first function frees the handle if nothing holds it. The second drops one hold before that. */
void sim_physical_settle(struct sim_handle *handle);
void sim_physical_release(struct sim_handle *handle);
struct sim_handle *sim_physical_find(uint64_t id);
/* The program's handle, while it holds it; else NULL. Lock held. */
struct sim_handle *sim_handle_held(CUmemGenericAllocationHandle id);
/* Adds unused bytes at the end of this process's file. False: host out of memory. Lock held. */
bool sim_physical_extend(uint64_t bytes, uint64_t *ret_offset);

/* A file of another process whose memory this process has imported: share.c. Lock held. */
struct sim_file {
	struct sim_file *next; /* of sim.shared_files */
	uint64_t device, inode;
	int fd;
	uint32_t references;
};

void sim_file_release(struct sim_file *file); /* NULL is fine */
/* A shared handle is being freed. True: no other process holds the memory. */
bool sim_share_leave(const struct sim_handle *handle);

/* Charges this process in the world; `device`: CUDA's ordinal. Lock held. CUDA_ERROR_DEINITIALIZED: the process is
 * exiting. */
CUresult sim_charge_device(uint32_t device, enum sim_charge what, uint64_t bytes);
void sim_refund_device(uint32_t device, enum sim_charge what, uint64_t bytes);
/* Report a charge, or a refund, to the account: account.c. */
void sim_account_charge(uint32_t device, enum sim_charge what, uint64_t bytes);
void sim_account_refund(uint32_t device, enum sim_charge what, uint64_t bytes);
/* Reports that the program loads a module of so many bytes; 0: unknown. */
void sim_account_module(uint64_t bytes);
/* The descriptor of the file with the handle's bytes. */
int sim_physical_file(const struct sim_handle *handle);

/* -- address ranges ---------------------------------------------------------------------------------------------- */

struct sim_range {
	uint64_t start, bytes;
};

/* A set of disjoint ranges, each the first member of its struct. */
struct sim_ranges {
	void *root;
};

struct sim_range *sim_ranges_find(const struct sim_ranges *ranges, uint64_t start, uint64_t bytes);
bool sim_ranges_add(struct sim_ranges *ranges, struct sim_range *range); /* false: host out of memory */
void sim_ranges_remove(struct sim_ranges *ranges, struct sim_range *range);

enum sim_reservation_kind {
	SIM_RESERVED, /* cuMemAddressReserve */
	SIM_ALLOCATED,
	SIM_POOLED,
	SIM_STATIC,   /* a module's variables */
	SIM_IMPORTED, /* cuIpcOpenMemHandle: another process's allocation */
};

struct sim_reservation {
	struct sim_range range;
	enum sim_reservation_kind kind;
	uint64_t requested_bytes; /* all but RESERVED */
	uint32_t device;
	CUcontext context;   /* the context that frees it when it ends; NULL: RESERVED and POOLED */
	bool sync_memops;    /* as the program set it */
	CUmemoryPool pool;   /* POOLED */
	bool pool_free;      /* POOLED: freed by the program, in its pool's list */
	uint32_t free_event; /* POOLED: the engine's event, recorded when the program freed it */
	struct sim_reservation *next_free;
	uint32_t opened; /* IMPORTED: how often it was opened, minus how often it was closed */
	uint64_t mappings;
};

struct sim_mapping {
	struct sim_range range;
	struct sim_handle *handle;
	struct sim_reservation *reservation;
	uint64_t valid_bytes; /* bytes that a program may touch: less than range.bytes for an allocation */
	unsigned char access[SIM_DEVICE_LIMIT]; /* RESERVED: CUmemAccess_flags of each device */
};

/* How a device may access the mapping. Lock held. */
CUmemAccess_flags sim_access_of(const struct sim_mapping *mapping, uint32_t device);

/* Lock held, all of them. */
CUresult sim_reserve(uint64_t bytes, uint64_t alignment, uint64_t wanted, struct sim_reservation **ret_reservation);
/* For an allocation: reserves the lowest free place. `bytes`: whole pages. */
CUresult sim_reserve_lowest(uint64_t bytes, struct sim_reservation **ret_reservation);
void sim_unreserve(struct sim_reservation *reservation);
/* `open`: its device may read and write it at once; else no device may yet. */
CUresult sim_map(struct sim_reservation *reservation, uint64_t address, struct sim_handle *handle, bool open);
/* Restores inaccessible pages; false if the host refuses. */
bool sim_map_cover(const struct sim_mapping *mapping);
/* Returns the widest access that any device has to the mapping. */
CUmemAccess_flags sim_map_widest(const struct sim_mapping *mapping);
/* Gives the host this access. False: the host is out of mappings. */
bool sim_map_protect(uint64_t start, uint64_t bytes, CUmemAccess_flags access);
void sim_unmap(struct sim_mapping *mapping);
struct sim_mapping *sim_mapping_at(uint64_t address);
/* Whether the address is in the region of device memory. */
bool sim_address_ours(uint64_t address);
/* Makes reservation, handle and mapping in one call, for alloc.c and pool.c; sim_deallocate undoes it. */
CUresult sim_allocate(uint32_t device, uint64_t bytes, enum sim_reservation_kind kind,
		      struct sim_reservation **ret_reservation);
void sim_deallocate(struct sim_reservation *reservation);
/* Frees a context's allocations; NULL: those of the device's pools. */
void sim_allocations_drop(CUcontext context, uint32_t device);

/* Returns how much of an allocation of this size a program may touch: the driver rounds like this. */
static inline uint64_t sim_touchable(uint64_t bytes) { return (bytes + 511) / 512 * 512; }

#define SIM_HOST_ITSELF (-1) /* CU_DEVICE_CPU, CU_DEVICE_INVALID */
#define SIM_NOWHERE     (-2)

enum sim_host_kind {
	SIM_HOST_PINNED,
	SIM_HOST_REGISTERED, /* the program's own pages */
	SIM_HOST_MANAGED,
};

#define SIM_ACCESSED_BY_HOST (1u << 31)

/* Host memory that devices reach. */
struct sim_host {
	struct sim_range range;
	uint64_t space; /* of the engine */
	enum sim_host_kind kind;
	unsigned int flags;
	CUcontext context; /* the context that was current at the call */
	/* MANAGED: advice. */
	bool read_mostly;
	CUmemLocation preferred, fetched;
	uint32_t accessed_by; /* bits of devices, and SIM_ACCESSED_BY_HOST */
};

struct sim_host *sim_host_at(uint64_t address); /* lock held */
CUresult sim_managed_free(uint64_t start);
/* Frees the managed memory of a context that ends, and the pinned memory of one that is not primary. Lock held. */
void sim_host_drop(CUcontext context);

/* -- work -------------------------------------------------------------------------------------------------------- */

/* Unfinished work of the engine. */
struct sim_flight {
	struct sim_flight *next, *previous;
	uint64_t id;
	const char *name;
	void (*function)(void *argument); /* NULL: none, or cancelled */
	void *argument;
	void *staged;                    /* freed with the flight */
	struct sim_operation *operation; /* the operation that it launches, a reference; NULL: none */
	size_t range_count;
	struct neap_sim_range ranges[];
};

struct sim_operation; /* graph.h */

typedef void (*sim_launch_watch)(const struct neap_sim_launch *launch);

struct sim_task { /* work to be queued */
	const char *name;
	CUgraphNodeType type; /* the type of the node that replaces it in a capture */
	uint64_t duration_ns;
	const struct neap_sim_range *ranges;
	size_t range_count;
	void (*function)(void *argument);
	void *argument;
	void *staged;                    /* taken over, also on failure */
	bool strict;                     /* a range outside device memory is a detected error, not an invalid value */
	struct sim_operation *operation; /* set by sim_submit_operation */
};

/* Submits a task. `ret_id` (may be NULL) names the flight for sim_flight_cancel. It detects errors: a race; a range
 * outside memory, if `strict`. */
CUresult sim_submit(CUstream stream, const struct sim_task *task, uint64_t *ret_id);
/* Submits the operation of a graph's node again. */
CUresult sim_submit_operation(CUstream stream, struct sim_operation *operation);
/* Prevents its function from running. */
void sim_flight_cancel(uint64_t id);
/* Frees the work that a dropped engine has left, when the driver's state is discarded. Lock held. */
void sim_flights_drop(void);
/* Lock held. The work in flight that touches these addresses, or NULL. */
const struct sim_flight *sim_flight_over(uint64_t start, uint64_t bytes);
/* Lock held. False if work in flight touches these addresses; the detected error "WHAT of ... while ..." is then
 * recorded. */
bool sim_flight_clear(const char *what, uint64_t start, uint64_t bytes);

CUresult sim_result_of(enum sim_order order);
/* Launches a kernel that declares no ranges and has no function. If `duration_ns` is 0, it takes as long as
 * NEAP_SIM_KERNEL says. */
CUresult sim_launch(CUstream stream, const char *name, uint64_t duration_ns);
uint64_t sim_loaded_launches(void); /* how many kernels, loaded by this process itself, were launched so far */

/* -- streams, events, capture ------------------------------------------------------------------------------------ */

/* Nodes of one graph, each once. A zeroed struct is empty. */
struct sim_nodes {
	CUgraphNode *list;
	size_t count, capacity;
};

struct CUstream_st {
	uint32_t number;
	unsigned int flags;
	CUcontext context;
	int priority;
	uint64_t id;

	struct sim_capture *capture; /* that captures it; NULL: none */
	CUstream next_captured;
	struct sim_nodes next;  /* dependencies of its next node */
	CUgraphEdgeData *edges; /* an array of that many zeros, for callers that ask for edges */
};

struct CUevent_st {
	uint32_t number;
	unsigned int flags;
	CUcontext context;
	uint64_t capture;       /* the id of the capture in which it was last recorded; 0: none */
	struct sim_nodes nodes; /* and its place there */
};

/* NULL, CU_STREAM_LEGACY and CU_STREAM_PER_THREAD are one stream here. */
static inline bool sim_null_stream(CUstream stream) { return (uintptr_t)stream <= (uintptr_t)CU_STREAM_PER_THREAD; }

bool sim_stream_known(CUstream stream); /* false for null streams. Lock held */
bool sim_event_known(CUevent event);    /* lock held */
/* A stream's device; for a null stream, the device of the calling thread's context. Lock held. */
CUresult sim_stream_device(CUstream stream, uint32_t *ret_device);
/* Returns the context of a known stream. NULL: the null stream of a thread without a context. Lock held. */
CUcontext sim_stream_context(CUstream stream);
/* Called before work is added to a stream. Returns the engine's number of the stream, and whether it is capturing: a
 * node then replaces the work. Errors: CUDA_ERROR_INVALID_HANDLE, or a capture forbids the work. Lock held. */
CUresult sim_stream_enter(CUstream stream, uint32_t *ret_number, bool *ret_capturing);
/* As sim_stream_enter, for a query; it is also refused if the stream is capturing. Takes the lock. */
CUresult sim_stream_enter_query(CUstream stream, uint32_t *ret_number);
/* Waits until no thread runs host functions late. Lock held. */
void sim_host_calls_leave(void);
/* Destroys the streams, or the events, of a context that ends. Puts references to user objects on `holds`. Lock
 * held. */
struct sim_hold;
void sim_streams_drop(CUcontext context, struct sim_hold **holds);
void sim_events_drop(CUcontext context);
/* After a wait on the host: trims the pool of the current device to its threshold. Passes `result` on. */
CUresult sim_after_wait(CUresult result);

/* For calls that may be unsafe during a capture: refuses the call and spoils the captures that forbid it. Takes the
 * lock. */
CUresult sim_capture_check_unsafe(void);
/* For a wait on a whole device: forbidden while any of its streams is capturing. Takes the lock. */
CUresult sim_capture_check_device(uint32_t device);
/* For a use of the current device's null stream: forbidden while a blocking stream of that device is capturing.
 * `spoil`: spoils those captures. Lock held. */
CUresult sim_capture_check_null(bool spoil);
/* Ends all captures: the driver restarts. Lock held. */
void sim_captures_drop(void);
void sim_graphs_drop(void);

/* -- context ----------------------------------------------------------------------------------------------------- */

#define SIM_PRIORITY_LEAST    0
#define SIM_PRIORITY_GREATEST (-5) /* as on devices since compute capability 7.0 */

struct sim_settings {
	size_t limits[CU_LIMIT_PERSISTING_L2_CACHE_SIZE + 1]; /* by CUlimit */
	CUfunc_cache cache;
};

/* A context: the primary one, which is a member of its device, or one of cuCtxCreate, in the list sim.contexts. That
 * list only grows, so any thread may read it without the lock. The struct of a destroyed context serves a later
 * context, which has another id. */
struct CUctx_st {
	CUcontext next;      /* of sim.contexts */
	bool primary;        /* constant, as `next` is */
	_Atomic uint64_t id; /* unique in the process; 0: not active */
	uint32_t device;
	unsigned int retained, flags;
	uint32_t peers;               /* bits of the devices whose memory it can use */
	struct sim_settings settings; /* while it is active */
};

bool sim_context_flags_good(unsigned int flags);

/* Sets a new context's defaults. Lock held. */
void sim_settings_reset(struct CUctx_st *context);

struct CUmemPoolHandle_st {
	CUmemoryPool next; /* of sim.pools */
	uint32_t device;
	bool destroyed; /* freed with its last allocation */
	uint64_t limit; /* bytes it may hold; 0: the device's */
	uint64_t threshold, reserved_bytes, reserved_high, used_bytes, used_high;
	int reuse[3];                           /* by CUmemPool_attribute - 1; stored, without effect */
	unsigned char access[SIM_DEVICE_LIMIT]; /* CUmemAccess_flags of other devices */
	struct sim_reservation *free_list;
};

struct sim_device {
	struct sim_view_device view;
	const struct sim_profile *profile; /* static: its model, or the most similar one */
	uint32_t index;                    /* in the world */
	struct CUctx_st context;
	CUmemoryPool default_pool, pool; /* NULL: not created yet. `pool`: for cuMemAllocAsync */
};

bool sim_device_known(CUdevice device);
const struct sim_architecture *sim_architecture_of(const struct sim_device *device);
/* Whether two devices can read each other's memory. */
bool sim_peers(uint32_t device, uint32_t peer);
bool sim_context_known(CUcontext context); /* an active one */
bool sim_context_any(void);                /* whether any is active */
/* The calling thread's current context; NULL: none, or it has ended. */
CUcontext sim_current_context(void);
/* The device of that context. False: there is no current context. */
bool sim_current_device(uint32_t *ret_device);
/* Returns the error of a call that needs a context while none is current. */
CUresult sim_context_missing(void);
/* Whether a context of the device has access to the peer's memory. Lock held. */
bool sim_peer_enabled(uint32_t device, uint32_t peer);
CUresult sim_synchronize_all(void);
/* Lock held. Frees cached blocks of a device's pools until each holds no more than this; blocks that work still uses
 * stay. */
void sim_pools_trim(uint32_t device, uint64_t keep_bytes);
/* Removes a block from its pool. Lock held. */
void sim_pool_take_out(struct sim_reservation *block);
/* Destroys the pools of a device whose last context ends, and their blocks. Lock held. */
void sim_pools_drop(uint32_t device);
/* A live allocation that starts at this address, or NULL. Lock held. */
struct sim_reservation *sim_allocation_at(uint64_t address);

/* Unloads the modules of a context that ends. Lock held. */
void sim_modules_drop(CUcontext context);
void sim_libraries_drop(void);

/* -- the one state ----------------------------------------------------------------------------------------------- */

struct sim_state {
	pthread_mutex_t lock;
	atomic_bool initialized;
	atomic_bool forked; /* this is a child of the process that called cuInit */
	atomic_bool ended;  /* the process is exiting: it has left its world, other threads may still call */
	atomic_int sticky;  /* CUresult of a detected error */
	uint64_t kernel_ns; /* NEAP_SIM_KERNEL: the default duration of a kernel */
	pid_t pid;
	char environment[1024]; /* the environment as cuInit found it, to detect changes */
	char message[320];      /* why cuInit failed */
	CUresult init_result;   /* the error of that cuInit */
	struct sim_spec spec;
	struct sim_world *world;
	struct sim_engine *engine;
	uint32_t device_count;
	struct sim_device devices[SIM_DEVICE_LIMIT];
	int files[SIM_DEVICE_LIMIT]; /* descriptors + 1 of the stand-ins for device files; 0: none */

	uint64_t next_id; /* of handles and of pinned memory */
	struct neap_map handles;
	int file; /* memfd; -1: none yet */
	uint64_t file_end, file_size;
	uint64_t next_address; /* of reservations; 0: none used yet */
	uint64_t full_to;      /* no address below it is free for an allocation; 0: none used yet */
	struct sim_ranges reservations, mappings, hosts;
	CUmemoryPool pools;
	_Atomic(CUcontext) contexts; /* of cuCtxCreate, also destroyed ones */
	struct sim_file *shared_files;
	struct sim_share *shares;
	void (*_Atomic share_watch)(const char *call, int opened); /* neap/sim.h: watch_shares */
	sim_launch_watch _Atomic launch_watch;                     /* neap/sim.h: watch_launches */
	bool values;                                               /* neap/sim.h: keep_values */
	/* The place of the directory in the file: entries of this process's shares */
	uint64_t directory, directory_end;
	struct sim_flight *flights;

	/* Handles that the program has. */
	struct neap_map streams, events, graphs, nodes, executables, objects, modules, libraries, functions;
	struct sim_capture *captures; /* running */
	atomic_uint capture_count;    /* how many; read without the lock */
	struct neap_sim_fault_report report;
};

extern struct sim_state sim;

/* Records a detected error: keeps the first one's text, and makes every later call return CUDA_ERROR_ILLEGAL_ADDRESS.
 * Lock held. */
CUresult sim_detect_locked(const char *format, ...) NEAP_PRINTF(1, 2);

/* Called once the driver is initialised, without the lock: loads neap's launcher into a Python that lacks it. */
void sim_reach_python(void);
/* A line of text for the report of `neap run`. */
void sim_note(const char *format, ...) NEAP_PRINTF(1, 2);
/* Notes that NVIDIA's own runtime, or a program that contains it, called from this address. */
void sim_note_foreign_runtime(const void *caller);

CUresult sim_call_enter(enum sim_call call);
CUresult sim_call_leave(enum sim_call call, CUresult result);
/* Returns and counts an injected fault due for this call. */
CUresult sim_fault_take(enum sim_call call);
/* Reads faults, latencies and the log from the environment. NEAP_EPARSE with the expected form. */
enum neap_status sim_calls_configure(struct neap_error *err);
int sim_fault_add(const char *name, uint64_t skip, uint64_t count, int code);
bool sim_latency_set(const char *name, uint64_t ns);
uint64_t sim_call_total(const char *name);
const char *sim_error_name(CUresult result);
/* Resets counts, latencies, faults and the log. */
void sim_calls_reset(void);

#endif
