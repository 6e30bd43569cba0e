/* device/visible.c: a child asks the driver and answers through a pipe: one struct, whole or not at all (it is
 * smaller than PIPE_BUF). */
#include "device/visible.h"

#include "base/clock.h"
#include "base/error.h"
#include "device/driver.h"
#include "device/loader.h"

#include <errno.h>
#include <fcntl.h>
#include <limits.h>
#include <poll.h>
#include <signal.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/prctl.h>
#include <sys/wait.h>
#include <unistd.h>

/* A process needs a moment to close the driver. If it hangs there, it never ends: wait no longer than this. */
#define END_NS (10 * NEAP_NS_PER_S)

struct answer {
	struct neap_error err; /* status NEAP_OK: the UUID is there */
	unsigned char uuid[16];
};

bool neap_visible_names_mig(const char *list)
{
	while (list && *list) {
		list += strspn(list, " \t,");
		if (strncmp(list, "MIG-", 4) == 0)
			return true;
		list += strcspn(list, ",");
	}
	return false;
}

/* The child inherits blocked signals and handlers for this short time. It runs none of the parent's exit handlers,
 * and ends with the parent at the latest. It closes the parent's files: otherwise it would hold the parent's locks
 * for as long as it hangs in the driver. */
static _Noreturn void ask(enum neap_backend backend, int fd, pid_t parent)
{
	struct answer answer = {0};
	struct neap_driver *driver = NULL;
	CUdevice device = 0;
	CUuuid uuid = {{0}};

	prctl(PR_SET_PDEATHSIG, SIGKILL);
	if (getppid() != parent) /* it died before the line above */
		_exit(1);
	if (fd > STDERR_FILENO + 1)
		close_range(STDERR_FILENO + 1, (unsigned)fd - 1, 0);
	if (fd > STDERR_FILENO)
		close_range((unsigned)fd + 1, UINT_MAX, 0);
	if (neap_driver_open(backend, &driver, &answer.err) == NEAP_OK) {
		const struct neap_cuda *cuda = neap_driver_cuda(driver);
		CUresult result = cuda->cuDeviceGet(&device, 0);
		if (result == CUDA_SUCCESS)
			result = cuda->cuDeviceGetUuid(&uuid, device);
		if (result != CUDA_SUCCESS)
			neap_cuda_fail(cuda, result, &answer.err, "asking for the first device's UUID");
		memcpy(answer.uuid, uuid.bytes, sizeof answer.uuid);
	}
	ssize_t written = write(fd, &answer, sizeof answer);
	_exit(written == (ssize_t)sizeof answer ? 0 : 1);
}

/* Reads the answer within the time; false: there is none. */
static bool listen_for(int fd, uint64_t limit_ns, struct answer *ret_answer)
{
	const struct neap_deadline end = neap_deadline_in(neap_clock_system(), limit_ns);
	size_t length = 0;

	while (length < sizeof *ret_answer) {
		struct pollfd wait = {.fd = fd, .events = POLLIN};
		if (neap_deadline_over(&end))
			return false;
		int ready = poll(&wait, 1, neap_deadline_poll_ms(&end));
		if (ready < 0 && errno != EINTR)
			return false;
		if (ready <= 0)
			continue;
		ssize_t got = read(fd, (char *)ret_answer + length, sizeof *ret_answer - length);
		if (got == 0 || (got < 0 && errno != EINTR))
			return false;
		length += got > 0 ? (size_t)got : 0;
	}
	ret_answer->err.message[sizeof ret_answer->err.message - 1] = '\0';
	return true;
}

/* False: the child hangs in the driver, where no signal reaches it. */
static bool wait_for_end(pid_t child)
{
	const struct neap_deadline end = neap_deadline_in(neap_clock_system(), END_NS);

	for (;;) {
		pid_t ended = waitpid(child, NULL, WNOHANG);
		if (ended == child || (ended < 0 && errno != EINTR))
			return true;
		if (neap_deadline_over(&end))
			return false;
		neap_clock_sleep(end.clock, NEAP_NS_PER_MS);
	}
}

enum neap_status neap_visible_first(enum neap_backend backend, uint64_t limit_ns, char ret_uuid_text[48],
				    struct neap_error *err)
{
	struct answer answer = {0};
	int ends[2];

	if (neap_visible_names_mig(getenv("CUDA_VISIBLE_DEVICES")))
		return neap_fail(err, NEAP_ENOTSUP,
				 "CUDA_VISIBLE_DEVICES names a MIG instance: neap accounts for whole devices only");
	if (pipe2(ends, O_CLOEXEC))
		return neap_fail_errno(err, errno, "asking which device is the first: making a pipe");
	pid_t parent = getpid(), child = fork();
	if (child < 0) {
		int number = errno;
		close(ends[0]);
		close(ends[1]);
		return neap_fail_errno(err, number, "asking which device is the first: starting a process");
	}
	if (child == 0)
		ask(backend, ends[1], parent);
	close(ends[1]);
	bool answered = listen_for(ends[0], limit_ns, &answer);
	close(ends[0]);
	if (!answered)
		kill(child, SIGKILL); /* its own child, not yet waited for: no other process has the PID */
	bool ended = wait_for_end(child);
	if (!answered && !ended)
		return neap_fail(
			err, NEAP_ETIMEDOUT,
			"the driver did not say which device is the first: process %d, which asked, hangs in it "
			"and cannot be ended",
			(int)child);
	if (!answered)
		return neap_fail(err, NEAP_ETIMEDOUT, "the driver did not say which device is the first");
	if (answer.err.status != NEAP_OK) {
		if (err)
			*err = answer.err;
		return answer.err.status;
	}
	neap_uuid_format(answer.uuid, ret_uuid_text);
	return NEAP_OK;
}
