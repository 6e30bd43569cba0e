/* neap/plugin.h: the functions that PyTorch's documented plug-in, torch.cuda.memory.CUDAPluggableAllocator, takes.
 *
 * For neap.install_allocator(plugin=True), not for applications. The plug-in passes no context, so the allocators,
 * one for each device, belong to the process; they are made when PyTorch first allocates there, and live as long as
 * it.
 *
 * The plug-in checks no result: a function that fails must throw a C++ exception. neap_plugin_start takes the
 * function that throws it. neap holds no lock when it calls it.
 *
 * Threads: any. Streams are the driver's. Devices are PyTorch's numbers. */
#ifndef NEAP_PLUGIN_H
#define NEAP_PLUGIN_H

#include "neap/alloc.h"

#ifdef __cplusplus
extern "C" {
#endif

#define NEAP_PLUGIN_DEVICES 64

/* Throws a C++ exception with this message. Declared like c10::detail::torchCheckFail. */
typedef void neap_plugin_throw(const char *function, const char *file, uint32_t line, const char *message);

/* Call it before any other function of this header. Without it nothing is thrown: a function that fails returns NULL,
 * or does nothing. */
NEAP_API void neap_plugin_start(neap_plugin_throw *throw_error);

/* `alloc` and `free` of the plug-in. No memory: throws a message that begins with "CUDA out of memory.". */
NEAP_API void *neap_plugin_malloc(ptrdiff_t bytes, int device, void *stream);
NEAP_API void neap_plugin_free(void *pointer, size_t bytes, int device, void *stream);

/* The plug-in's hooks. neap_plugin_base throws if memory is mapped page by page, because it then has no base that
 * another process could open. neap_plugin_refuse_pool, for set_begin_allocate_to_pool, always throws: without that
 * hook PyTorch would capture a graph whose memory is reused behind its back. */
NEAP_API void neap_plugin_empty_cache(void);
NEAP_API void neap_plugin_set_fraction(double fraction, int device);
NEAP_API void *neap_plugin_base(void *pointer, size_t *ret_bytes);
NEAP_API void neap_plugin_record_stream(void *pointer, void *stream);
NEAP_API void neap_plugin_refuse_pool(int device);

/* A device's allocator, for its statistics; NULL: PyTorch has allocated nothing there. */
NEAP_API struct neap_alloc *neap_plugin_alloc(int device);

/* Copies up to `capacity` of a device's blocks in address order, returns how many there are. */
NEAP_API size_t neap_plugin_blocks(int device, struct neap_block_info *ret_blocks, size_t capacity);

/* The text of PyTorch's out-of-memory error, sentence by sentence, for a request that found no memory; then the
 * largest free block, which PyTorch does not name. `bytes` as the program asked. Cut at `capacity`. */
#define NEAP_PLUGIN_OOM_ROOM 1024
NEAP_API void neap_plugin_oom_text(struct neap_alloc *alloc, size_t bytes, char *ret_text, size_t capacity);

#ifdef __cplusplus
}
#endif
#endif
