/* Two processes of one run on one device: one runs out of memory, and the other gives back what it caches. The test
 * makes every system call on the way fail, and has both run out of memory at once.
 *
 *   this process --a letter--> the other: c caches 150 MiB   m allocates in vain, 50 times   e empties its cache
 *                <--a letter--
 *
 * The other process also plays a lying peer: a digit, an index of `lies`, makes it answer the next request itself.
 */
#include "agent_test.h"

#include "proto/commands.h"
#include "proto/frame.h"

#include <dirent.h>
#include <errno.h>
#include <poll.h>
#include <pthread.h>
#include <string.h>
#include <sys/socket.h>
#include <sys/un.h>
#include <sys/wait.h>
#include <unistd.h>

#define ROUNDS 50

static int to_other = -1, from_other = -1;
static pid_t other;

/* Makes the Nth system call that asking needs fail, in this thread. */
static _Thread_local unsigned long calls, failing;
static const int errors[] = {EINTR, EMFILE, ENOMEM, EAGAIN, EPIPE, ECONNRESET};
static int fails_with;

static bool fails(void)
{
	if (!failing || ++calls != failing)
		return false;
	errno = fails_with;
	return true;
}

#define WRAP(type, name, parameters, arguments)                                                                      \
	type __real_##name parameters;                                                                               \
	type __wrap_##name parameters;                                                                               \
	type __wrap_##name parameters { return fails() ? (type)(intptr_t)FAILED_##name : __real_##name arguments; }
#define FAILED_socket     -1
#define FAILED_connect    -1
#define FAILED_getsockopt -1
#define FAILED_send       -1
#define FAILED_recv       -1
#define FAILED_poll       -1
#define FAILED_opendir    0
#define FAILED_readdir64  0
#define FAILED_pread64    -1
WRAP(int, socket, (int domain, int type, int protocol), (domain, type, protocol))
WRAP(int, connect, (int fd, const struct sockaddr *address, socklen_t length), (fd, address, length))
WRAP(int, getsockopt, (int fd, int level, int name, void *value, socklen_t *length), (fd, level, name, value, length))
WRAP(ssize_t, send, (int fd, const void *bytes, size_t length, int flags), (fd, bytes, length, flags))
WRAP(ssize_t, recv, (int fd, void *bytes, size_t length, int flags), (fd, bytes, length, flags))
WRAP(int, poll, (struct pollfd * fds, nfds_t count, int timeout), (fds, count, timeout))
WRAP(DIR *, opendir, (const char *path), (path))
WRAP(struct dirent *, readdir64, (DIR * opened), (opened))
WRAP(ssize_t, pread64, (int fd, void *bytes, size_t length, off_t at), (fd, bytes, length, at))

/* Runs in the other process. */

static void letter_to(int fd) { assert_int_equal(write(fd, "", 1), 1); }

static void allocate_in_vain(struct neap_alloc *alloc)
{
	for (int i = 0; i < ROUNDS; i++) {
		uint64_t address = 0;
		if (neap_malloc(alloc, 180 * MIB, NULL, &address, NULL) == NEAP_OK)
			neap_free(alloc, address);
	}
}

#define REPLY_CAPACITY 512 /* of an answer, as in agent/peers.c */

static const struct lie {
	size_t payload_bytes; /* 0: the fields alone */
	uint64_t freed_bytes;
	bool cut; /* the last byte is never sent */
} lies[] = {
	{.freed_bytes = 5 * MIB}, /* this is what the truth would look like */
	{.freed_bytes = UINT64_MAX - 5},
	{.payload_bytes = REPLY_CAPACITY - NEAP_FRAME_HEADER_BYTES, .freed_bytes = 6 * MIB},
	{.payload_bytes = REPLY_CAPACITY - NEAP_FRAME_HEADER_BYTES + 1, .freed_bytes = 6 * MIB},
	{.payload_bytes = REPLY_CAPACITY, .freed_bytes = 6 * MIB},
	{.payload_bytes = 65536, .freed_bytes = 6 * MIB},
	{.freed_bytes = 5 * MIB, .cut = true},
};

static size_t make_lie(const struct lie *lie, unsigned char *bytes, size_t capacity)
{
	static const unsigned char filler[65536];
	struct neap_field_writer writer = {.data = bytes + NEAP_FRAME_HEADER_BYTES,
					   .capacity = capacity - NEAP_FRAME_HEADER_BYTES};
	neap_write_u64(&writer, NEAP_FIELD_FREED, lie->freed_bytes);
	size_t freed = writer.length;
	neap_write_bytes(&writer, NEAP_FIELD_UUID, filler, 0);
	size_t head = writer.length - freed;
	writer.length = freed;
	if (lie->payload_bytes)
		neap_write_bytes(&writer, NEAP_FIELD_UUID, filler, lie->payload_bytes - freed - head);
	struct neap_frame frame = {.version = NEAP_FRAME_VERSION,
				   .command = NEAP_REQUEST_RELEASE,
				   .request = 1,
				   .length = (uint32_t)writer.length};
	neap_frame_encode(&frame, bytes);
	return NEAP_FRAME_HEADER_BYTES + writer.length;
}

/* Answers one peer in place of the agent. */
static void answer_with(const struct lie *lie, int to)
{
	static unsigned char bytes[70000];
	struct sockaddr_un address = {.sun_family = AF_UNIX};
	const struct timeval limit = {.tv_sec = 5};
	char path[128], aside[160];
	path_in(path, ".sock");
	snprintf(aside, sizeof aside, "%s/aside", folder);
	snprintf(address.sun_path, sizeof address.sun_path, "%s", path);
	assert_int_equal(rename(path, aside), 0);
	int listening = socket(AF_UNIX, SOCK_STREAM | SOCK_CLOEXEC, 0);
	assert_int_equal(bind(listening, (struct sockaddr *)&address, sizeof address), 0);
	assert_int_equal(listen(listening, 1), 0);
	/* The asking process may find no time to connect. */
	assert_int_equal(setsockopt(listening, SOL_SOCKET, SO_RCVTIMEO, &limit, sizeof limit), 0);
	letter_to(to);
	int fd = accept(listening, NULL, NULL);
	if (fd >= 0 && recv(fd, bytes, sizeof bytes, 0) > 0) {
		size_t length = make_lie(lie, bytes, sizeof bytes) - lie->cut;
		(void)send(fd, bytes, length, MSG_NOSIGNAL);
		while (recv(fd, bytes, sizeof bytes, 0) > 0) /* until it has heard enough */
			;
	}
	if (fd >= 0)
		close(fd);
	close(listening);
	assert_int_equal(rename(aside, path), 0);
}

static void be_the_other(int from, int to)
{
	char letter;
	must(neap_driver_open(NEAP_BACKEND_DEFAULT, &driver, NULL), &(struct neap_error){0});
	must(neap_device_open(driver, 0, &device, NULL), &(struct neap_error){0});
	attach();
	struct neap_alloc *alloc = make_alloc();
	letter_to(to);
	while (read(from, &letter, 1) == 1) {
		if (letter == 'c')
			neap_free(alloc, take(alloc, 150 * MIB));
		else if (letter == 'm')
			allocate_in_vain(alloc);
		else if (letter == 'e')
			must(neap_empty_cache(alloc, NULL, NULL), &(struct neap_error){0});
		else if (letter >= '0' && letter <= '9')
			answer_with(&lies[letter - '0'], to);
		letter_to(to);
	}
	neap_alloc_destroy(alloc);
	neap_detach();
	char record[128];
	path_in(record, ".record");
	unlink(record);
	_exit(0);
}

/* In this one. */

static void tell(char letter) { assert_int_equal(write(to_other, &letter, 1), 1); }

static void hear(void)
{
	char letter;
	assert_int_equal(read(from_other, &letter, 1), 1);
}

static void have_other(char letter)
{
	tell(letter);
	hear();
}

static enum neap_status try_taking(struct neap_alloc *alloc, struct neap_error *err)
{
	uint64_t address = 0;
	enum neap_status status = neap_malloc(alloc, 180 * MIB, NULL, &address, err);
	if (!status)
		neap_free(alloc, address);
	must(neap_empty_cache(alloc, NULL, NULL), &(struct neap_error){0});
	return status;
}

static void other_gives_back(void **state)
{
	(void)state;
	struct neap_error err = {0};
	struct neap_asked asked;
	struct neap_event event = {0};
	attach();
	struct neap_alloc *alloc = make_alloc();
	assert_int_equal(try_taking(alloc, &err), NEAP_OK);
	have_other('c');
	assert_int_equal(try_taking(alloc, &err), NEAP_OK);
	neap_last_asked(alloc, &asked);
	assert_true(asked.processes == 1 && asked.answered == 1 && asked.freed_bytes == 150 * MIB);
	/* If that is not enough, the recording says so. */
	uint64_t held = take(alloc, 70 * MIB);
	have_other('c');
	assert_int_equal(try_taking(alloc, &err), NEAP_EOOM);
	assert_int_equal(recorded(NEAP_EVENT_OOM_ASKED, &event), 1);
	assert_true(event.oom_asked.processes == 1 && event.oom_asked.freed_bytes == 150 * MIB);
	neap_free(alloc, held);
	neap_alloc_destroy(alloc);
	neap_detach();
}

/* An unreachable process does not count as asked: it died, for example, and left its page. */
static void one_is_out_of_reach(void **state)
{
	(void)state;
	struct neap_error err = {0};
	struct neap_asked asked;
	char socket_path[160], aside[160];
	snprintf(socket_path, sizeof socket_path, "%s/%d.sock", folder, (int)other);
	snprintf(aside, sizeof aside, "%s/aside", folder);
	attach();
	struct neap_alloc *alloc = make_alloc();
	have_other('c');
	assert_int_equal(rename(socket_path, aside), 0);
	assert_int_equal(try_taking(alloc, &err), NEAP_EOOM);
	neap_last_asked(alloc, &asked);
	assert_true(asked.processes == 0 && asked.answered == 0 && asked.freed_bytes == 0);
	assert_null(strstr(err.message, "asked"));
	assert_int_equal(rename(aside, socket_path), 0);
	assert_int_equal(try_taking(alloc, &err), NEAP_OK);
	neap_alloc_destroy(alloc);
	neap_detach();
}

/* A peer of the same user may answer anything. Only a complete answer of a plausible size counts, and for no more
 * than the device has. */
static void one_lies(void **state)
{
	static const struct {
		bool answered;
		uint64_t freed_bytes;
	} expected[] = {{true, 5 * MIB}, {true, 256 * MIB}, {true, 6 * MIB}, {false, 0},
			{false, 0},      {false, 0},        {false, 0}};
	(void)state;
	struct neap_error err = {0};
	struct neap_asked asked;
	attach();
	struct neap_alloc *alloc = make_alloc();
	uint64_t held = take(alloc, 70 * MIB);
	for (size_t i = 0; i < COUNT(lies); i++) {
		size_t tries = 0;
		do { /* again, if the other process came too late */
			have_other((char)('0' + i));
			assert_int_equal(try_taking(alloc, &err), NEAP_EOOM);
			hear();
			neap_last_asked(alloc, &asked);
		} while (expected[i].answered && !asked.answered && ++tries < 100);
		assert_int_equal(asked.answered, expected[i].answered);
		assert_int_equal(asked.freed_bytes, expected[i].freed_bytes);
	}
	neap_free(alloc, held);
	assert_int_equal(try_taking(alloc, &err), NEAP_OK);
	neap_alloc_destroy(alloc);
	neap_detach();
}

static size_t open_descriptors(void)
{
	DIR *opened = opendir("/proc/self/fd");
	size_t count = 0;
	assert_non_null(opened);
	while (readdir(opened))
		count++;
	closedir(opened);
	return count;
}

/* A call that fails costs at most the other process's memory: the request then ends with NEAP_EOOM, nothing leaks,
 * and the next request succeeds. */
static void every_call_fails(void **state)
{
	(void)state;
	struct neap_error err = {0};
	unsigned long failed = 0;
	attach();
	struct neap_alloc *alloc = make_alloc();
	have_other('c');
	failing = ~0ul;
	calls = 0;
	assert_int_equal(try_taking(alloc, &err), NEAP_OK);
	unsigned long all = calls;
	failing = 0;
	assert_true(all > 10);
	size_t open = open_descriptors();
	for (size_t error = 0; error < COUNT(errors); error++) {
		for (unsigned long number = 1; number <= all; number++) {
			have_other('c');
			calls = 0;
			fails_with = errors[error];
			failing = number;
			enum neap_status status = try_taking(alloc, &err);
			failing = 0;
			assert_true(status == NEAP_OK || status == NEAP_EOOM);
			failed += status == NEAP_EOOM;
			assert_int_equal(open_descriptors(), open);
			assert_int_equal(try_taking(alloc, &err), NEAP_OK);
		}
	}
	assert_true(failed > 0);
	neap_alloc_destroy(alloc);
	neap_detach();
}

/* Each holds what the other needs, and they ask each other at the same time: both requests end. */
static void both_are_out_of_memory(void **state)
{
	(void)state;
	attach();
	struct neap_alloc *alloc = make_alloc();
	uint64_t held = take(alloc, 70 * MIB);
	tell('m');
	allocate_in_vain(alloc);
	hear();
	neap_free(alloc, held);
	/* They take turns: each can have the memory while the other does not hold it. */
	tell('m');
	allocate_in_vain(alloc);
	hear();
	have_other('e');
	assert_int_equal(try_taking(alloc, NULL), NEAP_OK);
	neap_alloc_destroy(alloc);
	neap_detach();
}

static int stop;

static void *ask_on(void *alloc)
{
	while (!__atomic_load_n(&stop, __ATOMIC_ACQUIRE))
		allocate_in_vain(alloc);
	return NULL;
}

static int descriptors_in_fork(void)
{
	int status = 0;
	pid_t child = fork();
	assert_true(child >= 0);
	if (!child)
		_exit((int)open_descriptors());
	assert_int_equal(waitpid(child, &status, 0), child);
	assert_true(WIFEXITED(status));
	return WEXITSTATUS(status);
}

/* A child inherits none of the sockets and files that a thread is asking through at that moment. */
static void forking_while_a_thread_asks(void **state)
{
	(void)state;
	pthread_t thread;
	attach();
	struct neap_alloc *alloc = make_alloc();
	uint64_t held = take(alloc, 70 * MIB);
	int at_rest = descriptors_in_fork();
	assert_int_equal(pthread_create(&thread, NULL, ask_on, alloc), 0);
	for (int i = 0; i < 60; i++)
		assert_int_equal(descriptors_in_fork(), at_rest);
	__atomic_store_n(&stop, 1, __ATOMIC_RELEASE);
	pthread_join(thread, NULL);
	neap_free(alloc, held);
	neap_alloc_destroy(alloc);
	neap_detach();
}

/* The other is forked before this process opens its driver. */
static int set_up_both(void **state)
{
	(void)state;
	int down[2], up[2];
	char world[128];
	strcpy(base, "/tmp/neap-test-peers-XXXXXX");
	if (!mkdtemp(base) || pipe(down) || pipe(up))
		return -1;
	snprintf(folder, sizeof folder, "%s/neap", base);
	setenv("XDG_RUNTIME_DIR", base, 1);
	snprintf(world, sizeof world, "mem=256MiB,reserved=0,context=8MiB,world=peers-%d", (int)getpid());
	setenv("NEAP_SIM", world, 1);
	setenv("NEAP_RUN_ID", "run-7", 1);
	unsetenv("NEAP_ATTACH");
	unsetenv("NEAP_RUN_DIR");
	unsetenv("NEAP_SERIES");
	unsetenv("NEAP_PEERS");
	other = fork();
	if (!other) {
		close(down[1]);
		close(up[0]);
		be_the_other(down[0], up[1]);
	}
	close(down[0]);
	close(up[1]);
	to_other = down[1];
	from_other = up[0];
	hear();
	return neap_driver_open(NEAP_BACKEND_DEFAULT, &driver, NULL) || neap_device_open(driver, 0, &device, NULL)
		       ? -1
		       : 0;
}

static int tear_down_both(void **state)
{
	int how = 0;
	close(to_other);
	close(from_other);
	return waitpid(other, &how, 0) == other && WIFEXITED(how) && WEXITSTATUS(how) == 0 ? tear_down(state) : -1;
}

int main(void)
{
	const struct CMUnitTest tests[] = {
		cmocka_unit_test(other_gives_back),
		cmocka_unit_test(one_is_out_of_reach),
		cmocka_unit_test(one_lies),
		cmocka_unit_test(every_call_fails),
		cmocka_unit_test(both_are_out_of_memory),
		cmocka_unit_test(forking_while_a_thread_asks),
	};
	return cmocka_run_group_tests(tests, set_up_both, tear_down_both);
}
