/* checkpoint/trash.h: FOLDER/.neap-trash: removed checkpoints that can be restored.
 *
 *   .neap-trash/until-SECONDS-PID-N/   a batch: the files that one apply moved; whole; may be deleted from SECONDS
 *                                      (since 1970) on
 *   .neap-trash/gone-.../              a batch that is being deleted; files may be missing, so it is never restored
 *
 * A batch may have the file .parts: see together.h. If the disk has no space for the trash, a checkpoint is renamed
 * to FOLDER/.neap-gone-PID-N and deleted at once.
 *
 * A batch is renamed to gone-... before its first file is deleted, so no half deleted batch is ever restored. A
 * process that fills a batch holds a lock (flock) on its folder. A process that deletes a batch, or restores from it,
 * takes the lock first. So a running apply can put its files back even if their time in the trash is over, and an
 * empty batch that is about to be filled stays. If the file system has no such locks, an owner's file in the batch
 * replaces the lock (.lock/owner, base/owner.h).
 */
#ifndef NEAP_CHECKPOINT_TRASH_H
#define NEAP_CHECKPOINT_TRASH_H

#include "neap/checkpoint.h"

#include "checkpoint/listing.h"
#include "checkpoint/together.h"

/* Opens the trash of the folder. `create`: makes it if it is missing. Errors: NEAP_ENOENT without `create`;
 * NEAP_EPERM if it is a link, not a folder, or on another file system. The caller closes it. */
enum neap_status checkpoint_trash_open(int folder_fd, bool create, int *ret_fd, struct neap_error *err);

/* Makes a new batch and locks it. `ret_name` gets its name (room for 80). The batch is on disk when this returns.
 * NEAP_ENOENT: another process deleted the trash meanwhile. The caller unlocks and closes the batch. */
enum neap_status checkpoint_trash_begin(int trash_fd, uint64_t until_s, int *ret_fd, char *ret_name,
					struct neap_error *err);

/* Locks the open batch. False: another process has the lock, or the batch was renamed or deleted. Never waits. */
bool checkpoint_trash_lock(int trash_fd, const char *batch, int batch_fd);

/* Writes the owner into `who`, if an owner's file names one: "process 12 on host7"; else "". */
void checkpoint_trash_holder(int batch_fd, char who[160]);

/* Unlocks the batch explicitly: closing it would not release the lock if a child forked meanwhile has it open. */
void checkpoint_trash_unlock(int batch_fd);

/* Removes the batch if nothing is left in it. */
void checkpoint_trash_end(int trash_fd, const char *batch, int batch_fd);

/* A batch, during a visit. */
struct checkpoint_batch {
	int fd;
	const char *name;
	uint64_t until_s;
	const struct checkpoint_listing *names;
	const struct checkpoint_together *together;
	bool ours; /* locked for the visit; false: only read it, another process may be changing it */
};

/* Counts the checkpoints among these names of a batch: a group once, files beside checkpoints not at all. */
size_t checkpoint_trash_count(const struct checkpoint_listing *names, const struct checkpoint_together *together);

/* Calls `visit` for each batch that can be restored, latest SECONDS first, until it returns false. `lock`: true for
 * callers that change a batch. */
enum neap_status checkpoint_trash_each(int trash_fd, bool lock,
				       bool (*visit)(void *context, const struct checkpoint_batch *batch),
				       void *context, struct neap_error *err);

/* Deletes the batches whose time is over at `now_s`, or `all`, except those that another process has locked. Then
 * deletes the trash itself if it is empty. Adds to deleted_count and deleted_bytes. Continues after a failure and
 * returns the first one. NEAP_EBUSY: with `all`, a locked batch was left. */
enum neap_status checkpoint_trash_purge(int folder_fd, uint64_t now_s, bool all, struct neap_retention_result *result,
					struct neap_error *err);

/* Deletes the file or folder NAME for good. Adds the bytes that became free to *bytes. Continues after a failure.
 * Returns 0 or the first errno. */
int checkpoint_delete(int parent_fd, const char *name, uint64_t *bytes);

/* Renames, never over an existing file. Returns 0 or an errno. If the file system cannot do that in one step (NFS),
 * checks first and then renames: use it only where no other process makes the same name. */
int checkpoint_rename(int from_fd, const char *from, int to_fd, const char *to);

/* Moves a file out of a locked batch into the folder, never over a file that another process saves there at the same
 * moment. Returns 0 or an errno. */
int checkpoint_bring_back(int batch_fd, const char *name, int folder_fd);

#endif
