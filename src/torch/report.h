/* torch/report.h: reports how memory is held, as statistics, snapshots and history, and the error of a request that
 * found no memory. See devices.h. */
#ifndef NEAP_TORCH_REPORT_H
#define NEAP_TORCH_REPORT_H

#include "pools.h"

namespace neap_torch
{

class Reports : public Pools
{
      public:
	using Pools::Pools;

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

      protected:
	/* Calls the observers, and throws. */
	[[noreturn]] void fail(Device &device, size_t bytes, cudaStream_t stream, neap_status status,
			       const neap_error &error);

      private:
	void configure_history();
	void add_segments(Device &device, Pool pool, cca::SnapshotInfo &snapshot);

	std::vector<cca::OutOfMemoryObserver> observers_;
};

} // namespace neap_torch

#endif
