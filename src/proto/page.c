/* proto/page.c: statistics pages, both sides. page.h has the layout and the rule for which process counts as alive.
 */
#include "proto/page.h"

#include "base/array.h"
#include "base/clock.h"
#include "base/descriptor.h"
#include "base/error.h"
#include "base/file.h"
#include "base/printable.h"
#include "base/process.h"

#include <dirent.h>
#include <errno.h>
#include <fcntl.h>
#include <sched.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/file.h>
#include <sys/mman.h>
#include <sys/stat.h>
#include <unistd.h>

#define READ_TRIES      1000
#define SLOW_TRIES      500 /* for a writer that is waiting for a processor */
#define SLOW_TRY_NS     (2 * NEAP_NS_PER_MS)
#define RECORD_KEEP_S   86400
#define RUNTIME_ENTRIES 4096 /* read in one listing */
#define MAKING_TRIES    100  /* of 1 ms: a listing holds the lock only while it removes two files */

static enum neap_status path_of(char *text, size_t capacity, const char *folder, pid_t pid, const char *suffix,
				struct neap_error *err)
{
	char name[64];
	snprintf(name, sizeof name, "%d%s", (int)pid, suffix);
	return neap_path_join(text, capacity, folder, name) == NEAP_OK
		       ? NEAP_OK
		       : neap_fail(err, NEAP_EINVAL, "the runtime folder's path is too long: %.150s", folder);
}

static bool pread_all(int fd, void *ret_bytes, size_t length, size_t at)
{
	unsigned char *next = ret_bytes;
	while (length > 0) {
		ssize_t got = pread(fd, next, length, (off_t)at);
		if (got < 0 && errno == EINTR)
			continue;
		if (got <= 0)
			return false;
		next += got;
		at += (size_t)got;
		length -= (size_t)got;
	}
	return true;
}

static bool is_stopped(pid_t pid)
{
	struct neap_process process;
	return neap_process_read(pid, &process, NULL) == NEAP_OK && (process.state == 'T' || process.state == 't');
}

/* Whether no lane was written between the two readings. */
static bool same_lanes(const struct neap_published *first, const struct neap_published *second)
{
	bool same = true;
	for (int lane = 0; lane < NEAP_PUBLISHED_LANES; lane++) {
		for (int part = 0; part < NEAP_PUBLISHED_PARTS; part++) {
			uint64_t sequence = first->lanes[lane][part].sequence;
			same = same && sequence % 2 == 0 && second->lanes[lane][part].sequence == sequence;
		}
	}
	return same;
}

/* One slot at one instant: the same even sequence before and after. A process that was stopped in the middle of
 * writing will not continue for us: then returns the slot as it is, and sets *ret_torn. */
static enum neap_status read_slot(int fd, size_t at, pid_t pid, struct neap_published *ret_slot, bool *ret_torn,
				  struct neap_error *err)
{
	for (int tries = 0; tries < READ_TRIES + SLOW_TRIES; tries++) {
		struct neap_published slot, again;
		uint64_t before;
		if (!pread_all(fd, &before, sizeof before, at))
			return neap_fail(err, NEAP_EPARSE, "the page is cut short");
		__sync_synchronize();
		if (!pread_all(fd, &slot, sizeof slot, at))
			return neap_fail(err, NEAP_EPARSE, "the page is cut short");
		__sync_synchronize();
		if (!pread_all(fd, &again, sizeof again, at))
			return neap_fail(err, NEAP_EPARSE, "the page is cut short");
		bool same = before == again.sequence;
		bool whole = before % 2 == 0 && same && slot.sequence == before && same_lanes(&slot, &again);
		bool torn = !whole && tries >= READ_TRIES && same && is_stopped(pid);
		if (whole || torn) {
			neap_published_add_lanes(&slot);
			*ret_slot = slot;
			*ret_torn = *ret_torn || torn;
			return NEAP_OK;
		}
		if (tries < READ_TRIES)
			sched_yield();
		else
			neap_clock_sleep(neap_clock_system(), SLOW_TRY_NS);
	}
	return neap_fail(err, NEAP_EBUSY, "the process kept writing its page");
}

static void copy_text(char *to, size_t capacity, const char *from, size_t from_capacity)
{
	neap_printable_bytes(to, capacity, from, strnlen(from, from_capacity));
}

/* Reads word by word and atomically, as allocators write: another thread's allocator may be writing its slot now. */
static bool slot_used(const struct neap_published *slot)
{
	const uint64_t *uuid = (const uint64_t *)(const void *)slot->device_uuid;
	return (__atomic_load_n(&uuid[0], __ATOMIC_RELAXED) | __atomic_load_n(&uuid[1], __ATOMIC_RELAXED)) != 0;
}

static enum neap_status check_head(const struct neap_page *head, pid_t pid, struct neap_error *err)
{
	if (memcmp(head->magic, NEAP_PAGE_MAGIC, sizeof head->magic) != 0)
		return neap_fail(err, NEAP_EPARSE, "it is not a page that neap wrote");
	if (head->version != NEAP_PAGE_VERSION || head->bytes != sizeof *head)
		return neap_fail(err, NEAP_EPARSE, "it has version %u, this neap reads version %u", head->version,
				 NEAP_PAGE_VERSION);
	if (head->pid != (uint64_t)pid)
		return neap_fail(err, NEAP_EPARSE, "it says it is of process %llu", (unsigned long long)head->pid);
	if (head->device_count > NEAP_PAGE_DEVICES)
		return neap_fail(err, NEAP_EPARSE, "it counts %llu devices", (unsigned long long)head->device_count);
	return NEAP_OK;
}

/* Reads the part of a page before its devices. */
static enum neap_status read_head(int fd, pid_t pid, struct neap_page *ret_head, struct neap_error *err)
{
	struct stat info;
	if (fstat(fd, &info) != 0)
		return neap_fail_errno(err, errno, "looking at it");
	if (info.st_uid != geteuid())
		return neap_fail(err, NEAP_EPERM, "it belongs to user %u", (unsigned)info.st_uid);
	if (!S_ISREG(info.st_mode))
		return neap_fail(err, NEAP_EPARSE, "it is not a file");
	if (!pread_all(fd, ret_head, offsetof(struct neap_page, devices), 0))
		return neap_fail(err, NEAP_EPARSE, "the page is cut short");
	return check_head(ret_head, pid, err);
}

/* Reads an open page into *ret, which is the caller's scratch even on failure. */
static enum neap_status read_page(int fd, pid_t pid, struct neap_attached *ret, struct neap_error *err)
{
	struct neap_page head;
	size_t head_bytes = offsetof(struct neap_page, devices);
	enum neap_status status = read_head(fd, pid, &head, err);
	if (status)
		return status;
	/* If the lock is free, no living agent holds it. */
	if (flock(fd, LOCK_SH | LOCK_NB) == 0 || !neap_process_alive(pid, head.start_ticks))
		return neap_fail(err, NEAP_ENOENT, "process %d is not attached", (int)pid);
	ret->pid = pid;
	ret->start_ticks = head.start_ticks;
	copy_text(ret->name, sizeof ret->name, head.name, sizeof head.name);
	copy_text(ret->run_id, sizeof ret->run_id, head.run_id, sizeof head.run_id);
	copy_text(ret->record_path, sizeof ret->record_path, head.record_path, sizeof head.record_path);
	copy_text(ret->note, sizeof ret->note, head.note, sizeof head.note);
	ret->device_count = 0;
	bool torn = false;
	for (size_t i = 0; i < head.device_count && !status; i++) {
		struct neap_published *slot = &ret->devices[ret->device_count];
		status = read_slot(fd, head_bytes + i * sizeof *slot, pid, slot, &torn, err);
		if (!status && slot_used(slot))
			ret->device_count++;
	}
	if (torn && !ret->note[0])
		snprintf(ret->note, sizeof ret->note,
			 "it was stopped in the middle of an operation: its figures may be off by that one");
	return status;
}

/* The bytes up to the last device: most processes have one, and the struct has space for many. */
static size_t used_bytes(const struct neap_attached *attached)
{
	return offsetof(struct neap_attached, devices) + attached->device_count * sizeof attached->devices[0];
}

static enum neap_status open_page(const char *runtime_folder, pid_t pid, char path[4096], int *ret_fd,
				  struct neap_error *err)
{
	enum neap_status status = path_of(path, 4096, runtime_folder, pid, ".page", err);
	if (status)
		return status;
	int fd = open(path, O_RDONLY | O_NOFOLLOW | O_NONBLOCK | O_CLOEXEC);
	if (fd < 0 && errno == ENOENT)
		return neap_fail(err, NEAP_ENOENT, "process %d is not attached", (int)pid);
	if (fd < 0)
		return neap_fail_errno(err, errno, "opening the statistics page %s", path);
	*ret_fd = fd;
	return NEAP_OK;
}

enum neap_status neap_page_read_place(const char *runtime_folder, pid_t pid, struct neap_page_place *ret_place,
				      struct neap_error *err)
{
	struct neap_page_place place = {0};
	char path[4096];
	int fd = -1;
	enum neap_status status = open_page(runtime_folder, pid, path, &fd, err);
	if (status)
		return status;
	struct neap_page *head = malloc(sizeof *head); /* too large for the stack of a thread that is not ours */
	status = head ? read_head(fd, pid, head, err) : neap_fail(err, NEAP_ENOMEM, "out of memory");
	for (; !status && place.device_count < head->device_count; place.device_count++) {
		size_t at = offsetof(struct neap_page, devices) + place.device_count * sizeof head->devices[0] +
			    offsetof(struct neap_published, device_uuid);
		if (!pread_all(fd, place.uuids[place.device_count], sizeof place.uuids[0], at))
			status = neap_fail(err, NEAP_EPARSE, "the page is cut short");
	}
	if (!status) {
		copy_text(place.run_id, sizeof place.run_id, head->run_id, sizeof head->run_id);
		copy_text(place.series, sizeof place.series, head->series, sizeof head->series);
		*ret_place = place;
	}
	free(head);
	close(fd);
	return status;
}

enum neap_status neap_page_read(const char *runtime_folder, pid_t pid, struct neap_attached *ret_attached,
				struct neap_error *err)
{
	char path[4096];
	int fd = -1;
	enum neap_status status = open_page(runtime_folder, pid, path, &fd, err);
	if (status)
		return status;
	struct neap_attached *attached = malloc(sizeof *attached);
	status = attached ? read_page(fd, pid, attached, err) : neap_fail(err, NEAP_ENOMEM, "out of memory");
	if (!status)
		memcpy(ret_attached, attached, used_bytes(attached));
	else if (status != NEAP_ENOENT && status != NEAP_ENOMEM)
		neap_error_prefix(err, "reading the statistics page %s", path);
	free(attached);
	close(fd);
	return status;
}

/* The PID of "PID.SUFFIX"; 0 if the name has another form. */
static pid_t pid_of(const char *name, const char *suffix)
{
	char *end;
	if (name[0] < '1' || name[0] > '9')
		return 0;
	errno = 0;
	long pid = strtol(name, &end, 10);
	return errno == 0 && pid <= INT32_MAX && strcmp(end, suffix) == 0 ? (pid_t)pid : 0;
}

enum neap_status neap_page_each(const char *runtime_folder, bool (*visit)(void *context, pid_t pid), void *context,
				struct neap_error *err)
{
	struct dirent *entry;
	bool more = true;
	DIR *folder = opendir(runtime_folder);
	if (!folder)
		return neap_fail_errno(err, errno, "reading the runtime folder %s", runtime_folder);
	for (int seen = 0; more && seen < RUNTIME_ENTRIES && (entry = readdir(folder)); seen++) {
		pid_t pid = pid_of(entry->d_name, ".page");
		more = pid == 0 || visit(context, pid);
	}
	closedir(folder);
	return NEAP_OK;
}

int neap_page_making_begin(const char *runtime_folder)
{
	int fd = open(runtime_folder, O_RDONLY | O_DIRECTORY | O_CLOEXEC);
	for (int tries = 0; fd >= 0 && flock(fd, LOCK_SH | LOCK_NB) != 0; tries++) {
		if ((errno != EWOULDBLOCK && errno != EINTR) || tries == MAKING_TRIES) {
			close(fd);
			return -1;
		}
		neap_clock_sleep(neap_clock_system(), NEAP_NS_PER_MS);
	}
	return fd;
}

void neap_page_making_end(int held)
{
	if (held < 0)
		return;
	flock(held, LOCK_UN); /* a child forked meanwhile has the same description */
	close(held);
}

/* Whether PID.page is gone, or its process is. A dead process's lock is free, or held only by its forked child or by
 * a mapping that the kernel has not removed yet. */
static bool is_left(const char *path, pid_t pid)
{
	struct neap_page head;
	int fd = open(path, O_RDONLY | O_NOFOLLOW | O_NONBLOCK | O_CLOEXEC);
	if (fd < 0)
		return errno == ENOENT;
	bool left = flock(fd, LOCK_SH | LOCK_NB) == 0 ||
		    (pread_all(fd, &head, offsetof(struct neap_page, devices), 0) &&
		     check_head(&head, pid, NULL) == NEAP_OK && !neap_process_alive(pid, head.start_ticks));
	close(fd);
	return left;
}

/* The caller has just found that the process exited. By now a new process may own these file names, so check again
 * while no process can create files. */
static void remove_leftovers(int folder_fd, const char *runtime_folder, pid_t pid)
{
	char page[4096], socket[4096];
	if (path_of(page, sizeof page, runtime_folder, pid, ".page", NULL) != NEAP_OK ||
	    path_of(socket, sizeof socket, runtime_folder, pid, ".sock", NULL) != NEAP_OK ||
	    flock(folder_fd, LOCK_EX | LOCK_NB) != 0)
		return;
	if (is_left(page, pid)) {
		unlink(page);
		unlink(socket);
	}
	flock(folder_fd, LOCK_UN);
}

/* The recording of a process that exited is kept here for a day, because it may explain a crash. */
static void remove_old_record(const char *runtime_folder, const char *name)
{
	char path[4096];
	struct stat info;
	struct neap_process process;
	pid_t pid = pid_of(name, ".record");
	uint64_t now_s = neap_wall_ns() / NEAP_NS_PER_S;
	if (pid == 0 || neap_path_join(path, sizeof path, runtime_folder, name) != NEAP_OK ||
	    lstat(path, &info) != 0 || !S_ISREG(info.st_mode) ||
	    (uint64_t)info.st_mtime + RECORD_KEEP_S >= now_s) /* most are young: no need to read the process then */
		return;
	if (neap_process_read(pid, &process, NULL) != NEAP_OK)
		unlink(path);
}

static int compare_pids(const void *a, const void *b)
{
	const pid_t *one = a, *two = b;
	return (*one > *two) - (*one < *two);
}

/* The PIDs of the pages in the folder, sorted: pages are large, and do not move once they are read. */
static enum neap_status list_pids(DIR *folder, const char *runtime_folder, pid_t **ret_pids, size_t *ret_count,
				  struct neap_error *err)
{
	pid_t *pids = NULL;
	size_t count = 0;
	struct dirent *entry;
	for (int seen = 0; seen < RUNTIME_ENTRIES && (entry = readdir(folder)); seen++) {
		remove_old_record(runtime_folder, entry->d_name);
		pid_t pid = pid_of(entry->d_name, ".page");
		if (pid == 0)
			continue;
		if (!neap_array_grow(&pids, count, sizeof *pids)) {
			free(pids);
			return neap_fail(err, NEAP_ENOMEM, "out of memory");
		}
		pids[count++] = pid;
	}
	if (count > 1)
		qsort(pids, count, sizeof *pids, compare_pids);
	*ret_pids = pids;
	*ret_count = count;
	return NEAP_OK;
}

enum neap_status neap_page_list(const char *runtime_folder, struct neap_attached **ret_attached, size_t *ret_count,
				struct neap_error *err)
{
	struct neap_attached *list = NULL;
	pid_t *pids = NULL;
	size_t pid_count = 0, count = 0;
	DIR *folder = opendir(runtime_folder);
	if (!folder)
		return neap_fail_errno(err, errno, "reading the runtime folder %s", runtime_folder);
	enum neap_status status = list_pids(folder, runtime_folder, &pids, &pid_count, err);
	for (size_t i = 0; !status && i < pid_count; i++) {
		if (!neap_array_grow(&list, count, sizeof *list)) {
			status = neap_fail(err, NEAP_ENOMEM, "out of memory");
			break;
		}
		enum neap_status one = neap_page_read(runtime_folder, pids[i], &list[count], NULL);
		if (one == NEAP_OK)
			count++;
		else if (one == NEAP_ENOENT)
			remove_leftovers(dirfd(folder), runtime_folder, pids[i]);
	}
	if (!status) {
		*ret_attached = list;
		*ret_count = count;
		list = NULL;
	}
	free(list);
	free(pids);
	closedir(folder);
	return status;
}

/* A page may contain any number, so sums saturate. */
static void add(int64_t *to, int64_t more)
{
	if (__builtin_add_overflow(*to, more, to))
		*to = more > 0 ? INT64_MAX : INT64_MIN;
}

static void add_stat(struct neap_stat *to, const struct neap_stat *from)
{
	add(&to->current, from->current);
	add(&to->peak, from->peak);
	add(&to->allocated, from->allocated);
	add(&to->freed, from->freed);
}

static void add_stats(struct neap_stats *to, const struct neap_stats *from)
{
	for (int metric = 0; metric < NEAP_METRIC_COUNT; metric++)
		for (int pool = 0; pool < NEAP_CLASS_COUNT; pool++)
			add_stat(&to->metric[metric][pool], &from->metric[metric][pool]);
	add_stat(&to->oversize_allocations, &from->oversize_allocations);
	add_stat(&to->oversize_segments, &from->oversize_segments);
	add(&to->num_alloc_retries, from->num_alloc_retries);
	add(&to->num_ooms, from->num_ooms);
	add(&to->num_sync_all_streams, from->num_sync_all_streams);
	add(&to->num_device_alloc, from->num_device_alloc);
	add(&to->num_device_free, from->num_device_free);
}

bool neap_attached_device(const struct neap_attached *attached, const unsigned char uuid[16],
			  struct neap_published *ret_published)
{
	struct neap_published sum;
	bool found = false;
	for (size_t i = 0; i < attached->device_count; i++) {
		const struct neap_published *one = &attached->devices[i];
		if (memcmp(one->device_uuid, uuid, 16) != 0)
			continue;
		if (!found) {
			sum = *one;
			found = true;
			continue;
		}
		add_stats(&sum.stats, &one->stats);
		if (one->context_bytes > sum.context_bytes)
			sum.context_bytes = one->context_bytes;
		if (one->largest_free_bytes > sum.largest_free_bytes)
			sum.largest_free_bytes = one->largest_free_bytes;
		if (__builtin_add_overflow(sum.limit_bytes, one->limit_bytes, &sum.limit_bytes))
			sum.limit_bytes = UINT64_MAX;
	}
	if (found)
		*ret_published = sum;
	return found;
}

static void fill_page(struct neap_page *page, const struct neap_page_identity *identity)
{
	memcpy(page->magic, NEAP_PAGE_MAGIC, sizeof page->magic);
	page->version = NEAP_PAGE_VERSION;
	page->bytes = sizeof *page;
	page->pid = (uint64_t)identity->pid;
	page->start_ticks = identity->start_ticks;
	snprintf(page->name, sizeof page->name, "%s", identity->name);
	snprintf(page->run_id, sizeof page->run_id, "%s", identity->run_id);
	snprintf(page->series, sizeof page->series, "%s", identity->series);
	snprintf(page->record_path, sizeof page->record_path, "%s", identity->record_path);
}

/* Maps the page through a file description of its own: a mapping may outlive its process or program by a moment, and
 * would hold the lock for as long. Returns an errno. */
static int map_page(const char *path, void **ret_map)
{
	int fd = neap_fd_above_standard(open(path, O_RDWR | O_NOFOLLOW | O_CLOEXEC));
	if (fd < 0)
		return errno;
	void *map = mmap(NULL, sizeof(struct neap_page), PROT_READ | PROT_WRITE, MAP_SHARED, fd, 0);
	int error_number = map == MAP_FAILED ? errno : 0;
	close(fd);
	*ret_map = map;
	return error_number;
}

enum neap_status neap_page_create(const char *runtime_folder, const struct neap_page_identity *identity,
				  struct neap_page_owner *ret_owner, struct neap_error *err)
{
	struct neap_page_owner owner = {.fd = -1};
	struct stat info;
	char temporary[4096];
	void *map = MAP_FAILED;
	enum neap_status status = path_of(owner.path, sizeof owner.path, runtime_folder, identity->pid, ".page", err);
	if (!status)
		status = path_of(temporary, sizeof temporary, runtime_folder, identity->pid, ".page-new", err);
	if (status)
		return status;
	unlink(temporary); /* left by a process of this PID that died between the next line and rename */
	owner.fd = neap_fd_above_standard(open(temporary, O_RDWR | O_CREAT | O_EXCL | O_NOFOLLOW | O_CLOEXEC, 0600));
	if (owner.fd < 0) {
		status = neap_fail_errno(err, errno, "making the statistics page %s", temporary);
		unlink(temporary); /* it was created, but no descriptor above the standard ones was left */
		return status;
	}
	int error_number;
	do /* a host's signals, a profiler's say, interrupt it */
		error_number = posix_fallocate(owner.fd, 0, sizeof(struct neap_page));
	while (error_number == EINTR);
	if (error_number == 0)
		error_number = map_page(temporary, &map);
	if (error_number == 0) {
		fill_page(map, identity);
		if (flock(owner.fd, LOCK_EX | LOCK_NB) != 0 || rename(temporary, owner.path) != 0)
			error_number = errno;
	}
	if (error_number != 0) {
		status = neap_fail_errno(err, error_number, "making the statistics page %s", owner.path);
		if (map != MAP_FAILED)
			munmap(map, sizeof(struct neap_page));
		close(owner.fd);
		unlink(temporary);
		return status;
	}
	owner.page = map;
	if (fstat(owner.fd, &info) == 0) {
		owner.device = info.st_dev;
		owner.inode = info.st_ino;
	}
	*ret_owner = owner;
	return NEAP_OK;
}

void neap_page_note(struct neap_page_owner *owner, const char *note)
{
	if (owner->page)
		snprintf(owner->page->note, sizeof owner->page->note, "%s", note);
}

struct neap_published *neap_page_slot(struct neap_page_owner *owner)
{
	for (size_t i = 0; i < NEAP_PAGE_DEVICES; i++)
		if (!slot_used(&owner->page->devices[i]))
			return &owner->page->devices[i];
	return NULL;
}

void neap_page_show(struct neap_page_owner *owner, const struct neap_published *slot)
{
	uint64_t count = (uint64_t)(slot - owner->page->devices) + 1;
	if (count > owner->page->device_count)
		__atomic_store_n(&owner->page->device_count, count, __ATOMIC_RELEASE);
}

void neap_page_hide(struct neap_page_owner *owner, struct neap_published *slot)
{
	(void)owner;
	/* The sequence continues, so that a reader in between notices. Writes the words as allocators do. */
	uint64_t *words = (uint64_t *)slot;
	uint64_t odd = words[0] | 1;
	__atomic_store_n(&words[0], odd, __ATOMIC_RELEASE);
	for (size_t i = 1; i < sizeof *slot / sizeof *words; i++)
		__atomic_store_n(&words[i], 0, __ATOMIC_RELEASE);
	__atomic_store_n(&words[0], odd + 1, __ATOMIC_RELEASE);
}

static void close_own(const struct neap_page_owner *owner)
{
	struct stat info;
	if (fstat(owner->fd, &info) == 0 && info.st_dev == owner->device && info.st_ino == owner->inode)
		close(owner->fd);
}

void neap_page_destroy(struct neap_page_owner *owner, bool unmap)
{
	if (!owner->page)
		return;
	unlink(owner->path);
	if (!unmap)
		return;
	munmap(owner->page, sizeof *owner->page);
	close_own(owner);
	*owner = (struct neap_page_owner){.fd = -1};
}

void neap_page_abandon(struct neap_page_owner *owner)
{
	if (!owner->page)
		return;
	/* Ignore a failure: the child must not use the parent's allocators anyway. */
	(void)!mmap(owner->page, sizeof *owner->page, PROT_READ | PROT_WRITE, MAP_PRIVATE | MAP_ANONYMOUS | MAP_FIXED,
		    -1, 0);
	close_own(owner);
	*owner = (struct neap_page_owner){.fd = -1};
}
