/* torch/device.h: neap's allocator on one device of PyTorch's, opened when PyTorch first allocates there.
 *
 * Its watcher feeds the history and keeps facts that libneap does not: how many bytes each private pool reserves, and
 * which other devices may use the memory (each range is opened to them when it is mapped).
 *
 * Locks: `lock` guards pools and peers. It is never held while libneap is called. The watcher, which libneap calls
 * under its own lock, takes `watched`, a leaf. */
#ifndef NEAP_TORCH_DEVICE_H
#define NEAP_TORCH_DEVICE_H

#include "history.h"

#include <c10/core/Allocator.h>

#include <deque>
#include <functional>
#include <map>
#include <optional>

namespace neap_torch
{

using StatArray = decltype(cca::DeviceStats::allocation);
using Filter = std::function<bool(cudaStream_t)>;

/* CUmemAccessDesc: type 1 is a device, flags 3 read and write. */
struct Access {
	int type, device, flags;
};

/* A private pool, as PyTorch counts it: a use for each create, begin and capture, less the releases. */
struct PoolUse {
	int uses = 0;
	bool open = false;      /* between begin and end */
	bool delegated = false; /* PyTorch's own allocator serves it (see Devices::delegate) */
	bool on_oom = false;    /* its free memory may serve a request that finds none elsewhere */
	std::shared_ptr<Filter> filter;
};

class Device
{
      public:
	/* `foreign`: the bytes that PyTorch's own allocator holds there already. */
	Device(neap_driver *driver, c10::DeviceIndex index, History &history, size_t foreign);
	Device(const Device &) = delete;
	Device &operator=(const Device &) = delete;

	c10::DeviceIndex index() const { return index_; }
	neap_alloc *alloc() const { return alloc_; }
	neap_device *device() const { return device_; }
	uint64_t total_bytes() const;

	/* The history or the trackers have changed: whether block changes are worth a call. */
	void watch();
	void allow_peer(c10::DeviceIndex peer);
	/* Statistics of each pool that exists, or has since the last reset. */
	std::map<Pool, StatArray> pool_bytes() const;
	void reset_pool_bytes(bool peaks);
	size_t pool_reserved(Pool pool) const;
	std::vector<neap_block_info> blocks() const;

	std::mutex lock;
	std::map<Pool, PoolUse> pools;
	std::atomic<int> pools_open{0}, delegated_open{0};

      private:
	static void on_change(void *context, const neap_alloc_change *change) noexcept;
	void changed(const neap_alloc_change &change);
	void open_to_peers(uint64_t address, uint64_t bytes);

	c10::DeviceIndex index_;
	History &history_;
	neap_alloc *alloc_ = nullptr;
	neap_device *device_ = nullptr;
	mutable std::mutex watched_;
	std::map<Pool, StatArray> pool_bytes_;
	std::vector<c10::DeviceIndex> peers_;
};

/* Throws the exception that PyTorch's callers expect for a failed call of libneap other than "out of memory". */
void check(neap_status status, const neap_error &error);

} // namespace neap_torch

#endif
