/* neap/checkpoint.h: checkpoints on disk: written whole or not at all.
 *
 * Threads: different checkpoints from any threads; one checkpoint from one thread.
 */
#ifndef NEAP_CHECKPOINT_H
#define NEAP_CHECKPOINT_H

#include "neap/status.h"

#include <stddef.h>

#ifdef __cplusplus
extern "C" {
#endif

struct neap_checkpoint;

/* Begins a checkpoint that becomes PATH only by commit: it is written beside it, flushed, renamed over it, and the
 * folder flushed. Until then, and after any failure, the old file is what a reader sees. */
NEAP_API enum neap_status neap_checkpoint_begin(const char *path, struct neap_checkpoint **ret_checkpoint,
						struct neap_error *err);
NEAP_API enum neap_status neap_checkpoint_write(struct neap_checkpoint *checkpoint, const void *bytes, size_t length,
						struct neap_error *err);
/* Frees the checkpoint, whether it succeeds or not. */
NEAP_API enum neap_status neap_checkpoint_commit(struct neap_checkpoint *checkpoint, struct neap_error *err);
/* Drops and frees it. NULL is fine. */
NEAP_API void neap_checkpoint_abort(struct neap_checkpoint *checkpoint);

#ifdef __cplusplus
}
#endif
#endif
