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

#include <stdatomic.h>

/* c10::reportMemoryUsageToProfiler(void *, int64_t, size_t, size_t, c10::Device); a Device is two bytes: type, index.
 */
#define REPORT           _ZN3c1027reportMemoryUsageToProfilerEPvlmmNS_6DeviceE
#define REPORT_NAME      "_ZN3c1027reportMemoryUsageToProfilerEPvlmmNS_6DeviceE"
#define DEVICE_TYPE_CUDA 1
/* If values are computed, a larger block keeps its bytes, as on a GPU: zeroing each would cost more than its kernel.
 * While a thread is blind, a small block keeps its bytes, too: it may be an input that the host has yet to read. */
#define ZEROED_BYTES 65536

typedef void (*report_function)(void *block, int64_t bytes, size_t allocated, size_t reserved, uint16_t device);

NEAP_API void REPORT(void *block, int64_t bytes, size_t allocated, size_t reserved, uint16_t device);
static void find_next(void *block, int64_t bytes, size_t allocated, size_t reserved, uint16_t device);

static _Atomic(report_function) next = find_next;
static atomic_uint kept; /* bits of enum runtime_kept */

void runtime_keep(enum runtime_kept what, bool on)
{
	if (on)
		atomic_fetch_or_explicit(&kept, (unsigned)what, memory_order_relaxed);
	else
		atomic_fetch_and_explicit(&kept, ~(unsigned)what, memory_order_relaxed);
}

static void report_nothing(void *block, int64_t bytes, size_t allocated, size_t reserved, uint16_t device)
{
	(void)block;
	(void)bytes;
	(void)allocated;
	(void)reserved;
	(void)device;
}

/* Finds libc10's function, at the first call. */
static void find_next(void *block, int64_t bytes, size_t allocated, size_t reserved, uint16_t device)
{
	void *library = dlopen("libc10.so", RTLD_NOW | RTLD_NOLOAD);
	void *symbol = library ? dlsym(library, REPORT_NAME) : NULL;
	report_function found = report_nothing;

	if (symbol && symbol != (void *)(uintptr_t)REPORT)
		memcpy(&found, &symbol, sizeof found);
	atomic_store_explicit(&next, found, memory_order_relaxed);
	found(block, bytes, allocated, reserved, device);
}

static __attribute__((noinline)) void forget_block(void *block, int64_t bytes)
{
	size_t changed = bytes < 0 ? (size_t)-bytes : (size_t)bytes;

	gate_free_range((uint64_t)(uintptr_t)block, changed);
	if (!values_kept() || (!values_blind() && !values_late() && bytes > 0 && changed <= ZEROED_BYTES))
		contents_forget((uint64_t)(uintptr_t)block, changed);
	values_block((uint64_t)(uintptr_t)block, bytes);
}

void REPORT(void *block, int64_t bytes, size_t allocated, size_t reserved, uint16_t device)
{
	if (atomic_load_explicit(&kept, memory_order_relaxed) && (device & 0xff) == DEVICE_TYPE_CUDA)
		forget_block(block, bytes);
	atomic_load_explicit(&next, memory_order_relaxed)(block, bytes, allocated, reserved, device);
}
