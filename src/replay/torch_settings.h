/* replay/torch_settings.h: the settings of PyTorch's allocator, as PYTORCH_CUDA_ALLOC_CONF spells them.
 *
 * Source of names, defaults and limits: PyTorch 2.15, which has those of all earlier releases. Pure; any thread.
 */
#ifndef NEAP_REPLAY_TORCH_SETTINGS_H
#define NEAP_REPLAY_TORCH_SETTINGS_H

#include "neap/status.h"

#include <stdbool.h>
#include <stdint.h>

#define NEAP_TORCH_UNLIMITED UINT64_MAX
#define NEAP_TORCH_DIVISIONS 16

struct neap_torch_settings {
	bool expandable_segments;
	uint64_t max_split_bytes;              /* NEAP_TORCH_UNLIMITED: every block may be split */
	uint64_t max_non_split_rounding_bytes; /* by how much an unsplittable block may exceed the request */
	double garbage_collection_threshold;   /* a share of what the fraction allows; 0: off. It needs a fraction */
	/* Sizes are rounded to this many steps between two powers of two; below 2: to multiples of 512 B. [0] is for
	 * sizes below 2 MiB, [i] for those from 2^i MiB, the last for all larger ones. */
	uint32_t divisions[NEAP_TORCH_DIVISIONS];
	double fraction; /* per_process_memory_fraction; 0: not set */
	/* The size of segments shared by requests above 1 MiB and below 10 MiB; also of large pages. */
	uint64_t large_segment_bytes;
	bool throw_on_oom; /* a request beyond the fraction is refused before anything is freed for it */
	/* expandable_segments_reserve: the addresses of an expandable segment, as a share of the device or in bytes;
	 * both 0: 9/8 of the device. */
	double reserve_share;
	uint64_t reserve_bytes;
};

/* PyTorch's settings when nothing is set. */
void neap_torch_settings_default(struct neap_torch_settings *ret_settings);

/* Overlays `text` ("max_split_size_mb:128,expandable_segments:True") on *settings; NULL and "" change nothing.
 * Settings that do not change what a replay computes (release_lock_on_cudamalloc, pinned_*, ...) are checked for
 * their form only, and so is expandable_segments_reserve_by_class. Errors: NEAP_EPARSE with the column: an unknown
 * key, a value outside PyTorch's limits; NEAP_ENOTSUP for a backend other than native. On failure *settings is
 * unchanged. */
enum neap_status neap_torch_settings_parse(const char *text, struct neap_torch_settings *settings,
					   struct neap_error *err);

/* Overlays the text in a snapshot. The PyTorch that wrote it accepted the text, so unknown settings are skipped, and
 * reading stops at an error. */
void neap_torch_settings_take(const char *text, struct neap_torch_settings *settings);

/* Returns how many bytes of addresses an expandable segment has, before they are rounded up to whole pages. */
uint64_t neap_torch_reserve(const struct neap_torch_settings *settings, uint64_t device_bytes);

/* The size of the block that a request of `bytes` needs. */
uint64_t neap_torch_round(const struct neap_torch_settings *settings, uint64_t bytes);

#endif
