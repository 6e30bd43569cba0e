/* device/loader.h: finds the two driver libraries and fills their tables. Calls only the function that looks up
 * addresses. Any thread. */
#ifndef NEAP_DEVICE_LOADER_H
#define NEAP_DEVICE_LOADER_H

#include "device/driver.h"
#include "neap/sim.h"

#include <stdbool.h>
#include <sys/types.h>

#define NEAP_SIM_HINT "NEAP_DEVICE=sim uses neap's simulator"

/* DEFAULT becomes the value of NEAP_DEVICE, else CUDA. Errors: NEAP_EINVAL for another value. */
enum neap_status neap_backend_resolve(enum neap_backend backend, enum neap_backend *ret_backend,
				      struct neap_error *err);

struct neap_loaded_cuda {
	void *library;             /* for dlclose, as long as nothing in it was called */
	enum neap_backend backend; /* of the library found: SIM also if the library path leads to the simulator */
	const struct neap_sim_calls *sim;
	struct neap_cuda table;
};

struct neap_loaded_nvml {
	void *library;
	enum neap_backend backend;
	struct neap_nvml table;
};

/* Errors: NEAP_ENODEVICE if there is no library; NEAP_ENOTSUP if it lacks a required function; NEAP_ENOENT if the
 * simulator is not found. */
enum neap_status neap_load_cuda(enum neap_backend backend, struct neap_loaded_cuda *ret_loaded,
				struct neap_error *err);
enum neap_status neap_load_nvml(enum neap_backend backend, struct neap_loaded_nvml *ret_loaded,
				struct neap_error *err);

/* Returns the name of the first REQUIRED function that is NULL; NULL: there is none. */
const char *neap_cuda_missing(const struct neap_cuda *table);
const char *neap_nvml_missing(const struct neap_nvml *table);

/* Status and message for an nvmlReturn_t, as neap_cuda_fail. */
enum neap_status neap_nvml_fail(const struct neap_nvml *nvml, nvmlReturn_t result, struct neap_error *err,
				const char *what);

/* "GPU-xxxxxxxx-xxxx-xxxx-xxxx-xxxxxxxxxxxx", both ways. Parsing takes any prefix up to the first dash ("MIG-" too).
 */
void neap_uuid_format(const unsigned char uuid[16], char text[48]);
bool neap_uuid_parse(const char *text, unsigned char ret_uuid[16]);

/* Finds the bytes that NVML reports for a process on the device with this UUID. False: unknown. */
bool neap_nvml_process_bytes(const struct neap_nvml *nvml, const unsigned char uuid[16], pid_t pid,
			     uint64_t *ret_bytes);

/* Reads the process list of a device, with an array that grows until it fits; the caller frees it. Errors: as
 * neap_nvml_fail. */
enum neap_status neap_nvml_processes(const struct neap_nvml *nvml, nvmlDevice_t device,
				     nvmlProcessInfo_t **ret_processes, unsigned int *ret_count,
				     struct neap_error *err);

#endif
