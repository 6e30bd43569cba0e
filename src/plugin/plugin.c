/* plugin/plugin.c: neap behind torch.cuda.memory.CUDAPluggableAllocator.
 *
 *   PyTorch --alloc, free, hooks--> neap_plugin_* --neap/alloc.h--> neap_alloc, one for each device
 *                                        \--a failure--> `throw_error`, which unwinds through these functions
 *
 * Compiled with -fexceptions, which adds the tables for that. */
#include "neap/plugin.h"

#include "base/error.h"

#include <pthread.h>
#include <stdatomic.h>

static struct {
	neap_plugin_throw *throw_error;
	pthread_mutex_t lock; /* guards the opening of devices */
	struct neap_driver *driver;
	_Atomic(struct neap_alloc *) allocs[NEAP_PLUGIN_DEVICES];
} plugin = {.lock = PTHREAD_MUTEX_INITIALIZER};

void neap_plugin_start(neap_plugin_throw *throw_error) { plugin.throw_error = throw_error; }

/* Returns only if the program gave no function that throws. */
static void fail(const char *function, const char *message)
{
	if (plugin.throw_error)
		plugin.throw_error(function, "neap/plugin.h", 0, message);
}

struct neap_alloc *neap_plugin_alloc(int device)
{
	return device >= 0 && device < NEAP_PLUGIN_DEVICES ? atomic_load(&plugin.allocs[device]) : NULL;
}

/* The lock is held. */
static enum neap_status open_device(int number, struct neap_alloc **ret_alloc, struct neap_error *err)
{
	struct neap_device *device = NULL;
	enum neap_status status = NEAP_OK;
	if (number < 0 || number >= NEAP_PLUGIN_DEVICES)
		return neap_fail(err, NEAP_EINVAL, "device %d: neap serves devices 0 to %d", number,
				 NEAP_PLUGIN_DEVICES - 1);
	if (!plugin.driver)
		status = neap_driver_open(NEAP_BACKEND_DEFAULT, &plugin.driver, err);
	if (!status)
		status = neap_device_open(plugin.driver, number, &device, err);
	if (!status) {
		neap_device_measure_context(device, 0); /* PyTorch made it, and allocates here for the first time */
		status = neap_alloc_create(device, NULL, ret_alloc, err);
	}
	if (status)
		neap_device_close(device);
	return status;
}

static enum neap_status find_alloc(int device, struct neap_alloc **ret_alloc, struct neap_error *err)
{
	struct neap_alloc *alloc = neap_plugin_alloc(device);
	enum neap_status status = NEAP_OK;
	if (!alloc) {
		pthread_mutex_lock(&plugin.lock);
		alloc = neap_plugin_alloc(device);
		if (!alloc)
			status = open_device(device, &alloc, err);
		if (!status)
			atomic_store(&plugin.allocs[device], alloc);
		pthread_mutex_unlock(&plugin.lock);
	}
	if (!status)
		*ret_alloc = alloc;
	return status;
}

void *neap_plugin_malloc(ptrdiff_t bytes, int device, void *stream)
{
	struct neap_alloc *alloc = NULL;
	struct neap_error err = {0};
	uint64_t address = 0;
	enum neap_status status = find_alloc(device, &alloc, &err);
	if (!status)
		status = neap_malloc(alloc, (size_t)bytes, stream, &address, &err);
	if (status == NEAP_EOOM) {
		char text[NEAP_PLUGIN_OOM_ROOM];
		neap_plugin_oom_text(alloc, (size_t)bytes, text, sizeof text);
		fail(__func__, text);
	} else if (status) {
		fail(__func__, err.message);
	}
	return (void *)(uintptr_t)address;
}

void neap_plugin_free(void *pointer, size_t bytes, int device, void *stream)
{
	struct neap_alloc *alloc = neap_plugin_alloc(device);
	(void)bytes, (void)stream; /* neap knows both */
	if (!alloc || neap_free(alloc, (uintptr_t)pointer))
		fail(__func__, "neap: invalid device pointer");
}

void neap_plugin_empty_cache(void)
{
	struct neap_error err = {0};
	for (int device = 0; device < NEAP_PLUGIN_DEVICES; device++) {
		struct neap_alloc *alloc = neap_plugin_alloc(device);
		enum neap_status status = alloc ? neap_empty_cache(alloc, NULL, &err) : NEAP_OK;
		if (status && status != NEAP_ESTATE) /* neap gives nothing back while a graph is captured */
			fail(__func__, err.message);
	}
}

/* PyTorch has checked that 0 <= fraction <= 1. To libneap, 0 would be no fraction at all. */
void neap_plugin_set_fraction(double fraction, int device)
{
	struct neap_alloc *alloc = NULL;
	struct neap_error err = {0};
	enum neap_status status = find_alloc(device, &alloc, &err);
	if (!status)
		status = neap_set_fraction(alloc, fraction > 0 ? fraction : 1e-15, &err);
	if (status)
		fail(__func__, err.message);
}

/* The allocator whose live block starts there; NULL: none. */
static struct neap_alloc *owner(const void *pointer, struct neap_block_info *ret_block)
{
	for (int device = 0; device < NEAP_PLUGIN_DEVICES; device++) {
		struct neap_alloc *alloc = neap_plugin_alloc(device);
		if (alloc && !neap_block_at(alloc, (uintptr_t)pointer, ret_block))
			return alloc;
	}
	return NULL;
}

void *neap_plugin_base(void *pointer, size_t *ret_bytes)
{
	struct neap_block_info block = {0};
	struct neap_alloc *alloc = owner(pointer, &block);
	if (!alloc || neap_device_info(neap_alloc_device(alloc))->page_bytes)
		fail(__func__, "neap's memory is mapped page by page: it has no base allocation that "
			       "cudaIpcGetMemHandle could share. Use PyTorch's own allocator in processes that share "
			       "tensors (neap run --allocator default).");
	if (ret_bytes)
		*ret_bytes = block.segment_bytes;
	return (void *)(uintptr_t)block.segment_address;
}

/* Memory of another process is not neap's, and is skipped. */
void neap_plugin_record_stream(void *pointer, void *stream)
{
	struct neap_block_info block = {0};
	struct neap_alloc *alloc = owner(pointer, &block);
	if (alloc && neap_record_stream(alloc, block.address, stream))
		fail(__func__, "neap: no host memory to record a stream's use of a block");
}

void neap_plugin_refuse_pool(int device)
{
	(void)device;
	fail(__func__,
	     "neap's allocator serves no CUDA graph and no MemPool through PyTorch's plug-in, which does not "
	     "show their memory apart. Install a C++ compiler (Debian: apt install g++) and use "
	     "neap.install_allocator() or neap run --allocator neap, or use PyTorch's own allocator.");
}

struct copied {
	struct neap_block_info *blocks;
	size_t count, capacity;
};

static void copy_block(void *context, const struct neap_block_info *block)
{
	struct copied *copied = context;
	if (copied->count < copied->capacity)
		copied->blocks[copied->count] = *block;
	copied->count++;
}

size_t neap_plugin_blocks(int device, struct neap_block_info *ret_blocks, size_t capacity)
{
	struct neap_alloc *alloc = neap_plugin_alloc(device);
	struct copied copied = {.blocks = ret_blocks, .capacity = capacity};
	if (alloc)
		neap_each_block(alloc, copy_block, &copied);
	return copied.count;
}
