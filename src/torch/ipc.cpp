/* torch/ipc.cpp: memory of other processes. */
#include "allocator.h"

namespace neap_torch
{

#ifdef NEAP_HAS_ShareableHandle
cca::ShareableHandle Allocator::shareIpcHandle(void *pointer)
{
	neap_block_info block = {};
	if (!owner(pointer, &block) && delegates_)
		return native_->shareIpcHandle(pointer);
	TORCH_CHECK(false, "neap's memory cannot be shared with other processes yet: share tensors from memory of a "
			   "torch.cuda.MemPool(no_split=True), which PyTorch's own allocator serves, or run without "
			   "--allocator neap.");
}
#endif

/* Another process's memory: PyTorch's own allocator opens what such an allocator has shared. */
std::shared_ptr<void> Allocator::getIpcDevPtr(std::string handle)
{
	return delegate().getIpcDevPtr(std::move(handle));
}

} // namespace neap_torch
