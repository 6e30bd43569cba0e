/* neap/device.h: the driver, its devices, and a guard for the current one.
 *
 * A struct neap_driver is the table of CUDA driver functions, filled at run time by dlopen; nothing links CUDA. A
 * struct neap_device is one device with its primary context retained. Both are created and destroyed by the caller;
 * a driver outlives its devices, a device its allocators.
 *
 * Threads: open and close from one thread at a time; everything else from any thread. After fork() nothing here may
 * be used in the child (the driver does not survive it): the child opens its own.
 */
#ifndef NEAP_DEVICE_H
#define NEAP_DEVICE_H

#include "neap/status.h"

#include <stddef.h>
#include <stdint.h>

#ifdef __cplusplus
extern "C" {
#endif

struct neap_driver;
struct neap_device;

enum neap_backend {
	NEAP_BACKEND_DEFAULT = 0, /* NEAP_DEVICE=cuda|sim in the environment, else cuda */
	NEAP_BACKEND_CUDA = 1,    /* libcuda.so.1, NVIDIA's */
	NEAP_BACKEND_SIM = 2,     /* neap's simulator, found beside libneap (or in NEAP_SIM_PATH), by absolute path */
};

/* Loads the driver and calls cuInit. Errors: NEAP_ENODEVICE when there is none, when it is a stub (error 34), or when
 * it shows no device; the message names NEAP_DEVICE=sim. NEAP_EINVAL for an unknown NEAP_DEVICE. Never prints. */
NEAP_API enum neap_status neap_driver_open(enum neap_backend backend, struct neap_driver **ret_driver,
					   struct neap_error *err);
NEAP_API void neap_driver_close(struct neap_driver *driver);

NEAP_API enum neap_backend neap_driver_backend(const struct neap_driver *driver);
NEAP_API int neap_driver_device_count(const struct neap_driver *driver);

/* The simulator's public calls (neap/sim.h), or NULL where the driver is NVIDIA's. Borrowed, lives with the driver.
 */
NEAP_API const struct neap_sim_calls *neap_driver_sim(const struct neap_driver *driver);

struct neap_device_info {
	int ordinal;            /* CUDA's, within CUDA_VISIBLE_DEVICES */
	unsigned char uuid[16]; /* the same for CUDA and NVML: devices are matched by this, never by index */
	char uuid_text[48];     /* "GPU-xxxxxxxx-xxxx-xxxx-xxxx-xxxxxxxxxxxx" */
	char name[96];
	char pci_bus_id[32]; /* "0000:17:00.0"; "" if the driver does not report it */
	uint64_t total_bytes;
	uint32_t page_bytes; /* granularity of virtual memory; 0 where the device lacks it */
	int compute_major, compute_minor;
};

/* Opens device `ordinal` and retains its primary context. `context_bytes`, as measured: see neap_device_context. */
NEAP_API enum neap_status neap_device_open(struct neap_driver *driver, int ordinal, struct neap_device **ret_device,
					   struct neap_error *err);
NEAP_API void neap_device_close(struct neap_device *device);

/* Borrowed; lives with the device. */
NEAP_API const struct neap_device_info *neap_device_info(const struct neap_device *device);
NEAP_API struct neap_driver *neap_device_driver(struct neap_device *device);

/* Free and total bytes as the driver reports them to this process (cuMemGetInfo). */
NEAP_API enum neap_status neap_device_memory(struct neap_device *device, uint64_t *ret_free_bytes,
					     uint64_t *ret_total_bytes, struct neap_error *err);

/* Waits for all work queued on `stream` (CUstream; NULL: the default stream). Work that failed shows here. */
NEAP_API enum neap_status neap_device_synchronize(struct neap_device *device, void *stream, struct neap_error *err);

/* Bytes this process's context took, as NVML reported them right after it was created and before any allocation;
 * 0 if NVML does not report it, or if the context existed before the device was opened. */
NEAP_API uint64_t neap_device_context_bytes(const struct neap_device *device);
/* Asks NVML now, for a context that another library created: `allocated_bytes` is what the process is known to have
 * allocated on the device, the rest is the context. Call it before an allocator is created on the device. */
NEAP_API void neap_device_measure_context(struct neap_device *device, uint64_t allocated_bytes);

/* The device guard: makes the device's context current on this thread until neap_device_leave, which restores what
 * was current before. Nests. Cheap when it is current already. */
struct neap_device_guard {
	struct neap_device *device; /* NULL: nothing to undo */
};
NEAP_API enum neap_status neap_device_enter(struct neap_device *device, struct neap_device_guard *ret_guard,
					    struct neap_error *err);
NEAP_API void neap_device_leave(struct neap_device_guard *guard);

#ifdef __cplusplus
}
#endif
#endif
