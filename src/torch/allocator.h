/* torch/allocator.h: PyTorch's allocator interface over libneap: memory, settings and other processes. The rest, and
 * how the versions of the interface are met, is in devices.h, pools.h and report.h. */
#ifndef NEAP_TORCH_ALLOCATOR_H
#define NEAP_TORCH_ALLOCATOR_H

#include "report.h"

namespace neap_torch
{

class Kept; /* ipc.cpp: a descriptor that a forked child closes */

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
	Device *measure(void *pointer, int64_t &bytes) const;

	/* ipc.cpp */
	void ensure_serving();
	std::unique_ptr<Kept> listen_for_receivers() const;
	void serve(std::unique_ptr<Kept> listener) noexcept;
	void serve_apart(std::unique_ptr<Kept> peer);
	void serve_one(int peer) const;

	std::atomic<bool> enabled_{true};
	std::mutex serving_;    /* of the next two, and of the token until it is set */
	pid_t serving_pid_ = 0; /* the process whose thread serves; 0: none */
	pid_t token_pid_ = 0;
	uint64_t token_[2] = {}; /* set once in a process, before its first handle */
	std::atomic<int> receivers_{0};
	std::mutex importing_;
	std::map<std::string, std::weak_ptr<void>> imported_; /* by handle */
};

} // namespace neap_torch

#endif
