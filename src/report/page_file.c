/* report/page_file.c: see page_file.h. Renaming a temporary file over a device would replace the device; over a link,
 * the link. */
#include "report/page_file.h"

#include "base/error.h"

#include <errno.h>
#include <fcntl.h>
#include <limits.h>
#include <stdlib.h>
#include <string.h>
#include <sys/stat.h>
#include <unistd.h>

static enum neap_status open_as_it_is(struct neap_page_file *file, const char *path, struct neap_error *err)
{
	file->fd = open(path, O_WRONLY | O_CLOEXEC | O_NOCTTY);
	if (file->fd < 0)
		return neap_fail_errno(err, errno, "opening %s", path);
	file->direct = file->opened = true;
	return NEAP_OK;
}

enum neap_status neap_page_file_begin(struct neap_page_file *file, const char *path, const char *const *inputs,
				      struct neap_error *err)
{
	char resolved[PATH_MAX];
	struct stat out, in;

	*file = (struct neap_page_file){.fd = STDOUT_FILENO, .file.fd = -1};
	if (strcmp(path, "-") == 0) {
		file->direct = true;
		return NEAP_OK;
	}
	if (!path[0])
		return neap_fail(err, NEAP_EINVAL, "the page needs a file's name");
	if (stat(path, &out) == 0) {
		if (S_ISDIR(out.st_mode))
			return neap_fail(err, NEAP_EINVAL, "%s is a folder: the page is one file", path);
		for (; *inputs; inputs++)
			if (stat(*inputs, &in) == 0 && in.st_dev == out.st_dev && in.st_ino == out.st_ino)
				return neap_fail(err, NEAP_EINVAL,
						 "%s is the trace itself: the page would replace it", path);
		if (!S_ISREG(out.st_mode))
			return open_as_it_is(file, path, err);
		if (access(path, W_OK) < 0)
			return neap_fail_errno(err, errno, "writing %s", path);
		path = realpath(path, resolved) ? resolved : path;
	}
	enum neap_status status = neap_file_begin(&file->file, path, 0644, err);
	file->fd = file->file.fd;
	return status;
}

enum neap_status neap_page_file_commit(struct neap_page_file *file, struct neap_error *err)
{
	if (!file->direct)
		return neap_file_commit(&file->file, err);
	if (!file->opened)
		return NEAP_OK;
	file->opened = false;
	return close(file->fd) < 0 && errno != EINTR ? neap_fail_errno(err, errno, "closing the page") : NEAP_OK;
}

void neap_page_file_abort(struct neap_page_file *file)
{
	if (file->opened)
		close(file->fd);
	file->opened = false;
	neap_file_abort(&file->file);
}
