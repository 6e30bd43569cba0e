/* torch/allocator.h: PyTorch's allocator interface over libneap: memory, settings and other processes. The rest, and
 * how the versions of the interface are met, is in devices.h, pools.h and report.h. */
#ifndef NEAP_TORCH_ALLOCATOR_H
#define NEAP_TORCH_ALLOCATOR_H

#include "report.h"

namespace neap_torch
{

class Allocator : public Reports
{
      public:
	explicit Allocator(cca::CUDAAllocator *native) : Reports(native, lend) {}

	/* Memory. */
	DataPtr allocate(size_t bytes);
	c10::DeleterFnPtr raw_deleter() const;
	void *raw_alloc(size_t bytes);
	void *raw_alloc_with_stream(size_t bytes, cudaStream_t stream);
	void raw_delete(void *pointer);
	void copy_data(void *to, const void *from, size_t bytes) const;
	void recordStream(const DataPtr &data, c10::cuda::CUDAStream stream);
	void recordStream(const DataPtr &data, c10::Stream stream);
	void *getBaseAllocation(void *pointer, size_t *bytes);
	DataPtr allocateWithAddress(size_t bytes, void *address);
	cudaError_t memcpyAsync(void *to, int to_device, const void *from, int from_device, size_t bytes,
				cudaStream_t stream, bool peer_access);
	void enablePeerAccess(DeviceIndex device, DeviceIndex peer);

	/* Settings. */
	void enable(bool value);
	bool isEnabled() const;
	std::string name() { return "neap"; }

	/* Other processes. */
#ifdef NEAP_HAS_ShareableHandle
	cca::ShareableHandle shareIpcHandle(void *pointer);
#endif
	std::shared_ptr<void> getIpcDevPtr(std::string handle);

      private:
	void *allocate_on(Device &device, size_t bytes, cudaStream_t stream);
	void *allocate_delegated(Device &device, size_t bytes, cudaStream_t stream);
	static bool lend(void *context, neap_alloc *alloc, size_t bytes, unsigned attempt) noexcept;
	void report(void *pointer, int64_t bytes, Device &device) const;

	/* ipc.cpp */
	void start_serving();
	void serve(int listener) const noexcept;
	void serve_one(int peer) const;

	std::atomic<bool> enabled_{true};
	std::once_flag serving_;
	uint64_t token_[2] = {}; /* set once, before the first handle */
	std::mutex importing_;
	std::map<std::string, std::weak_ptr<void>> imported_; /* by handle */
};

} // namespace neap_torch

#endif
