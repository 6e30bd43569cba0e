#include "history.h"

namespace neap_torch
{

namespace
{

thread_local Context current;

/* Makes an entry in the newest form that this PyTorch has. */
template <typename E>
E make(const Change &change, c10::DeviceIndex device, c10::approx_time_t time, Context context,
       const std::string &compiled, const std::string &metadata)
{
	auto stream = static_cast<cudaStream_t>(change.stream);
	if constexpr (std::is_constructible_v<E, typename E::Action, c10::DeviceIndex, size_t, size_t, void *, Pool,
					      c10::approx_time_t, Context, std::string, std::string>)
		return E(change.action, device, change.address, change.bytes, change.stream, change.pool, time,
			 std::move(context), compiled, metadata);
	else if constexpr (std::is_constructible_v<E, typename E::Action, c10::DeviceIndex, size_t, size_t,
						   cudaStream_t, Pool, c10::approx_time_t, Context, std::string>)
		return E(change.action, device, change.address, change.bytes, stream, change.pool, time,
			 std::move(context), compiled);
	else if constexpr (std::is_constructible_v<E, typename E::Action, c10::DeviceIndex, size_t, size_t,
						   cudaStream_t, c10::approx_time_t, Context, std::string>)
		return E(change.action, device, change.address, change.bytes, stream, time, std::move(context),
			 compiled);
	else
		return E(change.action, device, change.address, change.bytes, stream, time, std::move(context));
}

const char *action_name(Entry::Action action)
{
	static const char *const names[] = {"alloc",        "free_requested", "free_completed", "segment_alloc",
					    "segment_free", "segment_map",    "segment_unmap",  "snapshot",
					    "oom",          "annotate"};
	return static_cast<size_t>(action) < sizeof names / sizeof *names ? names[static_cast<size_t>(action)] : "";
}

} // namespace

void History::Scope::gather(cca::CreateContextFn function)
{
	before_ = std::move(current);
	current = function();
	set_ = true;
}

void History::Scope::put_back() { current = std::move(before_); }

std::string &History::user_metadata()
{
	thread_local std::string metadata;
	return metadata;
}

std::vector<std::string> &History::compile_contexts()
{
	thread_local std::vector<std::string> contexts;
	return contexts;
}

void History::configure(bool enabled, cca::CreateContextFn gather, size_t entries, cca::RecordContext when,
			bool clear, const std::vector<std::string> &skipped)
{
	TORCH_CHECK(when == cca::RecordContext::NEVER || gather,
		    "a history of stacks needs a function that gathers them");
	std::unordered_set<int> actions;
	for (const std::string &name : skipped) {
		int action = -1;
		for (int i = 0; *action_name(static_cast<Entry::Action>(i)); i++)
			if (name == action_name(static_cast<Entry::Action>(i)))
				action = i;
		TORCH_CHECK(action >= 0, "Unknown TraceEntry action: ", name);
		actions.insert(action);
	}
	std::lock_guard<std::mutex> guard(lock_);
	capacity_ = std::max<size_t>(1, entries);
	skipped_ = std::move(actions);
	gather_ = enabled && when != cca::RecordContext::NEVER ? gather : nullptr;
	when_ = static_cast<int>(enabled ? when : cca::RecordContext::NEVER);
	enabled_ = enabled;
	wanted_ = enabled || !trackers_.empty();
	if (!enabled || clear) {
		rings_.clear();
		annotations_.clear();
		next_annotation_ = 0;
	}
	if (!enabled)
		contexts_.clear();
}

void History::track(cca::AllocatorTraceTracker tracker)
{
	std::lock_guard<std::mutex> guard(lock_);
	trackers_.push_back(std::move(tracker));
	wanted_ = true;
}

Entry History::entry_make(c10::DeviceIndex device, const Change &change, Context context, const std::string &metadata)
{
	const std::vector<std::string> &compiled = compile_contexts();
	bool keep = when_.load(std::memory_order_relaxed) >= static_cast<int>(cca::RecordContext::ALLOC);
	return make<Entry>(change, device, c10::getApproximateTime(), keep ? std::move(context) : nullptr,
			   compiled.empty() ? std::string("N/A") : compiled.back(), metadata);
}

void History::insert(c10::DeviceIndex device, Entry entry)
{
	if (!enabled_ || skipped_.count(entry.action_))
		return;
	if (rings_.size() <= static_cast<size_t>(device))
		rings_.resize(static_cast<size_t>(device) + 1);
	Ring &ring = rings_[static_cast<size_t>(device)];
	if (ring.entries.size() < capacity_) {
		ring.entries.push_back(std::move(entry));
		return;
	}
	ring.entries[ring.next] = std::move(entry);
	ring.next = (ring.next + 1) % ring.entries.size();
}

/* Under neap's lock, so entries come in the order in which things happened. */
void History::add(c10::DeviceIndex device, const Change &change)
{
	if (!wanted())
		return;
	Context context = current;
	std::lock_guard<std::mutex> guard(lock_);
	if (change.action == Entry::ALLOC && context) {
		contexts_[change.address] = context;
	} else if (change.action == Entry::FREE_REQUESTED || change.action == Entry::FREE_COMPLETED) {
		auto found = contexts_.find(change.address);
		if (found != contexts_.end()) {
			if (!context)
				context = found->second;
			if (change.action == Entry::FREE_COMPLETED)
				contexts_.erase(found);
		}
	}
	Entry entry = entry_make(device, change, std::move(context), user_metadata());
	for (const cca::AllocatorTraceTracker &tracker : trackers_)
		tracker(entry);
	insert(device, std::move(entry));
}

void History::annotate(c10::DeviceIndex device, const Change &change, const std::string &metadata)
{
	std::lock_guard<std::mutex> guard(lock_);
	auto found = contexts_.find(change.address);
	insert(device, entry_make(device, change, found == contexts_.end() ? nullptr : found->second, metadata));
}

void History::annotation(const std::vector<std::pair<std::string, std::string>> &metadata, c10::DeviceIndex device)
{
	std::lock_guard<std::mutex> guard(lock_);
	if (!enabled_)
		return;
	Annotation added{device, c10::getApproximateTime(), metadata};
	if (annotations_.size() < capacity_) {
		annotations_.push_back(std::move(added));
		return;
	}
	annotations_[next_annotation_] = std::move(added);
	next_annotation_ = (next_annotation_ + 1) % annotations_.size();
}

Context History::context_of(const void *address) const
{
	std::lock_guard<std::mutex> guard(lock_);
	auto found = contexts_.find(reinterpret_cast<size_t>(address));
	return found == contexts_.end() ? nullptr : found->second;
}

std::vector<std::vector<Entry>> History::entries(size_t devices)
{
	auto nanoseconds = clock_.makeConverter();
	std::vector<std::vector<Entry>> result(devices);
	std::lock_guard<std::mutex> guard(lock_);
	for (size_t device = 0; device < devices && device < rings_.size(); device++) {
		const Ring &ring = rings_[device];
		for (size_t i = 0; i < ring.entries.size(); i++) {
			result[device].push_back(ring.entries[(ring.next + i) % ring.entries.size()]);
			Entry &entry = result[device].back();
			entry.time_.t_ = nanoseconds(entry.time_.approx_t_) / 1000;
		}
	}
	return result;
}

template <typename Snapshot> void History::fill_annotations(Snapshot &snapshot)
{
	auto nanoseconds = clock_.makeConverter();
	std::lock_guard<std::mutex> guard(lock_);
	for (size_t i = 0; i < annotations_.size(); i++) {
		const Annotation &kept = annotations_[(next_annotation_ + i) % annotations_.size()];
		auto &added = snapshot.external_annotations.emplace_back(kept.device, kept.time);
		for (const auto &[name, value] : kept.metadata)
			added.recordUserMetadata(name, value);
		added.time_.t_ = nanoseconds(kept.time) / 1000;
	}
}

} // namespace neap_torch
