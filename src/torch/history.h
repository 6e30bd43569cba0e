/* torch/history.h: the history that torch.cuda.memory._record_memory_history asks for, and the trackers beside it.
 *
 *   neap's watcher (under neap's lock) --> History::add --> trackers
 *                                                      \--> ring of the device, contexts of active blocks
 *
 * A call into the allocator gathers its stack before it takes any lock (a stack may need Python's lock) and leaves it
 * in `History::Scope`. Events on this thread during the call are recorded with that stack. */
#ifndef NEAP_TORCH_HISTORY_H
#define NEAP_TORCH_HISTORY_H

#include "libneap.h"

#include <c10/cuda/CUDACachingAllocator.h>
#include <c10/util/ApproximateClock.h>

#include <atomic>
#include <memory>
#include <mutex>
#include <string>
#include <unordered_map>
#include <unordered_set>
#include <vector>

namespace neap_torch
{

namespace cca = c10::cuda::CUDACachingAllocator;
using Context = std::shared_ptr<c10::GatheredContext>;
using Entry = cca::TraceEntry;
using Pool = c10::cuda::MempoolId_t;

struct Change {
	Entry::Action action;
	size_t address = 0;
	size_t bytes = 0;
	void *stream = nullptr;
	Pool pool = {0, 0};
};

class History
{
      public:
	/* The stack of a call into the allocator, for what happens within it on this thread. */
	class Scope
	{
	      public:
		Scope(const History &history, cca::RecordContext least)
		{
			cca::CreateContextFn function = history.gather_.load(std::memory_order_acquire);
			if (C10_UNLIKELY(function &&
					 history.when_.load(std::memory_order_relaxed) >= static_cast<int>(least)))
				gather(function);
		}
		~Scope()
		{
			if (C10_UNLIKELY(set_))
				put_back();
		}
		Scope(const Scope &) = delete;
		Scope &operator=(const Scope &) = delete;

	      private:
		void gather(cca::CreateContextFn function);
		void put_back();

		Context before_;
		bool set_ = false;
	};

	/* Whether block changes are wanted at all: only then is each worth a call. */
	bool wanted() const { return wanted_.load(std::memory_order_relaxed); }
	bool enabled() const { return enabled_.load(std::memory_order_relaxed); }

	void configure(bool enabled, cca::CreateContextFn gather, size_t entries, cca::RecordContext when, bool clear,
		       const std::vector<std::string> &skipped);
	void track(cca::AllocatorTraceTracker tracker);
	void add(c10::DeviceIndex device, const Change &change);
	Context context_of(const void *address) const;
	void annotate(c10::DeviceIndex device, const Change &change, const std::string &metadata);

	void annotation(const std::vector<std::pair<std::string, std::string>> &metadata, c10::DeviceIndex device);

	/* The entries of each of `devices` devices, oldest first, with their times in microseconds. */
	std::vector<std::vector<Entry>> entries(size_t devices);
	template <typename Snapshot> void fill_annotations(Snapshot &snapshot);

	static std::string &user_metadata();
	static std::vector<std::string> &compile_contexts();

      private:
	struct Ring {
		std::vector<Entry> entries;
		size_t next = 0;
	};
	void insert(c10::DeviceIndex device, Entry entry);
	Entry entry_make(c10::DeviceIndex device, const Change &change, Context context, const std::string &metadata);

	std::atomic<bool> enabled_{false}, wanted_{false};
	std::atomic<cca::CreateContextFn> gather_{nullptr};
	std::atomic<int> when_{0};
	mutable std::mutex lock_; /* a leaf: nothing is called under it but trackers */
	size_t capacity_ = 1;
	std::unordered_set<int> skipped_;
	std::vector<cca::AllocatorTraceTracker> trackers_;
	std::vector<Ring> rings_;
	std::unordered_map<size_t, Context> contexts_; /* of active blocks, by address */
	struct Annotation {
		c10::DeviceIndex device;
		c10::approx_time_t time;
		std::vector<std::pair<std::string, std::string>> metadata;
	};
	std::vector<Annotation> annotations_;
	size_t next_annotation_ = 0;
	c10::ApproximateClockToUnixTimeConverter clock_;
};

} // namespace neap_torch

#endif
