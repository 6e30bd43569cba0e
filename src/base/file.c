/* base/file.c: files published whole or not at all.
 *
 *   begin   PATH.tmp-PID-N is created (never an existing file)
 *   append  bytes go to the temporary
 *   commit  fsync, close, rename over PATH, fsync the folder
 *
 * Until the rename a reader sees the old file. After it, the new one; a crash between rename and the folder's flush
 * leaves either of the two, whole.
 */
#include "base/file.h"
#include "base/descriptor.h"
#include "base/error.h"

#include <errno.h>
#include <fcntl.h>
#include <limits.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/stat.h>
#include <unistd.h>

#define FOLDER_ROUNDS 100

enum neap_status neap_path_join(char *text, size_t capacity, const char *folder, const char *name)
{
	size_t length = strlen(folder);

	while (length > 1 && folder[length - 1] == '/')
		length--;
	while (*name == '/')
		name++;
	const char *slash = length == 0 || folder[length - 1] == '/' ? "" : "/";
	int needed = snprintf(text, capacity, "%.*s%s%s", (int)length, folder, slash, name);
	return needed >= 0 && (size_t)needed < capacity ? NEAP_OK : NEAP_EINVAL;
}

enum neap_status neap_fd_write(int fd, const void *bytes, size_t length, struct neap_error *err)
{
	const char *at = bytes;

	while (length > 0) {
		ssize_t n = write(fd, at, length);
		if (n < 0 && errno == EINTR)
			continue;
		if (n < 0)
			return neap_fail_errno(err, errno, "writing %zu bytes", length);
		at += n;
		length -= (size_t)n;
	}
	return NEAP_OK;
}

enum neap_status neap_fd_read(int fd, void *ret_bytes, size_t length, struct neap_error *err)
{
	char *at = ret_bytes;

	while (length > 0) {
		ssize_t n = read(fd, at, length);
		if (n < 0 && errno == EINTR)
			continue;
		if (n < 0)
			return neap_fail_errno(err, errno, "reading %zu bytes", length);
		if (n == 0)
			return neap_fail(err, NEAP_EIO, "end of input with %zu bytes still to come", length);
		at += n;
		length -= (size_t)n;
	}
	return NEAP_OK;
}

static enum neap_status sync_fd(int fd)
{
	int result;

	do
		result = fsync(fd);
	while (result < 0 && errno == EINTR);
	/* Pipes, /dev/full and some network file systems have nothing to flush. */
	return result == 0 || errno == EINVAL || errno == ENOTSUP ? NEAP_OK : NEAP_EIO;
}

enum neap_status neap_sync_folder(const char *path, struct neap_error *err)
{
	int fd = open(path, O_RDONLY | O_DIRECTORY | O_CLOEXEC);

	if (fd < 0)
		return neap_fail_errno(err, errno, "opening the folder %s", path);
	enum neap_status status = sync_fd(fd);
	int cause = errno;
	close(fd);
	return status == NEAP_OK ? NEAP_OK : neap_fail_errno(err, cause, "flushing the folder %s to disk", path);
}

static enum neap_status sync_parent(const char *path, struct neap_error *err)
{
	char folder[PATH_MAX];
	const char *slash = strrchr(path, '/');

	if (!slash)
		return neap_sync_folder(".", err);
	size_t length = slash == path ? 1 : (size_t)(slash - path);
	if (length >= sizeof folder)
		return neap_fail(err, NEAP_EINVAL, "the path %.100s... is too long", path);
	memcpy(folder, path, length);
	folder[length] = '\0';
	return neap_sync_folder(folder, err);
}

enum neap_status neap_file_begin(struct neap_file *file, const char *path, mode_t mode, struct neap_error *err)
{
	*file = (struct neap_file){.fd = -1};
	/* The suffix needs at most 40 bytes: the name of a longer path would not fit. */
	if (strlen(path) > 4000)
		return neap_fail(err, NEAP_EINVAL, "the path %.100s... is too long", path);
	strcpy(file->path, path);
	file->owner = getpid();
	for (unsigned int n = 0; n < 1000; n++) {
		snprintf(file->temporary, sizeof file->temporary, "%.4000s.tmp-%d-%u", path, (int)getpid(), n);
		int fd = open(file->temporary, O_WRONLY | O_CREAT | O_EXCL | O_NOFOLLOW | O_CLOEXEC, mode);
		file->fd = neap_fd_above_standard(fd);
		if (fd >= 0 && file->fd < 0) {
			int cause = errno;
			unlink(file->temporary);
			errno = cause;
		}
		if (file->fd >= 0 || errno != EEXIST)
			break;
	}
	if (file->fd < 0) {
		int cause = errno;
		*file = (struct neap_file){.fd = -1};
		return neap_fail_errno(err, cause, "creating a temporary file beside %s", path);
	}
	return NEAP_OK;
}

enum neap_status neap_file_append(struct neap_file *file, const void *bytes, size_t length, struct neap_error *err)
{
	enum neap_status status = neap_fd_write(file->fd, bytes, length, err);

	if (status)
		neap_error_prefix(err, "%s", file->path);
	return status;
}

enum neap_status neap_file_commit(struct neap_file *file, struct neap_error *err)
{
	enum neap_status status = NEAP_OK;

	if (file->temporary[0] == '\0')
		return neap_fail(err, NEAP_ESTATE, "committing a file that is not open");
	if (sync_fd(file->fd) != NEAP_OK) {
		status = neap_fail_errno(err, errno, "flushing %s to disk", file->path);
		goto out;
	}
	int closed = close(file->fd);
	file->fd = -1;
	if (closed < 0 && errno != EINTR) {
		status = neap_fail_errno(err, errno, "closing %s", file->path);
		goto out;
	}
	if (rename(file->temporary, file->path) < 0) {
		status = neap_fail_errno(err, errno, "renaming %s to %s", file->temporary, file->path);
		goto out;
	}
	file->temporary[0] = '\0';
	status = sync_parent(file->path, err);
out:
	neap_file_abort(file);
	return status;
}

void neap_file_abort(struct neap_file *file)
{
	/* A zeroed struct has fd 0, which is not ours: only the temporary's name shows whether a file is open. */
	if (file->temporary[0]) {
		if (file->fd >= 0)
			close(file->fd);
		if (file->owner == getpid())
			unlink(file->temporary);
	}
	file->fd = -1;
	file->temporary[0] = '\0';
}

enum neap_status neap_file_write(const char *path, const void *bytes, size_t length, struct neap_error *err)
{
	struct neap_file *file = malloc(sizeof *file); /* two paths: too much for a small thread's stack */

	if (!file)
		return neap_fail(err, NEAP_ENOMEM, "writing %s: out of host memory", path);
	enum neap_status status = neap_file_begin(file, path, 0644, err);
	if (!status)
		status = neap_file_append(file, bytes, length, err);
	if (!status)
		status = neap_file_commit(file, err);
	neap_file_abort(file);
	free(file);
	return status;
}

enum neap_status neap_file_read(const char *path, size_t limit_bytes, struct neap_buffer *buffer,
				struct neap_error *err)
{
	enum neap_status status = NEAP_OK;
	size_t total = 0;
	char chunk[16384];
	int fd = open(path, O_RDONLY | O_CLOEXEC);

	if (fd < 0)
		return neap_fail_errno(err, errno, "opening %s", path);
	for (;;) {
		ssize_t n = read(fd, chunk, sizeof chunk);
		if (n < 0 && errno == EINTR)
			continue;
		if (n < 0)
			status = neap_fail_errno(err, errno, "reading %s", path);
		if (n <= 0)
			break;
		if ((size_t)n > limit_bytes - total) {
			status = neap_fail(err, NEAP_EINVAL, "%s is longer than the %zu bytes allowed", path,
					   limit_bytes);
			break;
		}
		total += (size_t)n;
		neap_buffer_append(buffer, chunk, (size_t)n);
	}
	close(fd);
	if (!status)
		status = neap_buffer_status(buffer, err);
	return status;
}

/* Makes one folder; an existing one is fine, also through a link. If another process removes it between the two
 * calls, tries once more. */
static enum neap_status make_one_folder(const char *path, mode_t mode, struct neap_error *err)
{
	struct stat info;
	int cause = EEXIST;

	for (int round = 0; round < FOLDER_ROUNDS && cause == EEXIST; round++) {
		if (mkdir(path, mode) == 0)
			return NEAP_OK;
		cause = errno;
		if (stat(path, &info) == 0) {
			if (S_ISDIR(info.st_mode))
				return NEAP_OK;
			cause = ENOTDIR;
		}
	}
	return neap_fail_errno(err, cause, "making the folder %s", path);
}

enum neap_status neap_make_folder(const char *path, mode_t mode, struct neap_error *err)
{
	char part[PATH_MAX];
	size_t length = strlen(path);

	if (length == 0 || length >= sizeof part)
		return neap_fail(err, NEAP_EINVAL, "\"%.100s\" cannot be the path of a folder", path);
	memcpy(part, path, length + 1);
	for (char *at = part + 1; *at; at++) {
		if (*at != '/')
			continue;
		*at = '\0';
		enum neap_status status = make_one_folder(part, 0777, err);
		*at = '/';
		if (status)
			return status;
	}
	return make_one_folder(part, mode, err);
}
