/* checkpoint/trash.c: see the header. */
#include "checkpoint/trash.h"

#include "checkpoint/name.h"
#include "checkpoint/scan.h"

#include "base/error.h"
#include "base/owner.h"

#include <errno.h>
#include <fcntl.h>
#include <inttypes.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/file.h>
#include <sys/stat.h>
#include <unistd.h>

#define TRASH      ".neap-trash"
#define LOCK       ".lock"
#define DEPTH_MOST 64

int checkpoint_rename(int from_fd, const char *from, int to_fd, const char *to)
{
	struct stat info;

	if (renameat2(from_fd, from, to_fd, to, RENAME_NOREPLACE) == 0)
		return 0;
	if (errno != EINVAL && errno != ENOSYS)
		return errno;
	/* The file system cannot do it in one step. */
	if (fstatat(to_fd, to, &info, AT_SYMLINK_NOFOLLOW) == 0)
		return EEXIST;
	return renameat(from_fd, from, to_fd, to) == 0 ? 0 : errno;
}

int checkpoint_bring_back(int batch_fd, const char *name, int folder_fd)
{
	if (renameat2(batch_fd, name, folder_fd, name, RENAME_NOREPLACE) == 0)
		return 0;
	if (errno != EINVAL && errno != ENOSYS)
		return errno;
	/* In two steps: the link fails if the name is taken. */
	if (linkat(batch_fd, name, folder_fd, name, 0) == 0)
		return unlinkat(batch_fd, name, 0) == 0 ? 0 : errno;
	return errno == EEXIST ? EEXIST : checkpoint_rename(batch_fd, name, folder_fd, name);
}

enum neap_status checkpoint_trash_open(int folder_fd, bool create, int *ret_fd, struct neap_error *err)
{
	struct stat folder, trash;
	bool made = create && mkdirat(folder_fd, TRASH, 0777) == 0;

	if (create && !made && errno != EEXIST)
		return neap_fail_errno(err, errno, "making the folder " TRASH);
	int fd = openat(folder_fd, TRASH, O_RDONLY | O_DIRECTORY | O_NOFOLLOW | O_CLOEXEC);
	if (fd < 0 && (errno == ELOOP || errno == ENOTDIR))
		return neap_fail(err, NEAP_EPERM, TRASH " is not a folder that neap made: it will not be used");
	if (fd < 0)
		return neap_fail_errno(err, errno, "opening " TRASH);
	enum neap_status status = NEAP_OK;
	if (fstat(fd, &trash) < 0 || fstat(folder_fd, &folder) < 0)
		status = neap_fail_errno(err, errno, "looking at " TRASH);
	else if (trash.st_dev != folder.st_dev)
		status = neap_fail(err, NEAP_EPERM,
				   TRASH " lies on another file system: nothing can be renamed into it");
	else if (made && fsync(folder_fd) < 0)
		status = neap_fail_errno(err, errno, "flushing the folder to disk");
	if (status)
		close(fd);
	else
		*ret_fd = fd;
	return status;
}

/* The path of the folder for the owner's file. It stays valid when the batch is renamed. */
static void owner_folder(int batch_fd, char path[64]) { snprintf(path, 64, "/proc/self/fd/%d/" LOCK, batch_fd); }

/* Takes the owner's file, on a file system without locks. False: another process has it. True also if it cannot be
 * made: then nothing is locked. */
static bool take_ownership(int batch_fd)
{
	char path[64];

	if (mkdirat(batch_fd, LOCK, 0777) < 0 && errno != EEXIST)
		return true;
	owner_folder(batch_fd, path);
	return neap_owner_take(path, NULL) != NEAP_EBUSY;
}

void checkpoint_trash_holder(int batch_fd, char who[160])
{
	char path[64];

	who[0] = '\0';
	owner_folder(batch_fd, path);
	if (!neap_owner_lives(path, who))
		who[0] = '\0';
}

bool checkpoint_trash_lock(int trash_fd, const char *batch, int batch_fd)
{
	struct stat own, named;

	if (flock(batch_fd, LOCK_EX | LOCK_NB) < 0 &&
	    (errno == EWOULDBLOCK || (neap_owner_is_needed(errno) && !take_ownership(batch_fd))))
		return false;
	if (fstat(batch_fd, &own) == 0 && fstatat(trash_fd, batch, &named, AT_SYMLINK_NOFOLLOW) == 0 &&
	    own.st_dev == named.st_dev && own.st_ino == named.st_ino)
		return true;
	checkpoint_trash_unlock(batch_fd);
	return false;
}

void checkpoint_trash_unlock(int batch_fd)
{
	char path[64];

	flock(batch_fd, LOCK_UN);
	if (faccessat(batch_fd, LOCK, F_OK, AT_SYMLINK_NOFOLLOW) < 0)
		return;
	owner_folder(batch_fd, path);
	neap_owner_leave(path);
	unlinkat(batch_fd, LOCK, AT_REMOVEDIR);
}

enum neap_status checkpoint_trash_begin(int trash_fd, uint64_t until_s, int *ret_fd, char *ret_name,
					struct neap_error *err)
{
	char name[80];
	int made = -1;

	for (unsigned n = 0; n < 1000 && made < 0; n++) {
		snprintf(name, sizeof name, "until-%" PRIu64 "-%d-%u", until_s, (int)getpid(), n);
		made = mkdirat(trash_fd, name, 0777);
		if (made < 0 && errno != EEXIST)
			break;
	}
	if (made < 0)
		return neap_fail_errno(err, errno, "making the folder " TRASH "/%s", name);
	int fd = openat(trash_fd, name, O_RDONLY | O_DIRECTORY | O_NOFOLLOW | O_CLOEXEC);
	if (fd >= 0 && !checkpoint_trash_lock(trash_fd, name, fd)) {
		close(fd);
		unlinkat(trash_fd, name, AT_REMOVEDIR);
		return neap_fail(err, NEAP_ENOENT, TRASH "/%s was deleted as it was made", name);
	}
	if (fd < 0 || fsync(trash_fd) < 0) {
		enum neap_status status = neap_fail_errno(err, errno, "opening " TRASH "/%s", name);
		if (fd >= 0) {
			checkpoint_trash_unlock(fd);
			close(fd);
		}
		unlinkat(trash_fd, name, AT_REMOVEDIR);
		return status;
	}
	strcpy(ret_name, name);
	*ret_fd = fd;
	return NEAP_OK;
}

void checkpoint_trash_end(int trash_fd, const char *batch, int batch_fd)
{
	struct checkpoint_listing names = {0};

	bool empty = checkpoint_listing_read(batch_fd, &names, NULL) == NEAP_OK;
	for (size_t i = 0; i < names.count; i++)
		empty &= !strcmp(names.names[i], CHECKPOINT_PARTS) || !strcmp(names.names[i], LOCK);
	checkpoint_listing_fini(&names);
	if (empty) {
		unlinkat(batch_fd, CHECKPOINT_PARTS, 0);
		checkpoint_trash_unlock(batch_fd); /* the owner's file is in the folder: remove it first */
	}
	unlinkat(trash_fd, batch, AT_REMOVEDIR); /* only when it is empty */
}

/* Reads SECONDS from "until-SECONDS-PID-N". False: the name has another form. */
static bool read_until(const char *name, uint64_t *ret_until_s)
{
	static const char digits[] = "0123456789";
	size_t seconds, pid, n;

	if (strncmp(name, "until-", 6) != 0)
		return false;
	const char *at = name + 6;
	seconds = strspn(at, digits);
	if (seconds == 0 || seconds > 18 || at[seconds] != '-')
		return false;
	pid = strspn(at + seconds + 1, digits);
	if (pid == 0 || at[seconds + 1 + pid] != '-')
		return false;
	n = strspn(at + seconds + pid + 2, digits);
	if (n == 0 || at[seconds + pid + 2 + n] != '\0')
		return false;
	*ret_until_s = strtoull(at, NULL, 10);
	return true;
}

static int latest_first(const void *left, const void *right)
{
	const char *a = *(char *const *)left, *b = *(char *const *)right;
	uint64_t first = 0, second = 0;

	read_until(a, &first);
	read_until(b, &second);
	return first != second ? (first < second) - (first > second) : strcmp(b, a);
}

/* Visits one batch; *ret_more: the result of `visit`. */
static enum neap_status visit_batch(int trash_fd, struct checkpoint_batch *batch, bool lock,
				    bool (*visit)(void *context, const struct checkpoint_batch *batch), void *context,
				    bool *ret_more, struct neap_error *err)
{
	struct checkpoint_listing names = {0};
	struct checkpoint_together together = {0};

	batch->fd = openat(trash_fd, batch->name, O_RDONLY | O_DIRECTORY | O_NOFOLLOW | O_CLOEXEC);
	if (batch->fd < 0 && errno == ENOENT)
		return NEAP_OK; /* another process deleted it */
	if (batch->fd < 0)
		return neap_fail_errno(err, errno, "opening " TRASH "/%s", batch->name);
	batch->ours = lock && checkpoint_trash_lock(trash_fd, batch->name, batch->fd);
	batch->names = &names; /* read under the lock: it does not change any more */
	batch->together = &together;
	enum neap_status status = checkpoint_listing_read(batch->fd, &names, err);
	if (!status)
		status = checkpoint_together_read(batch->fd, &together, err);
	if (!status)
		*ret_more = visit(context, batch);
	checkpoint_together_fini(&together);
	checkpoint_listing_fini(&names);
	if (batch->ours)
		checkpoint_trash_unlock(batch->fd);
	close(batch->fd);
	return status;
}

enum neap_status checkpoint_trash_each(int trash_fd, bool lock,
				       bool (*visit)(void *context, const struct checkpoint_batch *batch),
				       void *context, struct neap_error *err)
{
	struct checkpoint_listing batches = {0};
	enum neap_status status = checkpoint_listing_read(trash_fd, &batches, err);
	bool more = true;

	if (!status && batches.count > 0)
		qsort(batches.names, batches.count, sizeof *batches.names, latest_first);
	for (size_t i = 0; !status && more && i < batches.count; i++) {
		struct checkpoint_batch batch = {.name = batches.names[i]};

		if (read_until(batch.name, &batch.until_s))
			status = visit_batch(trash_fd, &batch, lock, visit, context, &more, err);
	}
	checkpoint_listing_fini(&batches);
	return status;
}

/* --- deleting for good --- */

struct purge {
	int folder_fd;
	dev_t device;
	uint64_t *bytes;
	int cause;       /* the first errno */
	char failed[80]; /* the name of the file that could not be deleted; "" unknown */
	bool held;       /* another process has locked a batch */
	char holder[160];
};

/* Notes the first failure. Ignores a file that another process has deleted (over NFS, also while it is open). Also
 * ignores a folder that is not empty after its files were deleted: either the failure to delete one was noted before,
 * or another process put a file there. The next purge deletes it. */
static void note(struct purge *purge, const char *name, int cause)
{
	bool others = cause == ENOENT || cause == ESTALE || cause == ENOTEMPTY || cause == EEXIST;

	if (!purge->cause && !others) {
		purge->cause = cause;
		snprintf(purge->failed, sizeof purge->failed, "%s", name);
	}
}

/* Deletes NAME and everything below it. Deletes links and does not follow them. Enters no other file system and no
 * mount. */
static void delete_tree(struct purge *purge, int parent, const char *name, unsigned depth)
{
	struct checkpoint_listing names = {0};
	struct neap_error unread = {0};
	struct stat info;

	if (fstatat(parent, name, &info, AT_SYMLINK_NOFOLLOW) < 0) {
		note(purge, name, errno);
		return;
	}
	if (!S_ISDIR(info.st_mode)) {
		if (unlinkat(parent, name, 0) < 0)
			note(purge, name, errno);
		else if (S_ISREG(info.st_mode) && info.st_nlink == 1)
			*purge->bytes += (uint64_t)info.st_size;
		return;
	}
	int fd = -1;
	if (info.st_dev != purge->device || depth == DEPTH_MOST || checkpoint_is_mount(parent, name))
		note(purge, name, depth == DEPTH_MOST ? ELOOP : EXDEV);
	else if ((fd = openat(parent, name, O_RDONLY | O_DIRECTORY | O_NOFOLLOW | O_CLOEXEC)) < 0)
		note(purge, name, errno);
	else if (checkpoint_listing_read(fd, &names, &unread) != NEAP_OK)
		note(purge, name, unread.cause ? unread.cause : EIO);
	for (size_t i = 0; fd >= 0 && i < names.count; i++)
		delete_tree(purge, fd, names.names[i], depth + 1);
	checkpoint_listing_fini(&names);
	if (fd >= 0)
		close(fd);
	if (fd >= 0 && unlinkat(parent, name, AT_REMOVEDIR) < 0)
		note(purge, name, errno);
}

int checkpoint_delete(int parent_fd, const char *name, uint64_t *bytes)
{
	struct purge purge = {.bytes = bytes};
	struct stat info;

	if (fstat(parent_fd, &info) < 0)
		return errno;
	purge.device = info.st_dev;
	delete_tree(&purge, parent_fd, name, 0);
	return purge.cause;
}

size_t checkpoint_trash_count(const struct checkpoint_listing *names, const struct checkpoint_together *together)
{
	bool *seen = calloc(together->groups + 1, sizeof *seen);
	size_t count = 0;

	for (size_t i = 0; seen && i < names->count; i++) {
		size_t group = checkpoint_together_find(together, names->names[i]);

		if (group == together->groups) {
			count += !checkpoint_is_beside(names->names[i]);
		} else if (!seen[group]) {
			seen[group] = true;
			count++;
		}
	}
	free(seen);
	return count;
}

/* Renames a batch so that nothing of it is restored any more. Tries several names: a batch of the same name may still
 * be being deleted. */
static int rename_gone(int trash_fd, const char *batch, char *ret_gone, size_t capacity)
{
	int cause = EEXIST;

	for (unsigned n = 0; n < 1000 && cause == EEXIST; n++) {
		snprintf(ret_gone, capacity, "gone-%.200s-%u", batch, n);
		cause = checkpoint_rename(trash_fd, batch, trash_fd, ret_gone);
	}
	return cause;
}

/* Brings split groups back before the rest of the batch is deleted for good. */
static int read_and_mend(const struct purge *purge, int batch_fd, struct checkpoint_together *ret_together)
{
	struct neap_error err = {0};

	if (checkpoint_together_read(batch_fd, ret_together, &err) != NEAP_OK)
		return err.cause ? err.cause : ENOMEM;
	return checkpoint_together_mend(ret_together, batch_fd, purge->folder_fd, NULL);
}

/* Counts the checkpoints in a batch; 0 for a folder that was deleted. */
static size_t count_batch(int batch_fd, const struct checkpoint_together *together)
{
	struct checkpoint_listing names = {0};
	size_t count = checkpoint_listing_read(batch_fd, &names, NULL) == NEAP_OK
			       ? checkpoint_trash_count(&names, together)
			       : 0;
	checkpoint_listing_fini(&names);
	return count;
}

static void purge_one(struct purge *purge, int trash_fd, const char *batch, uint64_t now_s, bool all,
		      struct neap_retention_result *result)
{
	char gone[300];
	uint64_t until_s;

	if (!strncmp(batch, "gone-", 5)) {
		delete_tree(purge, trash_fd, batch, 0);
		return;
	}
	if (!read_until(batch, &until_s) || (!all && until_s > now_s))
		return;
	int fd = openat(trash_fd, batch, O_RDONLY | O_DIRECTORY | O_NOFOLLOW | O_CLOEXEC);
	if (fd < 0) {
		note(purge, batch, errno);
		return;
	}
	if (!checkpoint_trash_lock(trash_fd, batch, fd)) { /* the next purge deletes it */
		purge->held = true;
		checkpoint_trash_holder(fd, purge->holder);
		close(fd);
		return;
	}
	struct checkpoint_together together = {0};
	int cause = read_and_mend(purge, fd, &together);
	size_t count = cause ? 0 : count_batch(fd, &together);
	if (!cause)
		cause = rename_gone(trash_fd, batch, gone, sizeof gone);
	if (cause) {
		note(purge, batch, cause);
	} else {
		if (fsync(trash_fd) < 0)
			note(purge, batch, errno);
		delete_tree(purge, trash_fd, gone, 0);
		result->deleted_count += count - count_batch(fd, &together);
	}
	checkpoint_together_fini(&together);
	checkpoint_trash_unlock(fd);
	close(fd);
}

enum neap_status checkpoint_trash_purge(int folder_fd, uint64_t now_s, bool all, struct neap_retention_result *result,
					struct neap_error *err)
{
	struct purge purge = {.folder_fd = folder_fd, .bytes = &result->deleted_bytes};
	struct checkpoint_listing batches = {0};
	struct neap_error missing = {0};
	struct stat info;
	int fd = -1;
	enum neap_status status = checkpoint_trash_open(folder_fd, false, &fd, &missing);

	if (status == NEAP_ENOENT)
		return NEAP_OK;
	if (status) {
		if (err)
			*err = missing;
		return status;
	}
	if (fstat(fd, &info) < 0)
		status = neap_fail_errno(err, errno, "looking at " TRASH);
	purge.device = info.st_dev;
	if (!status)
		status = checkpoint_listing_read(fd, &batches, err);
	for (size_t i = 0; !status && i < batches.count; i++)
		purge_one(&purge, fd, batches.names[i], now_s, all, result);
	checkpoint_listing_fini(&batches);
	close(fd);
	unlinkat(folder_fd, TRASH, AT_REMOVEDIR); /* only when it is empty */
	if (!status && purge.cause == EXDEV) {
		status = neap_fail(err, NEAP_EIO,
				   "deleting from " TRASH ": something is mounted on %.79s: unmount it and try again",
				   purge.failed);
		if (err)
			err->cause = EXDEV;
	} else if (!status && purge.cause)
		status = neap_fail_errno(err, purge.cause, "deleting %.79s from " TRASH, purge.failed);
	else if (!status && all && purge.held)
		status = neap_fail(err, NEAP_EBUSY,
				   purge.holder[0]
					   ? "%s works on a part of the trash: try again; if it is gone, remove "
					     "the folder " LOCK " in " TRASH "/until-..."
					   : "another process works on a part of the trash: try again%s",
				   purge.holder);
	return status;
}
