/* checkpoint/apply.c: carries out a plan, so that a crash or a failure at any call leaves each checkpoint whole.
 *
 *   1. flush the newest checkpoint to disk: only then may others go
 *   2. make and flush .neap-trash/until-.../
 *   3. write into the batch which files belong together, and flush that (together.h)
 *   4. oldest first: check NAME once more, rename its parts into the trash, then its sidecars
 *   5. flush the folders; delete batches whose time in the trash is over
 *
 * A kill between the rename of a checkpoint and that of its sidecars leaves the sidecars behind: the next apply moves
 * them too. If a checkpoint of several files was half moved, the next apply brings it back whole. If another file
 * replaces NAME between check and rename, apply notices it afterwards and puts the file back.
 */
#include "checkpoint/open_files.h"
#include "checkpoint/scan.h"
#include "checkpoint/trash.h"

#include "base/clock.h"
#include "base/error.h"

#include <errno.h>
#include <fcntl.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/stat.h>
#include <unistd.h>

struct apply {
	int folder_fd, trash_fd, batch_fd;
	uint64_t device;
	struct neap_map open_files;
	struct neap_map mended;            /* inodes of checkpoints that just got a part back */
	struct checkpoint_listing listing; /* the folder's names before anything was moved */
	struct neap_retention_result *result;
	enum neap_status status; /* the first failure */
	struct neap_error *err;
};

static enum neap_status keep_first(struct apply *apply, enum neap_status status, const struct neap_error *err)
{
	if (apply->status == NEAP_OK && status) {
		apply->status = status;
		if (apply->err)
			*apply->err = *err;
	}
	return status;
}

/* --- moving --- */

/* Whether the file was written after `main` was moved into the batch (a rename changes st_ctim): then a process is
 * saving a new checkpoint of the same name, and has written its metrics first. */
static bool is_of_a_new_one(const struct apply *apply, const char *name, const struct stat *main)
{
	struct stat info;

	return fstatat(apply->folder_fd, name, &info, AT_SYMLINK_NOFOLLOW) == 0 &&
	       (info.st_mtim.tv_sec != main->st_ctim.tv_sec ? info.st_mtim.tv_sec > main->st_ctim.tv_sec
							    : info.st_mtim.tv_nsec > main->st_ctim.tv_nsec);
}

/* Writes the name of the nth sidecar of `main` into `name`; `info`: of `main` after it was moved. "": the sidecar is
 * not here, or belongs to another or a new checkpoint. False: past the last. */
static bool next_sidecar(const struct apply *apply, const char *main, const struct stat *info, size_t n, char *name,
			 size_t capacity)
{
	if (!checkpoint_sidecar_name(main, n, name, capacity))
		return false;
	if (checkpoint_listing_find(&apply->listing, name) == apply->listing.count ||
	    (n >= CHECKPOINT_SIDECAR_SHORT && checkpoint_listing_stem_shared(&apply->listing, main, 1)) ||
	    is_of_a_new_one(apply, name, info))
		name[0] = '\0';
	return true;
}

/* Moves the sidecars of `main`, which is in the batch. Returns 0 or the first errno. */
static int move_sidecars(const struct apply *apply, const char *main, int batch_fd)
{
	char name[512];
	struct stat info;
	int first = 0;

	if (fstatat(batch_fd, main, &info, AT_SYMLINK_NOFOLLOW) < 0)
		return errno == ENOENT ? 0 : errno;

	for (size_t n = 0; next_sidecar(apply, main, &info, n, name, sizeof name); n++) {
		int cause = name[0] ? checkpoint_rename(apply->folder_fd, name, batch_fd, name) : 0;
		if (cause && cause != ENOENT && !first)
			first = cause;
	}
	return first;
}

static bool is_pinned_now(const struct apply *apply, const char *name)
{
	char pin[512];
	struct stat info;
	int needed = snprintf(pin, sizeof pin, "%s.pin", name);

	return needed > 0 && (size_t)needed < sizeof pin &&
	       fstatat(apply->folder_fd, pin, &info, AT_SYMLINK_NOFOLLOW) == 0;
}

/* Whether a part is still the same as in the plan, so that the plan's verdict holds. */
static enum neap_retention_done check_again(const struct apply *apply, const struct neap_retention_part *part,
					    int *ret_cause)
{
	const uint32_t holds = NEAP_CHECKPOINT_OPEN | NEAP_CHECKPOINT_PINNED | NEAP_CHECKPOINT_UNREADABLE |
			       NEAP_CHECKPOINT_ELSEWHERE;
	struct checkpoint_extent now;
	int cause = checkpoint_measure(apply->folder_fd, part->name, apply->device, &apply->open_files, &now);

	if (cause == ENOENT)
		return NEAP_RETENTION_GONE;
	if (cause == ELOOP || cause == EINVAL)
		return NEAP_RETENTION_CHANGED;
	if (cause) {
		*ret_cause = cause;
		return NEAP_RETENTION_FAILED;
	}
	bool same = now.device == part->device && now.inode == part->inode && now.bytes == part->bytes &&
		    now.modified_ns == part->modified_ns && !(now.facts & holds) &&
		    !is_pinned_now(apply, part->name) && !neap_map_get(&apply->mended, now.inode, &(uint64_t){0});
	return same ? NEAP_RETENTION_MOVED : NEAP_RETENTION_CHANGED;
}

/* Renames a part into the batch. */
static enum neap_retention_done move_part(const struct apply *apply, const struct neap_retention_part *part,
					  int *ret_cause)
{
	struct stat info;
	int cause = checkpoint_rename(apply->folder_fd, part->name, apply->batch_fd, part->name);

	/* ENOENT may also mean that the batch is gone, on a file system without locks */
	if (cause == ENOENT && fstatat(apply->folder_fd, part->name, &info, AT_SYMLINK_NOFOLLOW) < 0)
		return NEAP_RETENTION_GONE;
	if (cause) {
		*ret_cause = cause;
		return NEAP_RETENTION_FAILED;
	}
	/* A file that replaced the part goes back, unless another one has the name by now. */
	if (fstatat(apply->batch_fd, part->name, &info, AT_SYMLINK_NOFOLLOW) == 0 && info.st_ino != part->inode) {
		cause = checkpoint_bring_back(apply->batch_fd, part->name, apply->folder_fd);
		return cause && cause != EEXIST ? (*ret_cause = cause, NEAP_RETENTION_FAILED)
						: NEAP_RETENTION_CHANGED;
	}
	return NEAP_RETENTION_MOVED;
}

/* Moves all parts of a checkpoint, or none. The model, which is the first part, goes last. */
static enum neap_retention_done move(const struct apply *apply, const struct neap_retention_entry *entry,
				     int *ret_cause)
{
	enum neap_retention_done done = NEAP_RETENTION_MOVED;
	size_t at = entry->part_count;

	for (size_t i = 0; i < entry->part_count && done == NEAP_RETENTION_MOVED; i++)
		done = check_again(apply, &entry->parts[i], ret_cause);
	while (done == NEAP_RETENTION_MOVED && at > 0)
		done = move_part(apply, &entry->parts[--at], ret_cause);
	if (done != NEAP_RETENTION_MOVED && entry->part_count > 1) {
		/* parts that cannot be brought back now are in .parts: the next apply tries again */
		for (at++; at < entry->part_count; at++)
			checkpoint_bring_back(apply->batch_fd, entry->parts[at].name, apply->folder_fd);
		if (done == NEAP_RETENTION_GONE)
			done = NEAP_RETENTION_CHANGED; /* other parts are still there */
	}
	for (size_t i = 0; done == NEAP_RETENTION_MOVED && i < entry->part_count; i++) {
		int cause = move_sidecars(apply, entry->parts[i].name, apply->batch_fd);
		*ret_cause = *ret_cause ? *ret_cause : cause;
	}
	return done;
}

static void move_all(struct apply *apply, struct neap_retention_plan *plan)
{
	struct neap_error err = {0};

	for (size_t i = plan->count; i-- > 0;) {
		struct neap_retention_entry *entry = &plan->entries[i];
		int cause = 0;

		if (!entry->drop)
			continue;
		enum neap_retention_done done = move(apply, entry, &cause);
		entry->done = (uint32_t)done;
		entry->cause = cause;
		if (cause)
			keep_first(apply, neap_fail_errno(&err, cause, "moving %.120s to the trash", entry->name),
				   &err);
		if (done == NEAP_RETENTION_MOVED) {
			apply->result->moved_count++;
			apply->result->moved_bytes += entry->bytes;
		}
		apply->result->failed_count += done == NEAP_RETENTION_FAILED;
		apply->result->changed_count += done == NEAP_RETENTION_CHANGED;
	}
}

/* --- without a trash --- */

#define GONE ".neap-gone-"

/* Renames a part to a hidden name, so that no process takes it for a checkpoint, deletes its sidecars, then the part.
 * Returns 0 or an errno. */
static int delete_part(const struct apply *apply, const struct neap_retention_part *part)
{
	char gone[64], name[512];
	struct stat info;
	int cause = EEXIST;

	for (unsigned n = 0; n < 1000 && cause == EEXIST; n++) {
		snprintf(gone, sizeof gone, GONE "%d-%u", (int)getpid(), n);
		cause = checkpoint_rename(apply->folder_fd, part->name, apply->folder_fd, gone);
	}
	if (cause || fstatat(apply->folder_fd, gone, &info, AT_SYMLINK_NOFOLLOW) < 0)
		return cause ? cause : errno;
	for (size_t n = 0; next_sidecar(apply, part->name, &info, n, name, sizeof name); n++)
		if (name[0])
			checkpoint_delete(apply->folder_fd, name, &apply->result->deleted_bytes);
	return checkpoint_delete(apply->folder_fd, gone, &apply->result->deleted_bytes);
}

/* Deletes in place: the disk has no space for a batch, and the files would have been deleted at once anyway. */
static enum neap_status delete_in_place(struct apply *apply, struct neap_retention_plan *plan)
{
	struct neap_error err = {0};

	for (size_t i = plan->count; i-- > 0;) {
		struct neap_retention_entry *entry = &plan->entries[i];
		enum neap_retention_done done = NEAP_RETENTION_MOVED;
		int cause = 0;

		if (!entry->drop)
			continue;
		for (size_t k = 0; k < entry->part_count && done == NEAP_RETENTION_MOVED; k++)
			done = check_again(apply, &entry->parts[k], &cause);
		for (size_t k = 0; k < entry->part_count && done == NEAP_RETENTION_MOVED; k++) {
			cause = delete_part(apply, &entry->parts[k]);
			done = cause ? NEAP_RETENTION_FAILED : done;
		}
		entry->done = (uint32_t)done;
		entry->cause = cause;
		if (cause)
			keep_first(apply, neap_fail_errno(&err, cause, "deleting %.120s", entry->name), &err);
		apply->result->failed_count += done == NEAP_RETENTION_FAILED;
		apply->result->changed_count += done == NEAP_RETENTION_CHANGED;
		if (done != NEAP_RETENTION_MOVED)
			continue;
		apply->result->moved_count++;
		apply->result->deleted_count++;
		apply->result->moved_bytes += entry->bytes;
	}
	return NEAP_OK;
}

/* Deletes the hidden files that a killed process left. */
static void delete_gone(const struct apply *apply)
{
	for (size_t i = 0; i < apply->listing.count; i++)
		if (!strncmp(apply->listing.names[i], GONE, sizeof GONE - 1))
			checkpoint_delete(apply->folder_fd, apply->listing.names[i], &apply->result->deleted_bytes);
}

/* --- around it --- */

/* Flushes a part to disk, unless this user may not open it: then another user wrote it. */
static enum neap_status flush_part(const struct apply *apply, const struct neap_retention_part *part,
				   struct neap_error *err)
{
	int fd = openat(apply->folder_fd, part->name, O_RDONLY | O_NOFOLLOW | O_NONBLOCK | O_CLOEXEC);

	if (fd < 0 && (errno == EACCES || errno == EPERM))
		return NEAP_OK;
	if (fd < 0 && errno == ENOENT)
		return neap_fail(err, NEAP_EBUSY,
				 "the newest, %.120s, is gone since the plan was made: nothing was moved",
				 part->name);
	if (fd < 0)
		return neap_fail_errno(
			err, errno, "opening the newest, %.120s, to flush it to disk: nothing was moved", part->name);
	int failed = part->folder ? syncfs(fd) : fsync(fd);
	int cause = errno;
	close(fd);
	if (failed < 0 && cause != EINVAL && cause != ENOTSUP)
		return neap_fail_errno(err, cause, "flushing the newest, %.120s, to disk: nothing was moved",
				       part->name);
	return NEAP_OK;
}

/* Flushes the newest checkpoints to disk. */
static enum neap_status flush_newest(const struct apply *apply, const struct neap_retention_plan *plan,
				     struct neap_error *err)
{
	for (size_t i = 0; i < plan->count; i++) {
		const struct neap_retention_entry *entry = &plan->entries[i];

		if (!(entry->reasons & NEAP_KEEP_NEWEST))
			continue;
		for (size_t k = 0; k < entry->part_count; k++) {
			enum neap_status status = flush_part(apply, &entry->parts[k], err);
			if (status)
				return status;
		}
	}
	return NEAP_OK;
}

/* Brings back checkpoints of several files that an earlier apply left half in the folder and half in the trash. */
static bool mend(void *context, const struct checkpoint_batch *batch)
{
	struct apply *apply = context;
	struct neap_error err = {0};

	if (!batch->ours)
		return true;
	int cause = checkpoint_together_mend(batch->together, batch->fd, apply->folder_fd, &apply->mended);
	if (cause)
		keep_first(apply, neap_fail_errno(&err, cause, "bringing back the rest of a checkpoint"), &err);
	return true;
}

/* Moves sidecars whose checkpoint is already in the trash: an earlier apply was killed, or a rename failed. */
static bool send_after(void *context, const struct checkpoint_batch *batch)
{
	struct apply *apply = context;
	struct neap_error err = {0};

	for (size_t i = 0; batch->ours && i < batch->names->count; i++) {
		const char *name = batch->names->names[i];
		struct stat info;

		if (checkpoint_is_beside(name) || fstatat(apply->folder_fd, name, &info, AT_SYMLINK_NOFOLLOW) == 0)
			continue;
		int cause = move_sidecars(apply, name, batch->fd);
		if (cause && cause != EEXIST)
			keep_first(apply, neap_fail_errno(&err, cause, "moving what stands beside %.100s", name),
				   &err);
	}
	return true;
}

/* Makes the trash and a batch. Tries again if another process deletes the empty trash meanwhile. */
static enum neap_status begin_batch(struct apply *apply, uint64_t until_s, char *ret_name, struct neap_error *err)
{
	enum neap_status status = NEAP_ENOENT;

	for (int round = 0; round < 10 && status == NEAP_ENOENT; round++) {
		if (apply->trash_fd >= 0)
			close(apply->trash_fd);
		apply->trash_fd = -1;
		status = checkpoint_trash_open(apply->folder_fd, true, &apply->trash_fd, err);
		if (!status)
			status = checkpoint_trash_begin(apply->trash_fd, until_s, &apply->batch_fd, ret_name, err);
	}
	if (status == NEAP_ENOENT)
		status = neap_fail(err, NEAP_EBUSY,
				   "other processes take the trash away again and again: nothing was moved");
	return status;
}

static enum neap_status take_away(struct apply *apply, struct neap_retention_plan *plan,
				  const struct neap_retention_options *options, struct neap_error *err)
{
	uint64_t now_ns = neap_wall_ns();
	uint64_t until_ns = now_ns < UINT64_MAX - options->trash_ns ? now_ns + options->trash_ns : UINT64_MAX;
	uint64_t until_s = until_ns / NEAP_NS_PER_S + (options->trash_ns ? 1 : 0);
	char batch[80];
	char *real = realpath(plan->folder, NULL);
	enum neap_status status = checkpoint_open_files(real ? real : plan->folder, &apply->open_files, err);

	free(real);
	if (!status)
		status = flush_newest(apply, plan, err);
	if (!status && apply->trash_fd >= 0)
		status = checkpoint_trash_each(apply->trash_fd, true, mend, apply, err);
	if (status)
		return status;
	status = begin_batch(apply, until_s, batch, err);
	bool begun = status == NEAP_OK;
	if (begun)
		status = checkpoint_together_write(apply->batch_fd, plan, err);
	bool in_place = status == NEAP_ENOSPC && options->trash_ns == 0;
	if (in_place)
		status = delete_in_place(apply, plan);
	else if (!status)
		move_all(apply, plan);
	if (!begun)
		return status;
	apply->result->trash_until_s = apply->result->moved_count && !in_place ? until_s : 0;
	if (!status && (fsync(apply->batch_fd) < 0 || fsync(apply->folder_fd) < 0))
		status = neap_fail_errno(err, errno, "flushing the folder to disk");
	if (apply->result->moved_count == 0 || in_place)
		checkpoint_trash_end(apply->trash_fd, batch, apply->batch_fd);
	checkpoint_trash_unlock(apply->batch_fd);
	return status;
}

/* Marks the checkpoints that apply did not reach as failed. */
static void mark_failed(struct apply *apply, struct neap_retention_plan *plan, int cause)
{
	for (size_t i = 0; i < plan->count; i++) {
		if (!plan->entries[i].drop || plan->entries[i].done != NEAP_RETENTION_NOTHING)
			continue;
		plan->entries[i].done = NEAP_RETENTION_FAILED;
		plan->entries[i].cause = cause;
		apply->result->failed_count++;
	}
}

enum neap_status neap_retention_apply(struct neap_retention_plan *plan, const struct neap_retention_options *options,
				      struct neap_retention_result *ret_result, struct neap_error *err)
{
	struct apply apply = {.folder_fd = -1, .trash_fd = -1, .batch_fd = -1, .result = ret_result, .err = err};
	struct neap_error local = {0};
	struct stat info;
	enum neap_status status = NEAP_OK;

	*ret_result = (struct neap_retention_result){0};
	apply.folder_fd = checkpoint_open_folder(plan->folder, &local);
	if (apply.folder_fd < 0) {
		status = local.status;
		goto out;
	}
	if (fstat(apply.folder_fd, &info) < 0) {
		status = neap_fail_errno(&local, errno, "looking at %.150s", plan->folder);
		goto out;
	}
	apply.device = info.st_dev;
	status = checkpoint_listing_read(apply.folder_fd, &apply.listing, &local);
	if (!status && !checkpoint_listing_count_stems(&apply.listing))
		status = neap_fail(&local, NEAP_ENOMEM, "out of host memory");
	if (status)
		goto out;
	if (checkpoint_trash_open(apply.folder_fd, false, &apply.trash_fd, NULL) != NEAP_OK)
		apply.trash_fd = -1;
	if (plan->drop_count > 0)
		status = take_away(&apply, plan, options, &local);
	else if (apply.trash_fd >= 0)
		status = checkpoint_trash_each(apply.trash_fd, true, mend, &apply, &local);
	keep_first(&apply, status, &local);
	if (apply.trash_fd >= 0)
		keep_first(&apply, checkpoint_trash_each(apply.trash_fd, true, send_after, &apply, &local), &local);
	delete_gone(&apply);
	status = checkpoint_trash_purge(apply.folder_fd, neap_wall_ns() / NEAP_NS_PER_S, false, ret_result, &local);
out:
	keep_first(&apply, status, &local);
	if (apply.status != NEAP_OK) {
		mark_failed(&apply, plan, local.cause);
		neap_error_prefix(err, "%.100s", plan->folder);
	}
	checkpoint_listing_fini(&apply.listing);
	neap_map_fini(&apply.open_files);
	neap_map_fini(&apply.mended);
	for (size_t i = 0; i < 3; i++) {
		int fd = i == 0 ? apply.batch_fd : i == 1 ? apply.trash_fd : apply.folder_fd;
		if (fd >= 0)
			close(fd);
	}
	return apply.status;
}
