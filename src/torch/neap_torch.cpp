/* torch/neap_torch.cpp: libneap as PyTorch's allocator. One object, compiled against the installed PyTorch by
 * neap.install_allocator() (python/neap/_allocator.py); the other files of this folder are included here, so that
 * PyTorch's headers are read once.
 *
 *   PyTorch --CUDAAllocator--> Allocator --libneap.*--> neap_alloc, one for each device
 *                                 |  \--history--> traces, snapshots, trackers
 *                                 \--> PyTorch's own allocator: pools with an allocator of their own or no_split */
#include "allocator.cpp"
#include "device.cpp"
#include "devices.cpp"
#include "history.cpp"
#include "ipc.cpp"
#include "pools.cpp"
#include "report.cpp"

#include <torch/csrc/cuda/CUDAPluggableAllocator.h>

#include <cstdio>
#include <dlfcn.h>

namespace neap_torch
{

Libneap libneap = {};

static bool functions_find(void *library, char *message, size_t capacity)
{
#define X(name)                                                                                                      \
	libneap.name = reinterpret_cast<decltype(libneap.name)>(dlsym(library, #name));                              \
	if (!libneap.name) {                                                                                         \
		snprintf(message, capacity, "this libneap has no " #name);                                           \
		return false;                                                                                        \
	}
	NEAP_TORCH_FUNCTIONS(X)
#undef X
	return true;
}

} // namespace neap_torch

/* Makes neap PyTorch's allocator. `library`: libneap's handle. 0, or 1 with the reason in `message`. Before CUDA is
 * used; PyTorch itself refuses later. */
extern "C" __attribute__((visibility("default"))) int neap_torch_install(void *library, char *message,
									 size_t capacity)
{
	using namespace neap_torch;
	try {
		if (!functions_find(library, message, capacity))
			return 1;
		/* Never destroyed: tensors may outlive the interpreter's end. */
		static auto *installed =
			new std::shared_ptr<cca::CUDAAllocator>(std::make_shared<Allocator>(cca::get()));
		torch::cuda::CUDAPluggableAllocator::changeCurrentAllocator(*installed);
		return 0;
	} catch (const c10::Error &error) {
		snprintf(message, capacity, "%s", error.what_without_backtrace());
	} catch (const std::exception &error) {
		snprintf(message, capacity, "%s", error.what());
	}
	return 1;
}
