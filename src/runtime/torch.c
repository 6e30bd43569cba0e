/* PyTorch's blocks.
 *
 * PyTorch's allocator gives out the same memory again and again without a call of the runtime, so bytes that one
 * tensor was copied to would show in the next one at the address, which on a GPU a kernel would have overwritten.
 * "What was never computed reads as zeros" needs to know where a block begins its life. PyTorch tells its profiler
 * about each block that it gives out and takes back, by a function of libc10.so. This one stands in front of it: it
 * forgets the block's contents and passes the call on. Where that function is not met (the stand-ins were not loaded
 * before PyTorch, or a PyTorch without it), old bytes may show: values, never sizes.
 */
#include "runtime/runtime.h"

#include <pthread.h>

/* c10::reportMemoryUsageToProfiler(void *, int64_t, size_t, size_t, c10::Device); a Device is two bytes: type, index.
 */
#define REPORT           _ZN3c1027reportMemoryUsageToProfilerEPvlmmNS_6DeviceE
#define REPORT_NAME      "_ZN3c1027reportMemoryUsageToProfilerEPvlmmNS_6DeviceE"
#define DEVICE_TYPE_CUDA 1

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
		contents_forget((uint64_t)(uintptr_t)block, changed);
	}
	pthread_once(&once, find_real);
	if (real)
		real(block, bytes, allocated, reserved, device);
}
