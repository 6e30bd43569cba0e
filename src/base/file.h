/* base/file.h: files that are published whole or not at all.
 *
 * neap_file_write writes `PATH.tmp-PID-N` in the same folder, flushes it to disk, renames it over PATH and flushes
 * the folder: a reader sees the old file or the new one, never a part. Partial reads and writes and EINTR are
 * handled here once. Safe from any thread on different paths.
 */
#ifndef NEAP_BASE_FILE_H
#define NEAP_BASE_FILE_H

#include "base/buffer.h"

#include <stdbool.h>
#include <sys/types.h>

/* A file being written that becomes visible only by commit. Zeroed struct: nothing open. */
struct neap_file {
	int fd;      /* the temporary; -1 when closed */
	pid_t owner; /* the process that began the file: a child forked meanwhile does not remove the temporary */
	char path[4096];
	char temporary[4096];
};

enum neap_status neap_file_begin(struct neap_file *file, const char *path, mode_t mode, struct neap_error *err);
enum neap_status neap_file_append(struct neap_file *file, const void *bytes, size_t length, struct neap_error *err);
/* Flushes the file to disk and makes it visible. On failure the old file, if any, is untouched, and the temporary is
 * removed. */
enum neap_status neap_file_commit(struct neap_file *file, struct neap_error *err);
/* Removes a temporary that was not committed. Idempotent. */
void neap_file_abort(struct neap_file *file);

/* Begins a file, appends the bytes and commits it. */
enum neap_status neap_file_write(const char *path, const void *bytes, size_t length, struct neap_error *err);

/* Appends the whole file to `buffer`; NEAP_EINVAL when it is longer than `limit_bytes`. */
enum neap_status neap_file_read(const char *path, size_t limit_bytes, struct neap_buffer *buffer,
				struct neap_error *err);

/* Write or read exactly `length` bytes, in as many calls of write(2) or read(2) as that takes. read: NEAP_EIO if the
 * file ends early. */
enum neap_status neap_fd_write(int fd, const void *bytes, size_t length, struct neap_error *err);
enum neap_status neap_fd_read(int fd, void *ret_bytes, size_t length, struct neap_error *err);

/* mkdir -p; existing folders are fine. */
enum neap_status neap_make_folder(const char *path, mode_t mode, struct neap_error *err);

/* Flushes a folder's entries to disk. */
enum neap_status neap_sync_folder(const char *path, struct neap_error *err);

/* Joins with one slash into `text` (always terminated); NEAP_EINVAL when it does not fit. */
enum neap_status neap_path_join(char *text, size_t capacity, const char *folder, const char *name);

#endif
