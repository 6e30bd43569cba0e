/* checkpoint/open_files.h: finds the files that processes have open or mapped, as far as this user may read /proc.
 * One thread. */
#ifndef NEAP_CHECKPOINT_OPEN_FILES_H
#define NEAP_CHECKPOINT_OPEN_FILES_H

#include "neap/status.h"

#include "base/map.h"

/* A file's key in such a set. Two files may share one: then both count as open. */
uint64_t checkpoint_file_key(uint64_t device, uint64_t inode);

/* Adds to `ret_open` (a zeroed map) every regular file or folder that a process holds open, this one included, and
 * every mapped file whose path begins with `folder` (absolute). Skips processes that this user may not inspect.
 * Errors: NEAP_ENOMEM; NEAP_EIO without /proc. The caller calls neap_map_fini. */
enum neap_status checkpoint_open_files(const char *folder, struct neap_map *ret_open, struct neap_error *err);

#endif
