/* run/memory_settings.h: settings that save memory and are environment variables, for `neap enable` and `neap run
 * --enable`.
 *
 * They are the expandable segments of PyTorch's own allocator, and memory-efficient attention in attached programs
 * (NEAP_ATTENTION, which python/neap/hooks.py reads). PyTorch 2.15 reads PYTORCH_CUDA_ALLOC_CONF, and reads
 * PYTORCH_ALLOC_CONF only if the first is not set. 2.4 reads the first alone. Releases in between may prefer either
 * one. So neap always sets the first, sets the second only if it is set already, and keeps the user's other settings
 * in both.
 */
#ifndef NEAP_RUN_MEMORY_SETTINGS_H
#define NEAP_RUN_MEMORY_SETTINGS_H

#include "neap/status.h"

#include <stdbool.h>
#include <stddef.h>

#define NEAP_MEMORY_SETTINGS_MAX 3

struct neap_memory_settings {
	char *entries[NEAP_MEMORY_SETTINGS_MAX]; /* "NAME=VALUE" */
	size_t count;
	bool replaced;      /* the user had set expandable_segments to another value */
	bool max_split;     /* the user has max_split_size_mb: the combination is known to leak */
	bool other_backend; /* the user has a backend that does not know expandable segments */
};

/* Returns `existing` (NULL: nothing) with expandable_segments:True added and nothing else changed; the caller frees
 * it. A comma in brackets belongs to a value. Sets those of the three flags of ret_settings that apply. Returns NULL
 * if memory is short. */
char *neap_memory_settings_merge(const char *existing, struct neap_memory_settings *ret_settings);

/* Reads this process's environment. The caller calls neap_memory_settings_fini, also after a failure. Errors:
 * NEAP_ENOMEM. */
enum neap_status neap_memory_settings_make(struct neap_memory_settings *ret_settings, struct neap_error *err);
void neap_memory_settings_fini(struct neap_memory_settings *settings);

#endif
