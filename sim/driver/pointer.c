/* Attributes of addresses: they describe the allocation, the mapping or the host memory at an address. */
#include "sim/driver/state.h"

#include <string.h>

struct found {
	const struct sim_reservation *reservation; /* NULL: host memory */
	const struct sim_mapping *mapping;         /* NULL: reserved but not mapped; or host memory */
	const struct sim_host *host;
	uint32_t device;
};

static uint64_t end_of(const struct sim_range *range) { return range->start + range->bytes; }

/* Finds what is at the address. False: devices do not know it. Lock held. */
static bool find(uint64_t address, struct found *ret_found)
{
	struct found found = {.mapping = sim_mapping_at(address), .host = sim_host_at(address)};

	found.reservation = (struct sim_reservation *)sim_ranges_find(&sim.reservations, address, 1);
	*ret_found = found;
	if (found.host) {
		ret_found->device = found.host->context->device;
		return true;
	}
	if (!found.reservation || found.reservation->pool_free)
		return false;
	if (found.reservation->kind == SIM_RESERVED) {
		ret_found->device = found.mapping ? found.mapping->handle->device : 0;
		return true;
	}
	ret_found->device = found.reservation->device;
	return address - found.reservation->range.start < found.reservation->requested_bytes;
}

/* Returns the allocation's range; for virtual memory, the mapping's. */
static struct sim_range mapped_range(const struct found *found)
{
	struct sim_range range;

	if (found->host)
		return found->host->range;
	if (found->reservation->kind == SIM_RESERVED)
		return found->mapping ? found->mapping->range : (struct sim_range){0};
	range = found->reservation->range;
	range.bytes = found->reservation->requested_bytes;
	return range;
}

/* Returns the allocation's range; for virtual memory, that of the whole reservation, as documented. */
static struct sim_range whole_range(const struct found *found)
{
	return !found->host && found->reservation->kind == SIM_RESERVED ? found->reservation->range
									: mapped_range(found);
}

CUresult sim_cuMemGetAddressRange(CUdeviceptr *base, size_t *bytes, CUdeviceptr address)
{
	struct sim_range range = {0};
	struct found found;

	pthread_mutex_lock(&sim.lock);
	if (find(address, &found))
		range = mapped_range(&found);
	pthread_mutex_unlock(&sim.lock);
	if (range.bytes == 0 || address >= end_of(&range))
		return CUDA_ERROR_NOT_FOUND;
	if (base)
		*base = range.start;
	if (bytes)
		*bytes = range.bytes;
	return CUDA_SUCCESS;
}

/* Returns the size of an attribute; 0: it is unknown. */
static size_t size_of(CUpointer_attribute attribute)
{
	switch (attribute) {
	case CU_POINTER_ATTRIBUTE_CONTEXT:
	case CU_POINTER_ATTRIBUTE_DEVICE_POINTER:
	case CU_POINTER_ATTRIBUTE_HOST_POINTER:
	case CU_POINTER_ATTRIBUTE_BUFFER_ID:
	case CU_POINTER_ATTRIBUTE_RANGE_START_ADDR:
	case CU_POINTER_ATTRIBUTE_RANGE_SIZE:
	case CU_POINTER_ATTRIBUTE_ALLOWED_HANDLE_TYPES:
	case CU_POINTER_ATTRIBUTE_MEMPOOL_HANDLE:
	case CU_POINTER_ATTRIBUTE_MAPPING_SIZE:
	case CU_POINTER_ATTRIBUTE_MAPPING_BASE_ADDR:
	case CU_POINTER_ATTRIBUTE_MEMORY_BLOCK_ID:
		return 8;
	case CU_POINTER_ATTRIBUTE_P2P_TOKENS:
		return 0;
	default:
		return attribute >= CU_POINTER_ATTRIBUTE_CONTEXT &&
				       attribute <= CU_POINTER_ATTRIBUTE_IS_HW_DECOMPRESS_CAPABLE
			       ? 4
			       : 0;
	}
}

/* Answers attributes of the range, also for reserved memory without a mapping. False: another attribute. */
static bool answer_range(const struct found *found, CUpointer_attribute attribute, uint64_t *ret_value)
{
	struct sim_range whole = whole_range(found), mapped = mapped_range(found);

	switch (attribute) {
	case CU_POINTER_ATTRIBUTE_RANGE_START_ADDR:
		*ret_value = whole.start;
		return true;
	case CU_POINTER_ATTRIBUTE_RANGE_SIZE:
		*ret_value = whole.bytes;
		return true;
	case CU_POINTER_ATTRIBUTE_MAPPED:
		*ret_value = found->host || found->mapping;
		return true;
	case CU_POINTER_ATTRIBUTE_MAPPING_SIZE:
		*ret_value = mapped.bytes;
		return true;
	case CU_POINTER_ATTRIBUTE_MAPPING_BASE_ADDR:
		*ret_value = mapped.start;
		return true;
	default:
		return false;
	}
}

/* For host memory. Other attributes are 0. */
static uint64_t answer_host(const struct sim_host *host, CUpointer_attribute attribute, uint64_t address)
{
	bool managed = host->kind == SIM_HOST_MANAGED;

	switch (attribute) {
	case CU_POINTER_ATTRIBUTE_CONTEXT:
		return (uint64_t)(uintptr_t)host->context;
	case CU_POINTER_ATTRIBUTE_MEMORY_TYPE:
		return managed ? CU_MEMORYTYPE_DEVICE : CU_MEMORYTYPE_HOST;
	case CU_POINTER_ATTRIBUTE_DEVICE_POINTER:
	case CU_POINTER_ATTRIBUTE_HOST_POINTER:
		return address;
	case CU_POINTER_ATTRIBUTE_BUFFER_ID:
	case CU_POINTER_ATTRIBUTE_MEMORY_BLOCK_ID:
		return host->space;
	case CU_POINTER_ATTRIBUTE_IS_MANAGED:
		return managed;
	case CU_POINTER_ATTRIBUTE_DEVICE_ORDINAL:
		return host->context->device;
	case CU_POINTER_ATTRIBUTE_ACCESS_FLAGS:
		return CU_MEM_ACCESS_FLAGS_PROT_READWRITE;
	default:
		return 0;
	}
}

/* For device memory. Other attributes are 0: it is neither managed nor capable of RDMA or decompression. */
static uint64_t answer_device(const struct found *found, CUpointer_attribute attribute, uint64_t address)
{
	const struct sim_reservation *reservation = found->reservation;
	uint32_t device = found->device;

	switch (attribute) {
	case CU_POINTER_ATTRIBUTE_CONTEXT:
		return (uint64_t)(uintptr_t)(reservation->context ? reservation->context
								  : &sim.devices[device].context);
	case CU_POINTER_ATTRIBUTE_MEMORY_TYPE:
		return CU_MEMORYTYPE_DEVICE;
	case CU_POINTER_ATTRIBUTE_DEVICE_POINTER:
		return address;
	case CU_POINTER_ATTRIBUTE_SYNC_MEMOPS:
		return reservation->sync_memops;
	case CU_POINTER_ATTRIBUTE_BUFFER_ID:
	case CU_POINTER_ATTRIBUTE_MEMORY_BLOCK_ID:
		return found->mapping->handle->id;
	case CU_POINTER_ATTRIBUTE_DEVICE_ORDINAL:
		return device;
	case CU_POINTER_ATTRIBUTE_IS_LEGACY_CUDA_IPC_CAPABLE:
		return reservation->kind == SIM_ALLOCATED;
	case CU_POINTER_ATTRIBUTE_ALLOWED_HANDLE_TYPES:
		return (uint64_t)found->mapping->handle->handle_types;
	case CU_POINTER_ATTRIBUTE_ACCESS_FLAGS:
		(void)sim_current_device(&device);
		return (uint64_t)sim_access_of(found->mapping, device);
	case CU_POINTER_ATTRIBUTE_MEMPOOL_HANDLE:
		return (uint64_t)(uintptr_t)reservation->pool;
	default:
		return 0;
	}
}

static CUresult answer(const struct found *found, CUpointer_attribute attribute, uint64_t address,
		       uint64_t *ret_value)
{
	if (answer_range(found, attribute, ret_value))
		return CUDA_SUCCESS;
	if (!found->host && (!found->mapping || attribute == CU_POINTER_ATTRIBUTE_HOST_POINTER))
		return CUDA_ERROR_INVALID_VALUE; /* there is no memory, or the host may not read it */
	*ret_value =
		found->host ? answer_host(found->host, attribute, address) : answer_device(found, attribute, address);
	return CUDA_SUCCESS;
}

CUresult sim_cuPointerGetAttribute(void *data, CUpointer_attribute attribute, CUdeviceptr address)
{
	CUresult result = CUDA_ERROR_INVALID_VALUE;
	size_t bytes = size_of(attribute);
	struct found found;
	uint64_t value = 0;

	if (!data)
		return CUDA_ERROR_INVALID_VALUE;
	if (attribute == CU_POINTER_ATTRIBUTE_P2P_TOKENS)
		return CUDA_ERROR_NOT_SUPPORTED;
	if (bytes == 0)
		return CUDA_ERROR_INVALID_VALUE;
	pthread_mutex_lock(&sim.lock);
	if (find(address, &found))
		result = answer(&found, attribute, address, &value);
	pthread_mutex_unlock(&sim.lock);
	if (result == CUDA_SUCCESS)
		memcpy(data, &value, bytes); /* little endian, as CUDA's hosts are */
	return result;
}

/* For an unknown address the answer is zeros, not an error. */
CUresult sim_cuPointerGetAttributes(unsigned int count, CUpointer_attribute *attributes, void **data,
				    CUdeviceptr address)
{
	unsigned int i;

	if (count == 0 || !attributes || !data)
		return CUDA_ERROR_INVALID_VALUE;
	for (i = 0; i < count; i++)
		if (!data[i] || size_of(attributes[i]) == 0)
			return CUDA_ERROR_INVALID_VALUE;
	for (i = 0; i < count; i++) {
		memset(data[i], 0, size_of(attributes[i]));
		(void)sim_cuPointerGetAttribute(data[i], attributes[i], address);
	}
	return CUDA_SUCCESS;
}

/* The one attribute has no effect here: synchronous copies wait for the device anyway. */
CUresult sim_cuPointerSetAttribute(const void *value, CUpointer_attribute attribute, CUdeviceptr address)
{
	CUresult result = CUDA_ERROR_INVALID_VALUE;
	struct sim_reservation *reservation;
	int wanted;

	if (!value || attribute != CU_POINTER_ATTRIBUTE_SYNC_MEMOPS)
		return CUDA_ERROR_INVALID_VALUE;
	memcpy(&wanted, value, sizeof wanted);
	pthread_mutex_lock(&sim.lock);
	reservation = (struct sim_reservation *)sim_ranges_find(&sim.reservations, address, 1);
	if (reservation && sim_mapping_at(address)) {
		reservation->sync_memops = wanted != 0;
		result = CUDA_SUCCESS;
	}
	pthread_mutex_unlock(&sim.lock);
	return result;
}
