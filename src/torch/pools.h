/* torch/pools.h: private pools: CUDA graphs, MemPool, and the states of cudagraph trees. See devices.h. */
#ifndef NEAP_TORCH_POOLS_H
#define NEAP_TORCH_POOLS_H

#include "devices.h"

namespace neap_torch
{

class Pools : public Devices
{
      public:
	using Devices::Devices;

	void beginAllocateToPool(DeviceIndex device, Pool pool, Filter filter);
	void endAllocateToPool(DeviceIndex device, Pool pool);
	void markCaptureBegin(DeviceIndex device);
	void markCaptureEnd(DeviceIndex device);
	void releasePool(DeviceIndex device, Pool pool);
	int getPoolUseCount(DeviceIndex device, Pool pool);
	void ensureExistsAndIncrefPool(DeviceIndex device, Pool pool);
	void createOrIncrefPool(DeviceIndex device, Pool pool, cca::CUDAAllocator *allocator);
	void createOrIncrefPool(DeviceIndex device, Pool pool, std::shared_ptr<cca::CUDAAllocator> allocator);
	void setUseOnOOM(DeviceIndex device, Pool pool);
	void setUseOnOOM(DeviceIndex device, Pool pool, bool on_oom);
	void setNoSplit(DeviceIndex device, Pool pool);
	bool checkPoolLiveAllocations(DeviceIndex device, Pool pool, const std::unordered_set<void *> &expected);
	std::shared_ptr<cca::AllocatorState> getCheckpointState(DeviceIndex device, Pool pool);
	cca::CheckpointDelta setCheckpointPoolState(DeviceIndex device, std::shared_ptr<cca::AllocatorState> state);

      private:
	bool is_delegated(Device &device, Pool pool);
	void use_add(Device &device, Pool pool);

	std::atomic<int> captures_marked_{0}; /* begun, of those that PyTorch's own allocator knows of */
};

} // namespace neap_torch

#endif
