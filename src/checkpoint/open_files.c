/* checkpoint/open_files.c: see the header. stat(2) of /proc/PID/fd/N reaches the file itself even if it was renamed.
 * A mapped file (weights that were loaded without copying) may have no open descriptor; its path is in
 * /proc/PID/maps. */
#include "checkpoint/open_files.h"

#include "base/error.h"

#include <ctype.h>
#include <dirent.h>
#include <errno.h>
#include <fcntl.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/stat.h>
#include <unistd.h>

uint64_t checkpoint_file_key(uint64_t device, uint64_t inode) { return inode ^ device * 0x9E3779B97F4A7C15ull; }

static bool put(struct neap_map *open_files, const struct stat *info)
{
	return neap_map_put(open_files, checkpoint_file_key(info->st_dev, info->st_ino), 1);
}

static bool add_descriptors(const char *pid, struct neap_map *open_files)
{
	char path[64];
	struct dirent *entry;
	struct stat info;
	bool fine = true;

	snprintf(path, sizeof path, "/proc/%.20s/fd", pid);
	DIR *folder = opendir(path);
	while (folder && fine && (entry = readdir(folder))) {
		if (!isdigit((unsigned char)entry->d_name[0]) || fstatat(dirfd(folder), entry->d_name, &info, 0) < 0)
			continue;
		if (S_ISREG(info.st_mode) || S_ISDIR(info.st_mode))
			fine = put(open_files, &info);
	}
	if (folder)
		closedir(folder);
	return fine;
}

/* A line of maps: "start-end perms offset dev inode   path". */
static bool add_maps(const char *pid, const char *prefix, struct neap_map *open_files)
{
	char path[64], *line = NULL;
	size_t capacity = 0, length = strlen(prefix);
	struct stat info;
	bool fine = true;

	snprintf(path, sizeof path, "/proc/%.20s/maps", pid);
	FILE *maps = fopen(path, "re");
	while (maps && fine && getline(&line, &capacity, maps) > 0) {
		char *file = strchr(line, '/');

		if (!file || strncmp(file, prefix, length) != 0 || (file[length] != '/' && length > 1))
			continue;
		file[strcspn(file, "\n")] = '\0';
		if (stat(file, &info) == 0)
			fine = put(open_files, &info);
	}
	free(line);
	if (maps)
		fclose(maps);
	return fine;
}

enum neap_status checkpoint_open_files(const char *folder, struct neap_map *ret_open, struct neap_error *err)
{
	DIR *proc = opendir("/proc");
	struct dirent *entry;
	bool fine = true;

	if (!proc)
		return neap_fail(err, NEAP_EIO, "opening /proc, to see which files are open: %s", strerror(errno));
	while (fine && (entry = readdir(proc)))
		if (isdigit((unsigned char)entry->d_name[0]))
			fine = add_descriptors(entry->d_name, ret_open) && add_maps(entry->d_name, folder, ret_open);
	closedir(proc);
	if (fine)
		return NEAP_OK;
	neap_map_fini(ret_open);
	return neap_fail(err, NEAP_ENOMEM, "out of host memory to list open files");
}
