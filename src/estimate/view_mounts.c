/* estimate/view_mounts.c: the mounts of a view.
 *
 *   RUN (for the time of the work)  a tmpfs of bounded size: the scratch
 *     up/N, work/N                  of the N-th overlay
 *     new                           where the view is put together; then it becomes the root
 *
 * As root an overlay covers /, and one each of the other file systems. In a user namespace the kernel refuses an
 * overlay on a folder with mounts of the machine's below it (they could be uncovered), so there the view begins as a
 * copy of all mounts, made read-only, and overlays cover what has no mount below: whole file systems, else the
 * folders in them, and the places that the program is likely to write to.
 *
 * At the end an audit checks that each mount that can be reached and written is one of the overlays, the run's folder
 * or the kernel's own. Otherwise the view is refused.
 */
#include "estimate/view.h"

#include "base/error.h"
#include "estimate/mountinfo.h"
#include "estimate/view_internal.h"

#include <dirent.h>
#include <errno.h>
#include <fcntl.h>
#include <limits.h>
#include <net/if.h>
#include <sched.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/ioctl.h>
#include <sys/mount.h>
#include <sys/prctl.h>
#include <sys/socket.h>
#include <sys/statvfs.h>
#include <sys/syscall.h>
#include <sys/xattr.h>
#include <unistd.h>

#define SOURCE        "neap-view"
#define FOLDERS_MOST  256 /* of one folder that is covered in parts */
#define OVERLAYS_MOST 4096
#define INODES        (1u << 20)

struct work {
	const struct neap_view_options *options;
	struct neap_view *view;
	struct neap_view_places places;
	struct neap_mounts mounts;
	dev_t *devices;      /* of the overlays; 0: there is none */
	size_t covered;      /* how many overlays were mounted */
	bool in_namespace;   /* in a user namespace: the kernel allows us less */
	bool has_base;       /* the view began as a copy of all mounts */
	int run_fd;          /* the run's folder, below the scratch */
	int cache_fd;        /* neap's cache; -1: none */
	bool has_cache;      /* the cache is in the view */
	int overlay_errno;   /* the error of the last overlay that failed */
	char here[PATH_MAX]; /* the working directory */
};

/* Writes the path's place in the view that is being made. False: it is too long. */
static bool target_of(const struct work *work, const char *path, char text[PATH_MAX])
{
	return snprintf(text, PATH_MAX, "/proc/self/fd/%d/new%s", work->view->scratch_fd,
			strcmp(path, "/") ? path : "") < PATH_MAX;
}

/* --- namespaces --- */

static bool write_text(const char *path, const char *text)
{
	int fd = open(path, O_WRONLY | O_CLOEXEC);
	bool whole = fd >= 0 && write(fd, text, strlen(text)) == (ssize_t)strlen(text);
	if (fd >= 0)
		close(fd);
	return whole;
}

enum neap_status neap_view_unshare_as_user(int flags, struct neap_error *err)
{
	char users[64], groups[64];
	uid_t user = geteuid();
	gid_t group = getegid();
	snprintf(users, sizeof users, "%u %u 1\n", user, user);
	snprintf(groups, sizeof groups, "%u %u 1\n", group, group);
	if (unshare(CLONE_NEWUSER | flags))
		return neap_fail(err, NEAP_ENOTSUP, "this system allows no mount namespace: %s", strerror(errno));
	prctl(PR_SET_DUMPABLE, 1); /* else /proc/self would belong to root */
	if (!write_text("/proc/self/setgroups", "deny") || !write_text("/proc/self/uid_map", users) ||
	    !write_text("/proc/self/gid_map", groups))
		return neap_fail(err, NEAP_ENOTSUP, "this system allows no user namespace: %s", strerror(errno));
	return NEAP_OK;
}

/* Whether the system has put this process into a user namespace: it is root in an unprivileged container. */
static bool is_in_namespace(void)
{
	char line[128] = "";
	unsigned first = 1, outside = 1, count = 0;
	FILE *file = fopen("/proc/self/uid_map", "re");
	bool whole = file && fgets(line, sizeof line, file) &&
		     sscanf(line, "%u %u %u", &first, &outside, &count) == 3 && !first && !outside &&
		     count == UINT32_MAX;
	if (file)
		fclose(file);
	return !whole;
}

static enum neap_status start_loopback(struct neap_error *err)
{
	struct ifreq request = {.ifr_name = "lo"};
	int fd = socket(AF_INET, SOCK_DGRAM | SOCK_CLOEXEC, 0);
	bool up = fd >= 0 && ioctl(fd, SIOCGIFFLAGS, &request) == 0;
	request.ifr_flags |= IFF_UP;
	up = up && ioctl(fd, SIOCSIFFLAGS, &request) == 0;
	int error_number = errno;
	if (fd >= 0)
		close(fd);
	return up ? NEAP_OK : neap_fail_errno(err, error_number, "a network of its own");
}

/* Keeps the current mounts for later views, and continues in a copy of them. */
static enum neap_status keep_machine(struct neap_view *view, struct neap_error *err)
{
	view->machine_fd = open("/proc/self/ns/mnt", O_RDONLY | O_CLOEXEC);
	view->root_fd = open("/", O_PATH | O_DIRECTORY | O_CLOEXEC);
	if (view->machine_fd < 0 || view->root_fd < 0 || unshare(CLONE_NEWNS))
		return neap_fail_errno(err, errno, "a copy of the mounts");
	return NEAP_OK;
}

static enum neap_status leave_the_system(struct work *work, struct neap_error *err)
{
	int flags = CLONE_NEWNS | (work->options->no_network ? CLONE_NEWNET : 0);
	enum neap_status status = NEAP_OK;
	work->in_namespace = is_in_namespace();
	if (unshare(flags)) {
		work->in_namespace = true;
		status = neap_view_unshare_as_user(flags, err);
	}
	if (!status && mount(NULL, "/", NULL, MS_REC | MS_PRIVATE, NULL))
		status = neap_fail(err, NEAP_ENOTSUP, "this system's mounts cannot be made private: %s",
				   strerror(errno));
	if (!status && work->options->no_network)
		status = start_loopback(err);
	if (!status && work->options->forks)
		status = keep_machine(work->view, err);
	return status;
}

/* --- the scratch --- */

static enum neap_status make_scratch(struct work *work, struct neap_error *err)
{
	const char *folder = work->options->folder;
	char options[128];
	work->run_fd = open(folder, O_PATH | O_DIRECTORY | O_CLOEXEC);
	if (work->run_fd < 0)
		return neap_fail_errno(err, errno, "%s", folder);
	if (work->options->cache)
		work->cache_fd = open(work->options->cache, O_PATH | O_DIRECTORY | O_CLOEXEC);
	snprintf(options, sizeof options, "size=%llu,nr_inodes=%u,mode=0700",
		 (unsigned long long)work->options->limit_bytes, INODES);
	if (mount(SOURCE, folder, "tmpfs", MS_NOSUID | MS_NODEV, options))
		return neap_fail(err, NEAP_ENOTSUP, "this system allows no mount of a tmpfs: %s", strerror(errno));
	int fd = work->view->scratch_fd = open(folder, O_RDONLY | O_DIRECTORY | O_CLOEXEC);
	if (fd < 0 || mkdirat(fd, "new", 0755) || mkdirat(fd, "up", 0700) || mkdirat(fd, "work", 0700))
		return neap_fail_errno(err, errno, "a view's scratch");
	if (work->in_namespace && fsetxattr(fd, "user.overlay.neap", "y", 1, 0))
		snprintf(work->view->facts.trouble, sizeof work->view->facts.trouble,
			 "on this kernel a folder that the program removes cannot be made again");
	return NEAP_OK;
}

/* --- overlays --- */

static void name_read_only(struct work *work, const char *path)
{
	struct neap_view_facts *facts = &work->view->facts;
	for (size_t i = 0; i < NEAP_VIEW_NAMED; i++)
		if (strcmp(facts->read_only[i], path) == 0)
			return;
	if (facts->read_only_count < NEAP_VIEW_NAMED)
		snprintf(facts->read_only[facts->read_only_count], sizeof facts->read_only[0], "%s", path);
	facts->read_only_count++;
}

static unsigned long flags_of(const char *path)
{
	struct statvfs about;
	if (statvfs(path, &about))
		return 0;
	unsigned long flags = about.f_flag & (ST_NOSUID | ST_NODEV | ST_NOEXEC | ST_NOATIME | ST_NODIRATIME);
	if (about.f_flag & ST_RELATIME)
		flags |= MS_RELATIME;
	else if (!(about.f_flag & ST_NOATIME))
		flags |= MS_STRICTATIME;
	return flags;
}

/* Gives the folder in the upper layer the owner and the mode of the folder that it covers. */
static enum neap_status prepare_upper(struct work *work, const char *path, struct neap_error *err)
{
	char name[32];
	struct stat about;
	enum neap_status status = NEAP_OK;
	snprintf(name, sizeof name, "up/%zu", work->view->count - 1);
	if (mkdirat(work->view->scratch_fd, name, 0700) || stat(path, &about))
		return neap_fail_errno(err, errno, "%s: a layer for it", path);
	int fd = openat(work->view->scratch_fd, name, O_RDONLY | O_DIRECTORY | O_CLOEXEC);
	if (fd < 0)
		return neap_fail_errno(err, errno, "%s: a layer for it", path);
	if ((!work->in_namespace && fchown(fd, about.st_uid, about.st_gid)) ||
	    fchmod(fd, neap_view_mode(path, &about)))
		status = neap_fail_errno(err, errno, "%s: a layer for it", path);
	for (size_t i = 0; !status && work->in_namespace && i < work->places.count; i++)
		if (neap_path_is_below(work->places.items[i], path))
			status = neap_view_place_make(fd, path, work->places.items[i], err);
	if (!status && work->options->from)
		status = neap_view_copy_layer(work->options->from, path, fd, err);
	close(fd);
	return status;
}

/* Covers a folder with an overlay. *ret_covered: it has one now. If no overlay can be mounted there, that is not an
 * error. */
static enum neap_status cover(struct work *work, const char *path, bool *ret_covered, struct neap_error *err)
{
	char options[256], name[32], target[PATH_MAX];
	int fd = work->view->scratch_fd;
	struct stat about;
	size_t number = work->view->count;
	*ret_covered = false;
	if (number == OVERLAYS_MOST || !target_of(work, path, target) || chdir(path))
		return NEAP_OK;
	work->view->count++;
	snprintf(name, sizeof name, "work/%zu", number);
	enum neap_status status = prepare_upper(work, path, err);
	if (!status && mkdirat(fd, name, 0700))
		status = neap_fail_errno(err, errno, "%s: a layer for it", path);
	if (status)
		return status;
	snprintf(options, sizeof options, "lowerdir=.,upperdir=/proc/self/fd/%d/up/%zu,workdir=/proc/self/fd/%d/%s%s",
		 fd, number, fd, name, work->in_namespace ? ",userxattr" : ",redirect_dir=on");
	if (mount(SOURCE, target, "overlay", flags_of(path) & (MS_NOSUID | MS_NODEV | MS_NOEXEC), options)) {
		work->overlay_errno = errno;
		return NEAP_OK;
	}
	if (stat(target, &about))
		return neap_fail_errno(err, errno, "%s: the view of it", path);
	if (!(work->view->paths[number] = strdup(path)))
		return neap_fail(err, NEAP_ENOMEM, "out of memory");
	work->devices[number] = about.st_dev;
	work->covered++;
	*ret_covered = true;
	return NEAP_OK;
}

/* Makes the mount at `target` read-only. A mount that cannot be reached needs no change. */
static enum neap_status seal(const char *path, const char *target, struct neap_error *err)
{
	if (mount(NULL, target, NULL, MS_REMOUNT | MS_BIND | MS_RDONLY | flags_of(target), NULL) == 0 ||
	    errno == EACCES || errno == ENOENT || errno == ENOTDIR)
		return NEAP_OK;
	return neap_fail(err, NEAP_ENOTSUP, "%s cannot be made read-only: %s", path, strerror(errno));
}

static bool has_mount_below(const struct work *work, const char *path)
{
	for (size_t i = 0; i < work->mounts.count; i++)
		if (strcmp(work->mounts.items[i].path, path) != 0 &&
		    neap_path_is_below(work->mounts.items[i].path, path))
			return true;
	return false;
}

static bool is_mount(const struct work *work, const char *path)
{
	for (size_t i = 0; i < work->mounts.count; i++)
		if (strcmp(work->mounts.items[i].path, path) == 0)
			return true;
	return false;
}

static enum neap_status cover_in_parts(struct work *work, const char *path, struct neap_error *err);

/* Whether an overlay covers the path already: a second one would hide the mounts below the first. */
static bool is_covered(const struct work *work, const char *path)
{
	for (size_t i = 0; i < work->view->count; i++)
		if (work->view->paths[i] && strcmp(work->view->paths[i], path) == 0)
			return true;
	return false;
}

/* Covers `path`, which is read-only in the view unless a folder around it was covered. If it cannot be covered, names
 * it in the facts. */
static enum neap_status cover_or_name(struct work *work, const char *path, struct neap_error *err)
{
	bool covered = is_covered(work, path);
	if (covered)
		return NEAP_OK;
	enum neap_status status = strcmp(path, "/") ? cover(work, path, &covered, err) : NEAP_OK;
	if (status || covered)
		return status;
	bool is_place = is_mount(work, path);
	for (size_t i = 0; i < work->places.count; i++)
		is_place |= strcmp(work->places.items[i], path) == 0;
	if (is_place && access(path, W_OK) == 0)
		name_read_only(work, path);
	return work->in_namespace && has_mount_below(work, path) ? cover_in_parts(work, path, err) : NEAP_OK;
}

/* Hides a service's socket behind another file, because a socket answers on a read-only mount too. */
static enum neap_status hide_socket(struct work *work, const char *path, struct neap_error *err)
{
	char target[PATH_MAX];
	if (!target_of(work, path, target))
		return NEAP_OK;
	if (mount("/dev/null", target, NULL, MS_BIND, NULL))
		return neap_fail(err, NEAP_ENOTSUP, "%s cannot be hidden: %s", path, strerror(errno));
	return seal(path, target, err);
}

static enum neap_status cover_in_parts(struct work *work, const char *path, struct neap_error *err)
{
	enum neap_status status = NEAP_OK;
	DIR *entries = opendir(path);
	struct dirent *entry;
	size_t seen = 0;
	while (!status && entries && (entry = readdir(entries))) {
		char whole[PATH_MAX];
		struct stat about;
		if (!strcmp(entry->d_name, ".") || !strcmp(entry->d_name, "..") ||
		    snprintf(whole, sizeof whole, "%s/%s", strcmp(path, "/") ? path : "", entry->d_name) >=
			    (int)sizeof whole ||
		    is_mount(work, whole) || lstat(whole, &about))
			continue;
		if (S_ISSOCK(about.st_mode))
			status = hide_socket(work, whole, err);
		if (!S_ISDIR(about.st_mode))
			continue;
		if (seen++ == FOLDERS_MOST) {
			name_read_only(work, path);
			break;
		}
		status = cover_or_name(work, whole, err);
	}
	if (entries)
		closedir(entries);
	return status;
}

/* --- the view --- */

/* Whether the mount is visible in the copy of all mounts: an overlay above may hide it. */
static bool is_copied(const struct work *work, const char *target, const struct stat *about)
{
	struct stat copy;
	return work->has_base && stat(target, &copy) == 0 && copy.st_dev == about->st_dev;
}

/* Whether `path` lies on the mount: mounts are sorted by path, so `path` lies on the last one above it. */
static bool lies_on(const struct work *work, const char *path, const struct neap_mount *mount_)
{
	const struct neap_mount *found = NULL;
	for (size_t i = 0; i < work->mounts.count; i++)
		if (work->mounts.items[i].visible && neap_path_is_below(path, work->mounts.items[i].path))
			found = &work->mounts.items[i];
	return found == mount_;
}

static bool is_below_covered(const struct work *work, const char *path, const struct neap_mount *mount_)
{
	for (size_t i = 0; i < work->view->count; i++)
		if (work->view->paths[i] && neap_path_is_below(path, work->view->paths[i]) &&
		    neap_path_is_below(work->view->paths[i], mount_->path))
			return true;
	return false;
}

/* Covers the mount in the copy of all mounts, and each place on it that is still read-only then. Call it before the
 * mounts below are handled: an overlay would hide them. */
static enum neap_status cover_with_places(struct work *work, const struct neap_mount *mount_, struct neap_error *err)
{
	enum neap_status status = cover_or_name(work, mount_->path, err);
	for (size_t i = 0; !status && i < work->places.count; i++) {
		const char *path = work->places.items[i];
		if (lies_on(work, path, mount_) && !is_below_covered(work, path, mount_) && strcmp(path, "/") != 0)
			status = cover_or_name(work, path, err);
	}
	return status;
}

static enum neap_status place_mount(struct work *work, const struct neap_mount *mount_, struct neap_error *err)
{
	enum neap_view_action action = neap_view_plan(mount_);
	bool covered = false;
	char target[PATH_MAX];
	struct stat about;
	enum neap_status status = NEAP_OK;
	if (!target_of(work, mount_->path, target))
		return neap_fail(err, NEAP_ENOTSUP, "%.100s...: the path is too long", mount_->path);
	if (stat(mount_->path, &about))
		return NEAP_OK; /* the program cannot reach it */
	if (action == NEAP_VIEW_OVERLAY && !S_ISDIR(about.st_mode))
		action = NEAP_VIEW_READ_ONLY;
	if (!work->has_base && action == NEAP_VIEW_OVERLAY)
		status = cover(work, mount_->path, &covered, err);
	if (status || covered)
		return status;
	if (!is_copied(work, target, &about) && mount(mount_->path, target, NULL, MS_BIND, NULL))
		return NEAP_OK; /* it is not in the view, because the folder with the mount is covered */
	if (action == NEAP_VIEW_AS_IT_IS)
		return NEAP_OK;
	status = seal(mount_->path, target, err);
	if (!status && action == NEAP_VIEW_OVERLAY && work->has_base)
		return cover_with_places(work, mount_, err);
	if (!status && action == NEAP_VIEW_OVERLAY)
		name_read_only(work, mount_->path);
	return status;
}

static enum neap_status place_base(struct work *work, struct neap_error *err)
{
	bool covered = false;
	char target[PATH_MAX];
	enum neap_status status = work->in_namespace ? NEAP_OK : cover(work, "/", &covered, err);
	if (status || covered)
		return status;
	work->has_base = true;
	target_of(work, "/", target);
	if (mount("/", target, NULL, MS_BIND | MS_REC, NULL))
		return neap_fail(err, NEAP_ENOTSUP, "the mounts cannot be copied: %s", strerror(errno));
	/* The copy contains the scratch too. Unmounts it there: otherwise its folder could not be removed. */
	if (!target_of(work, work->options->folder, target) || umount2(target, MNT_DETACH))
		return neap_fail(err, NEAP_ENOTSUP, "the scratch in the copy of the mounts: %s", strerror(errno));
	return NEAP_OK;
}

/* Puts a folder into the view as it is, so that writes to it are real. False: it failed. */
static bool place_folder(const struct work *work, const char *path, int fd)
{
	char target[PATH_MAX], from[64];
	snprintf(from, sizeof from, "/proc/self/fd/%d", fd);
	return fd >= 0 && target_of(work, path, target) && mount(from, target, NULL, MS_BIND, NULL) == 0;
}

static enum neap_status place_all(struct work *work, struct neap_error *err)
{
	enum neap_status status = place_base(work, err);
	for (size_t i = 0; !status && i < work->mounts.count; i++)
		if (work->mounts.items[i].visible && (work->has_base || strcmp(work->mounts.items[i].path, "/")))
			status = place_mount(work, &work->mounts.items[i], err);
	if (!status && work->covered == 0)
		status = neap_fail(err, NEAP_ENOTSUP, "this system allows no overlay: %s",
				   strerror(work->overlay_errno));
	if (status)
		return status;
	work->has_cache = place_folder(work, work->options->cache, work->cache_fd);
	if (!place_folder(work, work->options->folder, work->run_fd))
		return neap_fail(err, NEAP_ENOTSUP, "%s cannot be put into the view: %s", work->options->folder,
				 strerror(errno));
	return NEAP_OK;
}

/* A machine that runs from its initial memory file system has no other root to change to. */
static enum neap_status change_root(struct work *work, struct neap_error *err)
{
	char target[PATH_MAX];
	target_of(work, "/", target);
	if (chdir(target))
		return neap_fail_errno(err, errno, "entering the view");
	if (syscall(SYS_pivot_root, ".", ".") == 0) {
		if (umount2(".", MNT_DETACH))
			return neap_fail(err, NEAP_ENOTSUP, "the mounts cannot be left: %s", strerror(errno));
	} else if (chroot(".")) {
		return neap_fail(err, NEAP_ENOTSUP, "the root cannot be changed: %s", strerror(errno));
	}
	if (chdir("/") || chdir(work->here))
		return neap_fail_errno(err, errno, "%s: entering it in the view", work->here);
	return NEAP_OK;
}

static bool is_ours(const struct work *work, const struct neap_mount *mount_)
{
	for (size_t i = 0; i < work->view->count; i++)
		if (work->devices[i] && work->devices[i] == mount_->device)
			return true;
	return strcmp(mount_->path, work->options->folder) == 0 ||
	       (work->has_cache && strcmp(mount_->path, work->options->cache) == 0);
}

/* Refuses a view in which any other place can be written. */
static enum neap_status audit(const struct work *work, struct neap_error *err)
{
	struct neap_mounts mounts = {0};
	enum neap_status status = neap_mounts_read(&mounts, err);
	for (size_t i = 0; !status && i < mounts.count; i++) {
		const struct neap_mount *mount_ = &mounts.items[i];
		struct stat about;
		if (!mount_->visible || neap_view_plan(mount_) == NEAP_VIEW_AS_IT_IS || is_ours(work, mount_) ||
		    (stat(mount_->path, &about) && (errno == EACCES || errno == ENOENT)))
			continue;
		status = neap_fail(err, NEAP_ENOTSUP, "%s could be written from the view", mount_->path);
	}
	neap_mounts_fini(&mounts);
	return status;
}

/* Finds the path of the working directory. It must lead there again in the view. */
static enum neap_status find_here(struct work *work, struct neap_error *err)
{
	struct stat here, named;
	if (!getcwd(work->here, sizeof work->here) || stat(".", &here))
		return neap_fail_errno(err, errno, "the working directory");
	if (stat(work->here, &named) == 0 && (named.st_dev != here.st_dev || named.st_ino != here.st_ino))
		return neap_fail(err, NEAP_ENOTSUP, "the working directory is hidden by a mount");
	return NEAP_OK;
}

enum neap_status neap_view_enter(const struct neap_view_options *options, struct neap_view *ret_view,
				 struct neap_error *err)
{
	struct neap_view view = {
		.scratch_fd = -1, .machine_fd = -1, .root_fd = -1, .facts = {.kind = NEAP_VIEW_MOUNTS}};
	struct work work = {.options = options, .view = &view, .run_fd = -1, .cache_fd = -1};
	enum neap_status status = neap_view_places_find(options->argv, &work.places, err);
	view.facts.limit_bytes = options->limit_bytes;
	view.facts.no_network = options->no_network;
	view.paths = calloc(OVERLAYS_MOST, sizeof *view.paths);
	work.devices = calloc(OVERLAYS_MOST, sizeof *work.devices);
	if (!status && (!view.paths || !work.devices))
		status = neap_fail(err, NEAP_ENOMEM, "out of memory");
	if (!status)
		status = find_here(&work, err);
	if (!status)
		status = leave_the_system(&work, err);
	if (!status)
		status = neap_mounts_read(&work.mounts, err);
	if (!status)
		status = make_scratch(&work, err);
	if (!status)
		status = place_all(&work, err);
	if (!status)
		status = change_root(&work, err);
	if (!status)
		status = audit(&work, err);
	if (work.run_fd >= 0)
		close(work.run_fd);
	if (work.cache_fd >= 0)
		close(work.cache_fd);
	neap_mounts_fini(&work.mounts);
	neap_view_places_fini(&work.places);
	free(work.devices);
	if (!status)
		*ret_view = view;
	return status;
}
