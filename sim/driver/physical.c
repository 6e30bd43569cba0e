/* Physical memory: handles, their charges, and the bytes behind them.
 *
 * All handles of a process are extents of one memory file, so any number of handles needs one descriptor. Their
 * offsets only grow: the file is sparse and a freed extent becomes a hole, so offsets need no reuse. A handle is
 * charged to the world when it is created. The charge ends when no mapping and no hold of the program is left.
 *
 *   handle lives  <=>  held > 0 || mappings > 0;   charged(device) = sum of bytes of its handles
 */
#include "sim/driver/state.h"

#include "base/descriptor.h"

#include <fcntl.h>
#include <stdlib.h>
#include <sys/mman.h>
#include <unistd.h>

#define FILE_STEP (64ull << 30)

int sim_physical_file(const struct sim_handle *handle) { return handle->file ? handle->file->fd : sim.file; }

/* Grows the file to at least `end`. */
static bool file_reaches(uint64_t end)
{
	uint64_t size = (end + FILE_STEP - 1) / FILE_STEP * FILE_STEP;

	if (sim.file < 0)
		sim.file = neap_fd_above_standard(memfd_create("neap-sim-memory", MFD_CLOEXEC));
	if (sim.file < 0)
		return false;
	if (end > sim.file_size) {
		if (ftruncate(sim.file, (off_t)size) != 0)
			return false;
		sim.file_size = size;
	}
	return true;
}

bool sim_physical_extend(uint64_t bytes, uint64_t *ret_offset)
{
	if (!file_reaches(sim.file_end + bytes))
		return false;
	*ret_offset = sim.file_end;
	sim.file_end += bytes;
	return true;
}

CUresult sim_charge_device(uint32_t device, enum sim_charge what, uint64_t bytes)
{
	if (!sim.world)
		return CUDA_ERROR_DEINITIALIZED;
	switch (sim_world_charge(sim.world, sim.devices[device].index, what, bytes)) {
	case NEAP_OK:
		sim_account_charge(device, what, bytes);
		return CUDA_SUCCESS;
	case NEAP_EOOM:
		return CUDA_ERROR_OUT_OF_MEMORY;
	default:
		return CUDA_ERROR_UNKNOWN;
	}
}

void sim_refund_device(uint32_t device, enum sim_charge what, uint64_t bytes)
{
	sim_account_refund(device, what, bytes);
	if (sim.world)
		sim_world_refund(sim.world, sim.devices[device].index, what, bytes);
}

CUresult sim_physical_create(uint32_t device, uint64_t bytes, struct sim_handle **ret_handle)
{
	struct sim_handle *handle = malloc(sizeof *handle);
	CUresult result;

	if (!handle)
		return CUDA_ERROR_OUT_OF_MEMORY;
	if (!sim.spec.no_backing && !file_reaches(sim.file_end + bytes)) {
		free(handle);
		return CUDA_ERROR_OUT_OF_MEMORY;
	}
	*handle = (struct sim_handle){
		.id = ++sim.next_id, .bytes = bytes, .file_offset = sim.file_end, .device = device, .held = 1};
	handle->space = handle->id;
	if (!neap_map_put(&sim.handles, handle->id, (uint64_t)(uintptr_t)handle)) {
		free(handle);
		return CUDA_ERROR_OUT_OF_MEMORY;
	}
	result = sim_charge_device(device, SIM_CHARGE_MEMORY, bytes);
	if (result != CUDA_SUCCESS) {
		neap_map_remove(&sim.handles, handle->id, NULL);
		free(handle);
		return result;
	}
	sim.file_end += bytes;
	*ret_handle = handle;
	return CUDA_SUCCESS;
}

void sim_physical_settle(struct sim_handle *handle)
{
	bool last = true;

	if (handle->held > 0 || handle->mappings > 0)
		return;
	if (handle->share) {
		last = sim_share_leave(handle);
	} else {
		sim_engine_forget(sim.engine, handle->space);
		sim_refund_device(handle->device, SIM_CHARGE_MEMORY, handle->bytes);
	}
	if (last && !sim.spec.no_backing)
		(void)fallocate(
			sim_physical_file(handle), FALLOC_FL_PUNCH_HOLE | FALLOC_FL_KEEP_SIZE,
			(off_t)handle->file_offset,
			(off_t)handle->bytes); /* if refused, the host frees the memory when the process ends */
	sim_file_release(handle->file);
	neap_map_remove(&sim.handles, handle->id, NULL);
	free(handle);
}

void sim_physical_release(struct sim_handle *handle)
{
	handle->held--;
	sim_physical_settle(handle);
}

struct sim_handle *sim_physical_find(uint64_t id)
{
	uint64_t value;

	if (!neap_map_get(&sim.handles, id, &value))
		return NULL;
	return (struct sim_handle *)(uintptr_t)value;
}
