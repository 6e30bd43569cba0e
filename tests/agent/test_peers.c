/* Two processes of one run on one device: one is out of memory, and the other gives back what it caches. Every system
 * call on the way is made to fail, and both are out of memory at once.
 *
 *   this process --a letter--> the other: c caches 150 MiB   m allocates in vain, 50 times   e empties its cache
 *                <--a letter--
 */
#include "agent_test.h"

#include <dirent.h>
#include <errno.h>
#include <poll.h>
#include <pthread.h>
#include <string.h>
#include <sys/socket.h>
#include <sys/wait.h>
#include <unistd.h>

#define ROUNDS 50

static int to_other = -1, from_other = -1;
static pid_t other;

/* The system calls of asking, as seen by this thread: the Nth fails. */
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

/* In the other process. */

static void letter_to(int fd) { assert_int_equal(write(fd, "", 1), 1); }

static void allocate_in_vain(struct neap_alloc *alloc)
{
	for (int i = 0; i < ROUNDS; i++) {
		uint64_t address = 0;
		if (neap_malloc(alloc, 180 * MIB, NULL, &address, NULL) == NEAP_OK)
			neap_free(alloc, address);
	}
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
	/* What it gives is not enough: then the recording tells. */
	uint64_t held = take(alloc, 70 * MIB);
	have_other('c');
	assert_int_equal(try_taking(alloc, &err), NEAP_EOOM);
	assert_int_equal(recorded(NEAP_EVENT_OOM_ASKED, &event), 1);
	assert_true(event.oom_asked.processes == 1 && event.oom_asked.freed_bytes == 150 * MIB);
	neap_free(alloc, held);
	neap_alloc_destroy(alloc);
	neap_detach();
}

/* A process that cannot be reached, as one that died and left its page, is not counted as asked. */
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

/* A call that fails costs at most the other's memory: the request then ends with NEAP_EOOM, nothing is leaked, and
 * the next one succeeds. */
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

/* Each holds what the other would need, and asks the other while that asks it: both come to their end. */
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
	/* And in turns, where each can have it while the other does not hold it. */
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

/* A child has none of the sockets and files by which a thread is asking at that moment. */
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
		cmocka_unit_test(every_call_fails),
		cmocka_unit_test(both_are_out_of_memory),
		cmocka_unit_test(forking_while_a_thread_asks),
	};
	return cmocka_run_group_tests(tests, set_up_both, tear_down_both);
}
