/* torch/report.cpp: reports how memory is held, as statistics, snapshots and history, and the error of a request that
 * found no memory. */
#include "report.h"

#include <c10/cuda/CUDAException.h>
#include <c10/cuda/CUDAFunctions.h>

namespace neap_torch
{

/* Out of memory. */

void Reports::fail(Device &device, size_t bytes, cudaStream_t stream, neap_status status, const neap_error &error)
{
	TORCH_CHECK(status == NEAP_EOOM, "neap: ", error.message);
	bool lends = false;
	{
		std::lock_guard<std::mutex> guard(device.lock);
		for (const auto &[pool, use] : device.pools)
			lends |= use.delegated && use.on_oom;
	}
	neap_stats stats = {};
	uint64_t free = 0, total = 0;
	libneap.neap_get_stats(device.alloc(), &stats);
	libneap.neap_device_memory(device.device(), &free, &total, nullptr);
	double fraction = libneap.neap_get_fraction(device.alloc());
	bool limited = fraction > 0 && fraction < 1;
	auto limit = static_cast<size_t>(fraction * static_cast<double>(device.total_bytes()));
	auto held = [&](neap_metric metric) {
		return static_cast<size_t>(stats.metric[metric][NEAP_CLASS_ALL].current);
	};
	history_.add(device.index(), {Entry::OOM, static_cast<size_t>(free), bytes, stream});
	c10::reportOutOfMemoryToProfiler(static_cast<int64_t>(bytes), held(NEAP_METRIC_ALLOCATED_BYTES),
					 held(NEAP_METRIC_RESERVED_BYTES),
					 c10::Device(c10::DeviceType::CUDA, device.index()));
	std::vector<cca::OutOfMemoryObserver> observers;
	{
		std::lock_guard<std::mutex> guard(lock_);
		observers = observers_;
	}
	for (const cca::OutOfMemoryObserver &observer : observers)
		observer(device.index(), bytes, limited ? limit : device.total_bytes(), static_cast<size_t>(free));
	char message[NEAP_PLUGIN_OOM_ROOM];
	libneap.neap_plugin_oom_text(device.alloc(), bytes, message, sizeof message);
	std::string text = message;
	if (lends)
		text += " A pool that PyTorch's own allocator serves has use_on_oom: it lends nothing to neap's "
			"memory.";
	TORCH_CHECK_WITH(OutOfMemoryError, false, text);
	__builtin_unreachable();
}

void Reports::attachOutOfMemoryObserver(cca::OutOfMemoryObserver observer)
{
	std::lock_guard<std::mutex> guard(lock_);
	observers_.push_back(std::move(observer));
}

/* neap rejects nothing before it has tried, so these are never called. */
void Reports::attachOomRejectionObserver(cca::OutOfMemoryObserver) {}

/* Statistics. */

template <typename S> static void add(S &to, const neap_stat &from)
{
	to.current += from.current;
	to.peak += from.peak;
	to.allocated += from.allocated;
	to.freed += from.freed;
}

template <typename Stats> static void add_pools(Stats &stats, const Device &device)
{
#ifdef NEAP_HAS_reserved_bytes_by_private_pools
	for (const auto &[pool, bytes] : device.pool_bytes())
		stats.reserved_bytes_by_private_pools[pool] = bytes;
#else
	(void)stats;
	(void)device;
#endif
}

cca::DeviceStats Reports::getDeviceStats(DeviceIndex index)
{
	cca::DeviceStats stats = {};
	if (delegates_)
		stats = native_->getDeviceStats(index);
	stats.max_split_size = -1;
	Device *device = opened(index);
	if (!device)
		return stats;
	neap_stats own = {};
	libneap.neap_get_stats(device->alloc(), &own);
	StatArray *const metrics[NEAP_METRIC_COUNT] = {
		&stats.allocation,      &stats.segment,        &stats.active,       &stats.inactive_split,
		&stats.allocated_bytes, &stats.reserved_bytes, &stats.active_bytes, &stats.inactive_split_bytes,
		&stats.requested_bytes};
	static const neap_pool_class classes[] = {NEAP_CLASS_ALL, NEAP_CLASS_SMALL, NEAP_CLASS_LARGE};
	for (int metric = 0; metric < NEAP_METRIC_COUNT; metric++)
		for (size_t i = 0; i < 3; i++)
			add((*metrics[metric])[i], own.metric[metric][classes[i]]);
	stats.num_alloc_retries += own.num_alloc_retries;
	stats.num_ooms += own.num_ooms;
	stats.num_sync_all_streams += own.num_sync_all_streams;
	stats.num_device_alloc += own.num_device_alloc;
	stats.num_device_free += own.num_device_free;
	add_pools(stats, *device);
	return stats;
}

void Reports::resetAccumulatedStats(DeviceIndex index)
{
	if (Device *device = opened(index)) {
		libneap.neap_reset_accumulated_stats(device->alloc());
		device->reset_pool_bytes(false);
	}
	if (delegates_)
		native_->resetAccumulatedStats(index);
}

void Reports::resetPeakStats(DeviceIndex index)
{
	if (Device *device = opened(index)) {
		libneap.neap_reset_peak_stats(device->alloc());
		device->reset_pool_bytes(true);
	}
	if (delegates_)
		native_->resetPeakStats(index);
}

void Reports::emptyCache() { emptyCache({0, 0}); }

/* Empties the cache of one pool, or of all. Under a capture nothing is given back. */
void Reports::emptyCache(Pool pool)
{
	bool all = !pool.first && !pool.second;
	for (DeviceIndex i = 0; i < count_ && i < kDevices; i++) {
		Device *device = opened(i);
		if (!device)
			continue;
		cudaStreamCaptureStatus capture = cudaStreamCaptureStatusNone;
		cudaStreamIsCapturing(c10::cuda::getCurrentCUDAStream(i).stream(), &capture);
		if (capture != cudaStreamCaptureStatusNone)
			continue;
		History::Scope scope(history_, cca::RecordContext::ALL);
		neap_error error = {};
		neap_status status =
			all ? libneap.neap_empty_cache(device->alloc(), nullptr, &error)
			    : libneap.neap_pool_empty(device->alloc(), pool.first, pool.second, nullptr, &error);
		if (status != NEAP_ESTATE)
			check(status, error);
	}
	if (delegates_) {
#ifdef NEAP_EMPTIES_POOLS
		native_->emptyCache(pool);
#else
		native_->emptyCache();
#endif
	}
}

void Reports::cacheInfo(DeviceIndex index, size_t *largest)
{
	size_t free = 0, total = 0;
	if (*largest == 0) {
		C10_CUDA_CHECK(cudaMemGetInfo(&free, &total));
		*largest = free;
	}
	if (Device *device = opened(index))
		for (const neap_block_info &block : device->blocks())
			if (block.state == NEAP_BLOCK_CACHED && block.bytes > *largest)
				*largest = block.bytes;
}

/* Snapshots. */

static void segment_add(cca::SegmentInfo &segment, const neap_block_info &block, Context context)
{
	bool live = block.state == NEAP_BLOCK_LIVE, active = live || block.state == NEAP_BLOCK_PENDING;
	cca::BlockInfo &info = segment.blocks.emplace_back();
	info.size = block.bytes;
	info.requested_size = active ? block.requested_bytes : 0;
	info.allocated = live;
	info.active = active;
	info.context_when_allocated = std::move(context);
	segment.total_size += info.size;
	segment.requested_size += info.requested_size;
	segment.allocated_size += live ? info.size : 0;
	segment.active_size += active ? info.size : 0;
}

/* Each range of mapped pages is a segment, as PyTorch shows its expandable ones. */
void Reports::add_segments(Device &device, Pool pool, cca::SnapshotInfo &snapshot)
{
	bool all = !pool.first && !pool.second;
	bool grows = libneap.neap_device_info(device.device())->page_bytes > 0;
	uint64_t end = 0, segment_address = 0;
	for (const neap_block_info &block : device.blocks()) {
		if (block.state == NEAP_BLOCK_UNMAPPED || (!all && pool != Pool{block.pool_high, block.pool_low}))
			continue;
		if (block.address != end || block.segment_address != segment_address) {
			cca::SegmentInfo &segment = snapshot.segments.emplace_back();
			segment.device = device.index();
			segment.address = block.address;
			segment.stream = static_cast<decltype(segment.stream)>(block.stream);
			segment.is_large = !block.small_pool;
			segment.is_expandable = grows;
			segment.owner_private_pool_id = {block.pool_high, block.pool_low};
		}
		segment_address = block.segment_address;
		end = block.address + block.bytes;
		segment_add(snapshot.segments.back(), block,
			    history_.context_of(reinterpret_cast<void *>(block.address)));
	}
}

cca::SnapshotInfo Reports::snapshot() { return snapshot({0, 0}, true); }
cca::SnapshotInfo Reports::snapshot(Pool pool) { return snapshot(pool, true); }

template <typename Native, typename Snapshot> static void native_snapshot(Native &native, Pool pool, Snapshot &result)
{
	(void)pool;
#if defined NEAP_SNAPSHOT_TRACES
	result = native.snapshot(pool, false);
#elif defined NEAP_SNAPSHOT_POOL
	result = native.snapshot(pool);
#else
	result = native.snapshot();
#endif
}

cca::SnapshotInfo Reports::snapshot(Pool pool, bool traces)
{
	cca::SnapshotInfo result;
	native_snapshot(*native_, pool, result); /* its settings, and the segments that it serves */
	size_t devices = static_cast<size_t>(count_.load());
	/* Before this snapshot's own entry, as PyTorch does. */
	result.device_traces = traces ? history_.entries(devices) : std::vector<std::vector<Entry>>(devices);
	for (size_t i = 0; i < devices && i < kDevices; i++) {
		Device *device = opened(static_cast<DeviceIndex>(i));
		if (!device)
			continue;
		size_t before = result.segments.size(), active = 0;
		add_segments(*device, pool, result);
		for (size_t at = before; at < result.segments.size(); at++)
			active += result.segments[at].active_size;
		History::Scope scope(history_, cca::RecordContext::ALL);
		history_.add(device->index(), {Entry::SNAPSHOT, 0, active, nullptr});
	}
	std::sort(result.segments.begin(), result.segments.end(),
		  [](const cca::SegmentInfo &a, const cca::SegmentInfo &b) { return a.address < b.address; });
#ifdef NEAP_HAS_AnnotationEntry
	result.external_annotations.clear();
	if (traces)
		history_.fill_annotations(result);
#endif
	return result;
}

#ifdef NEAP_HAS_StreamSegmentSize
std::vector<cca::StreamSegmentSize> Reports::getExpandableSegmentSizes(DeviceIndex index)
{
	std::map<std::pair<void *, bool>, size_t> sizes;
	Device *device = opened(index);
	if (device)
		for (const neap_block_info &block : device->blocks())
			if (block.state != NEAP_BLOCK_UNMAPPED && !block.pool_high && !block.pool_low)
				sizes[{block.stream, block.small_pool}] += block.bytes;
	std::vector<cca::StreamSegmentSize> result;
	for (const auto &[place, bytes] : sizes)
		result.emplace_back(static_cast<cudaStream_t>(place.first), place.second, bytes);
	return result;
}
#endif

/* History. */

void Reports::configure_history()
{
	for (DeviceIndex i = 0; i < count_ && i < kDevices; i++)
		if (Device *device = opened(i))
			device->watch();
}

void Reports::recordHistory(bool enabled, cca::CreateContextFn gather, size_t entries, cca::RecordContext when)
{
	recordHistory(enabled, gather, entries, when, false, {});
}

void Reports::recordHistory(bool enabled, cca::CreateContextFn gather, size_t entries, cca::RecordContext when,
			    bool clear)
{
	recordHistory(enabled, gather, entries, when, clear, {});
}

void Reports::recordHistory(bool enabled, cca::CreateContextFn gather, size_t entries, cca::RecordContext when,
			    bool clear, const std::vector<std::string> &skipped)
{
	history_.configure(enabled, gather, entries, when, clear, skipped);
	configure_history();
}

void Reports::attachAllocatorTraceTracker(cca::AllocatorTraceTracker tracker)
{
	history_.track(std::move(tracker));
	configure_history();
}

void Reports::recordAnnotation(const std::vector<std::pair<std::string, std::string>> &metadata)
{
	history_.annotation(metadata, c10::cuda::current_device());
}

void Reports::popCompileContext()
{
	if (!History::compile_contexts().empty())
		History::compile_contexts().pop_back();
}

void Reports::annotateMemory(const void *pointer, const std::string &metadata)
{
#ifdef NEAP_HAS_ANNOTATE
	neap_block_info block = {};
	Device *device = owner(const_cast<void *>(pointer), &block);
	TORCH_CHECK(device, "No allocated block can be found for ", pointer);
	if (history_.enabled())
		history_.annotate(device->index(),
				  {Entry::ANNOTATE,
				   block.address,
				   block.requested_bytes,
				   block.stream,
				   {block.pool_high, block.pool_low}},
				  metadata);
#else
	(void)pointer;
	(void)metadata;
#endif
}

} // namespace neap_torch
