/* device/driver.c: an open driver: the table, filled and initialised, and NVML if there is one.
 *
 * The libraries are never unloaded after the first call: NVIDIA's starts threads and registers exit handlers.
 */
#include "device/driver.h"
#include "base/error.h"
#include "device/driver_private.h"
#include "device/loader.h"

#include <dlfcn.h>
#include <stdlib.h>
#include <string.h>

static struct neap_capabilities find_capabilities(const struct neap_cuda *cuda)
{
	return (struct neap_capabilities){
		.virtual_memory = cuda->cuMemAddressReserve && cuda->cuMemAddressFree && cuda->cuMemCreate &&
				  cuda->cuMemRelease && cuda->cuMemMap && cuda->cuMemUnmap && cuda->cuMemSetAccess &&
				  cuda->cuMemGetAllocationGranularity,
		.pci_bus_id = cuda->cuDeviceGetPCIBusId,
		.capture_status = cuda->cuStreamIsCapturing,
	};
}

bool neap_driver_names_mig(const char *list)
{
	while (list && *list) {
		list += strspn(list, " \t,");
		if (strncmp(list, "MIG-", 4) == 0)
			return true;
		list += strcspn(list, ",");
	}
	return false;
}

/* Calls cuInit and checks that there is at least one device. */
static enum neap_status start_cuda(struct neap_driver *driver, struct neap_error *err)
{
	driver->can = find_capabilities(&driver->cuda);
	CUresult result = driver->cuda.cuInit(0);
	int count = 0;

	if (result == CUDA_ERROR_STUB_LIBRARY)
		return neap_fail(err, NEAP_ENODEVICE,
				 "no NVIDIA driver: libcuda.so.1 is the toolkit's stub; " NEAP_SIM_HINT);
	if (result == CUDA_ERROR_NO_DEVICE && neap_driver_names_mig(getenv("CUDA_VISIBLE_DEVICES")))
		return neap_fail(err, NEAP_ENODEVICE,
				 "CUDA_VISIBLE_DEVICES names a MIG instance that the driver does not show");
	if (result == CUDA_ERROR_NO_DEVICE)
		return neap_fail(err, NEAP_ENODEVICE,
				 "the driver shows no device (CUDA_VISIBLE_DEVICES?); " NEAP_SIM_HINT);
	if (result != CUDA_SUCCESS)
		return neap_cuda_fail(&driver->cuda, result, err, "starting the CUDA driver (cuInit)");
	if ((result = driver->cuda.cuDeviceGetCount(&count)) != CUDA_SUCCESS)
		return neap_cuda_fail(&driver->cuda, result, err, "counting devices");
	if (count <= 0)
		return neap_fail(err, NEAP_ENODEVICE,
				 "the driver shows no device (CUDA_VISIBLE_DEVICES?); " NEAP_SIM_HINT);
	driver->device_count = count;
	return NEAP_OK;
}

/* NVML only adds detail to reports: everything else works without it. */
static void start_nvml(struct neap_driver *driver) { driver->nvml_running = driver->nvml.nvmlInit() == NVML_SUCCESS; }

enum neap_status neap_driver_open(enum neap_backend backend, struct neap_driver **ret_driver, struct neap_error *err)
{
	struct neap_loaded_cuda cuda;
	struct neap_loaded_nvml nvml;
	enum neap_status status = neap_backend_resolve(backend, &backend, err);
	struct neap_driver *driver;

	if (status || (status = neap_load_cuda(backend, &cuda, err)) != NEAP_OK)
		return status;
	if (!(driver = calloc(1, sizeof *driver))) {
		dlclose(cuda.library);
		return neap_fail(err, NEAP_ENOMEM, "opening the driver: out of host memory");
	}
	driver->cuda = cuda.table;
	driver->backend = cuda.backend;
	driver->sim = cuda.sim;
	neap_fork_guard_init(&driver->guard);
	if ((status = start_cuda(driver, err))) {
		neap_driver_close(driver);
		return status;
	}
	if (neap_load_nvml(backend, &nvml, NULL) == NEAP_OK) {
		driver->nvml = nvml.table;
		start_nvml(driver);
	}
	*ret_driver = driver;
	return NEAP_OK;
}

enum neap_status neap_driver_wrap(const struct neap_cuda *cuda, const struct neap_nvml *nvml,
				  struct neap_driver **ret_driver, struct neap_error *err)
{
	const char *missing = neap_cuda_missing(cuda);
	struct neap_driver *driver;
	enum neap_status status;

	if (!missing && nvml)
		missing = neap_nvml_missing(nvml);
	if (missing)
		return neap_fail(err, NEAP_EINVAL, "wrapping a driver: the table has no %s", missing);
	if (!(driver = calloc(1, sizeof *driver)))
		return neap_fail(err, NEAP_ENOMEM, "opening the driver: out of host memory");
	driver->cuda = *cuda;
	driver->backend = NEAP_BACKEND_CUDA;
	neap_fork_guard_init(&driver->guard);
	if ((status = start_cuda(driver, err))) {
		neap_driver_close(driver);
		return status;
	}
	if (nvml) {
		driver->nvml = *nvml;
		start_nvml(driver);
	}
	*ret_driver = driver;
	return NEAP_OK;
}

void neap_driver_close(struct neap_driver *driver)
{
	if (!driver)
		return;
	if (driver->nvml_running && neap_fork_guard_holds(&driver->guard))
		driver->nvml.nvmlShutdown();
	neap_fork_guard_fini(&driver->guard);
	free(driver);
}

const struct neap_cuda *neap_driver_cuda(const struct neap_driver *driver) { return &driver->cuda; }
const struct neap_capabilities *neap_driver_capabilities(const struct neap_driver *driver) { return &driver->can; }
enum neap_backend neap_driver_backend(const struct neap_driver *driver) { return driver->backend; }
int neap_driver_device_count(const struct neap_driver *driver) { return driver->device_count; }
const struct neap_sim_calls *neap_driver_sim(const struct neap_driver *driver) { return driver->sim; }
