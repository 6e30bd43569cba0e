/* torch/pools.cpp: private pools: CUDA graphs, MemPool, and the states of cudagraph trees. */
#include "pools.h"

namespace neap_torch
{

static bool call_filter(void *context, void *stream)
{
	try {
		return (*static_cast<Filter *>(context))(static_cast<cudaStream_t>(stream));
	} catch (...) { /* called by C */
		return false;
	}
}

bool Pools::is_delegated(Device &device, Pool pool)
{
	std::lock_guard<std::mutex> guard(device.lock);
	auto found = device.pools.find(pool);
	return found != device.pools.end() && found->second.delegated;
}

void Pools::beginAllocateToPool(DeviceIndex index, Pool pool, Filter filter)
{
	Device &device = open(index);
	auto shared = std::make_shared<Filter>(std::move(filter));
	bool delegated = is_delegated(device, pool);
	if (delegated) {
		native_->beginAllocateToPool(index, pool, *shared);
	} else {
		neap_error error = {};
		neap_status status = libneap.neap_pool_use(device.alloc(), pool.first, pool.second, call_filter,
							   shared.get(), &error);
		TORCH_CHECK(status != NEAP_ESTATE, "beginAllocateToPool: already recording to mempool_id");
		check(status, error);
	}
	std::lock_guard<std::mutex> guard(device.lock);
	PoolUse &use = device.pools[pool];
	use.uses++;
	use.open = true;
	use.filter = std::move(shared);
	device.pools_open++;
	device.delegated_open += delegated;
}

void Pools::endAllocateToPool(DeviceIndex index, Pool pool)
{
	Device &device = open(index);
	bool delegated = is_delegated(device, pool);
	if (delegated)
		native_->endAllocateToPool(index, pool);
	else
		TORCH_CHECK(libneap.neap_pool_end(device.alloc(), pool.first, pool.second) == NEAP_OK,
			    "endAllocatePool: not currently recording to mempool_id");
	std::lock_guard<std::mutex> guard(device.lock);
	PoolUse &use = device.pools[pool];
	use.open = false;
	use.filter.reset(); /* libneap calls it no more */
	device.pools_open--;
	device.delegated_open -= delegated;
}

/* libneap asks the driver whether a stream is captured; PyTorch's own allocator does not, so this tells it. */
void Pools::markCaptureBegin(DeviceIndex index)
{
#ifdef NEAP_HAS_markCaptureBegin
	if (delegates_) {
		captures_marked_++;
		native_->markCaptureBegin(index);
	}
#else
	(void)index;
#endif
}

void Pools::markCaptureEnd(DeviceIndex index)
{
#ifdef NEAP_HAS_markCaptureBegin
	if (captures_marked_ > 0) {
		captures_marked_--;
		native_->markCaptureEnd(index);
	}
#else
	(void)index;
#endif
}

void Pools::releasePool(DeviceIndex index, Pool pool)
{
	Device &device = open(index);
	bool delegated = is_delegated(device, pool);
	{
		std::lock_guard<std::mutex> guard(device.lock);
		auto found = device.pools.find(pool);
		TORCH_CHECK(found != device.pools.end() && found->second.uses > 0,
			    "releasePool: the pool is not in use");
		if (--found->second.uses == 0)
			device.pools.erase(found);
	}
	if (delegated)
		native_->releasePool(index, pool);
	else
		libneap.neap_pool_release(device.alloc(), pool.first, pool.second);
}

int Pools::getPoolUseCount(DeviceIndex index, Pool pool)
{
	Device *device = opened(index);
	if (!device)
		return 0;
	std::lock_guard<std::mutex> guard(device->lock);
	auto found = device->pools.find(pool);
	return found == device->pools.end() ? 0 : found->second.uses;
}

/* Adds an owner: libneap counts a pool's owners by the begins, so this begins the pool with a filter that matches no
 * stream. */
void Pools::use_add(Device &device, Pool pool)
{
	std::lock_guard<std::mutex> guard(device.lock);
	PoolUse &use = device.pools[pool];
	if (!use.delegated && use.open) {
		/* It is open now, so libneap must get its owner later; an open pool cannot be begun again. */
		libneap.neap_pool_end(device.alloc(), pool.first, pool.second);
	}
	neap_error error = {};
	if (!use.delegated) {
		auto none = [](void *, void *) { return false; };
		check(libneap.neap_pool_use(device.alloc(), pool.first, pool.second, none, nullptr, &error), error);
		libneap.neap_pool_end(device.alloc(), pool.first, pool.second);
	}
	if (!use.delegated && use.open) {
		check(libneap.neap_pool_use(device.alloc(), pool.first, pool.second, call_filter, use.filter.get(),
					    &error),
		      error);
		libneap.neap_pool_release(device.alloc(), pool.first, pool.second);
	}
	use.uses++;
}

void Pools::ensureExistsAndIncrefPool(DeviceIndex index, Pool pool) { use_add(open(index), pool); }

template <typename A> static void native_pool(cca::CUDAAllocator &native, DeviceIndex index, Pool pool, A allocator)
{
#if defined NEAP_HAS_createOrIncrefPool
	native.createOrIncrefPool(index, pool, std::move(allocator));
#else
	(void)native, (void)index, (void)pool, (void)allocator;
	TORCH_CHECK(false, "neap: this PyTorch has no pools with an allocator of their own");
#endif
}

void Pools::createOrIncrefPool(DeviceIndex index, Pool pool, std::shared_ptr<cca::CUDAAllocator> allocator)
{
	Device &device = open(index);
	if (!allocator && !is_delegated(device, pool)) {
		use_add(device, pool);
		return;
	}
#ifdef NEAP_POOL_ALLOCATOR_SHARED
	native_pool(delegate(), index, pool, std::move(allocator));
#else
	TORCH_CHECK(false, "neap: this PyTorch does not hand over a pool's allocator in this way");
#endif
	std::lock_guard<std::mutex> guard(device.lock);
	PoolUse &use = device.pools[pool];
	use.delegated = true;
	use.uses++;
}

void Pools::createOrIncrefPool(DeviceIndex index, Pool pool, cca::CUDAAllocator *allocator)
{
	Device &device = open(index);
	if (!allocator && !is_delegated(device, pool)) {
		use_add(device, pool);
		return;
	}
#ifndef NEAP_POOL_ALLOCATOR_SHARED
	native_pool(delegate(), index, pool, allocator);
#else
	TORCH_CHECK(false, "neap: this PyTorch does not hand over a pool's allocator in this way");
#endif
	std::lock_guard<std::mutex> guard(device.lock);
	PoolUse &use = device.pools[pool];
	use.delegated = true;
	use.uses++;
}

void Pools::setUseOnOOM(DeviceIndex index, Pool pool) { setUseOnOOM(index, pool, true); }

void Pools::setUseOnOOM(DeviceIndex index, Pool pool, bool on_oom)
{
	Device &device = open(index);
	if (is_delegated(device, pool)) {
#if defined NEAP_USE_ON_OOM_BOOL
		native_->setUseOnOOM(index, pool, on_oom);
#elif defined NEAP_HAS_setUseOnOOM
		native_->setUseOnOOM(index, pool);
#endif
	}
	std::lock_guard<std::mutex> guard(device.lock);
	auto found = device.pools.find(pool);
	TORCH_CHECK(found != device.pools.end(), "setUseOnOOM: the pool does not exist");
	found->second.on_oom = on_oom;
}

/* neap always splits blocks. PyTorch asks for no_split right after it has made a pool, so the pool goes over to
 * PyTorch's own allocator. */
void Pools::setNoSplit(DeviceIndex index, Pool pool)
{
#ifdef NEAP_HAS_setNoSplit
	Device &device = open(index);
	if (!is_delegated(device, pool)) {
		TORCH_CHECK(!device.pool_reserved(pool),
			    "neap: setNoSplit must come before a pool's first allocation");
		int uses = getPoolUseCount(index, pool);
		for (int i = 0; i < uses; i++) {
			native_pool(delegate(), index, pool, nullptr);
			libneap.neap_pool_release(device.alloc(), pool.first, pool.second);
		}
		std::lock_guard<std::mutex> guard(device.lock);
		PoolUse &use = device.pools[pool];
		use.delegated = true;
#ifdef NEAP_USE_ON_OOM_BOOL
		if (use.on_oom)
			native_->setUseOnOOM(index, pool, true);
#endif
	}
	native_->setNoSplit(index, pool);
#else
	(void)index, (void)pool;
#endif
}

bool Pools::checkPoolLiveAllocations(DeviceIndex index, Pool pool, const std::unordered_set<void *> &expected)
{
	Device &device = open(index);
	if (is_delegated(device, pool))
		return native_->checkPoolLiveAllocations(index, pool, expected);
	TORCH_CHECK(getPoolUseCount(index, pool) > 0, "Could not find pool of id");
	size_t live = 0;
	for (const neap_block_info &block : device.blocks()) {
		if (block.state != NEAP_BLOCK_LIVE || pool != Pool{block.pool_high, block.pool_low})
			continue;
		if (!expected.count(reinterpret_cast<void *>(block.address)))
			return false;
		live++;
	}
	return live == expected.size();
}

/* The live blocks of a pool at an instant. */
struct PoolState : cca::AllocatorState {
	Pool pool;
	std::vector<neap_block_info> live;
};

static std::vector<neap_block_info> live_blocks(const Device &device, Pool pool)
{
	std::vector<neap_block_info> live;
	for (const neap_block_info &block : device.blocks()) {
		if (pool != Pool{block.pool_high, block.pool_low})
			continue;
		TORCH_CHECK(block.state != NEAP_BLOCK_PENDING, "neap: a block of the pool waits for another stream's "
							       "work, so its state cannot be kept or restored");
		if (block.state == NEAP_BLOCK_LIVE)
			live.push_back(block);
	}
	return live;
}

std::shared_ptr<cca::AllocatorState> Pools::getCheckpointState(DeviceIndex index, Pool pool)
{
	Device &device = open(index);
	if (is_delegated(device, pool))
		return native_->getCheckpointState(index, pool);
	TORCH_CHECK(getPoolUseCount(index, pool) > 0, "Could not find pool of id");
	auto state = std::make_shared<PoolState>();
	state->pool = pool;
	state->live = live_blocks(device, pool);
	return state;
}

/* Frees the pool's live blocks, and makes live again those of the earlier state. PyTorch matches both lists with its
 * tensors: a block that is live in both states is in both lists. */
cca::CheckpointDelta Pools::setCheckpointPoolState(DeviceIndex index, std::shared_ptr<cca::AllocatorState> state)
{
	auto *kept = dynamic_cast<PoolState *>(state.get());
	if (!kept)
		return delegate().setCheckpointPoolState(index, std::move(state));
	Device &device = open(index);
	History::Scope scope(history_, cca::RecordContext::STATE);
	cca::CheckpointDelta delta;
	for (const neap_block_info &block : live_blocks(device, kept->pool)) {
		libneap.neap_free(device.alloc(), block.address);
		delta.ptrs_freed.push_back(reinterpret_cast<void *>(block.address));
	}
	for (const neap_block_info &block : kept->live) {
		neap_error error = {};
		check(libneap.neap_pool_restore(device.alloc(), &block, &error), error);
		void *pointer = reinterpret_cast<void *>(block.address);
		delta.dataptrs_allocd.emplace_back(pointer, pointer, raw_deleter(),
						   c10::Device(c10::DeviceType::CUDA, index));
	}
	return delta;
}

} // namespace neap_torch
