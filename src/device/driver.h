/* device/driver.h: an open driver, for the rest of libneap, and a way for tests to substitute their own. */
#ifndef NEAP_DEVICE_DRIVER_H
#define NEAP_DEVICE_DRIVER_H

#include "device/cuda_api.h"
#include "device/nvml_api.h"
#include "neap/device.h"

#include <stdbool.h>

/* Returns the table of functions. Borrowed: it lives as long as the driver. */
const struct neap_cuda *neap_driver_cuda(const struct neap_driver *driver);

/* What the driver can do beyond its required functions, by its table; read once, when the driver is opened. */
struct neap_capabilities {
	bool virtual_memory; /* pages apart from addresses; a device has it, too, if its page_bytes are not 0 */
	bool pci_bus_id;     /* cuDeviceGetPCIBusId */
	bool capture_status; /* cuStreamIsCapturing: without it no stream counts as captured */
};

/* Borrowed: they live as long as the driver. */
const struct neap_capabilities *neap_driver_capabilities(const struct neap_driver *driver);

/* Whether a list as in CUDA_VISIBLE_DEVICES (NULL: empty) names a MIG instance. */
bool neap_driver_names_mig(const char *list);

/* Wraps the caller's table (which may count, record or fail calls). The table is copied; no library is loaded; `nvml`
 * may be NULL. Calls cuInit and counts devices as neap_driver_open does. */
enum neap_status neap_driver_wrap(const struct neap_cuda *cuda, const struct neap_nvml *nvml,
				  struct neap_driver **ret_driver, struct neap_error *err);

/* Status for a CUresult (NEAP_EOOM for out of memory, NEAP_ENOTSUP, NEAP_ENODEVICE, else NEAP_EDRIVER) and a message
 * "WHAT: CUDA_ERROR_X (code N): text". 0 gives NEAP_OK. The one place where CUDA's errors are translated. */
enum neap_status neap_cuda_fail(const struct neap_cuda *cuda, CUresult result, struct neap_error *err,
				const char *what);

/* A monitor over the driver's own NVML; the caller closes it before the driver. Errors: NEAP_ENOTSUP if NVML could
 * not be opened with the driver. */
struct neap_monitor;
enum neap_status neap_driver_monitor(struct neap_driver *driver, struct neap_monitor **ret_monitor,
				     struct neap_error *err);

/* The figures of nvidia-smi for the device, found by its UUID: used bytes (without the driver's own reserve, if NVML
 * reports it separately) and free bytes. Errors: as above; NEAP_ENODEVICE if NVML does not show it; NVML's. */
enum neap_status neap_device_smi_memory(struct neap_device *device, uint64_t *ret_used_bytes,
					uint64_t *ret_free_bytes, struct neap_error *err);

/* Returns the context of an open device, for calls that need it current. */
CUcontext neap_device_context(const struct neap_device *device);
CUdevice neap_device_handle(const struct neap_device *device);

/* Finds the folder with the simulator's libcuda.so.1 and libnvidia-ml.so.1: $NEAP_SIM_PATH, else a folder beside the
 * object with this code (build tree and installed layouts). The path is absolute. NEAP_ENOENT if not found. */
enum neap_status neap_sim_folder(char *text, size_t capacity, struct neap_error *err);

#endif
