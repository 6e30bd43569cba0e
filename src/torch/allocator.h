/* torch/allocator.h: PyTorch's allocator interface over libneap.
 *
 * PyTorch's interface changes from version to version: parameters come, and functions. So each function is declared
 * here in every form that a supported version has, and none is marked `override`: where a form is the version's own
 * it overrides, elsewhere it is an overload that nobody calls. A function that a newer PyTorch adds without a default
 * fails to compile, and neap.install_allocator() says so.
 *
 * Two kinds of memory are not neap's and go to PyTorch's own allocator (`native_`), which lives on beside it: pools
 * with an allocator of their own or with no_split, and everything while caching_allocator_enable(False) holds. */
#ifndef NEAP_TORCH_ALLOCATOR_H
#define NEAP_TORCH_ALLOCATOR_H

#include "device.h"

namespace neap_torch
{

using c10::DataPtr;
using c10::DeviceIndex;

class Allocator : public cca::CUDAAllocator
{
      public:
	explicit Allocator(cca::CUDAAllocator *native) : native_(native) {}

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
	void init(int devices);
	bool initialized();
	void enable(bool value);
	bool isEnabled() const;
	double getMemoryFraction(DeviceIndex device);
	void setMemoryFraction(double fraction, DeviceIndex device);
	std::string name() { return "neap"; }

	/* What is held. */
	void emptyCache();
	void emptyCache(Pool pool);
	void cacheInfo(DeviceIndex device, size_t *largest);
	cca::DeviceStats getDeviceStats(DeviceIndex device);
	void resetAccumulatedStats(DeviceIndex device);
	void resetPeakStats(DeviceIndex device);
	cca::SnapshotInfo snapshot();
	cca::SnapshotInfo snapshot(Pool pool);
	cca::SnapshotInfo snapshot(Pool pool, bool traces);
#ifdef NEAP_HAS_StreamSegmentSize
	std::vector<cca::StreamSegmentSize> getExpandableSegmentSizes(DeviceIndex device);
#endif

	/* Private pools. */
	void beginAllocateToPool(DeviceIndex device, Pool pool, Filter filter);
	void endAllocateToPool(DeviceIndex device, Pool pool);
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

	/* Other processes. */
#ifdef NEAP_HAS_ShareableHandle
	cca::ShareableHandle shareIpcHandle(void *pointer);
#endif
	std::shared_ptr<void> getIpcDevPtr(std::string handle);

	/* History and observers. */
	void recordHistory(bool enabled, cca::CreateContextFn gather, size_t entries, cca::RecordContext when);
	void recordHistory(bool enabled, cca::CreateContextFn gather, size_t entries, cca::RecordContext when,
			   bool clear);
	void recordHistory(bool enabled, cca::CreateContextFn gather, size_t entries, cca::RecordContext when,
			   bool clear, const std::vector<std::string> &skipped);
	bool isHistoryEnabled() { return history_.enabled(); }
	Context getContextForPointer(const void *pointer) { return history_.context_of(pointer); }
	void recordAnnotation(const std::vector<std::pair<std::string, std::string>> &metadata);
	void pushCompileContext(std::string &metadata) { History::compile_contexts().push_back(metadata); }
	void popCompileContext();
	bool supportsUserMetadata() { return true; }
	void setUserMetadata(const std::string &metadata) { History::user_metadata() = metadata; }
	std::string getUserMetadata() { return History::user_metadata(); }
	void annotateMemory(const void *pointer, const std::string &metadata);
	void attachOutOfMemoryObserver(cca::OutOfMemoryObserver observer);
	void attachOomRejectionObserver(cca::OutOfMemoryObserver observer);
	void attachAllocatorTraceTracker(cca::AllocatorTraceTracker tracker);

      private:
	Device *opened(DeviceIndex device) const; /* nullptr: nothing was allocated there */
	Device &open(DeviceIndex device);
	Device *owner(void *pointer, neap_block_info *block) const;
	void *allocate_on(Device &device, size_t bytes, cudaStream_t stream);
	void *allocate_delegated(Device &device, size_t bytes, cudaStream_t stream);
	void *allocate_from_pools(Device &device, size_t bytes, cudaStream_t stream);
	static bool out_of_memory(void *context, neap_alloc *alloc, size_t bytes, unsigned attempt) noexcept;
	[[noreturn]] void fail(Device &device, size_t bytes, cudaStream_t stream, neap_status status,
			       const neap_error &error);
	void report(void *pointer, int64_t bytes, Device &device) const;
	bool is_delegated(Device &device, Pool pool);
	void use_add(Device &device, Pool pool);
	cca::CUDAAllocator &delegate();
	void configure_history();
	void add_segments(Device &device, Pool pool, cca::SnapshotInfo &snapshot);

	neap_driver *driver_ = nullptr; /* opened with the first device, so that a process without CUDA has none */
	cca::CUDAAllocator *native_;
	std::atomic<bool> delegates_{false}, enabled_{true};
	std::atomic<int> count_{0};
	mutable std::mutex lock_; /* the opening of devices, and what follows */
	static constexpr int kDevices = 64;
	std::atomic<Device *> devices_[kDevices] = {};
	double fractions_[kDevices] = {}; /* asked for before the device was opened; 0: not */
	std::vector<cca::OutOfMemoryObserver> observers_;
	std::map<std::string, std::weak_ptr<void>> imported_;
	History history_;
};

} // namespace neap_torch

#endif
