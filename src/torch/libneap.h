/* torch/libneap.h: libneap's functions, found in the library that the process has loaded already.
 *
 * The object is compiled against PyTorch on the user's machine and may outlive libneap's file. So it does not link
 * libneap: libneap_functions_find looks each function up, and fails whole. */
#ifndef NEAP_TORCH_LIBNEAP_H
#define NEAP_TORCH_LIBNEAP_H

#include "neap/alloc.h"
#include "neap/device.h"
#include "neap/plugin.h"

#define NEAP_TORCH_FUNCTIONS(X)                                                                                      \
	X(neap_alloc_create)                                                                                         \
	X(neap_block_at)                                                                                             \
	X(neap_device_info)                                                                                          \
	X(neap_device_measure_context)                                                                               \
	X(neap_device_memory)                                                                                        \
	X(neap_device_open)                                                                                          \
	X(neap_driver_open)                                                                                          \
	X(neap_each_block)                                                                                           \
	X(neap_empty_cache)                                                                                          \
	X(neap_free)                                                                                                 \
	X(neap_get_fraction)                                                                                         \
	X(neap_get_stats)                                                                                            \
	X(neap_malloc)                                                                                               \
	X(neap_plugin_oom_text)                                                                                      \
	X(neap_pool_empty)                                                                                           \
	X(neap_pool_end)                                                                                             \
	X(neap_pool_release)                                                                                         \
	X(neap_pool_restore)                                                                                         \
	X(neap_pool_use)                                                                                             \
	X(neap_record_stream)                                                                                        \
	X(neap_reset_accumulated_stats)                                                                              \
	X(neap_reset_peak_stats)                                                                                     \
	X(neap_set_fraction)                                                                                         \
	X(neap_set_oom_callback)                                                                                     \
	X(neap_watch)

namespace neap_torch
{

struct Libneap {
#define X(name) decltype(&::name) name;
	NEAP_TORCH_FUNCTIONS(X)
#undef X
};

/* Filled once, by neap_torch_install. */
extern Libneap libneap;

} // namespace neap_torch

#endif
