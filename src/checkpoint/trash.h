/* checkpoint/trash.h: FOLDER/.neap-trash: removed checkpoints that can be restored.
 *
 *   .neap-trash/until-SECONDS-PID-N/   one apply's; whole; may be deleted from SECONDS (since 1970) on
 *   .neap-trash/gone-.../              being deleted; parts of it may be missing, it is never restored
 *
 * A batch may hold the file .parts: see together.h. On a disk without room for the trash, FOLDER/.neap-gone-PID-N is
 * what is being deleted instead.
 *
 * A batch becomes gone- by a rename before its first file is deleted, so nothing half deleted is ever brought back.
 * A process that fills a batch holds a lock (flock) on its folder; a process that deletes the batch, or restores from
 * it, takes the lock first. So a running apply can still put its files back, however short their time in the trash;
 * nothing is restored half deleted; an empty batch that is about to be filled stays. Where the file system has no
 * such locks, an owner's file in the batch stands for it (.lock/owner, base/owner.h).
 */
#ifndef NEAP_CHECKPOINT_TRASH_H
#define NEAP_CHECKPOINT_TRASH_H

#include "neap/checkpoint.h"

#include "checkpoint/listing.h"
#include "checkpoint/together.h"

/* The trash of the folder. `create`: made where it is missing. Errors: NEAP_ENOENT without `create`; NEAP_EPERM when
 * it is a link, no folder, or on another file system. The caller closes it. */
enum neap_status checkpoint_trash_open(int folder_fd, bool create, int *ret_fd, struct neap_error *err);

/* A new batch, locked; `ret_name` gets its name (room for 80). Durable when this returns. NEAP_ENOENT when the trash
 * was taken away meanwhile. The caller unlocks and closes it. */
enum neap_status checkpoint_trash_begin(int trash_fd, uint64_t until_s, int *ret_fd, char *ret_name,
					struct neap_error *err);

/* Takes the open batch for this caller alone; false if another has it, or its name is gone. Never waits. */
bool checkpoint_trash_lock(int trash_fd, const char *batch, int batch_fd);

/* The owner, if an owner's file names one: "process 12 on host7"; "" else. `who` has room for 160. */
void checkpoint_trash_holder(int batch_fd, char who[160]);

/* By name: closing it would not do while a child that was forked meanwhile has it open. */
void checkpoint_trash_unlock(int batch_fd);

/* Removes the batch if nothing is left in it. */
void checkpoint_trash_end(int trash_fd, const char *batch, int batch_fd);

/* A batch that is visited. */
struct checkpoint_batch {
	int fd;
	const char *name;
	uint64_t until_s;
	const struct checkpoint_listing *names;
	const struct checkpoint_together *together;
	bool ours; /* locked for the visit; false: only to be looked at, someone else fills, empties or deletes it */
};

/* How many checkpoints these names of a batch are: what stands beside them is not counted, a group once. */
size_t checkpoint_trash_count(const struct checkpoint_listing *names, const struct checkpoint_together *together);

/* Calls `visit` for each batch that can be restored, the one that lasts longest first. Stops at false. `lock`: true
 * for callers that change a batch. */
enum neap_status checkpoint_trash_each(int trash_fd, bool lock,
				       bool (*visit)(void *context, const struct checkpoint_batch *batch),
				       void *context, struct neap_error *err);

/* Deletes what may go at `now_s`, or `all`, but for batches that are being filled or emptied, and the trash itself
 * when nothing is left in it. Adds to deleted_count and deleted_bytes. Goes on after a failure; the first one is
 * returned. NEAP_EBUSY: with `all`, such a batch was left. */
enum neap_status checkpoint_trash_purge(int folder_fd, uint64_t now_s, bool all, struct neap_retention_result *result,
					struct neap_error *err);

/* Deletes the file or folder NAME for good; it has no other name. Adds the bytes that became free to *bytes. Goes on
 * after a failure; 0 or the first errno. */
int checkpoint_delete(int parent_fd, const char *name, uint64_t *bytes);

/* Renames, never over something. 0 or an errno. Where the file system cannot do that in one step (NFS), it
 * checks first: only for places where no other process puts the same name. */
int checkpoint_rename(int from_fd, const char *from, int to_fd, const char *to);

/* Moves out of a locked batch, never over a file that another process saves in the folder at this instant. 0 or an
 * errno. */
int checkpoint_bring_back(int batch_fd, const char *name, int folder_fd);

#endif
