/* base/owner.h: finds which process owns a folder, on file systems without locks (Lustre without -o flock, some NFS,
 * FUSE).
 *
 *   FOLDER/owner   one line "PID TICKS NAMESPACE BOOT HOST"
 *
 * A process takes the folder by making a link, which only one process can. Only the owner hands the folder on, or
 * leaves it. Once the owner's process has ended, another may take the folder. neap cannot see whether a process on
 * another machine, or in another PID namespace, has ended: its file counts until a person removes it.
 *
 *   invariant: only the living owner changes the file; a dead owner's file is first moved aside
 *
 * On file systems with locks neap uses those and writes no such file: the kernel frees a lock however its process
 * ends.
 */
#ifndef NEAP_BASE_OWNER_H
#define NEAP_BASE_OWNER_H

#include "neap/status.h"

#include <stdbool.h>
#include <sys/types.h>

/* Whether flock or fcntl failed with this because the file system has no locks. */
bool neap_owner_is_needed(int lock_errno);

/* Makes this process the owner; no effect if it is. Errors: NEAP_EBUSY "process N on HOST has it", with advice. */
enum neap_status neap_owner_take(const char *folder, struct neap_error *err);

/* Hands this process's folder on to its child, which waits for it. */
enum neap_status neap_owner_give(const char *folder, pid_t child, struct neap_error *err);

/* Whether the folder has a living owner; its description goes to `who` (room for 160; may be NULL). */
bool neap_owner_lives(const char *folder, char *who);

/* Removes the file of an owner on another machine that the caller knows to have exited. False: there is no such
 * file. */
bool neap_owner_forget(const char *folder);

/* Removes the file if it is ours. */
void neap_owner_leave(const char *folder);

#endif
