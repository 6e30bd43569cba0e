/* device/visible.c: a child asks the driver and answers through a pipe: one struct, whole or not at all (it is
 * smaller than PIPE_BUF). */
#include "device/visible.h"

#include "base/clock.h"
#include "base/error.h"
#include "base/spawn.h"
#include "device/driver.h"
#include "device/loader.h"

#include <errno.h>
#include <fcntl.h>
#include <poll.h>
#include <signal.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <unistd.h>

/* A process needs a moment to close the driver. If it hangs there, it never ends: wait no longer than this. */
#define END_NS (10 * NEAP_NS_PER_S)

struct answer {
	struct neap_error err; /* status NEAP_OK: the UUID is there */
	unsigned char uuid[16];
};

struct question {
	enum neap_backend backend;
	int fd; /* for the answer */
};

/* The child blocks all signals, runs none of the parent's exit handlers, and ends with the parent at the latest. It
 * closes the parent's files: otherwise it would hold the parent's locks for as long as it hangs in the driver. */
static int ask(void *context)
{
	const struct question *question = context;
	struct answer answer = {0};
	struct neap_driver *driver = NULL;
	CUdevice device = 0;
	CUuuid uuid = {{0}};

	neap_spawn_close_others(&question->fd, 1);
	if (neap_driver_open(question->backend, &driver, &answer.err) == NEAP_OK) {
		const struct neap_cuda *cuda = neap_driver_cuda(driver);
		CUresult result = cuda->cuDeviceGet(&device, 0);
		if (result == CUDA_SUCCESS)
			result = cuda->cuDeviceGetUuid(&uuid, device);
		if (result != CUDA_SUCCESS)
			neap_cuda_fail(cuda, result, &answer.err, "asking for the first device's UUID");
		memcpy(answer.uuid, uuid.bytes, sizeof answer.uuid);
	}
	return write(question->fd, &answer, sizeof answer) == (ssize_t)sizeof answer ? 0 : 1;
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

enum neap_status neap_visible_first(enum neap_backend backend, uint64_t limit_ns, char ret_uuid_text[48],
				    struct neap_error *err)
{
	struct answer answer = {0};
	int ends[2], code;
	pid_t child;

	if (neap_driver_names_mig(getenv("CUDA_VISIBLE_DEVICES")))
		return neap_fail(err, NEAP_ENOTSUP,
				 "CUDA_VISIBLE_DEVICES names a MIG instance: neap accounts for whole devices only");
	if (pipe2(ends, O_CLOEXEC))
		return neap_fail_errno(err, errno, "asking which device is the first: making a pipe");
	enum neap_status status =
		neap_spawn(&(struct neap_spawn){.doing = "asking which device is the first: starting a process",
						.run = ask,
						.context = &(struct question){backend, ends[1]},
						.death_signal = SIGKILL,
						.blocked = true},
			   &child, err);
	close(ends[1]);
	bool answered = !status && listen_for(ends[0], limit_ns, &answer);
	close(ends[0]);
	if (status)
		return status;
	if (!answered)
		kill(child, SIGKILL); /* its own child, not yet waited for: no other process has the PID */
	/* False: the child hangs in the driver, where no signal reaches it. */
	bool ended = neap_spawn_wait(child, neap_deadline_in(neap_clock_system(), END_NS), &code);
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
