/* Memory and events of other processes.
 *
 *   cuMemExportToShareableHandle   a descriptor of virtual memory     cuIpcGetMemHandle    64 bytes, for cuMemAlloc
 *
 * Both name an entry of share.h. The 64 bytes name the process whose file has the memory. That process must be alive,
 * and run as the same user.
 *
 * Each process has its own virtual time: an event of another process counts as complete. Recording it or waiting for
 * it orders only this process's work.
 */
#include "base/descriptor.h"
#include "base/process.h"
#include "sim/driver/graph.h"
#include "sim/driver/share.h"

#include <fcntl.h>
#include <search.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <unistd.h>

/* -- descriptors ------------------------------------------------------------------------------------------------- */

CUresult sim_cuMemExportToShareableHandle(void *shareable, CUmemGenericAllocationHandle id,
					  CUmemAllocationHandleType type, unsigned long long flags)
{
	CUresult result = CUDA_ERROR_INVALID_VALUE;
	struct sim_handle *handle;
	uint64_t entry;
	int fd = -1;

	if (!shareable || flags != 0)
		return CUDA_ERROR_INVALID_VALUE;
	if (type != CU_MEM_HANDLE_TYPE_POSIX_FILE_DESCRIPTOR)
		return CUDA_ERROR_NOT_SUPPORTED;
	pthread_mutex_lock(&sim.lock);
	handle = sim_handle_held(id);
	if (handle && (handle->handle_types & type))
		result = sim_share_create(handle, handle->bytes, &entry);
	if (result == CUDA_SUCCESS) {
		fd = sim_share_open(handle);
		result = fd >= 0 ? CUDA_SUCCESS : CUDA_ERROR_OPERATING_SYSTEM;
	}
	pthread_mutex_unlock(&sim.lock);
	if (result != CUDA_SUCCESS)
		return result;
	sim_share_report("cuMemExportToShareableHandle", false);
	*(int *)shareable = fd;
	return CUDA_SUCCESS;
}

/* The caller keeps the descriptor. */
CUresult sim_cuMemImportFromShareableHandle(CUmemGenericAllocationHandle *handle, void *shareable,
					    CUmemAllocationHandleType type)
{
	struct sim_handle *made;
	CUresult result;

	if (!handle)
		return CUDA_ERROR_INVALID_VALUE;
	if (type != CU_MEM_HANDLE_TYPE_POSIX_FILE_DESCRIPTOR)
		return CUDA_ERROR_NOT_SUPPORTED;
	pthread_mutex_lock(&sim.lock);
	result = sim_share_import((int)(intptr_t)shareable, &made);
	if (result == CUDA_SUCCESS) {
		made->named = true;
		made->handle_types = type;
		*handle = made->id;
	}
	pthread_mutex_unlock(&sim.lock);
	if (result == CUDA_SUCCESS)
		sim_share_report("cuMemImportFromShareableHandle", true);
	return result;
}

/* -- 64 bytes ---------------------------------------------------------------------------------------------------- */

#define MEMORY_MAGIC 0x6d697063u /* "cpim" */
#define EVENT_MAGIC  0x65697063u

struct name { /* of an object in another process */
	uint32_t magic;
	int32_t pid;
	uint64_t start_ticks;
	uint64_t place; /* the position of the entry, or the number of the event */
	int32_t file;   /* the descriptor there */
	int32_t pad;
};

_Static_assert(sizeof(struct name) <= CU_IPC_HANDLE_SIZE, "fits the driver's handles");

static bool name_self(uint32_t magic, uint64_t place, char bytes[CU_IPC_HANDLE_SIZE])
{
	struct neap_process self;
	struct name name = {.magic = magic, .pid = getpid(), .place = place, .file = sim.file};

	if (neap_process_read(getpid(), &self, NULL) != NEAP_OK)
		return false;
	name.start_ticks = self.start_ticks;
	memset(bytes, 0, CU_IPC_HANDLE_SIZE);
	memcpy(bytes, &name, sizeof name);
	return true;
}

/* Reads the 64 bytes. A process cannot open its own memory or event this way, as in the driver. */
static CUresult read_name(const char bytes[CU_IPC_HANDLE_SIZE], uint32_t magic, struct name *ret_name)
{
	memcpy(ret_name, bytes, sizeof *ret_name);
	if (ret_name->magic != magic || ret_name->pid <= 0)
		return CUDA_ERROR_INVALID_VALUE;
	if (ret_name->pid == getpid())
		return CUDA_ERROR_INVALID_CONTEXT;
	return neap_process_alive(ret_name->pid, ret_name->start_ticks) ? CUDA_SUCCESS : CUDA_ERROR_INVALID_HANDLE;
}

CUresult sim_cuIpcGetMemHandle(CUipcMemHandle *handle, CUdeviceptr address)
{
	CUresult result = CUDA_ERROR_INVALID_VALUE;
	const struct sim_mapping *mapping;
	uint64_t entry = 0;

	if (!handle)
		return CUDA_ERROR_INVALID_VALUE;
	pthread_mutex_lock(&sim.lock);
	mapping = sim_mapping_at(address);
	if (mapping && mapping->reservation->kind == SIM_ALLOCATED)
		result = sim_share_create(mapping->handle, mapping->reservation->requested_bytes, &entry);
	if (result == CUDA_SUCCESS && !name_self(MEMORY_MAGIC, entry, handle->reserved))
		result = CUDA_ERROR_OPERATING_SYSTEM;
	pthread_mutex_unlock(&sim.lock);
	if (result == CUDA_SUCCESS)
		sim_share_report("cuIpcGetMemHandle", false);
	return result;
}

/* Opens the other process's file, positioned at the entry. -1: not permitted. */
static int open_there(const struct name *name)
{
	char path[64];
	int fd;

	snprintf(path, sizeof path, "/proc/%d/fd/%d", (int)name->pid, (int)name->file);
	fd = neap_fd_above_standard(open(path, O_RDWR | O_CLOEXEC));
	if (fd >= 0 && lseek(fd, (off_t)name->place, SEEK_SET) < 0) {
		close(fd);
		fd = -1;
	}
	return fd;
}

struct sought {
	const struct sim_share *share;
	struct sim_reservation *found;
};

static void seek_opened(const void *node, VISIT visit, void *context)
{
	struct sim_reservation *reservation = *(struct sim_reservation *const *)node;
	struct sought *sought = context;

	if ((visit == postorder || visit == leaf) && reservation->kind == SIM_IMPORTED &&
	    sim_mapping_at(reservation->range.start)->handle->share == sought->share)
		sought->found = reservation;
}

/* Maps the memory, or finds an earlier mapping of it. Takes over the caller's hold of the handle. Lock held. */
static CUresult open_memory(struct sim_handle *handle, struct sim_reservation **ret_reservation)
{
	struct sought sought = {.share = handle->share};
	struct sim_reservation *reservation;
	CUresult result;

	twalk_r(sim.reservations.root, seek_opened, &sought);
	reservation = sought.found;
	if (reservation) {
		reservation->opened++;
		*ret_reservation = reservation;
		sim_physical_release(handle);
		return CUDA_SUCCESS;
	}
	result = sim_reserve(handle->bytes, SIM_PAGE_BYTES, 0, &reservation);
	if (result == CUDA_SUCCESS) {
		result = sim_map(reservation, reservation->range.start, handle, true);
		if (result != CUDA_SUCCESS)
			sim_unreserve(reservation);
	}
	if (result == CUDA_SUCCESS) {
		reservation->kind = SIM_IMPORTED;
		reservation->device = handle->device;
		reservation->context = sim_current_context();
		reservation->requested_bytes = handle->requested_bytes;
		reservation->opened = 1;
		sim_mapping_at(reservation->range.start)->valid_bytes = sim_touchable(handle->requested_bytes);
		*ret_reservation = reservation;
	}
	sim_physical_release(handle); /* its mapping holds it */
	return result;
}

CUresult sim_cuIpcOpenMemHandle(CUdeviceptr *address, CUipcMemHandle handle, unsigned int flags)
{
	struct sim_reservation *reservation;
	struct sim_handle *made;
	struct name name;
	CUresult result;
	int fd;

	if (!address || flags != CU_IPC_MEM_LAZY_ENABLE_PEER_ACCESS)
		return CUDA_ERROR_INVALID_VALUE;
	result = read_name(handle.reserved, MEMORY_MAGIC, &name);
	if (result != CUDA_SUCCESS)
		return result;
	fd = open_there(&name);
	if (fd < 0)
		return CUDA_ERROR_MAP_FAILED;
	pthread_mutex_lock(&sim.lock);
	result = sim_share_import(fd, &made);
	if (result == CUDA_SUCCESS)
		result = open_memory(made, &reservation);
	if (result == CUDA_SUCCESS)
		*address = reservation->range.start;
	pthread_mutex_unlock(&sim.lock);
	close(fd);
	if (result == CUDA_SUCCESS)
		sim_share_report("cuIpcOpenMemHandle", true);
	return result;
}

CUresult sim_cuIpcCloseMemHandle(CUdeviceptr address)
{
	CUresult result = sim_synchronize_all();
	struct sim_reservation *reservation;

	if (result != CUDA_SUCCESS)
		return result;
	pthread_mutex_lock(&sim.lock);
	reservation = (struct sim_reservation *)sim_ranges_find(&sim.reservations, address, 1);
	if (!reservation || reservation->kind != SIM_IMPORTED || reservation->range.start != address)
		result = CUDA_ERROR_INVALID_VALUE;
	else if (reservation->opened > 1)
		reservation->opened--;
	else if (!sim_flight_clear("cuIpcCloseMemHandle", address, reservation->range.bytes))
		result = CUDA_ERROR_ILLEGAL_ADDRESS;
	else
		sim_deallocate(reservation);
	pthread_mutex_unlock(&sim.lock);
	return result;
}

/* -- events ------------------------------------------------------------------------------------------------------ */

CUresult sim_cuIpcGetEventHandle(CUipcEventHandle *handle, CUevent event)
{
	CUresult result = CUDA_ERROR_INVALID_HANDLE;

	if (!handle)
		return CUDA_ERROR_INVALID_VALUE;
	pthread_mutex_lock(&sim.lock);
	if (sim_event_known(event) && (event->flags & CU_EVENT_INTERPROCESS))
		result = name_self(EVENT_MAGIC, event->number, handle->reserved) ? CUDA_SUCCESS
										 : CUDA_ERROR_OPERATING_SYSTEM;
	pthread_mutex_unlock(&sim.lock);
	return result;
}

CUresult sim_cuIpcOpenEventHandle(CUevent *event, CUipcEventHandle handle)
{
	struct name name;
	CUresult result;

	if (!event)
		return CUDA_ERROR_INVALID_VALUE;
	result = read_name(handle.reserved, EVENT_MAGIC, &name);
	return result == CUDA_SUCCESS ? sim_cuEventCreate(event, CU_EVENT_INTERPROCESS | CU_EVENT_DISABLE_TIMING)
				      : result;
}
