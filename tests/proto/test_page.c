/* Statistics pages: made, read, damaged, and left behind by processes that died. */
#include "base/clock.h"
#include "base/process.h"
#include "proto/client.h"
#include "proto/page.h"
#include "support/test.h"

#include <fcntl.h>
#include <poll.h>
#include <sched.h>
#include <signal.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/file.h>
#include <sys/stat.h>
#include <sys/wait.h>
#include <unistd.h>

#define ROUNDS 200

int LLVMFuzzerTestOneInput(const uint8_t *data, size_t size);

static char folder[64];

static void path_in(char *text, size_t capacity, pid_t pid, const char *suffix)
{
	snprintf(text, capacity, "%s/%d%s", folder, (int)pid, suffix);
}

static bool exists(pid_t pid, const char *suffix)
{
	char path[128];
	path_in(path, sizeof path, pid, suffix);
	return access(path, F_OK) == 0;
}

static void make(struct neap_page_owner *owner)
{
	struct neap_process self;
	assert_int_equal(neap_process_read(getpid(), &self, NULL), NEAP_OK);
	struct neap_page_identity identity = {.pid = getpid(),
					      .start_ticks = self.start_ticks,
					      .name = "test\tprogram",
					      .run_id = "run-1",
					      .record_path = "/nowhere/record"};
	assert_int_equal(neap_page_create(folder, &identity, owner, NULL), NEAP_OK);
}

static struct neap_published *publish(struct neap_page_owner *owner, unsigned char uuid, int64_t reserved)
{
	struct neap_published *slot = neap_page_slot(owner);
	assert_non_null(slot);
	memset(slot->device_uuid, uuid, 16);
	slot->context_bytes = 100;
	slot->stats.metric[NEAP_METRIC_RESERVED_BYTES][0].current = reserved;
	slot->limit_bytes = UINT64_MAX;
	neap_page_show(owner, slot);
	return slot;
}

static void page_there_and_back(void **state)
{
	(void)state;
	struct neap_page_owner owner;
	static struct neap_attached attached;
	struct neap_published sum;
	const unsigned char one[16] = {1, 1, 1, 1, 1, 1, 1, 1, 1, 1, 1, 1, 1, 1, 1, 1}, other[16] = {9};
	make(&owner);
	publish(&owner, 1, 10);
	struct neap_published *gone = publish(&owner, 2, 20);
	publish(&owner, 1, 30);
	neap_page_hide(&owner, gone);
	assert_int_equal(neap_page_read(folder, getpid(), &attached, NULL), NEAP_OK);
	assert_int_equal(attached.pid, getpid());
	assert_string_equal(attached.name, "test?program");
	assert_string_equal(attached.run_id, "run-1");
	assert_int_equal(attached.device_count, 2);
	assert_true(neap_attached_device(&attached, one, &sum));
	assert_int_equal(sum.stats.metric[NEAP_METRIC_RESERVED_BYTES][0].current, 40);
	assert_int_equal(sum.context_bytes, 100);
	/* One context, whichever of its allocators measured it: the higher figure counts, whichever comes first. */
	attached.devices[0].context_bytes = 60;
	assert_true(neap_attached_device(&attached, one, &sum));
	assert_int_equal(sum.context_bytes, 100);
	attached.devices[0].context_bytes = 130;
	assert_true(neap_attached_device(&attached, one, &sum));
	assert_int_equal(sum.context_bytes, 130);
	assert_true(sum.limit_bytes == UINT64_MAX);
	attached.devices[0].stats.num_ooms = INT64_MAX;
	attached.devices[1].stats.num_ooms = 2;
	assert_true(neap_attached_device(&attached, one, &sum));
	assert_true(sum.stats.num_ooms == INT64_MAX);
	assert_false(neap_attached_device(&attached, other, &sum));
	assert_ptr_equal(neap_page_slot(&owner), gone); /* used again */
	neap_page_destroy(&owner, true);
	neap_page_destroy(&owner, true);
	assert_false(exists(getpid(), ".page"));
	assert_int_equal(neap_page_read(folder, getpid(), &attached, NULL), NEAP_ENOENT);
}

static void damaged_pages(void **state)
{
	(void)state;
	struct neap_page_owner owner;
	static struct neap_attached attached;
	struct neap_error err;
	make(&owner);
	struct neap_published *slot = publish(&owner, 1, 10);
	slot->sequence = 7; /* died inside a write */
	assert_int_equal(neap_page_read(folder, getpid(), &attached, &err), NEAP_EBUSY);
	slot->sequence = 8;
	owner.page->device_count = NEAP_PAGE_DEVICES + 1;
	assert_int_equal(neap_page_read(folder, getpid(), &attached, &err), NEAP_EPARSE);
	owner.page->device_count = 1;
	owner.page->version++;
	assert_int_equal(neap_page_read(folder, getpid(), &attached, &err), NEAP_EPARSE);
	owner.page->version--;
	owner.page->pid++;
	assert_int_equal(neap_page_read(folder, getpid(), &attached, &err), NEAP_EPARSE);
	owner.page->pid--;
	memset(owner.page->name, 'x', sizeof owner.page->name); /* not terminated */
	assert_int_equal(neap_page_read(folder, getpid(), &attached, &err), NEAP_OK);
	assert_int_equal(strlen(attached.name), sizeof attached.name - 1);
	assert_int_equal(ftruncate(owner.fd, offsetof(struct neap_page, devices) + 5), 0);
	assert_int_equal(neap_page_read(folder, getpid(), &attached, &err), NEAP_EPARSE);
	assert_non_null(strstr(err.message, "cut short"));
	assert_int_equal(ftruncate(owner.fd, 5), 0);
	assert_int_equal(neap_page_read(folder, getpid(), &attached, &err), NEAP_EPARSE);
	neap_page_destroy(&owner, true);
}

/* A process that was stopped while it wrote its page is shown anyway, with a note that says so. */
static void stopped_while_writing(void **state)
{
	(void)state;
	static struct neap_attached attached;
	char path[128];
	int status;
	pid_t child = fork();
	assert_true(child >= 0);
	if (child == 0) {
		struct neap_page_owner own;
		make(&own);
		publish(&own, 1, 10)->sequence = 7;
		raise(SIGSTOP);
		_exit(0);
	}
	assert_int_equal(waitpid(child, &status, WUNTRACED), child);
	assert_true(WIFSTOPPED(status));
	assert_int_equal(neap_page_read(folder, child, &attached, NULL), NEAP_OK);
	assert_int_equal(attached.device_count, 1);
	assert_int_equal(attached.devices[0].stats.metric[NEAP_METRIC_RESERVED_BYTES][0].current, 10);
	assert_non_null(strstr(attached.note, "stopped in the middle"));
	kill(child, SIGKILL);
	assert_int_equal(waitpid(child, &status, 0), child);
	path_in(path, sizeof path, child, ".page");
	unlink(path);
}

/* Under the page's name there is something other than a file of ours: refused without blocking or following a
 * link. */
static void strange_pages(void **state)
{
	(void)state;
	static struct neap_attached attached;
	char path[128];
	path_in(path, sizeof path, getpid(), ".page");
	assert_int_equal(mkfifo(path, 0600), 0);
	assert_int_equal(neap_page_read(folder, getpid(), &attached, NULL), NEAP_EPARSE);
	unlink(path);
	assert_int_equal(symlink("/etc/passwd", path), 0);
	assert_int_not_equal(neap_page_read(folder, getpid(), &attached, NULL), NEAP_OK);
	unlink(path);
}

/* A process died without removing its files: its page and socket are removed, ours stay. */
static void the_dead_are_removed(void **state)
{
	(void)state;
	struct neap_page_owner owner;
	struct neap_attached *list = NULL;
	size_t count = 0;
	char path[128];
	make(&owner);
	publish(&owner, 1, 10);
	pid_t child = fork();
	assert_true(child >= 0);
	if (child == 0) {
		struct neap_page_owner own;
		neap_page_abandon(&owner); /* the parent's file is not the child's */
		make(&own);
		_exit(0);
	}
	int status;
	assert_int_equal(waitpid(child, &status, 0), child);
	assert_int_equal(status, 0);
	path_in(path, sizeof path, child, ".sock");
	close(open(path, O_CREAT | O_WRONLY, 0600));
	assert_true(exists(child, ".page"));
	assert_int_equal(neap_page_list(folder, &list, &count, NULL), NEAP_OK);
	assert_int_equal(count, 1);
	assert_int_equal(list[0].pid, getpid());
	assert_int_equal(list[0].devices[0].stats.metric[NEAP_METRIC_RESERVED_BYTES][0].current, 10);
	assert_false(exists(child, ".page"));
	assert_false(exists(child, ".sock"));
	free(list);
	neap_page_destroy(&owner, true);
}

/* A process ends and restarts under its PID (as a restart in place does), while others list and tidy up: they never
 * take its new files for the old ones. */
static void begun_anew_while_others_tidy(void **state)
{
	(void)state;
	struct neap_page_owner owner;
	char path[128];
	int go[2], status;
	path_in(path, sizeof path, getpid(), ".sock");
	assert_int_equal(pipe(go), 0);
	pid_t child = fork();
	assert_true(child >= 0);
	if (child == 0) {
		struct pollfd end = {.fd = go[0], .events = POLLIN};
		close(go[1]);
		while (poll(&end, 1, 0) == 0) {
			struct neap_attached *list = NULL;
			size_t count = 0;
			neap_page_list(folder, &list, &count, NULL);
			free(list);
		}
		_exit(0);
	}
	close(go[0]);
	for (int round = 0; round < ROUNDS; round++) {
		int held = -1; /* not held: the tidying process was not scheduled meanwhile */
		for (int tries = 0; held < 0 && tries < 300; tries++)
			held = neap_page_making_begin(folder);
		assert_true(held >= 0);
		close(open(path, O_CREAT | O_WRONLY, 0600));
		make(&owner);
		neap_page_making_end(held);
		sched_yield();
		assert_true(exists(getpid(), ".page"));
		assert_true(exists(getpid(), ".sock"));
		if (round % 2) { /* dead without a trace, for all that others can see */
			flock(owner.fd, LOCK_UN);
			sched_yield();
		}
		neap_page_destroy(&owner, true);
	}
	close(go[1]);
	assert_int_equal(waitpid(child, &status, 0), child);
	assert_int_equal(status, 0);
	unlink(path);
}

static void clients_that_cannot_connect(void **state)
{
	(void)state;
	struct neap_client client;
	struct neap_error err;
	assert_int_equal(neap_client_open(folder, getpid(), (struct neap_deadline){0}, &client, &err), NEAP_ESTATE);
	assert_non_null(strstr(err.message, "not attached"));
	pid_t child = fork();
	assert_true(child >= 0);
	if (child == 0)
		_exit(0);
	assert_int_equal(waitpid(child, NULL, 0), child);
	assert_int_equal(neap_client_open(folder, child, (struct neap_deadline){0}, &client, &err), NEAP_ENOENT);
	struct stat first;
	if (stat("/proc/1", &first) == 0 && first.st_uid != geteuid()) /* in a container it may be ours */
		assert_int_equal(neap_client_open(folder, 1, (struct neap_deadline){0}, &client, &err), NEAP_EPERM);
}

#define HOSTILE_SLOTS 40

/* The fuzz target over a good page of this process with bytes changed and cut off. */
static void hostile_corpus(void **state)
{
	(void)state;
	struct neap_page_owner owner;
	uint64_t seed = test_seed();
	make(&owner);
	publish(&owner, 1, 10);
	publish(&owner, 2, INT64_MAX);
	publish(&owner, 1, -5);
	/* longer than a page, with slots in use past its end: a count that is too high must not be followed */
	size_t head = offsetof(struct neap_page, devices), slot = sizeof(struct neap_published);
	size_t size = head + HOSTILE_SLOTS * slot;
	unsigned char *good = malloc(size);
	assert_non_null(good);
	memcpy(good, owner.page, sizeof *owner.page);
	for (size_t i = 3; i < HOSTILE_SLOTS; i++)
		memcpy(good + head + i * slot, good + head, slot);
	neap_page_destroy(&owner, true);
	LLVMFuzzerTestOneInput(good, size);
	for (int round = 0; round < 600; round++) {
		unsigned char *copy = malloc(size);
		assert_non_null(copy);
		memcpy(copy, good, size);
		for (uint64_t flips = next_random(&seed) % 4; flips > 0; flips--) {
			uint64_t where = next_random(&seed);
			size_t at = where % 3 == 0 ? head - 1 - where / 3 % 16
						   : where / 3 % (where % 3 == 1 ? head : size);
			copy[at] = (unsigned char)next_random(&seed);
		}
		/* A page whose slots are always under change takes 0.1 s each: not here. */
		for (size_t i = 0; i < HOSTILE_SLOTS; i++)
			copy[head + i * slot] &= 0xfe;
		LLVMFuzzerTestOneInput(copy, round % 4 ? size : next_random(&seed) % size);
		free(copy);
	}
	free(good);
}

static int set_up(void **state)
{
	(void)state;
	strcpy(folder, "/tmp/neap-test-page-XXXXXX");
	return mkdtemp(folder) ? 0 : -1;
}

static int tear_down(void **state)
{
	(void)state;
	return rmdir(folder);
}

int main(void)
{
	const struct CMUnitTest tests[] = {
		cmocka_unit_test(page_there_and_back),         cmocka_unit_test(damaged_pages),
		cmocka_unit_test(stopped_while_writing),       cmocka_unit_test(strange_pages),
		cmocka_unit_test(the_dead_are_removed),        cmocka_unit_test(begun_anew_while_others_tidy),
		cmocka_unit_test(clients_that_cannot_connect), cmocka_unit_test(hostile_corpus),
	};
	return cmocka_run_group_tests(tests, set_up, tear_down);
}
