#include "device.h"

#include <c10/cuda/CUDAException.h>
#include <dlfcn.h>

namespace neap_torch
{

void check(neap_status status, const neap_error &error) { TORCH_CHECK(status == NEAP_OK, "neap: ", error.message); }

Device::Device(neap_driver *driver, c10::DeviceIndex index, History &history, size_t foreign)
    : index_(index), history_(history)
{
	neap_error error = {};
	check(libneap.neap_device_open(driver, index, &device_, &error), error);
	libneap.neap_device_measure_context(device_, foreign);
	neap_alloc_options options = {};
	options.shareable = true;
	check(libneap.neap_alloc_create(device_, &options, &alloc_, &error), error);
	watch();
}

uint64_t Device::total_bytes() const { return libneap.neap_device_info(device_)->total_bytes; }

void Device::watch()
{
	neap_watcher watcher = {};
	watcher.changed = on_change;
	watcher.context = this;
	watcher.blocks = history_.wanted();
	libneap.neap_watch(alloc_, &watcher);
}

/* Called by C under a lock: nothing may be thrown through it. If host memory runs out, the entry is lost from the
 * history, and nothing else is. */
void Device::on_change(void *context, const neap_alloc_change *change) noexcept
{
	try {
		static_cast<Device *>(context)->changed(*change);
	} catch (...) {
	}
}

static Entry::Action action_of(neap_event_kind kind)
{
	switch (kind) {
	case NEAP_EVENT_ALLOC:
		return Entry::ALLOC;
	case NEAP_EVENT_FREE_REQUESTED:
		return Entry::FREE_REQUESTED;
	case NEAP_EVENT_FREE_COMPLETED:
		return Entry::FREE_COMPLETED;
	case NEAP_EVENT_SEGMENT_ALLOC:
		return Entry::SEGMENT_ALLOC;
	case NEAP_EVENT_SEGMENT_FREE:
		return Entry::SEGMENT_FREE;
	case NEAP_EVENT_SEGMENT_MAP:
		return Entry::SEGMENT_MAP;
	default:
		return Entry::SEGMENT_UNMAP;
	}
}

static void count(StatArray &stats, size_t which, int64_t bytes)
{
	stats[which].current += bytes;
	if (bytes < 0) {
		stats[which].freed -= bytes;
		return;
	}
	stats[which].allocated += bytes;
	stats[which].peak = std::max(stats[which].peak, stats[which].current);
}

void Device::changed(const neap_alloc_change &change)
{
	Entry::Action action = action_of(change.kind);
	Pool pool{change.pool_high, change.pool_low};
	bool more = action == Entry::SEGMENT_ALLOC || action == Entry::SEGMENT_MAP;
	bool pages = more || action == Entry::SEGMENT_FREE || action == Entry::SEGMENT_UNMAP;
	if (pages && (pool.first || pool.second)) {
		int64_t bytes = more ? static_cast<int64_t>(change.bytes) : -static_cast<int64_t>(change.bytes);
		std::lock_guard<std::mutex> guard(watched_);
		StatArray &stats = pool_bytes_[pool];
		count(stats, 0, bytes);
		count(stats, change.small_pool ? 1 : 2, bytes);
	}
	if (action == Entry::SEGMENT_MAP)
		open_to_peers(change.address, change.bytes);
	if (history_.wanted())
		history_.add(index_,
			     {action, change.address, pages ? change.bytes : change.requested, change.stream, pool});
}

void Device::open_to_peers(uint64_t address, uint64_t bytes)
{
	using SetAccess = int (*)(unsigned long long, size_t, const Access *, size_t);
	static auto set_access = reinterpret_cast<SetAccess>([]() -> void * {
		void *driver = dlopen("libcuda.so.1", RTLD_LAZY | RTLD_NOLOAD);
		return driver ? dlsym(driver, "cuMemSetAccess") : nullptr;
	}());
	std::vector<Access> access;
	{
		std::lock_guard<std::mutex> guard(watched_);
		for (c10::DeviceIndex peer : peers_)
			access.push_back({1, peer, 3});
	}
	/* A block that was joined from ends of pages is reported without the rest of its first and last page. */
	uint64_t page = libneap.neap_device_info(device_)->page_bytes;
	uint64_t begin = page ? address / page * page : address;
	uint64_t end = page ? (address + bytes + page - 1) / page * page : address + bytes;
	if (!access.empty() && set_access)
		set_access(begin, end - begin, access.data(), access.size());
}

std::vector<neap_block_info> Device::blocks() const
{
	std::vector<neap_block_info> found;
	/* The callback is called by C: std::bad_alloc must not pass through it. */
	struct Visit {
		std::vector<neap_block_info> *found;
		bool failed;
	} visit = {&found, false};
	libneap.neap_each_block(
		alloc_,
		[](void *context, const neap_block_info *block) {
			auto *visit = static_cast<Visit *>(context);
			try {
				visit->found->push_back(*block);
			} catch (...) {
				visit->failed = true;
			}
		},
		&visit);
	TORCH_CHECK(!visit.failed, "neap: no host memory for a list of blocks");
	return found;
}

void Device::allow_peer(c10::DeviceIndex peer)
{
	{
		std::lock_guard<std::mutex> guard(watched_);
		if (std::find(peers_.begin(), peers_.end(), peer) != peers_.end())
			return;
		peers_.push_back(peer);
	}
	/* Neighbouring mapped blocks are whole pages together; a peer may be given a page twice. */
	uint64_t begin = 0, end = 0;
	for (const neap_block_info &block : blocks()) {
		bool mapped = block.state != NEAP_BLOCK_UNMAPPED;
		if (end > begin && (!mapped || block.address != end)) {
			open_to_peers(begin, end - begin);
			begin = end = 0;
		}
		if (mapped) {
			begin = end > begin ? begin : block.address;
			end = block.address + block.bytes;
		}
	}
	if (end > begin)
		open_to_peers(begin, end - begin);
}

std::map<Pool, StatArray> Device::pool_bytes() const
{
	std::lock_guard<std::mutex> guard(watched_);
	return pool_bytes_;
}

size_t Device::pool_reserved(Pool pool) const
{
	std::lock_guard<std::mutex> guard(watched_);
	auto found = pool_bytes_.find(pool);
	return found == pool_bytes_.end() ? 0 : static_cast<size_t>(found->second[0].current);
}

void Device::reset_pool_bytes(bool peaks)
{
	std::lock_guard<std::mutex> guard(watched_);
	for (auto &[pool, stats] : pool_bytes_) {
		for (auto &stat : stats) {
			if (peaks)
				stat.peak = stat.current;
			else
				stat.allocated = stat.freed = 0;
		}
	}
}

} // namespace neap_torch
