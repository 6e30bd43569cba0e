/* base/paths.c: the folders, and the check that a runtime folder in a public place is ours.
 *
 * Any user can make /tmp/neap-UID first. So neap opens the folder without following a link, and then checks what it
 * opened: it must be a directory, owned by us and closed to others. Then only we can replace its contents.
 */
#include "base/paths.h"
#include "base/error.h"
#include "base/file.h"

#include <errno.h>
#include <fcntl.h>
#include <limits.h>
#include <pwd.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/stat.h>
#include <unistd.h>

/* The XDG rules say to ignore a relative path in one of these variables. */
static const char *absolute_variable(const char *name)
{
	const char *value = getenv(name);

	return value && value[0] == '/' ? value : NULL;
}

static enum neap_status check_private(const char *path, struct neap_error *err)
{
	struct stat info;
	int fd = open(path, O_RDONLY | O_DIRECTORY | O_NOFOLLOW | O_CLOEXEC);

	if (fd < 0 && (errno == ELOOP || errno == ENOTDIR))
		return neap_fail(err, NEAP_EPERM, "%s is a link or not a folder: remove it, or set XDG_RUNTIME_DIR",
				 path);
	if (fd < 0)
		return neap_fail_errno(err, errno, "opening the runtime folder %s", path);
	int result = fstat(fd, &info);
	int cause = errno;
	close(fd);
	if (result < 0)
		return neap_fail_errno(err, cause, "looking at the runtime folder %s", path);
	if (info.st_uid != geteuid())
		return neap_fail(err, NEAP_EPERM, "the runtime folder %s belongs to user %u: set XDG_RUNTIME_DIR",
				 path, (unsigned int)info.st_uid);
	if (info.st_mode & 077)
		return neap_fail(err, NEAP_EPERM, "others may enter the runtime folder %s (mode %03o): chmod 700 it",
				 path, (unsigned int)(info.st_mode & 0777));
	return NEAP_OK;
}

static enum neap_status copy_out(char *text, size_t capacity, const char *path, struct neap_error *err)
{
	if (strlen(path) >= capacity)
		return neap_fail(err, NEAP_EINVAL, "the path %.100s is too long", path);
	strcpy(text, path);
	return NEAP_OK;
}

static const char *home_folder(char *buffer, size_t size)
{
	const char *home = absolute_variable("HOME");
	struct passwd entry, *found = NULL;

	if (home)
		return home;
	if (getpwuid_r(geteuid(), &entry, buffer, size, &found) != 0 || !found || entry.pw_dir[0] != '/')
		return NULL;
	return entry.pw_dir;
}

enum neap_status neap_path_state(char *text, size_t capacity, struct neap_error *err)
{
	const char *base = absolute_variable("XDG_STATE_HOME");
	enum neap_status status;
	char names[4096], path[4096];
	int length;

	if (base) {
		length = snprintf(path, sizeof path, "%s/neap", base);
	} else {
		const char *home = home_folder(names, sizeof names);
		if (!home)
			return neap_fail(err, NEAP_ENOENT, "no home folder: set HOME or XDG_STATE_HOME");
		length = snprintf(path, sizeof path, "%s/.local/state/neap", home);
	}
	if (length < 0 || (size_t)length >= sizeof path)
		return neap_fail(err, NEAP_EINVAL, "XDG_STATE_HOME or HOME is too long");
	if ((status = neap_make_folder(path, 0700, err)))
		return status;
	return copy_out(text, capacity, path, err);
}

static enum neap_status open_runtime(const char *path, struct neap_error *err)
{
	/* The system makes the parent: if that is missing, the variable is wrong. */
	if (mkdir(path, 0700) < 0 && errno != EEXIST)
		return neap_fail_errno(err, errno, "making the runtime folder %s", path);
	return check_private(path, err);
}

/* Chooses a folder in our home, which no other user can take, after another user has made /tmp/neap-UID: other users
 * must not be able to prevent attaching. */
static enum neap_status fall_back(const char *taken, char path[4096], char ret_note[320], struct neap_error *err)
{
	char state[4096];
	struct neap_error why = *err;
	enum neap_status status = neap_path_state(state, sizeof state, NULL);

	if (!status)
		status = neap_path_join(path, 4096, state, "runtime");
	if (!status)
		status = open_runtime(path, NULL);
	if (status) {
		*err = why;
		return why.status;
	}
	struct stat info;
	bool known = lstat(taken, &info) == 0;
	snprintf(ret_note, 320,
		 "The runtime folder %s belongs to user %d: %.150s is used instead; have it removed, or set "
		 "XDG_RUNTIME_DIR",
		 taken, known ? (int)info.st_uid : -1, path);
	return NEAP_OK;
}

enum neap_status neap_path_runtime_noted(char *text, size_t capacity, char ret_note[320], struct neap_error *err)
{
	const char *base = absolute_variable("XDG_RUNTIME_DIR");
	struct neap_error local;
	struct stat info;
	char path[4096];
	int length;

	if (!err)
		err = &local;
	ret_note[0] = '\0';
	if (base)
		length = snprintf(path, sizeof path, "%s/neap", base);
	else
		length = snprintf(path, sizeof path, "/tmp/neap-%u", (unsigned int)geteuid());
	if (length < 0 || (size_t)length >= sizeof path)
		return neap_fail(err, NEAP_EINVAL, "XDG_RUNTIME_DIR is too long");
	enum neap_status status = open_runtime(path, err);
	if (status == NEAP_EPERM && !base && lstat(path, &info) == 0 && info.st_uid != geteuid()) {
		char taken[64];
		snprintf(taken, sizeof taken, "%s", path);
		status = fall_back(taken, path, ret_note, err);
	}
	return status == NEAP_OK ? copy_out(text, capacity, path, err) : status;
}

enum neap_status neap_path_runtime(char *text, size_t capacity, struct neap_error *err)
{
	char note[320];

	return neap_path_runtime_noted(text, capacity, note, err);
}

bool neap_path_search(const char *name, char *ret_path)
{
	const char *at = getenv("PATH");
	char path[PATH_MAX];
	while (at) {
		int length = (int)strcspn(at, ":");
		int needed = snprintf(path, sizeof path, "%.*s%s%s", length, at, length ? "/" : "", name);
		if (needed > 0 && (size_t)needed < sizeof path && !access(path, F_OK)) {
			if (ret_path)
				strcpy(ret_path, path);
			return true;
		}
		at = at[length] ? at + length + 1 : NULL;
	}
	return false;
}
