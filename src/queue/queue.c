/* queue/queue.c: see queue.h. */
#include "queue/queue.h"

#include "base/clock.h"
#include "base/descriptor.h"
#include "base/error.h"
#include "base/file.h"
#include "base/owner.h"
#include "base/paths.h"
#include "base/process.h"
#include "base/units.h"

#include <dirent.h>
#include <errno.h>
#include <fcntl.h>
#include <inttypes.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/file.h>
#include <sys/stat.h>
#include <sys/utsname.h>
#include <unistd.h>

#define NAME_CAPACITY 24
#define NUMBER_MOST   (1ull << 53)
#define LOCK_BYTES    64
#define LOCK_PAUSE_NS NEAP_NS_PER_MS

/* --- the folder --- */

/* Checks that the folder is our own, or one in which others cannot change our files. */
static enum neap_status check_folder(const char *path, int fd, struct neap_error *err)
{
	struct stat info;
	if (fstat(fd, &info))
		return neap_fail_errno(err, errno, "looking at the queue %.150s", path);
	bool theirs = info.st_uid != geteuid() && info.st_uid != 0;
	if (theirs || (info.st_mode & 022 && !(info.st_mode & S_ISVTX)))
		return neap_fail(err, NEAP_EPERM,
				 "the queue %.120s %s: a shared one is made by root, with chmod 1777", path,
				 theirs ? "belongs to another user" : "lets others change the tickets in it");
	return NEAP_OK;
}

/* Makes a file with exactly this mode, whatever the umask. (With fchmod instead, a kill before it could leave a file
 * that others cannot open.) */
static int make_file(const struct neap_queue *queue, const char *name, mode_t mode)
{
	mode_t before = umask(0);
	int fd =
		openat(queue->folder_fd, name, O_RDWR | O_CREAT | O_EXCL | O_NOFOLLOW | O_NONBLOCK | O_CLOEXEC, mode);
	int cause = errno;
	umask(before);
	errno = cause;
	return fd;
}

static enum neap_status open_lock(struct neap_queue *queue, struct neap_error *err)
{
	static const char name[] = "lock";
	const int flags = O_RDWR | O_CLOEXEC | O_NOFOLLOW | O_NONBLOCK;
	struct stat folder, info;
	int fd = openat(queue->folder_fd, name, flags);
	if (fd < 0 && errno == ENOENT && !fstat(queue->folder_fd, &folder))
		fd = make_file(queue, name, folder.st_mode & 0666); /* O_CREAT alone fails on another user's file */
	if (fd < 0 && errno == EEXIST)
		fd = openat(queue->folder_fd, name, flags);
	if (fd < 0)
		return neap_fail_errno(err, errno, "opening %.150s/lock", queue->folder);
	queue->lock_fd = neap_fd_above_standard(fd);
	if (fstat(queue->lock_fd, &info) || !S_ISREG(info.st_mode))
		return neap_fail(err, NEAP_EPERM, "%.150s/lock is not a file", queue->folder);
	if (flock(queue->lock_fd, LOCK_SH | LOCK_NB) && neap_owner_is_needed(errno))
		return neap_fail(err, NEAP_ENOTSUP,
				 "the file system of the queue %.150s has no locks: set NEAP_QUEUE", queue->folder);
	flock(queue->lock_fd, LOCK_UN);
	return NEAP_OK;
}

static enum neap_status open_folder(const char *path, bool make, struct neap_queue *queue, struct neap_error *err)
{
	*queue = (struct neap_queue){.folder_fd = -1, .lock_fd = -1};
	if (strlen(path) >= sizeof queue->folder)
		return neap_fail(err, NEAP_EINVAL, "the queue's path is too long: %.100s", path);
	strcpy(queue->folder, path);
	enum neap_status status = make ? neap_make_folder(path, 0700, err) : NEAP_OK;
	if (status)
		return status;
	queue->folder_fd = neap_fd_above_standard(open(path, O_RDONLY | O_DIRECTORY | O_CLOEXEC));
	if (queue->folder_fd < 0)
		return neap_fail_errno(err, errno, "opening the queue %.150s", path);
	status = check_folder(path, queue->folder_fd, err);
	if (!status)
		status = open_lock(queue, err);
	if (status)
		neap_queue_close(queue);
	return status;
}

/* The queue's folder for this machine: several machines may share a home folder. */
static enum neap_status own_folder(char path[4096], struct neap_error *err)
{
	struct utsname host;
	char state[4096];
	enum neap_status status = neap_path_state(state, sizeof state, err);
	if (status)
		return status;
	if (uname(&host) || strchr(host.nodename, '/') || host.nodename[0] == '.' || !host.nodename[0])
		strcpy(host.nodename, "localhost");
	int length = snprintf(path, 4096, "%s/queue/%s", state, host.nodename);
	return length > 0 && length < 4096
		       ? NEAP_OK
		       : neap_fail(err, NEAP_EINVAL, "the queue's path is too long: %.100s", state);
}

enum neap_status neap_queue_open(enum neap_backend backend, struct neap_queue *ret_queue, struct neap_error *err)
{
	const char *named = getenv("NEAP_QUEUE");
	char path[4096];
	struct stat info;
	if (named && *named)
		return open_folder(named, false, ret_queue, err);
	if (backend != NEAP_BACKEND_SIM && !stat(NEAP_QUEUE_SHARED, &info))
		return open_folder(NEAP_QUEUE_SHARED, false, ret_queue, err);
	enum neap_status status = own_folder(path, err);
	if (!status)
		status = open_folder(path, true, ret_queue, err);
	if (status != NEAP_ENOTSUP)
		return status;
	char runtime[4096];
	status = neap_path_runtime(runtime, sizeof runtime, err);
	if (!status)
		status = neap_path_join(path, sizeof path, runtime, "queue");
	return status ? status : open_folder(path, true, ret_queue, err);
}

void neap_queue_close(struct neap_queue *queue)
{
	if (!queue || !queue->folder[0])
		return;
	neap_fd_close(&queue->lock_fd);
	neap_fd_close(&queue->folder_fd);
	*queue = (struct neap_queue){.folder_fd = -1, .lock_fd = -1};
}

/* --- the lock --- */

/* Reads the lock's file; another user may have written it. */
static void read_lock(const struct neap_queue *queue, uint64_t *ret_last, int *ret_pid)
{
	char text[LOCK_BYTES + 1] = "";
	uint64_t last = 0;
	int pid = 0;
	ssize_t got = pread(queue->lock_fd, text, LOCK_BYTES, 0);
	text[got > 0 ? got : 0] = '\0';
	if (sscanf(text, "%20" SCNu64 " %10d", &last, &pid) != 2 || last >= NUMBER_MOST || pid < 0)
		last = 0;
	*ret_last = last;
	*ret_pid = pid;
}

static enum neap_status write_lock(const struct neap_queue *queue, uint64_t last, struct neap_error *err)
{
	char text[LOCK_BYTES + 1];
	snprintf(text, sizeof text, "%020" PRIu64 " %010d\n", last, (int)getpid());
	if (pwrite(queue->lock_fd, text, strlen(text), 0) != (ssize_t)strlen(text))
		return neap_fail_errno(err, errno, "writing %.150s/lock", queue->folder);
	return NEAP_OK;
}

static enum neap_status fail_locked(const struct neap_queue *queue, struct neap_error *err)
{
	struct neap_process process = {0};
	uint64_t last;
	int pid;
	read_lock(queue, &last, &pid);
	bool stopped =
		pid > 0 && !neap_process_read(pid, &process, NULL) && (process.state == 'T' || process.state == 't');
	return neap_fail(err, NEAP_EBUSY, "the queue %.120s is locked, it seems by process %d%s", queue->folder, pid,
			 stopped ? ": it is stopped, continue or end it" : "");
}

/* Whether the open file still has its name. False: its owner removed it, or another file has taken the name. */
static bool has_name(const struct neap_queue *queue)
{
	struct stat ours, named;
	return !fstat(queue->lock_fd, &ours) && !fstatat(queue->folder_fd, "lock", &named, AT_SYMLINK_NOFOLLOW) &&
	       ours.st_dev == named.st_dev && ours.st_ino == named.st_ino;
}

enum neap_status neap_queue_lock(struct neap_queue *queue, uint64_t limit_ns, struct neap_error *err)
{
	const struct neap_deadline end = neap_deadline_in(neap_clock_system(), limit_ns);
	enum neap_status status = NEAP_OK;
	uint64_t last;
	int pid;
	for (;;) {
		if (queue->lock_fd < 0 && (status = open_lock(queue, err))) {
			neap_fd_close(&queue->lock_fd);
			return status;
		}
		bool locked = !flock(queue->lock_fd, LOCK_EX | LOCK_NB);
		if (locked && has_name(queue))
			break;
		if (!locked && errno != EWOULDBLOCK && errno != EINTR)
			return neap_fail_errno(err, errno, "locking %.150s/lock", queue->folder);
		if (neap_deadline_over(&end))
			return fail_locked(queue, err);
		if (locked)
			neap_fd_close(&queue->lock_fd);
		else
			neap_clock_sleep(end.clock, LOCK_PAUSE_NS);
	}
	read_lock(queue, &last, &pid);
	write_lock(queue, last, NULL); /* so that the next process can say who had the lock */
	return NEAP_OK;
}

void neap_queue_unlock(struct neap_queue *queue) { flock(queue->lock_fd, LOCK_UN); }

/* --- tickets --- */

static void name_of(uint64_t number, char name[NAME_CAPACITY]) { snprintf(name, NAME_CAPACITY, "%" PRIu64, number); }

static bool number_of(const char *name, uint64_t *ret_number)
{
	return *name >= '1' && *name <= '9' && !neap_u64_parse(name, ret_number, NULL) && *ret_number < NUMBER_MOST;
}

/* A write lock on the whole file. Only the owner of a ticket can hold one, since nobody else can open it for
 * writing. */
static struct flock whole_file(short type) { return (struct flock){.l_type = type, .l_whence = SEEK_SET}; }

static bool lock_ticket(int fd)
{
	struct flock lock = whole_file(F_WRLCK);
	return !fcntl(fd, F_OFD_SETLK, &lock);
}

static bool is_locked(int fd)
{
	struct flock lock = whole_file(F_RDLCK);
	return fcntl(fd, F_OFD_GETLK, &lock) || lock.l_type != F_UNLCK;
}

/* False: it is no ticket. */
static bool read_ticket(const struct neap_queue *queue, uint64_t number, struct neap_ticket *ticket)
{
	char name[NAME_CAPACITY], bytes[NEAP_TICKET_BYTES];
	struct stat info;
	name_of(number, name);
	int fd = openat(queue->folder_fd, name, O_RDONLY | O_NOFOLLOW | O_NONBLOCK | O_CLOEXEC);
	if (fd < 0)
		return false;
	bool whole = !fstat(fd, &info) && S_ISREG(info.st_mode) && info.st_size == NEAP_TICKET_BYTES &&
		     pread(fd, bytes, sizeof bytes, 0) == NEAP_TICKET_BYTES && !neap_ticket_read(bytes, ticket, NULL);
	bool alive = is_locked(fd);
	close(fd);
	/* an empty file of ours: a process was killed while it made its ticket. Other files are not ours to judge */
	if (!whole && !alive && S_ISREG(info.st_mode) && !info.st_size && info.st_uid == geteuid())
		unlinkat(queue->folder_fd, name, 0);
	if (!whole)
		return false;
	ticket->number = number;
	ticket->uid = info.st_uid;
	ticket->written_wall_ns = (uint64_t)info.st_mtim.tv_sec * NEAP_NS_PER_S + (uint64_t)info.st_mtim.tv_nsec;
	ticket->alive = alive;
	return true;
}

static int by_order(const void *a, const void *b)
{
	const struct neap_ticket *first = a, *second = b;
	if (first->order != second->order)
		return first->order < second->order ? -1 : 1;
	return first->number < second->number ? -1 : first->number > second->number;
}

static enum neap_status add_ticket(struct neap_queue *queue, uint64_t number, struct neap_tickets *tickets,
				   struct neap_error *err)
{
	struct neap_ticket ticket;
	if (!read_ticket(queue, number, &ticket))
		return NEAP_OK;
	if (!ticket.alive && (!ticket.added || ticket.dropped)) {
		if (ticket.uid == geteuid() || !geteuid())
			neap_queue_remove(queue, number);
		return NEAP_OK;
	}
	if (tickets->count == NEAP_QUEUE_TICKETS)
		return neap_fail(err, NEAP_EBUSY, "the queue %.150s has more than %d tickets", queue->folder,
				 NEAP_QUEUE_TICKETS);
	tickets->items[tickets->count++] = ticket;
	return NEAP_OK;
}

enum neap_status neap_queue_read(struct neap_queue *queue, struct neap_tickets *ret_tickets, struct neap_error *err)
{
	struct neap_tickets tickets = {.items = calloc(NEAP_QUEUE_TICKETS, sizeof *tickets.items)};
	int fd = openat(queue->folder_fd, ".", O_RDONLY | O_DIRECTORY | O_CLOEXEC);
	DIR *folder = fd >= 0 ? fdopendir(fd) : NULL;
	enum neap_status status = NEAP_OK;
	if (!tickets.items || !folder) {
		status = neap_fail_errno(err, errno, "reading the queue %.150s", queue->folder);
		if (fd >= 0 && !folder)
			close(fd);
	}
	while (!status) {
		uint64_t number;
		errno = 0;
		struct dirent *entry = readdir(folder);
		if (!entry && errno)
			status = neap_fail_errno(err, errno, "reading the queue %.150s", queue->folder);
		if (!entry)
			break;
		if (number_of(entry->d_name, &number))
			status = add_ticket(queue, number, &tickets, err);
	}
	if (folder)
		closedir(folder);
	if (status) {
		free(tickets.items);
		return status;
	}
	qsort(tickets.items, tickets.count, sizeof *tickets.items, by_order);
	*ret_tickets = tickets;
	return NEAP_OK;
}

struct neap_ticket *neap_tickets_find(const struct neap_tickets *tickets, uint64_t number)
{
	for (size_t i = 0; i < tickets->count; i++)
		if (tickets->items[i].number == number)
			return &tickets->items[i];
	return NULL;
}

static enum neap_status write_ticket(int fd, const struct neap_ticket *ticket, struct neap_error *err)
{
	char bytes[NEAP_TICKET_BYTES];
	enum neap_status status = neap_ticket_write(ticket, bytes, err);
	if (status)
		return status;
	ssize_t wrote = pwrite(fd, bytes, sizeof bytes, 0);
	if (wrote != NEAP_TICKET_BYTES)
		return neap_fail_errno(err, wrote < 0 ? errno : ENOSPC, "writing ticket %" PRIu64 " of the queue",
				       ticket->number);
	return NEAP_OK;
}

/* Checks that the queue has room for one more ticket, in a shared queue also for one more of this user. */
static enum neap_status check_room(const struct neap_queue *queue, const struct neap_tickets *tickets,
				   struct neap_error *err)
{
	struct stat folder;
	size_t mine = 0;
	if (tickets->count == NEAP_QUEUE_TICKETS)
		return neap_fail(err, NEAP_EBUSY, "the queue %.150s has %d tickets already", queue->folder,
				 NEAP_QUEUE_TICKETS);
	for (size_t i = 0; i < tickets->count; i++)
		mine += tickets->items[i].uid == geteuid();
	if (mine >= NEAP_QUEUE_SHARE && !fstat(queue->folder_fd, &folder) && folder.st_uid != geteuid())
		return neap_fail(err, NEAP_EBUSY, "the queue %.150s has %d tickets of yours already", queue->folder,
				 NEAP_QUEUE_SHARE);
	return NEAP_OK;
}

enum neap_status neap_queue_claim(struct neap_queue *queue, struct neap_ticket *ticket, int *ret_fd,
				  struct neap_error *err)
{
	struct neap_tickets tickets = {0};
	char name[NAME_CAPACITY];
	uint64_t last;
	int pid, fd = -1;
	enum neap_status status = neap_queue_read(queue, &tickets, err);
	if (status)
		return status;
	read_lock(queue, &last, &pid);
	for (size_t i = 0; i < tickets.count; i++)
		last = tickets.items[i].number > last ? tickets.items[i].number : last;
	status = check_room(queue, &tickets, err);
	free(tickets.items);
	while (!status && fd < 0) { /* a file of that name exists: no ticket, or one that we cannot see */
		name_of(++last, name);
		fd = neap_fd_above_standard(make_file(queue, name, 0644)); /* others read what was promised */
		if (fd < 0 && errno != EEXIST)
			status = neap_fail_errno(err, errno, "making ticket %s in the queue %.120s", name,
						 queue->folder);
	}
	if (status)
		return status;
	ticket->number = ticket->order = last;
	ticket->uid = geteuid();
	if (!lock_ticket(fd))
		status = neap_fail_errno(err, errno, "locking ticket %s of the queue %.120s", name, queue->folder);
	if (!status)
		status = write_ticket(fd, ticket, err);
	if (status) {
		neap_queue_remove(queue, last);
		close(fd);
		return status;
	}
	/* If the file cannot be written, numbers may repeat once all tickets are gone */
	write_lock(queue, last, NULL);
	*ret_fd = fd;
	return NEAP_OK;
}

static enum neap_status open_ticket(const struct neap_queue *queue, uint64_t number, int *ret_fd,
				    struct neap_error *err)
{
	char name[NAME_CAPACITY];
	name_of(number, name);
	int fd = neap_fd_above_standard(openat(queue->folder_fd, name, O_RDWR | O_NOFOLLOW | O_NONBLOCK | O_CLOEXEC));
	if (fd < 0)
		return neap_fail_errno(err, errno, "opening ticket %s of the queue", name);
	*ret_fd = fd;
	return NEAP_OK;
}

enum neap_status neap_queue_take(struct neap_queue *queue, uint64_t number, int *ret_fd, struct neap_error *err)
{
	int fd = -1;
	enum neap_status status = open_ticket(queue, number, &fd, err);
	if (status)
		return status;
	if (!lock_ticket(fd)) {
		close(fd);
		return neap_fail(err, NEAP_EBUSY, "ticket %" PRIu64 " has a process", number);
	}
	*ret_fd = fd;
	return NEAP_OK;
}

enum neap_status neap_queue_write(struct neap_queue *queue, const struct neap_ticket *ticket, struct neap_error *err)
{
	int fd = -1;
	enum neap_status status = open_ticket(queue, ticket->number, &fd, err);
	if (!status)
		status = write_ticket(fd, ticket, err);
	neap_fd_close(&fd);
	return status;
}

void neap_queue_remove(struct neap_queue *queue, uint64_t number)
{
	char name[NAME_CAPACITY];
	name_of(number, name);
	unlinkat(queue->folder_fd, name, 0);
}
