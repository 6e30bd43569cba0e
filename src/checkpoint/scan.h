/* checkpoint/scan.h: collects the facts about the checkpoints in a folder. Reads only. One thread per call. */
#ifndef NEAP_CHECKPOINT_SCAN_H
#define NEAP_CHECKPOINT_SCAN_H

#include "checkpoint/name.h"

#include "base/map.h"

#include <stdbool.h>

/* The size and age of one checkpoint, all files of a folder together. */
struct checkpoint_extent {
	uint64_t bytes, freed_bytes, modified_ns, device, inode;
	uint32_t facts; /* FOLDER, OPEN, UNREADABLE, ELSEWHERE, PINNED, as far as its own files show them */
};

/* Measures the file or folder NAME. `open_files`: see open_files.h. `device`: of the folder that has it. Returns 0,
 * or an errno: ENOENT and the like, ELOOP for a symbolic link, EINVAL for anything else that is neither file nor
 * folder. */
int checkpoint_measure(int folder_fd, const char *name, uint64_t device, const struct neap_map *open_files,
		       struct checkpoint_extent *ret_extent);

/* Whether something is mounted on the folder NAME. Its content then belongs to another place, even on the same
 * device. False also if unknown. */
bool checkpoint_is_mount(int folder_fd, const char *name);

/* Opens the folder. Returns its descriptor, which the caller closes, or -1 with an error. */
int checkpoint_open_folder(const char *folder, struct neap_error *err);

/* A fact beside those of neap/checkpoint.h, while a plan is made: nobody has looked whether it is torn. */
#define CHECKPOINT_UNSEEN (1u << 31)
/* No process writes one checkpoint for so long: a torn one that is older goes. */
#define CHECKPOINT_UNFINISHED_NS (UINT64_C(86400) * 1000000000)

/* Whether the entry is torn. Looks, if nobody has; `fd`: the folder. */
bool checkpoint_entry_torn(int fd, struct neap_retention_entry *entry);

/* Fills the plan's entries (facts only), metric, mode and link_count; `fd`: the folder, stays the caller's.
 * Errors: NEAP_EINVAL for a metric of unknown mode; NEAP_ENOMEM; NEAP_EIO. On failure the plan may hold a part. */
enum neap_status checkpoint_scan(int fd, const struct neap_retention_options *options,
				 struct neap_retention_plan *plan, struct neap_error *err);

#endif
