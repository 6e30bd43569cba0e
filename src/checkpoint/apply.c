/* checkpoint/apply.c: what a plan says is done, so that a crash or a failure at any call leaves each checkpoint
 * whole.
 *
 *   1. the newest is flushed to the disk: only then may others go
 *   2. .neap-trash/until-.../ is made and flushed
 *   3. oldest first: NAME is looked at once more, then renamed into the trash, then what stands beside it
 *   4. the folders are flushed; what has been in the trash for its time is deleted
 *
 * Between a checkpoint's rename and its sidecars' a kill leaves those behind, without the checkpoint: the next apply
 * sends them after it. A file that replaces NAME between the look and the rename is noticed afterwards and put back.
 */
#include "checkpoint/open_files.h"
#include "checkpoint/scan.h"
#include "checkpoint/trash.h"

#include "base/clock.h"
#include "base/error.h"

#include <errno.h>
#include <fcntl.h>
#include <fnmatch.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/stat.h>
#include <unistd.h>

struct apply {
	int folder_fd, trash_fd, batch_fd;
	uint64_t device;
	struct neap_map open_files;
	struct checkpoint_listing listing; /* of the folder, before anything was moved */
	struct neap_retention_result *result;
	enum neap_status status; /* the first failure */
	struct neap_error *err;
};

static int open_folder(const char *folder, struct neap_error *err)
{
	int fd = open(folder, O_RDONLY | O_DIRECTORY | O_CLOEXEC);

	if (fd < 0)
		neap_fail_errno(err, errno, "opening the folder %.150s", folder);
	return fd;
}

static enum neap_status keep_first(struct apply *apply, enum neap_status status, const struct neap_error *err)
{
	if (apply->status == NEAP_OK && status != NEAP_OK) {
		apply->status = status;
		if (apply->err)
			*apply->err = *err;
	}
	return status;
}

/* --- moving --- */

/* Whether the file was written after `main` had gone into the batch (a rename changes st_ctim): by somebody who saves
 * a new one under that name, and writes its metrics first. */
static bool is_of_a_new_one(const struct apply *apply, const char *name, const struct stat *main)
{
	struct stat info;

	return fstatat(apply->folder_fd, name, &info, AT_SYMLINK_NOFOLLOW) == 0 &&
	       (info.st_mtim.tv_sec != main->st_ctim.tv_sec ? info.st_mtim.tv_sec > main->st_ctim.tv_sec
							    : info.st_mtim.tv_nsec > main->st_ctim.tv_nsec);
}

/* The sidecars of `main`, which is in the batch, that are nobody else's follow it. */
static int move_sidecars(const struct apply *apply, const char *main, int batch_fd)
{
	char name[512];
	struct stat info;
	int first = 0;

	if (fstatat(batch_fd, main, &info, AT_SYMLINK_NOFOLLOW) < 0)
		return errno == ENOENT ? 0 : errno;

	for (size_t n = 0; checkpoint_sidecar_name(main, n, name, sizeof(name)); n++) {
		if (checkpoint_listing_find(&apply->listing, name) == apply->listing.count)
			continue;
		if (n >= CHECKPOINT_SIDECAR_SHORT && checkpoint_listing_stem_shared(&apply->listing, main))
			continue;
		if (is_of_a_new_one(apply, name, &info))
			continue;
		int cause = checkpoint_rename(apply->folder_fd, name, batch_fd, name);
		if (cause && cause != ENOENT && !first)
			first = cause;
	}
	return first;
}

static bool is_pinned_now(const struct apply *apply, const char *name)
{
	char pin[512];
	struct stat info;
	int needed = snprintf(pin, sizeof(pin), "%s.pin", name);

	return needed > 0 && (size_t)needed < sizeof(pin) &&
	       fstatat(apply->folder_fd, pin, &info, AT_SYMLINK_NOFOLLOW) == 0;
}

/* Whether it is still what the plan was made for: its verdict holds. */
static enum neap_retention_done look_again(const struct apply *apply, const struct neap_retention_entry *entry,
					   int *ret_cause)
{
	const uint32_t holds = NEAP_CHECKPOINT_OPEN | NEAP_CHECKPOINT_PINNED | NEAP_CHECKPOINT_UNREADABLE |
			       NEAP_CHECKPOINT_ELSEWHERE;
	struct checkpoint_extent now;
	int cause = checkpoint_measure(apply->folder_fd, entry->name, apply->device, &apply->open_files, &now);

	if (cause == ENOENT)
		return NEAP_RETENTION_GONE;
	if (cause == ELOOP || cause == EINVAL)
		return NEAP_RETENTION_CHANGED;
	if (cause) {
		*ret_cause = cause;
		return NEAP_RETENTION_FAILED;
	}
	bool same = now.device == entry->device && now.inode == entry->inode && now.bytes == entry->bytes &&
		    now.modified_ns == entry->modified_ns && !(now.facts & holds) &&
		    !is_pinned_now(apply, entry->name);
	return same ? NEAP_RETENTION_MOVED : NEAP_RETENTION_CHANGED;
}

static enum neap_retention_done move(const struct apply *apply, const struct neap_retention_entry *entry,
				     int *ret_cause)
{
	enum neap_retention_done done = look_again(apply, entry, ret_cause);
	struct stat info;

	if (done != NEAP_RETENTION_MOVED)
		return done;
	int cause = checkpoint_rename(apply->folder_fd, entry->name, apply->batch_fd, entry->name);
	/* or the batch is gone: where nothing holds that off */
	if (cause == ENOENT && fstatat(apply->folder_fd, entry->name, &info, AT_SYMLINK_NOFOLLOW) < 0)
		return NEAP_RETENTION_GONE;
	if (cause) {
		*ret_cause = cause;
		return NEAP_RETENTION_FAILED;
	}
	/* Was it still the same? A new file of this name belongs back, unless yet another one is there by now. */
	if (fstatat(apply->batch_fd, entry->name, &info, AT_SYMLINK_NOFOLLOW) == 0 && info.st_ino != entry->inode) {
		cause = checkpoint_bring_back(apply->batch_fd, entry->name, apply->folder_fd);
		return cause && cause != EEXIST ? (*ret_cause = cause, NEAP_RETENTION_FAILED)
						: NEAP_RETENTION_CHANGED;
	}
	*ret_cause = move_sidecars(apply, entry->name, apply->batch_fd);
	return NEAP_RETENTION_MOVED;
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

/* --- around it --- */

/* The newest, on the disk. One that may not be opened cannot be flushed: it was not written by this user. */
static enum neap_status flush_newest(const struct apply *apply, const struct neap_retention_plan *plan,
				     struct neap_error *err)
{
	for (size_t i = 0; i < plan->count; i++) {
		const struct neap_retention_entry *entry = &plan->entries[i];

		if (!(entry->reasons & NEAP_KEEP_NEWEST))
			continue;
		int fd = openat(apply->folder_fd, entry->name, O_RDONLY | O_NOFOLLOW | O_NONBLOCK | O_CLOEXEC);
		if (fd < 0 && (errno == EACCES || errno == EPERM))
			continue;
		if (fd < 0 && errno == ENOENT)
			return neap_fail(err, NEAP_EBUSY,
					 "the newest, %.120s, is gone since the plan was made: nothing was moved",
					 entry->name);
		if (fd < 0)
			return neap_fail_errno(err, errno,
					       "opening the newest, %.120s, to flush it to disk: nothing was "
					       "moved",
					       entry->name);
		int failed = entry->facts & NEAP_CHECKPOINT_FOLDER ? syncfs(fd) : fsync(fd);
		int cause = errno;
		close(fd);
		if (failed < 0 && cause != EINVAL && cause != ENOTSUP)
			return neap_fail_errno(err, cause, "flushing the newest, %.120s, to disk: nothing was moved",
					       entry->name);
	}
	return NEAP_OK;
}

/* Sidecars that are still here and whose checkpoint is in the trash: an apply was killed, or a rename failed. */
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

/* Another process may take the empty trash away between its making and its use: then once more. */
static enum neap_status begin_batch(struct apply *apply, uint64_t until_s, char *ret_name, struct neap_error *err)
{
	enum neap_status status = NEAP_ENOENT;

	for (int round = 0; round < 10 && status == NEAP_ENOENT; round++) {
		if (apply->trash_fd >= 0)
			close(apply->trash_fd);
		apply->trash_fd = -1;
		status = checkpoint_trash_open(apply->folder_fd, true, &apply->trash_fd, err);
		if (status == NEAP_OK)
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
	if (status == NEAP_OK)
		status = flush_newest(apply, plan, err);
	if (status == NEAP_OK)
		status = begin_batch(apply, until_s, batch, err);
	if (status != NEAP_OK)
		return status;
	move_all(apply, plan);
	apply->result->trash_until_s = apply->result->moved_count ? until_s : 0;
	if (fsync(apply->batch_fd) < 0 || fsync(apply->folder_fd) < 0)
		status = neap_fail_errno(err, errno, "flushing the folder to disk");
	if (apply->result->moved_count == 0)
		unlinkat(apply->trash_fd, batch, AT_REMOVEDIR);
	checkpoint_trash_unlock(apply->batch_fd);
	return status;
}

/* Stops counting as done what was never begun. */
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
	apply.folder_fd = open_folder(plan->folder, &local);
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
	if (status == NEAP_OK && !checkpoint_listing_count_stems(&apply.listing))
		status = neap_fail(&local, NEAP_ENOMEM, "out of host memory");
	if (status != NEAP_OK)
		goto out;
	if (plan->drop_count > 0)
		status = take_away(&apply, plan, options, &local);
	else if (checkpoint_trash_open(apply.folder_fd, false, &apply.trash_fd, NULL) != NEAP_OK)
		apply.trash_fd = -1;
	keep_first(&apply, status, &local);
	if (apply.trash_fd >= 0)
		keep_first(&apply, checkpoint_trash_each(apply.trash_fd, true, send_after, &apply, &local), &local);
	status = checkpoint_trash_purge(apply.folder_fd, neap_wall_ns() / NEAP_NS_PER_S, false, ret_result, &local);
out:
	keep_first(&apply, status, &local);
	if (apply.status != NEAP_OK) {
		mark_failed(&apply, plan, local.cause);
		neap_error_prefix(err, "%.100s", plan->folder);
	}
	checkpoint_listing_fini(&apply.listing);
	neap_map_fini(&apply.open_files);
	for (size_t i = 0; i < 3; i++) {
		int fd = i == 0 ? apply.batch_fd : i == 1 ? apply.trash_fd : apply.folder_fd;
		if (fd >= 0)
			close(fd);
	}
	return apply.status;
}

/* --- back from the trash --- */

struct restore {
	int folder_fd;
	const char *pattern;
	struct neap_retention_result *result;
	int trash_fd, cause;
	char failed[256];
	bool held; /* there is one that someone else holds */
};

static void bring_back(struct restore *restore, int batch_fd, const char *name)
{
	int cause = checkpoint_bring_back(batch_fd, name, restore->folder_fd);

	if (cause == 0) {
		restore->result->restored_count += !checkpoint_is_beside(name);
		return;
	}
	restore->result->failed_count += !checkpoint_is_beside(name);
	if (!restore->cause) {
		restore->cause = cause;
		snprintf(restore->failed, sizeof(restore->failed), "%s", name);
	}
}

/* What stands beside a checkpoint comes first: it is never here without its metric. */
static bool restore_batch(void *context, const struct checkpoint_batch *batch)
{
	struct restore *restore = context;
	char beside[512];

	for (size_t i = 0; i < batch->names->count; i++) {
		const char *name = batch->names->names[i];

		if (checkpoint_is_beside(name) ||
		    (strcmp(name, restore->pattern) && fnmatch(restore->pattern, name, 0)))
			continue;
		struct stat info;
		if (!batch->ours) {
			restore->held = true;
			continue;
		}
		if (fstatat(restore->folder_fd, name, &info, AT_SYMLINK_NOFOLLOW) == 0) {
			bring_back(restore, batch->fd, name); /* refused: the name is taken */
			continue;
		}
		for (size_t n = 0; checkpoint_sidecar_name(name, n, beside, sizeof(beside)); n++)
			if (checkpoint_listing_find(batch->names, beside) < batch->names->count)
				bring_back(restore, batch->fd, beside);
		bring_back(restore, batch->fd, name);
	}
	if (batch->ours)
		unlinkat(restore->trash_fd, batch->name, AT_REMOVEDIR); /* only when it is empty */
	return true;
}

enum neap_status neap_retention_restore(const char *folder, const char *pattern,
					struct neap_retention_result *ret_result, struct neap_error *err)
{
	struct restore restore = {.pattern = pattern, .result = ret_result, .trash_fd = -1};

	*ret_result = (struct neap_retention_result){0};
	restore.folder_fd = open_folder(folder, err);
	if (restore.folder_fd < 0)
		return err ? err->status : NEAP_EIO;
	struct neap_error local = {0};
	enum neap_status status = checkpoint_trash_open(restore.folder_fd, false, &restore.trash_fd, &local);
	if (status == NEAP_OK)
		status = checkpoint_trash_each(restore.trash_fd, true, restore_batch, &restore, &local);
	if (status == NEAP_OK && fsync(restore.folder_fd) < 0)
		status = neap_fail_errno(&local, errno, "flushing the folder to disk");
	if (restore.trash_fd >= 0)
		close(restore.trash_fd);
	if (status == NEAP_OK || status == NEAP_ENOENT)
		unlinkat(restore.folder_fd, ".neap-trash", AT_REMOVEDIR); /* only when it is empty */
	close(restore.folder_fd);
	if (status == NEAP_OK && restore.cause)
		status = neap_fail_errno(&local, restore.cause, "bringing back %.120s", restore.failed);
	else if (status == NEAP_OK && restore.held)
		status =
			neap_fail(&local, NEAP_EBUSY,
				  "another process works on what matches \"%.80s\" in the trash: try again", pattern);
	else if (status == NEAP_ENOENT || (status == NEAP_OK && ret_result->restored_count == 0))
		status = neap_fail(&local, NEAP_ENOENT, "nothing in the trash matches \"%.80s\"", pattern);
	if (status != NEAP_OK) {
		neap_error_prefix(&local, "%.100s", folder);
		if (err)
			*err = local;
	}
	return status;
}

enum neap_status neap_retention_empty_trash(const char *folder, bool all, struct neap_retention_result *ret_result,
					    struct neap_error *err)
{
	struct neap_error local = {0};
	int fd = open_folder(folder, &local);
	enum neap_status status = local.status;

	*ret_result = (struct neap_retention_result){0};
	if (fd >= 0) {
		status = checkpoint_trash_purge(fd, neap_wall_ns() / NEAP_NS_PER_S, all, ret_result, &local);
		close(fd);
		if (status != NEAP_OK)
			neap_error_prefix(&local, "%.100s", folder);
	}
	if (status != NEAP_OK && err)
		*err = local;
	return status;
}
