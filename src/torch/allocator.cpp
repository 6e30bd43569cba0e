#include "allocator.h"

#include <c10/core/DeviceGuard.h>
#include <c10/core/impl/GPUTrace.h>
#include <c10/cuda/CUDAException.h>
#include <c10/cuda/CUDAFunctions.h>

namespace neap_torch
{

/* The function that a DataPtr calls; the allocator is never destroyed. */
static void delete_block(void *pointer) { cca::get()->raw_delete(pointer); }

/* A request on this thread. libneap's callback, which asks for memory before the request fails, reads it. */
struct Request {
	Device *device;
	cudaStream_t stream;
	std::vector<Pool> borrowed; /* pools whose free memory it may use */
	bool asked = false;         /* PyTorch's callbacks */
};
static thread_local Request *request_now;

/* A capture on this thread allows only safe calls. Mapping pages is safe, whatever the capture's mode. */
class Relaxed
{
      public:
	explicit Relaxed(bool needed) : needed_(needed)
	{
		if (needed_)
			cudaThreadExchangeStreamCaptureMode(&mode_);
	}
	~Relaxed()
	{
		if (needed_)
			cudaThreadExchangeStreamCaptureMode(&mode_);
	}
	Relaxed(const Relaxed &) = delete;
	Relaxed &operator=(const Relaxed &) = delete;

      private:
	bool needed_;
	cudaStreamCaptureMode mode_ = cudaStreamCaptureModeRelaxed;
};

/* Memory. */

DataPtr Allocator::allocate(size_t bytes)
{
	TORCH_CHECK_WITH(OutOfMemoryError, bytes < (1ull << 60),
			 "CUDA out of memory. Tried to allocate more than 1EB memory.");
	DeviceIndex device = current();
	if (!enabled_)
		return delegate().allocate(bytes);
	void *pointer = nullptr;
	if (bytes)
		pointer = allocate_on(open(device), bytes, c10::cuda::getCurrentCUDAStream(device).stream());
	return {pointer, pointer, &delete_block, c10::Device(c10::DeviceType::CUDA, device)};
}

c10::DeleterFnPtr Allocator::raw_deleter() const { return enabled_ ? &delete_block : native_->raw_deleter(); }

void *Allocator::raw_alloc(size_t bytes)
{
	DeviceIndex device = current();
	return bytes ? allocate_on(open(device), bytes, c10::cuda::getCurrentCUDAStream(device).stream()) : nullptr;
}

void *Allocator::raw_alloc_with_stream(size_t bytes, cudaStream_t stream)
{
	return bytes ? allocate_on(open(current()), bytes, stream) : nullptr;
}

/* Tells the profiler how much was allocated or freed, and how much is held afterwards. */
void Allocator::report(void *pointer, int64_t bytes, Device &device) const
{
	neap_stats stats = {};
	libneap.neap_get_stats(device.alloc(), &stats);
	auto held = [&](neap_metric metric) {
		return static_cast<size_t>(stats.metric[metric][NEAP_CLASS_ALL].current);
	};
	c10::reportMemoryUsageToProfiler(pointer, bytes, held(NEAP_METRIC_ALLOCATED_BYTES),
					 held(NEAP_METRIC_RESERVED_BYTES),
					 c10::Device(c10::DeviceType::CUDA, device.index()));
}

/* Called by C, without neap's lock: first PyTorch's callbacks may free memory, then the pools that allow it lend
 * their free memory to this request. */
bool Allocator::lend(void *, neap_alloc *, size_t, unsigned) noexcept
{
	Request *request = request_now;
	if (!request)
		return false;
	try {
		bool freed = false;
		if (!request->asked) {
			request->asked = true;
			for (const auto &name : c10::FreeCudaMemoryCallbacksRegistry()->Keys())
				freed |= c10::FreeCudaMemoryCallbacksRegistry()->Create(name)->Execute();
		}
		if (freed)
			return true;
		std::lock_guard<std::mutex> guard(request->device->lock);
		for (const auto &[pool, use] : request->device->pools) {
			bool tried = std::find(request->borrowed.begin(), request->borrowed.end(), pool) !=
				     request->borrowed.end();
			if (!use.on_oom || use.open || use.delegated || tried)
				continue;
			request->borrowed.push_back(pool);
			auto only = [](void *context, void *) { return request_now == context; };
			if (libneap.neap_pool_use(request->device->alloc(), pool.first, pool.second, only, request,
						  nullptr) == NEAP_OK)
				return true;
		}
	} catch (...) {
	}
	return false;
}

void *Allocator::allocate_on(Device &device, size_t bytes, cudaStream_t stream)
{
	if (device.delegated_open > 0)
		if (void *pointer = allocate_delegated(device, bytes, stream))
			return pointer;
	History::Scope scope(history_, cca::RecordContext::STATE);
	Request request = {&device, stream, {}};
	neap_error error; /* only for a request that fails: clearing it takes as long as a hit */
	uint64_t address = 0;
	neap_status status;
	{
		Relaxed relaxed(device.pools_open > 0);
		request_now = &request;
		status = libneap.neap_malloc(device.alloc(), bytes, stream, &address, &error);
		request_now = nullptr;
	}
	for (const Pool &pool : request.borrowed) {
		libneap.neap_pool_end(device.alloc(), pool.first, pool.second);
		libneap.neap_pool_release(device.alloc(), pool.first, pool.second);
	}
	if (status != NEAP_OK)
		fail(device, bytes, stream, status, error);
	void *pointer = reinterpret_cast<void *>(address);
	if (const auto *trace = c10::impl::GPUTrace::get_trace(); C10_UNLIKELY(trace != nullptr))
		(*trace)->trace_gpu_memory_allocation(c10::kCUDA, static_cast<uintptr_t>(address));
	if (C10_UNLIKELY(c10::memoryProfilingEnabled())) {
		neap_block_info block = {};
		if (libneap.neap_block_at(device.alloc(), address, &block) == NEAP_OK)
			report(pointer, static_cast<int64_t>(block.bytes), device);
	}
	return pointer;
}

/* nullptr: the stream's memory is neap's. */
void *Allocator::allocate_delegated(Device &device, size_t bytes, cudaStream_t stream)
{
	bool matches = false;
	{
		std::lock_guard<std::mutex> guard(device.lock);
		for (const auto &[pool, use] : device.pools)
			matches |= use.delegated && use.open && (*use.filter)(stream);
	}
	if (!matches)
		return nullptr;
	c10::DeviceGuard on(c10::Device(c10::DeviceType::CUDA, device.index()));
	return native_->raw_alloc_with_stream(bytes, stream);
}

/* The device of a live block, and its bytes. */
Device *Allocator::measure(void *pointer, int64_t &bytes) const
{
	neap_block_info block = {};
	Device *device = owner(pointer, &block);
	bytes = static_cast<int64_t>(block.bytes);
	return device;
}

void Allocator::raw_delete(void *pointer)
{
	if (!pointer)
		return;
	History::Scope scope(history_, cca::RecordContext::ALL);
	uint64_t address = reinterpret_cast<uint64_t>(pointer);
	int64_t bytes = 0;
	Device *profiled = C10_UNLIKELY(c10::memoryProfilingEnabled()) ? measure(pointer, bytes) : nullptr;
	if (const auto *trace = c10::impl::GPUTrace::get_trace(); C10_UNLIKELY(trace != nullptr))
		(*trace)->trace_gpu_memory_deallocation(c10::kCUDA, static_cast<uintptr_t>(address));
	for (DeviceIndex i = 0; i < count_ && i < kDevices; i++) {
		Device *device = opened(i);
		if (!device || libneap.neap_free(device->alloc(), address) != NEAP_OK)
			continue;
		if (profiled)
			report(pointer, -bytes, *profiled);
		return;
	}
	TORCH_CHECK(delegates_, "invalid device pointer: ", pointer);
	native_->raw_delete(pointer);
}

void Allocator::copy_data(void *to, const void *from, size_t bytes) const
{
	C10_CUDA_CHECK(cudaMemcpy(to, from, bytes, cudaMemcpyDeviceToDevice));
}

void Allocator::recordStream(const DataPtr &data, c10::Stream stream)
{
	recordStream(data, c10::cuda::CUDAStream(stream));
}

/* Skips memory that is not this allocator's (another process's, an uncached one), as PyTorch does. */
void Allocator::recordStream(const DataPtr &data, c10::cuda::CUDAStream stream)
{
	if (!data.get() || data.get_deleter() != &delete_block)
		return;
	neap_block_info block = {};
	Device *device = owner(data.get(), &block);
	if (!device) {
		TORCH_CHECK(delegates_, "No allocated block can be found for ", data.get());
		DataPtr same(data.get(), data.get(), native_->raw_deleter(), data.device());
		native_->recordStream(same, stream);
		same.release_context();
		return;
	}
	neap_status status = libneap.neap_record_stream(device->alloc(), block.address, stream.stream());
	TORCH_CHECK(status == NEAP_OK, "neap: no host memory to record a stream's use of a block");
}

void *Allocator::getBaseAllocation(void *pointer, size_t *bytes)
{
	neap_block_info block = {};
	Device *device = owner(pointer, &block);
	if (!device) {
		TORCH_CHECK(delegates_, "invalid device pointer: ", pointer);
		return native_->getBaseAllocation(pointer, bytes);
	}
	/* A block of mapped pages is not a part of one allocation of the driver. */
	TORCH_CHECK(!libneap.neap_device_info(device->device())->page_bytes,
		    "neap's memory is mapped page by page: it has no base allocation that cudaIpcGetMemHandle could "
		    "share. Use "
		    "PyTorch's own allocator in processes that share tensors (neap run --allocator default).");
	if (bytes)
		*bytes = block.segment_bytes;
	return reinterpret_cast<void *>(block.segment_address);
}

DataPtr Allocator::allocateWithAddress(size_t, void *)
{
	TORCH_CHECK(
		false,
		"neap cannot allocate at a given address: its addresses belong to the pages that are mapped there.");
}

cudaError_t Allocator::memcpyAsync(void *to, int to_device, const void *from, int from_device, size_t bytes,
				   cudaStream_t stream, bool peer_access)
{
	if (peer_access || to_device == from_device)
		return cudaMemcpyAsync(to, from, bytes, cudaMemcpyDeviceToDevice, stream);
	return cudaMemcpyPeerAsync(to, to_device, from, from_device, bytes, stream);
}

/* `device` gets access to the memory of `peer`. */
void Allocator::enablePeerAccess(DeviceIndex device, DeviceIndex peer)
{
	c10::DeviceGuard on(c10::Device(c10::DeviceType::CUDA, device));
	cudaError_t error = cudaDeviceEnablePeerAccess(peer, 0);
	if (error == cudaErrorPeerAccessAlreadyEnabled)
		(void)cudaGetLastError();
	else
		C10_CUDA_CHECK(error);
	open(peer).allow_peer(device);
}

/* Settings. */

void Allocator::enable(bool value)
{
#ifdef NEAP_HAS_enable
	delegate().enable(value);
	enabled_ = value;
#else
	(void)value;
#endif
}

bool Allocator::isEnabled() const { return enabled_; }

} // namespace neap_torch
