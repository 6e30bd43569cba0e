/* base/descriptor.h: keeps the standard descriptors, 0 to 2, free for the program's input and output.
 *
 * If one of them is closed, the next file that is opened gets its number, and the program's output goes into that
 * file. So the neap command first opens /dev/null there. Inside a program that closed them itself they stay closed,
 * and neap keeps no file under those numbers. Any thread.
 */
#ifndef NEAP_BASE_DESCRIPTOR_H
#define NEAP_BASE_DESCRIPTOR_H

#include <errno.h>
#include <fcntl.h>
#include <sys/stat.h>
#include <unistd.h>

/* Returns a descriptor above 2 of the same open file. If `fd` is 0 to 2, closes it and returns a new descriptor,
 * which exec closes. Returns a negative number, with errno, if `fd` is negative or no descriptor is left. Call it on
 * each descriptor that stays open after its function returns, or that is open for writing. */
static inline int neap_fd_above_standard(int fd)
{
	if (fd < 0 || fd > STDERR_FILENO)
		return fd;
	int above = fcntl(fd, F_DUPFD_CLOEXEC, STDERR_FILENO + 1), cause = errno;
	close(fd);
	errno = cause;
	return above;
}

/* Closes *fd, if it is one, and sets it to -1. */
static inline void neap_fd_close(int *fd)
{
	if (*fd >= 0)
		close(*fd);
	*fd = -1;
}

/* Opens /dev/null on each standard descriptor that is closed. A program calls it before anything else. */
static inline void neap_fd_open_standard(void)
{
	struct stat info;
	for (int fd = STDIN_FILENO; fd <= STDERR_FILENO; fd++)
		if (fstat(fd, &info) && errno == EBADF && open("/dev/null", O_RDWR) != fd)
			return; /* there is no /dev/null */
}

#endif
