/* checkpoint/measure.c: measures one checkpoint. Walks a folder without following symbolic links. A part that cannot
 * be read gives the fact UNREADABLE, not an error: the checkpoint is then kept. */
#include "checkpoint/open_files.h"
#include "checkpoint/scan.h"

#include "base/clock.h"
#include "base/error.h"

#include <dirent.h>
#include <errno.h>
#include <fcntl.h>
#include <string.h>
#include <sys/stat.h>
#include <unistd.h>

#define DEPTH_MOST 32

struct walk {
	const struct neap_map *open_files;
	struct checkpoint_extent *extent;
};

/* Nanoseconds since 1970 fit 64 bits until the year 2554; file systems can date a file later than that. */
static uint64_t modified_ns(const struct stat *info)
{
	if (info->st_mtim.tv_sec < 0)
		return 0;
	if ((uint64_t)info->st_mtim.tv_sec >= UINT64_MAX / NEAP_NS_PER_S)
		return UINT64_MAX;
	return (uint64_t)info->st_mtim.tv_sec * NEAP_NS_PER_S + (uint64_t)info->st_mtim.tv_nsec;
}

static void add(struct walk *walk, const struct stat *info)
{
	struct checkpoint_extent *extent = walk->extent;
	uint64_t size = S_ISREG(info->st_mode) && info->st_size > 0 ? (uint64_t)info->st_size : 0;

	extent->bytes += size;
	extent->freed_bytes += info->st_nlink > 1 ? 0 : size;
	/* a folder's own time changes when something is renamed in it */
	if (!S_ISDIR(info->st_mode) && modified_ns(info) > extent->modified_ns)
		extent->modified_ns = modified_ns(info);
	if (info->st_dev != extent->device)
		extent->facts |= NEAP_CHECKPOINT_ELSEWHERE;
	if (neap_map_get(walk->open_files, checkpoint_file_key(info->st_dev, info->st_ino), &(uint64_t){0}))
		extent->facts |= NEAP_CHECKPOINT_OPEN;
}

int checkpoint_open_folder(const char *folder, struct neap_error *err)
{
	int fd = open(folder, O_RDONLY | O_DIRECTORY | O_CLOEXEC);

	if (fd < 0)
		neap_fail_errno(err, errno, "opening the folder %.150s", folder);
	return fd;
}

bool checkpoint_is_mount(int folder_fd, const char *name)
{
	struct statx info;

	return statx(folder_fd, name, AT_SYMLINK_NOFOLLOW, 0, &info) == 0 &&
	       (info.stx_attributes & STATX_ATTR_MOUNT_ROOT);
}

static void walk_folder(struct walk *walk, int parent, const char *name, unsigned depth)
{
	if (checkpoint_is_mount(parent, name))
		walk->extent->facts |= NEAP_CHECKPOINT_ELSEWHERE;
	int fd = openat(parent, name, O_RDONLY | O_DIRECTORY | O_NOFOLLOW | O_CLOEXEC);
	DIR *folder = fd < 0 ? NULL : fdopendir(fd);
	struct dirent *entry;
	struct stat info;

	if (!folder || depth == DEPTH_MOST) {
		walk->extent->facts |= NEAP_CHECKPOINT_UNREADABLE;
		if (folder)
			closedir(folder);
		else if (fd >= 0)
			close(fd);
		return;
	}
	errno = 0;
	while ((entry = readdir(folder))) {
		if (!strcmp(entry->d_name, ".") || !strcmp(entry->d_name, ".."))
			continue;
		if (depth == 0 && !strcmp(entry->d_name, ".pin"))
			walk->extent->facts |= NEAP_CHECKPOINT_PINNED;
		if (fstatat(fd, entry->d_name, &info, AT_SYMLINK_NOFOLLOW) < 0) {
			walk->extent->facts |= NEAP_CHECKPOINT_UNREADABLE;
		} else {
			add(walk, &info);
			if (S_ISDIR(info.st_mode))
				walk_folder(walk, fd, entry->d_name, depth + 1);
		}
		errno = 0;
	}
	if (errno)
		walk->extent->facts |= NEAP_CHECKPOINT_UNREADABLE;
	closedir(folder);
}

int checkpoint_measure(int folder_fd, const char *name, uint64_t device, const struct neap_map *open_files,
		       struct checkpoint_extent *ret_extent)
{
	struct checkpoint_extent extent = {.device = device};
	struct walk walk = {.open_files = open_files, .extent = &extent};
	struct stat info;

	if (fstatat(folder_fd, name, &info, AT_SYMLINK_NOFOLLOW) < 0)
		return errno;
	if (S_ISLNK(info.st_mode))
		return ELOOP;
	if (!S_ISREG(info.st_mode) && !S_ISDIR(info.st_mode))
		return EINVAL;
	add(&walk, &info);
	extent.inode = info.st_ino;
	if (S_ISDIR(info.st_mode)) {
		extent.facts |= NEAP_CHECKPOINT_FOLDER;
		walk_folder(&walk, folder_fd, name, 0);
		if (extent.modified_ns == 0)
			extent.modified_ns = modified_ns(&info);
	}
	extent.device = info.st_dev;
	*ret_extent = extent;
	return 0;
}
