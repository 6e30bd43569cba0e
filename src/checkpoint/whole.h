/* checkpoint/whole.h: checks whether a checkpoint is whole, by its length and a few bytes at its beginning and end.
 * Reads only. One thread per call.
 *
 *   zip (torch.save, .npz, .keras)   begins with a member, and ends with the record that lists them
 *   .safetensors                     is as long as its header says
 *   x-00001-of-00003.safetensors     all three parts are there
 *   Orbax's step                     committed: a time in _CHECKPOINT_METADATA, or commit_success.txt
 *   torch.distributed.checkpoint     has .metadata, which is written last
 *   any format                       is neither an empty file nor an empty folder
 * Other formats count as whole.
 */
#ifndef NEAP_CHECKPOINT_WHOLE_H
#define NEAP_CHECKPOINT_WHOLE_H

#include "checkpoint/role.h"

#include "base/map.h"

#include <stdbool.h>

/* Why the file or folder NAME is not whole, as the end of the sentence "torn: ..."; static storage. NULL: it is
 * whole, or that is unknown. */
const char *checkpoint_torn(int folder_fd, const char *name, bool folder);

/* The same for an open file; only the extension of `name` is used. */
const char *checkpoint_file_torn(int fd, const char *name);

/* Sets of parts (x-00001-of-00003.bin), to check that each set is complete. A zeroed struct has none. */
struct checkpoint_sets {
	struct neap_map there, wanted; /* key of a set -> parts counted; parts that it should have */
};

extern const char checkpoint_parts_missing[];

/* Counts a name. False: the host is out of memory. */
bool checkpoint_sets_count(struct checkpoint_sets *sets, const struct checkpoint_role *role);
/* Whether a part of some set is missing. */
bool checkpoint_sets_miss(const struct checkpoint_sets *sets);
void checkpoint_sets_fini(struct checkpoint_sets *sets);

#endif
