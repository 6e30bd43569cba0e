/* run/tee.c: see tee.h. */
#include "run/tee.h"

#include "base/clock.h"
#include "base/descriptor.h"
#include "base/spawn.h"
#include "run/last_output.h"

#include <errno.h>
#include <fcntl.h>
#include <poll.h>
#include <stdatomic.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/ioctl.h>
#include <sys/mman.h>
#include <sys/prctl.h>
#include <sys/stat.h>
#include <sys/sysmacros.h>
#include <unistd.h>

#define FLUSH_NS    NEAP_NS_PER_S
#define POLL_NS     (NEAP_NS_PER_MS / 2)
#define PIPE_FD     3  /* the pipe's descriptor in the tee's process */
#define READER_GONE 17 /* exit status: our output has no reader any more */

struct neap_tee_ring {
	/* How many bytes passed since the start; `bytes` has the last NEAP_LAST_READ_BYTES of them */
	_Atomic uint64_t passed;
	_Atomic bool busy; /* the tee has read bytes that it has not passed on yet */
	char bytes[NEAP_LAST_READ_BYTES];
};

/* Writes all bytes, also to a nonblocking reader. False: the reader is gone. Bytes that cannot be written (a full
 * disk) are dropped, so that the command never waits. */
static bool pass_on(const char *bytes, size_t length)
{
	while (length > 0) {
		ssize_t written = write(STDERR_FILENO, bytes, length);
		if (written > 0) {
			bytes += written;
			length -= (size_t)written;
		} else if (written < 0 && errno == EAGAIN) {
			struct pollfd fd = {.fd = STDERR_FILENO, .events = POLLOUT};
			poll(&fd, 1, -1);
		} else if (written < 0 && (errno == EPIPE || errno == ECONNRESET)) {
			return false;
		} else if (written == 0 || errno != EINTR) {
			return true;
		}
	}
	return true;
}

static void keep(struct neap_tee_ring *ring, const char *bytes, size_t length)
{
	uint64_t passed = atomic_load(&ring->passed);
	for (size_t i = 0; i < length; i++)
		ring->bytes[(passed + i) % sizeof ring->bytes] = bytes[i];
	atomic_store(&ring->passed, passed + length);
}

/* The tee's process. Closes everything but its pipe and our stderr, so that it keeps no lock and no device. Ignores
 * signals sent to the whole group or session: it ends after the last writer. */
static int serve(void *context)
{
	static char bytes[16384];
	const struct neap_tee *tee_process = context;
	struct neap_tee_ring *ring = tee_process->ring;
	const int kept = PIPE_FD;
	prctl(PR_SET_NAME, "neap-tee");
	if (tee_process->read_fd != PIPE_FD)
		dup2(tee_process->read_fd, PIPE_FD);
	neap_spawn_close_others(&kept, 1);
	if (chdir("/"))
		errno = 0;
	struct pollfd fd = {.fd = PIPE_FD, .events = POLLIN};
	for (;;) {
		if (poll(&fd, 1, -1) < 0)
			continue;
		atomic_store(&ring->busy, true);
		ssize_t got = read(PIPE_FD, bytes, sizeof bytes);
		if (got > 0)
			keep(ring, bytes, (size_t)got);
		bool passed = got <= 0 || pass_on(bytes, (size_t)got);
		atomic_store(&ring->busy, false);
		if (!passed)
			return READER_GONE;
		if (!got || (got < 0 && errno != EINTR && errno != EAGAIN))
			return 0;
	}
}

static bool is_of_use(bool *ret_both)
{
	struct stat err, out;
	if (fstat(STDERR_FILENO, &err))
		return false;
	*ret_both = S_ISFIFO(err.st_mode) || S_ISSOCK(err.st_mode);
	bool null = S_ISCHR(err.st_mode) && err.st_rdev == makedev(1, 3);
	bool of_use = *ret_both || null;
	*ret_both = *ret_both && !fstat(STDOUT_FILENO, &out) && out.st_dev == err.st_dev && out.st_ino == err.st_ino;
	return of_use;
}

static void start(struct neap_tee *tee_process)
{
	pid_t pid = 0;
	neap_spawn(&(struct neap_spawn){.doing = "passing output on",
					.run = serve,
					.context = tee_process,
					.fds = {NEAP_SPAWN_NULL, NEAP_SPAWN_NULL},
					.place = NEAP_SPAWN_OWN_SESSION,
					.blocked = true},
		   &pid, NULL);
	tee_process->pid = pid;
}

void neap_tee_start(struct neap_tee *ret_tee)
{
	struct neap_tee made = {.write_fd = -1, .read_fd = -1};
	int fds[2];
	*ret_tee = made;
	if (!is_of_use(&made.both))
		return;
	void *shared = mmap(NULL, sizeof *made.ring, PROT_READ | PROT_WRITE, MAP_SHARED | MAP_ANONYMOUS, -1, 0);
	if (shared == MAP_FAILED)
		return;
	made.ring = shared;
	if (pipe2(fds, O_CLOEXEC)) {
		munmap(shared, sizeof *made.ring);
		return;
	}
	made.read_fd = fds[0];
	made.write_fd = fds[1];
	start(&made);
	if (made.pid) {
		*ret_tee = made;
		return;
	}
	close(fds[0]);
	close(fds[1]);
	munmap(shared, sizeof *made.ring);
}

uint64_t neap_tee_passed(const struct neap_tee *tee_process)
{
	return tee_process->ring ? atomic_load(&tee_process->ring->passed) : 0;
}

void neap_tee_join(struct neap_tee *tee_process)
{
	char path[64];
	snprintf(path, sizeof path, "/proc/%d/fd/%d", (int)tee_process->pid, PIPE_FD);
	tee_process->write_fd = -1;
	tee_process->read_fd = tee_process->pid ? open(path, O_RDONLY | O_NONBLOCK | O_CLOEXEC) : -1;
}

void neap_tee_flush(const struct neap_tee *tee_process)
{
	if (!tee_process->ring)
		return;
	const struct neap_deadline end = neap_deadline_in(neap_clock_system(), FLUSH_NS);
	while (tee_process->pid && !neap_deadline_over(&end)) {
		int waiting = 0;
		/* The order matters: bytes that have left the pipe were read by a tee that is busy until it has
		 * passed them on. */
		if (tee_process->read_fd < 0 || (!ioctl(tee_process->read_fd, FIONREAD, &waiting) && !waiting &&
						 !atomic_load(&tee_process->ring->busy)))
			return;
		neap_clock_sleep(end.clock, POLL_NS);
	}
}

size_t neap_tee_read(const struct neap_tee *tee_process, uint64_t from, char *ret_text, size_t capacity)
{
	uint64_t passed = neap_tee_passed(tee_process), length = passed > from ? passed - from : 0;
	if (length > NEAP_LAST_READ_BYTES)
		length = NEAP_LAST_READ_BYTES;
	if (length > capacity)
		length = capacity;
	for (uint64_t i = 0; i < length; i++)
		ret_text[i] = tee_process->ring->bytes[(passed - length + i) % NEAP_LAST_READ_BYTES];
	return (size_t)length;
}

void neap_tee_reaped(struct neap_tee *tee_process, pid_t pid, int wait_status)
{
	if (!tee_process->pid || pid != tee_process->pid)
		return;
	tee_process->pid = 0;
	if (tee_process->read_fd < 0)
		return;
	atomic_store(&tee_process->ring->busy, false);
	if (!WIFEXITED(wait_status))
		return; /* the tee was killed: neap_tee_keep_up starts another */
	neap_fd_close(&tee_process->read_fd);
}

void neap_tee_keep_up(struct neap_tee *tee_process)
{
	if (tee_process->ring && !tee_process->pid && tee_process->read_fd >= 0)
		start(tee_process);
}

void neap_tee_end(struct neap_tee *tee_process)
{
	int code;
	if (!tee_process->ring)
		return;
	neap_fd_close(&tee_process->write_fd);
	if (tee_process->pid)
		neap_spawn_wait(tee_process->pid, neap_deadline_in(neap_clock_system(), FLUSH_NS), &code);
	neap_fd_close(&tee_process->read_fd);
	munmap(tee_process->ring, sizeof *tee_process->ring);
	*tee_process = (struct neap_tee){.write_fd = -1, .read_fd = -1};
}
