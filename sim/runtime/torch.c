/* PyTorch's blocks.
 *
 * PyTorch's allocator reuses memory without calling the runtime. So bytes that were copied to one tensor would appear
 * in the next tensor at that address; on a GPU a kernel would have overwritten them. To read as zeros, a block must
 * be forgotten when PyTorch hands it out. PyTorch reports each block that it hands out or takes back to its profiler,
 * through a function of libc10.so. The function here interposes it: it forgets the block's contents and passes the
 * call on. If it is not called (the stand-ins were not loaded before PyTorch, or PyTorch lacks the function), old
 * bytes may appear: this affects values, never sizes.
 */
#include "sim/runtime/runtime.h"

#include <pthread.h>

/* c10::reportMemoryUsageToProfiler(void *, int64_t, size_t, size_t, c10::Device); a Device is two bytes: type, index.
 */
#define REPORT           _ZN3c1027reportMemoryUsageToProfilerEPvlmmNS_6DeviceE
#define REPORT_NAME      "_ZN3c1027reportMemoryUsageToProfilerEPvlmmNS_6DeviceE"
#define DEVICE_TYPE_CUDA 1
/* With values a larger block keeps what it held, as on a GPU: to zero each would cost more than its kernel. While a
 * thread is blind a small one does, too: it may have been an input that is to be read yet. */
#define ZEROED_BYTES 65536

typedef void (*report_function)(void *block, int64_t bytes, size_t allocated, size_t reserved, uint16_t device);

NEAP_API void REPORT(void *block, int64_t bytes, size_t allocated, size_t reserved, uint16_t device);

static report_function real;

static void find_real(void)
{
	void *library = dlopen("libc10.so", RTLD_NOW | RTLD_NOLOAD);
	void *symbol = library ? dlsym(library, REPORT_NAME) : NULL;

	if (symbol != (void *)(uintptr_t)REPORT)
		memcpy(&real, &symbol, sizeof(real));
}

void REPORT(void *block, int64_t bytes, size_t allocated, size_t reserved, uint16_t device)
{
	static pthread_once_t once = PTHREAD_ONCE_INIT;
	size_t changed = bytes < 0 ? (size_t)-bytes : (size_t)bytes;

	if ((device & 0xff) == DEVICE_TYPE_CUDA) {
		gate_free_range((uint64_t)(uintptr_t)block, changed);
		if (!values_kept() || (!values_blind() && bytes > 0 && changed <= ZEROED_BYTES))
			contents_forget((uint64_t)(uintptr_t)block, changed);
	}
	pthread_once(&once, find_real);
	if (real)
		real(block, bytes, allocated, reserved, device);
}
