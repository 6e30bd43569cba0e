/* estimate/view_written.c: counts and copies what the program wrote. The upper layers of a view hold each written
 * file, and a device 0:0 for each deleted one. Their folders are not counted: the overlay makes the folders above a
 * file, and the view made some itself. Files of neap and Python's byte code are not the program's. */
#include "estimate/view.h"

#include "base/file.h"

#include <dirent.h>
#include <errno.h>
#include <fcntl.h>
#include <limits.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/stat.h>
#include <sys/statvfs.h>
#include <sys/sysmacros.h>
#include <unistd.h>

#define DEPTH_MOST 64
#define FULL_BYTES (1u << 20) /* if fewer bytes than this are left, the limit was reached */
#define COPY_BYTES (1u << 16)

struct walk {
	struct neap_view_facts *facts;
	int keep_fd;         /* -1: no file is kept */
	int deleted_fd;      /* the list of deleted files; -1: not made yet */
	char path[PATH_MAX]; /* as the program sees it */
};

static void note_trouble(struct walk *walk)
{
	struct neap_view_facts *facts = walk->facts;
	if (!*facts->trouble)
		snprintf(facts->trouble, sizeof facts->trouble, "%.180s was not kept: %s", walk->path,
			 strerror(errno));
}

/* Whether the path is neap's own: a runtime folder or the simulator's memory. */
static bool is_own(const char *path)
{
	const char *name = strrchr(path, '/') + 1;
	const char *runtime = getenv("XDG_RUNTIME_DIR");
	char usual[64];
	snprintf(usual, sizeof usual, "/tmp/neap-%u", (unsigned)geteuid());
	size_t length = runtime ? strlen(runtime) : 0;
	const char *ending = strrchr(name, '.'); /* PYTHONPYCACHEPREFIX may name any folder */
	return strcmp(name, "__pycache__") == 0 || (ending && strcmp(ending, ".pyc") == 0) ||
	       strncmp(path, "/dev/shm/neap-sim-", 18) == 0 || strcmp(path, usual) == 0 ||
	       (length && strncmp(path, runtime, length) == 0 && strcmp(path + length, "/neap") == 0);
}

/* Opens the folder of walk->path in the kept folder. Makes the folders that are missing. */
static int open_kept_folder(const struct walk *walk)
{
	int fd = dup(walk->keep_fd);
	const char *at = walk->path + 1, *slash;
	while (fd >= 0 && (slash = strchr(at, '/'))) {
		char name[NAME_MAX + 1];
		snprintf(name, sizeof name, "%.*s", (int)(slash - at), at);
		int next = mkdirat(fd, name, 0777) && errno != EEXIST
				   ? -1
				   : openat(fd, name, O_RDONLY | O_DIRECTORY | O_NOFOLLOW | O_CLOEXEC);
		close(fd);
		fd = next;
		at = slash + 1;
	}
	return fd;
}

/* Copies a file; its holes stay holes. */
static bool copy_bytes(int from, int to, off_t size)
{
	char bytes[COPY_BYTES];
	for (off_t at = 0; at < size;) {
		off_t data = lseek(from, at, SEEK_DATA);
		if (data < 0)
			break; /* the rest is a hole */
		ssize_t count = pread(from, bytes, sizeof bytes, data);
		if (count <= 0)
			return count == 0;
		if (lseek(to, data, SEEK_SET) < 0 || neap_fd_write(to, bytes, (size_t)count, NULL))
			return false;
		at = data + count;
	}
	return ftruncate(to, size) == 0;
}

static bool copy_link(int folder, const char *name, int kept, const char *kept_name)
{
	char target[PATH_MAX];
	ssize_t length = readlinkat(folder, name, target, sizeof target - 1);
	if (length < 0)
		return false;
	target[length] = '\0';
	return symlinkat(target, kept, kept_name) == 0;
}

static void keep(struct walk *walk, int folder, const char *name, const struct stat *about)
{
	int kept = open_kept_folder(walk), from = -1, to = -1;
	bool whole = kept >= 0;
	if (whole && S_ISLNK(about->st_mode)) {
		whole = copy_link(folder, name, kept, name);
	} else if (whole) {
		from = openat(folder, name, O_RDONLY | O_NOFOLLOW | O_NONBLOCK | O_CLOEXEC);
		to = openat(kept, name, O_WRONLY | O_CREAT | O_EXCL | O_NOFOLLOW | O_CLOEXEC, about->st_mode & 0777);
		whole = from >= 0 && to >= 0 && copy_bytes(from, to, about->st_size);
	}
	if (!whole)
		note_trouble(walk);
	for (size_t i = 0; i < 3; i++) {
		int fd = (int[]){kept, from, to}[i];
		if (fd >= 0)
			close(fd);
	}
}

static void keep_deleted(struct walk *walk)
{
	if (walk->deleted_fd < 0)
		walk->deleted_fd =
			openat(walk->keep_fd, "deleted.txt", O_WRONLY | O_CREAT | O_EXCL | O_CLOEXEC, 0666);
	if (walk->deleted_fd < 0 || neap_fd_write(walk->deleted_fd, walk->path, strlen(walk->path), NULL) ||
	    neap_fd_write(walk->deleted_fd, "\n", 1, NULL))
		note_trouble(walk);
}

static void walk_folder(struct walk *walk, int fd, int depth);

static void walk_entry(struct walk *walk, int folder, const char *name, int depth)
{
	struct stat about;
	if (fstatat(folder, name, &about, AT_SYMLINK_NOFOLLOW) || is_own(walk->path))
		return;
	if (S_ISDIR(about.st_mode)) {
		int fd = openat(folder, name, O_RDONLY | O_DIRECTORY | O_NOFOLLOW | O_CLOEXEC);
		if (fd >= 0)
			walk_folder(walk, fd, depth + 1);
	} else if (S_ISCHR(about.st_mode) && about.st_rdev == makedev(0, 0)) {
		walk->facts->deleted++;
		if (walk->keep_fd >= 0)
			keep_deleted(walk);
	} else if (S_ISREG(about.st_mode) || S_ISLNK(about.st_mode)) {
		walk->facts->files++;
		uint64_t taken = (uint64_t)about.st_blocks * 512; /* less than the size if the file has holes */
		walk->facts->bytes += taken < (uint64_t)about.st_size ? taken : (uint64_t)about.st_size;
		if (walk->keep_fd >= 0)
			keep(walk, folder, name, &about);
	}
}

/* Walks through a folder. Owns `fd` from here on. */
static void walk_folder(struct walk *walk, int fd, int depth)
{
	size_t length = strlen(walk->path);
	DIR *entries = depth < DEPTH_MOST ? fdopendir(fd) : NULL;
	struct dirent *entry;
	if (!entries)
		close(fd);
	while (entries && (entry = readdir(entries))) {
		if (!strcmp(entry->d_name, ".") || !strcmp(entry->d_name, "..") ||
		    length + strlen(entry->d_name) + 2 > sizeof walk->path)
			continue;
		walk->path[length] = '/';
		strcpy(walk->path + length + 1, entry->d_name);
		walk_entry(walk, dirfd(entries), entry->d_name, depth);
		walk->path[length] = '\0';
	}
	if (entries)
		closedir(entries);
}

void neap_view_measure(struct neap_view *view, int keep_fd)
{
	struct walk walk = {.facts = &view->facts, .keep_fd = keep_fd, .deleted_fd = -1};
	struct statvfs about;
	view->facts.full = fstatvfs(view->scratch_fd, &about) == 0 &&
			   ((uint64_t)about.f_bavail * about.f_frsize < FULL_BYTES || about.f_favail == 0);
	view->facts.kept = keep_fd >= 0;
	for (size_t i = 0; i < view->count; i++) {
		char name[32];
		if (!view->paths[i])
			continue;
		snprintf(name, sizeof name, "up/%zu", i);
		snprintf(walk.path, sizeof walk.path, "%s", strcmp(view->paths[i], "/") ? view->paths[i] : "");
		int fd = openat(view->scratch_fd, name, O_RDONLY | O_DIRECTORY | O_CLOEXEC);
		if (fd >= 0)
			walk_folder(&walk, fd, 0);
	}
	if (walk.deleted_fd >= 0)
		close(walk.deleted_fd);
}
