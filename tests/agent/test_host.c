/* What a host does without asking the agent: it allocates while the agent detaches, forks while the agent works,
 * closes its descriptors, gives it a folder that it cannot use. The host must not notice. */
#include "neap/neap.h"
#include "support/test.h"
#include "trace/record.h"

#include <dirent.h>
#include <fcntl.h>
#include <pthread.h>
#include <signal.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/stat.h>
#include <sys/syscall.h>
#include <sys/wait.h>
#include <unistd.h>

static char base[64], folder[80];
static struct neap_driver *driver;
static struct neap_device *device;

static void path_in(char text[128], const char *suffix)
{
	snprintf(text, 128, "%s/%d%s", folder, (int)getpid(), suffix);
}

static struct neap_alloc *make_alloc(const struct neap_observer *observer)
{
	struct neap_alloc *alloc = NULL;
	struct neap_alloc_options options = {.observer = observer};
	struct neap_error err = {0};
	if (neap_alloc_create(device, &options, &alloc, &err))
		fail_msg("%s", err.message);
	return alloc;
}

static void attach(void)
{
	struct neap_error err = {0};
	if (neap_attach(&err))
		fail_msg("%s", err.message);
}

static int stop;

static void *work(void *argument)
{
	uint64_t address;
	while (!__atomic_load_n(&stop, __ATOMIC_ACQUIRE))
		if (neap_malloc(argument, 1000, NULL, &address, NULL) == NEAP_OK)
			neap_free(argument, address);
	return NULL;
}

/* An allocator that has the agent's observer continues while its recording is taken away. */
static void detaching_from_a_busy_host(void **state)
{
	(void)state;
	pthread_t threads[2];
	struct neap_alloc *allocs[2];
	attach();
	for (size_t i = 0; i < 2; i++) {
		allocs[i] = make_alloc(neap_attach_observer());
		assert_int_equal(pthread_create(&threads[i], NULL, work, allocs[i]), 0);
	}
	for (int i = 0; i < 40; i++) {
		neap_detach();
		attach();
	}
	__atomic_store_n(&stop, 1, __ATOMIC_RELEASE);
	for (size_t i = 0; i < 2; i++) {
		pthread_join(threads[i], NULL);
		neap_alloc_destroy(allocs[i]);
	}
	neap_detach();
}

/* A second recording repeats the names that the first one had. */
static void names_after_attaching_again(void **state)
{
	(void)state;
	static struct neap_record record;
	char path[128];
	uint64_t address;
	attach();
	struct neap_alloc *alloc = make_alloc(neap_attach_observer());
	const char *before = neap_tag_set("weights");
	for (int i = 0; i < 2; i++) {
		attach();
		assert_int_equal(neap_malloc(alloc, 1000, NULL, &address, NULL), NEAP_OK);
		path_in(path, ".record");
		assert_int_equal(neap_record_read(path, &record, NULL), NEAP_OK);
		assert_true(record.allocation_count > 0);
		const struct neap_event *last = &record.allocations[record.allocation_count - 1];
		assert_int_equal(last->kind, NEAP_EVENT_ALLOC);
		assert_string_equal(neap_record_name(&record, last->allocation.tag), "weights");
		neap_record_fini(&record);
		neap_detach();
	}
	neap_tag_set(before);
	neap_alloc_destroy(alloc);
}

struct holder {
	struct neap_alloc *alloc;
	long forking; /* the thread that is about to fork; 0 before that */
	int inside, released;
};

/* 'S': waiting for something. */
static char state_of(long thread)
{
	char path[64], text[256] = "";
	snprintf(path, sizeof path, "/proc/self/task/%ld/stat", thread);
	FILE *file = fopen(path, "r");
	size_t length = file ? fread(text, 1, sizeof text - 1, file) : 0;
	if (file)
		fclose(file);
	text[length] = '\0';
	const char *end = strrchr(text, ')');
	return end ? end[2] : '?';
}

/* Holds the allocator's lock until the other thread waits for the lock or for its child. */
static void hold(void *context, const struct neap_block_info *block)
{
	struct holder *holder = context;
	long thread;
	(void)block;
	if (holder->released)
		return;
	holder->released = 1;
	__atomic_store_n(&holder->inside, 1, __ATOMIC_RELEASE);
	while (!(thread = __atomic_load_n(&holder->forking, __ATOMIC_ACQUIRE)))
		sched_yield();
	while (state_of(thread) != 'S')
		sched_yield();
}

static void *hold_thread(void *argument)
{
	struct holder *holder = argument;
	neap_each_block(holder->alloc, hold, holder);
	return NULL;
}

/* Forks while another thread is inside the allocator, as the agent's thread is during a clear. The child can use the
 * allocator, except for what needs the driver. */
static void forking_while_an_allocator_works(void **state)
{
	(void)state;
	pthread_t thread;
	uint64_t block = 0;
	int status = 0;
	attach();
	struct holder holder = {.alloc = make_alloc(NULL)};
	assert_int_equal(neap_malloc(holder.alloc, MIB, NULL, &block, NULL), NEAP_OK);
	assert_int_equal(pthread_create(&thread, NULL, hold_thread, &holder), 0);
	while (!__atomic_load_n(&holder.inside, __ATOMIC_ACQUIRE))
		sched_yield();
	__atomic_store_n(&holder.forking, syscall(SYS_gettid), __ATOMIC_RELEASE);
	pid_t child = fork();
	assert_true(child >= 0);
	if (child == 0) {
		alarm(60);
		status = neap_free(holder.alloc, block) == NEAP_OK ? 0 : 1;
		neap_alloc_destroy(holder.alloc);
		_exit(status);
	}
	assert_int_equal(waitpid(child, &status, 0), child);
	assert_int_equal(status, 0);
	pthread_join(thread, NULL);
	assert_int_equal(neap_free(holder.alloc, block), NEAP_OK); /* the parent's lock is free again */
	neap_alloc_destroy(holder.alloc);
	neap_detach();
}

/* Forks where a signal handler might: inside a hit, while this thread holds the lane. The observer is called
 * there. */
static struct {
	unsigned events, fork_at;
	pid_t child;
} interrupted;

static void fork_inside(void *context, const struct neap_event *event)
{
	(void)context;
	(void)event;
	if (++interrupted.events != interrupted.fork_at)
		return;
	interrupted.child = fork();
	if (!interrupted.child)
		alarm(60);
}

/* Parent and child both continue, and their counters agree: once while the lane is locked, once while this thread
 * owns it. */
static void forking_inside_of_a_hit(void **state)
{
	(void)state;
	static const struct neap_observer observer = {.event = fork_inside, .concurrent = true};
	attach();
	for (unsigned hits = 20; hits <= 2000; hits *= 100) {
		struct neap_alloc *alloc = make_alloc(&observer);
		uint64_t block = 0, held = 0; /* the core frees a stream's last block itself */
		int status = 0;
		interrupted.events = 0;
		interrupted.child = -1;
		interrupted.fork_at = 3 * hits;
		assert_int_equal(neap_malloc(alloc, 4096, NULL, &held, NULL), NEAP_OK);
		for (unsigned i = 0; i < 2 * hits; i++) {
			assert_int_equal(neap_malloc(alloc, 4096, NULL, &block, NULL), NEAP_OK);
			assert_int_equal(neap_free(alloc, block), NEAP_OK);
		}
		if (!interrupted.child)
			neap_publish(alloc, NULL); /* the page belongs to the parent */
		bool sound = neap_alloc_check(alloc, NULL) == NEAP_OK;
		if (!interrupted.child) {
			neap_alloc_destroy(alloc);
			_exit(sound ? 0 : 1);
		}
		assert_true(sound && interrupted.child > 0);
		assert_int_equal(waitpid(interrupted.child, &status, 0), interrupted.child);
		assert_int_equal(status, 0);
		neap_alloc_destroy(alloc);
	}
	neap_detach();
}

/* The descriptor under which this process has the page open; -1: none. */
static int page_descriptor(void)
{
	char wanted[128], link[64], target[256];
	int found = -1;
	path_in(wanted, ".page");
	for (int fd = 0; fd < 256 && found < 0; fd++) {
		snprintf(link, sizeof link, "/proc/self/fd/%d", fd);
		ssize_t length = readlink(link, target, sizeof target - 1);
		if (length > 0 && (target[length] = '\0', strcmp(target, wanted) == 0))
			found = fd;
	}
	return found;
}

/* The host closes descriptors that it does not know, then opens a file of its own under the same number. */
static void the_page_s_descriptor_is_reused(void **state)
{
	(void)state;
	int status;
	attach();
	int fd = page_descriptor(), other = open("/dev/null", O_RDONLY | O_CLOEXEC);
	assert_true(fd >= 0 && other >= 0);
	assert_int_equal(dup2(other, fd), fd);
	pid_t child = fork();
	assert_true(child >= 0);
	if (child == 0)
		_exit(fcntl(fd, F_GETFD) < 0);
	assert_int_equal(waitpid(child, &status, 0), child);
	assert_int_equal(status, 0);
	neap_detach();
	assert_true(fcntl(fd, F_GETFD) >= 0);
	close(fd);
	close(other);
}

/* When attaching fails, everything that it made is removed again. */
static void failing_leaves_nothing(void **state)
{
	(void)state;
	char path[128], inside[160];
	path_in(path, ".page-new");
	snprintf(inside, sizeof inside, "%s/file", path);
	assert_int_equal(mkdir(path, 0700), 0); /* this is where the page would be made */
	assert_int_equal(mkdir(inside, 0700), 0);
	assert_int_not_equal(neap_attach(NULL), NEAP_OK);
	rmdir(inside);
	rmdir(path);
	DIR *entries = opendir(folder);
	struct dirent *entry;
	while ((entry = readdir(entries)))
		if (entry->d_name[0] != '.')
			fail_msg("%s was left", entry->d_name);
	closedir(entries);
}

static int set_up(void **state)
{
	(void)state;
	char world[128];
	strcpy(base, "/tmp/neap-test-host-XXXXXX");
	if (!mkdtemp(base))
		return -1;
	snprintf(folder, sizeof folder, "%s/neap", base);
	setenv("XDG_RUNTIME_DIR", base, 1);
	snprintf(world, sizeof world, "mem=256MiB,world=host-%d", (int)getpid());
	setenv("NEAP_SIM", world, 1);
	unsetenv("NEAP_ATTACH");
	unsetenv("NEAP_RUN_DIR");
	return neap_driver_open(NEAP_BACKEND_SIM, &driver, NULL) || neap_device_open(driver, 0, &device, NULL) ? -1
													       : 0;
}

static int tear_down(void **state)
{
	(void)state;
	neap_device_close(device);
	neap_driver_close(driver);
	rmdir(folder);
	return rmdir(base);
}

static int no_record(void **state)
{
	(void)state;
	char path[128];
	path_in(path, ".record");
	unlink(path);
	return 0;
}

#define TEST(name) cmocka_unit_test_teardown(name, no_record)

int main(void)
{
	const struct CMUnitTest tests[] = {
		TEST(detaching_from_a_busy_host),       TEST(names_after_attaching_again),
		TEST(forking_while_an_allocator_works), TEST(the_page_s_descriptor_is_reused),
		TEST(failing_leaves_nothing),           TEST(forking_inside_of_a_hit),
	};
	return cmocka_run_group_tests(tests, set_up, tear_down);
}
