/* checkpoint/restore.c: restores checkpoints from the trash, and empties the trash. */
#include "checkpoint/name.h"
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

struct restore {
	int folder_fd;
	const char *pattern;
	struct neap_retention_result *result;
	int trash_fd, cause;
	char failed[256];
	bool held; /* another process holds a batch */
};

static void note_failure(struct restore *restore, const char *name, int cause)
{
	restore->result->failed_count++;
	if (restore->cause)
		return;
	restore->cause = cause;
	snprintf(restore->failed, sizeof restore->failed, "%s", name);
}

/* Brings back one file. Its sidecars come first, so that it is never in the folder without its metric. Returns 0 or
 * an errno. */
static int bring_back(const struct restore *restore, const struct checkpoint_batch *batch, const char *name)
{
	char beside[512];

	for (size_t n = 0; checkpoint_sidecar_name(name, n, beside, sizeof beside); n++)
		if (checkpoint_listing_find(batch->names, beside) < batch->names->count)
			checkpoint_bring_back(batch->fd, beside, restore->folder_fd); /* fails if it exists */
	return checkpoint_bring_back(batch->fd, name, restore->folder_fd);
}

static bool exists(int fd, const char *name)
{
	struct stat info;

	return fstatat(fd, name, &info, AT_SYMLINK_NOFOLLOW) == 0;
}

static void restore_one(struct restore *restore, const struct checkpoint_batch *batch, const char *name)
{
	int cause = exists(restore->folder_fd, name) ? EEXIST : bring_back(restore, batch, name);

	if (cause)
		note_failure(restore, name, cause);
	else
		restore->result->restored_count++;
}

/* Restores all parts of a group, or none. If a kill leaves parts in the trash, the next call restores them: see
 * together.h. */
static void restore_group(struct restore *restore, const struct checkpoint_batch *batch, size_t group)
{
	const struct checkpoint_together *together = batch->together;

	for (size_t pass = 0; pass < 2; pass++)
		for (size_t i = 0; i < together->count; i++) {
			const char *name = together->parts[i].name;
			if (together->parts[i].group != group || !exists(batch->fd, name))
				continue; /* it is back already, or was never moved */
			int cause = pass == 1                          ? bring_back(restore, batch, name)
				    : exists(restore->folder_fd, name) ? EEXIST
								       : 0;
			if (cause) {
				note_failure(restore, name, cause);
				return;
			}
		}
	restore->result->restored_count++;
}

static bool matches(const struct restore *restore, const char *name)
{
	return !strcmp(name, restore->pattern) || fnmatch(restore->pattern, name, 0) == 0;
}

static bool restore_batch(void *context, const struct checkpoint_batch *batch)
{
	const struct checkpoint_together *together = batch->together;
	struct restore *restore = context;
	bool *done = calloc(together->groups + 1, sizeof *done);

	if (!done) {
		restore->cause = ENOMEM;
		return false;
	}
	if (batch->ours)
		checkpoint_together_mend(together, batch->fd, restore->folder_fd, NULL);
	for (size_t i = 0; i < batch->names->count; i++) {
		const char *name = batch->names->names[i];
		size_t group = checkpoint_together_find(together, name);

		if ((group == together->groups && checkpoint_is_beside(name)) || done[group] ||
		    !matches(restore, name))
			continue;
		if (!batch->ours) {
			restore->held = true;
		} else if (group < together->groups) {
			done[group] = true;
			restore_group(restore, batch, group);
		} else {
			restore_one(restore, batch, name);
		}
	}
	free(done);
	if (batch->ours)
		checkpoint_trash_end(restore->trash_fd, batch->name, batch->fd);
	return true;
}

enum neap_status neap_retention_restore(const char *folder, const char *pattern,
					struct neap_retention_result *ret_result, struct neap_error *err)
{
	struct restore restore = {.pattern = pattern, .result = ret_result, .trash_fd = -1};

	*ret_result = (struct neap_retention_result){0};
	restore.folder_fd = checkpoint_open_folder(folder, err);
	if (restore.folder_fd < 0)
		return err ? err->status : NEAP_EIO;
	struct neap_error local = {0};
	enum neap_status status = checkpoint_trash_open(restore.folder_fd, false, &restore.trash_fd, &local);
	if (!status)
		status = checkpoint_trash_each(restore.trash_fd, true, restore_batch, &restore, &local);
	if (!status && fsync(restore.folder_fd) < 0)
		status = neap_fail_errno(&local, errno, "flushing the folder to disk");
	if (restore.trash_fd >= 0)
		close(restore.trash_fd);
	if (!status || status == NEAP_ENOENT)
		unlinkat(restore.folder_fd, ".neap-trash", AT_REMOVEDIR); /* fails unless it is empty */
	close(restore.folder_fd);
	if (!status && restore.cause)
		status = neap_fail_errno(&local, restore.cause, "bringing back %.120s", restore.failed);
	else if (!status && restore.held)
		status =
			neap_fail(&local, NEAP_EBUSY,
				  "another process works on what matches \"%.80s\" in the trash: try again", pattern);
	else if (status == NEAP_ENOENT || (!status && ret_result->restored_count == 0))
		status = neap_fail(&local, NEAP_ENOENT, "nothing in the trash matches \"%.80s\"", pattern);
	if (status) {
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
	int fd = checkpoint_open_folder(folder, &local);
	enum neap_status status = local.status;

	*ret_result = (struct neap_retention_result){0};
	if (fd >= 0) {
		status = checkpoint_trash_purge(fd, neap_wall_ns() / NEAP_NS_PER_S, all, ret_result, &local);
		close(fd);
		if (status)
			neap_error_prefix(&local, "%.100s", folder);
	}
	if (status && err)
		*err = local;
	return status;
}
