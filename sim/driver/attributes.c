/* cuDeviceGetAttribute: a device's features and sizes.
 *
 *   the same on every device, below    its compute capability (architecture.h)    its model (profile.h)
 *
 * Features that the simulator refuses are 0, though the real device has them: stream memory operations, RDMA, CUDA
 * arrays, external semaphores, fabric handles, multicast.
 */
#include "sim/driver/state.h"
#include "sim/profiles/architecture.h"

#include <stdio.h>

#define LAST CU_DEVICE_ATTRIBUTE_ONLY_PARTIAL_HOST_NATIVE_ATOMIC_SUPPORTED

/* The short names of the constants in cuda_constants.h. Attributes missing here and in variable() are 0. */
#define A(name) [CU_DEVICE_ATTRIBUTE_##name]
static const int fixed[LAST + 1] = {
	A(MAX_THREADS_PER_BLOCK) = SIM_THREADS_PER_BLOCK,
	A(MAX_BLOCK_DIM_X) = 1024,
	A(MAX_BLOCK_DIM_Y) = 1024,
	A(MAX_BLOCK_DIM_Z) = 64,
	A(MAX_GRID_DIM_X) = 0x7fffffff,
	A(MAX_GRID_DIM_Y) = 65535,
	A(MAX_GRID_DIM_Z) = 65535,
	A(MAX_SHARED_MEMORY_PER_BLOCK) = SIM_SHARED_PER_BLOCK,
	A(TOTAL_CONSTANT_MEMORY) = 65536,
	A(WARP_SIZE) = SIM_WARP,
	A(MAX_PITCH) = 0x7fffffff,
	A(MAX_REGISTERS_PER_BLOCK) = SIM_REGISTERS,
	A(MAX_REGISTERS_PER_MULTIPROCESSOR) = SIM_REGISTERS,
	A(TEXTURE_ALIGNMENT) = 512,
	A(TEXTURE_PITCH_ALIGNMENT) = 32,
	A(SURFACE_ALIGNMENT) = 512,
	A(GPU_OVERLAP) = 1,
	A(CAN_MAP_HOST_MEMORY) = 1,
	A(CONCURRENT_KERNELS) = 1,
	A(UNIFIED_ADDRESSING) = 1,
	A(STREAM_PRIORITIES_SUPPORTED) = 1,
	A(GLOBAL_L1_CACHE_SUPPORTED) = 1,
	A(LOCAL_L1_CACHE_SUPPORTED) = 1,
	A(MANAGED_MEMORY) = 1,
	A(CONCURRENT_MANAGED_ACCESS) = 1,
	A(COMPUTE_PREEMPTION_SUPPORTED) = 1,
	A(CAN_USE_HOST_POINTER_FOR_REGISTERED_MEM) = 1,
	A(COOPERATIVE_LAUNCH) = 1,
	A(HOST_REGISTER_SUPPORTED) = 1,
	A(READ_ONLY_HOST_REGISTER_SUPPORTED) = 1,
	A(MEMORY_POOLS_SUPPORTED) = 1,
	A(IPC_EVENT_SUPPORTED) = 1,
	A(MEM_SYNC_DOMAIN_COUNT) = 1,
	A(NUMA_ID) = -1,
	A(HOST_NUMA_ID) = -1,
	/* Textures and surfaces: compute capability 6.0 to 12.0. */
	A(MAXIMUM_TEXTURE1D_WIDTH) = 131072,
	A(MAXIMUM_TEXTURE1D_LAYERED_WIDTH) = 32768,
	A(MAXIMUM_TEXTURE1D_LAYERED_LAYERS) = 2048,
	A(MAXIMUM_TEXTURE1D_LINEAR_WIDTH) = 268435456,
	A(MAXIMUM_TEXTURE1D_MIPMAPPED_WIDTH) = 32768,
	A(MAXIMUM_TEXTURE2D_WIDTH) = 131072,
	A(MAXIMUM_TEXTURE2D_HEIGHT) = 65536,
	A(MAXIMUM_TEXTURE2D_LAYERED_WIDTH) = 32768,
	A(MAXIMUM_TEXTURE2D_LAYERED_HEIGHT) = 32768,
	A(MAXIMUM_TEXTURE2D_LAYERED_LAYERS) = 2048,
	A(MAXIMUM_TEXTURE2D_LINEAR_WIDTH) = 131072,
	A(MAXIMUM_TEXTURE2D_LINEAR_HEIGHT) = 65000,
	A(MAXIMUM_TEXTURE2D_LINEAR_PITCH) = 2097120,
	A(MAXIMUM_TEXTURE2D_MIPMAPPED_WIDTH) = 32768,
	A(MAXIMUM_TEXTURE2D_MIPMAPPED_HEIGHT) = 32768,
	A(CAN_TEX2D_GATHER) = 1,
	A(MAXIMUM_TEXTURE2D_GATHER_WIDTH) = 32768,
	A(MAXIMUM_TEXTURE2D_GATHER_HEIGHT) = 32768,
	A(MAXIMUM_TEXTURE3D_WIDTH) = 16384,
	A(MAXIMUM_TEXTURE3D_HEIGHT) = 16384,
	A(MAXIMUM_TEXTURE3D_DEPTH) = 16384,
	A(MAXIMUM_TEXTURE3D_WIDTH_ALTERNATE) = 8192,
	A(MAXIMUM_TEXTURE3D_HEIGHT_ALTERNATE) = 8192,
	A(MAXIMUM_TEXTURE3D_DEPTH_ALTERNATE) = 32768,
	A(MAXIMUM_TEXTURECUBEMAP_WIDTH) = 32768,
	A(MAXIMUM_TEXTURECUBEMAP_LAYERED_WIDTH) = 32768,
	A(MAXIMUM_TEXTURECUBEMAP_LAYERED_LAYERS) = 2046,
	A(MAXIMUM_SURFACE1D_WIDTH) = 32768,
	A(MAXIMUM_SURFACE1D_LAYERED_WIDTH) = 32768,
	A(MAXIMUM_SURFACE1D_LAYERED_LAYERS) = 2048,
	A(MAXIMUM_SURFACE2D_WIDTH) = 131072,
	A(MAXIMUM_SURFACE2D_HEIGHT) = 65536,
	A(MAXIMUM_SURFACE2D_LAYERED_WIDTH) = 32768,
	A(MAXIMUM_SURFACE2D_LAYERED_HEIGHT) = 32768,
	A(MAXIMUM_SURFACE2D_LAYERED_LAYERS) = 2048,
	A(MAXIMUM_SURFACE3D_WIDTH) = 16384,
	A(MAXIMUM_SURFACE3D_HEIGHT) = 16384,
	A(MAXIMUM_SURFACE3D_DEPTH) = 16384,
	A(MAXIMUM_SURFACECUBEMAP_WIDTH) = 32768,
	A(MAXIMUM_SURFACECUBEMAP_LAYERED_WIDTH) = 32768,
	A(MAXIMUM_SURFACECUBEMAP_LAYERED_LAYERS) = 2046,
};
#undef A

/* Three quarters of the L2 cache: as A100 and H100 report. */
static int persisting_bytes(const struct sim_device *device)
{
	return sim_architecture_of(device)->residency ? device->profile->l2_kib / 4 * 3 * 1024 : 0;
}

static int pci_bus(const struct sim_device *device)
{
	unsigned int bus = 0;

	(void)sscanf(device->view.pci_bus_id, "0000:%x:", &bus);
	return (int)bus;
}

/* Attributes that differ from device to device; false: not one of them. */
static bool variable(const struct sim_device *device, CUdevice_attribute attribute, int *ret_value)
{
	const struct sim_architecture *architecture = sim_architecture_of(device);
	const struct sim_profile *profile = device->profile;

#define IS(name, value)                                                                                              \
	case CU_DEVICE_ATTRIBUTE_##name:                                                                             \
		*ret_value = (value);                                                                                \
		return true;
	switch (attribute) {
		IS(MULTIPROCESSOR_COUNT, device->view.multiprocessors)
		IS(COMPUTE_CAPABILITY_MAJOR, device->view.compute_major)
		IS(COMPUTE_CAPABILITY_MINOR, device->view.compute_minor)
		IS(PCI_BUS_ID, pci_bus(device))
		IS(MULTI_GPU_BOARD_GROUP_ID, (int)device->context.device)
		IS(VIRTUAL_MEMORY_MANAGEMENT_SUPPORTED, !sim.spec.no_vmm)
		IS(HANDLE_TYPE_POSIX_FILE_DESCRIPTOR_SUPPORTED, !sim.spec.no_vmm)
		IS(CLOCK_RATE, profile->clock_mhz * 1000)
		IS(MEMORY_CLOCK_RATE, profile->memory_mhz * 1000)
		IS(GLOBAL_MEMORY_BUS_WIDTH, profile->bus_bits)
		IS(L2_CACHE_SIZE, profile->l2_kib * 1024)
		IS(ASYNC_ENGINE_COUNT, profile->copy_engines)
		IS(ECC_ENABLED, profile->data_center)
		IS(GPU_PCI_DEVICE_ID, (int)profile->pci_id)
		IS(MAX_THREADS_PER_MULTIPROCESSOR, architecture->threads)
		IS(MAX_BLOCKS_PER_MULTIPROCESSOR, architecture->blocks)
		IS(MAX_SHARED_MEMORY_PER_MULTIPROCESSOR, architecture->shared_bytes)
		IS(MAX_SHARED_MEMORY_PER_BLOCK_OPTIN, architecture->shared_optin_bytes)
		IS(RESERVED_SHARED_MEMORY_PER_BLOCK, architecture->shared_reserved)
		IS(SINGLE_TO_DOUBLE_PRECISION_PERF_RATIO, architecture->single_double_ratio)
		IS(CLUSTER_LAUNCH, architecture->clusters)
		IS(TENSOR_MAP_ACCESS_SUPPORTED, architecture->clusters)
		IS(MAX_PERSISTING_L2_CACHE_SIZE, persisting_bytes(device))
		IS(MAX_ACCESS_POLICY_WINDOW_SIZE, architecture->residency ? 134213632 : 0)
	default:
		return false;
	}
#undef IS
}

CUresult sim_cuDeviceGetAttribute(int *value, CUdevice_attribute attribute, CUdevice device)
{
	if (!sim_device_known(device))
		return CUDA_ERROR_INVALID_DEVICE;
	if (!value || attribute < CU_DEVICE_ATTRIBUTE_MAX_THREADS_PER_BLOCK || attribute > LAST)
		return CUDA_ERROR_INVALID_VALUE;
	if (!variable(&sim.devices[device], attribute, value))
		*value = fixed[attribute];
	return CUDA_SUCCESS;
}

const struct sim_architecture *sim_architecture_of(const struct sim_device *device)
{
	return sim_architecture_find(device->view.compute_major, device->view.compute_minor);
}
