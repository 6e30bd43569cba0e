/* The recorder and its reader: events are read as they were written, in order; a killed writer leaves a readable
 * file; a hostile file gives an error with its position. */
#include "record_test.h"

#include "base/buffer.h"
#include "base/file.h"

#include <pthread.h>
#include <signal.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/resource.h>
#include <sys/stat.h>
#include <sys/wait.h>
#include <unistd.h>

int LLVMFuzzerTestOneInput(const uint8_t *data, size_t size);

/* Called before each read of a file (meson.build: --wrap). */
static void (*before_pread)(size_t length, off_t offset);
ssize_t __real_pread64(int fd, void *bytes, size_t length, off_t offset);
ssize_t __wrap_pread64(int fd, void *bytes, size_t length, off_t offset);

ssize_t __wrap_pread64(int fd, void *bytes, size_t length, off_t offset)
{
	if (before_pread)
		before_pread(length, offset);
	return __real_pread64(fd, bytes, length, offset);
}

static void test_round_trip(void **state)
{
	struct neap_recorder *recorder = open_recorder(8, 16);
	const struct neap_observer *observer = neap_recorder_observer(recorder);
	struct neap_record record;

	(void)state;
	uint16_t loss = observer->name(observer->context, "loss");
	uint16_t text = observer->name(observer->context, "caf\xc3\xa9\n");
	assert_int_equal(loss, 1);
	assert_int_equal(text, 2);
	assert_int_equal(observer->name(observer->context, "loss"), 1);
	assert_int_equal(observer->name(observer->context, ""), 0);
	assert_int_equal(observer->name(observer->context, NULL), 0);
	/* Recorded out of order, read in order of time. */
	emit(recorder, numbered(NEAP_EVENT_FREE_REQUESTED, 5));
	emit(recorder, numbered(NEAP_EVENT_ALLOC, 4));
	emit(recorder, numbered(NEAP_EVENT_SEGMENT_UNMAP, 6));
	emit(recorder, numbered(NEAP_EVENT_EMPTY_CACHE, 7));
	struct neap_event metric = {.time_ns = 9, .kind = NEAP_EVENT_METRIC, .metric = {.name = loss}};
	emit(recorder, metric);
	neap_recorder_destroy(recorder);

	record = read_record();
	assert_int_equal(record.pid, getpid());
	assert_true(record.start_ticks > 0);
	assert_true(record.wall_at_zero_ns > 1000000000ull * 1000000000ull);
	assert_int_equal(record.allocation_count, 3);
	assert_int_equal(record.journal_count, 2);
	assert_int_equal(record.allocations[0].kind, NEAP_EVENT_ALLOC);
	assert_int_equal(record.allocations[1].kind, NEAP_EVENT_FREE_REQUESTED);
	for (size_t i = 0; i < 3; i++)
		assert_whole(&record.allocations[i]);
	assert_whole(&record.journal[0]);
	assert_string_equal(neap_record_name(&record, record.journal[1].metric.name), "loss");
	assert_string_equal(neap_record_name(&record, text), "caf???");
	assert_string_equal(neap_record_name(&record, 0), "");
	assert_string_equal(neap_record_name(&record, 3), "");
	assert_string_equal(neap_record_name(&record, 65535), "");
	assert_int_equal(record.journal_lost + record.allocations_lost + record.torn, 0);
	neap_record_fini(&record);
}

static void test_wrap(void **state)
{
	struct neap_recorder *recorder = open_recorder(3, 10);
	struct neap_record record;

	(void)state;
	for (uint64_t n = 0; n < 1000; n++)
		emit(recorder, numbered(NEAP_EVENT_ALLOC, n));
	for (uint64_t n = 0; n < 4; n++)
		emit(recorder, numbered(NEAP_EVENT_STEP, n));
	record = read_record(); /* of a process that lives */
	assert_int_equal(record.allocation_count, 10);
	assert_int_equal(record.allocations_lost, 990);
	assert_int_equal(record.allocations[0].time_ns, 991);
	assert_int_equal(record.allocations[9].time_ns, 1000);
	assert_int_equal(record.journal_count, 3);
	assert_int_equal(record.journal_lost, 1);
	assert_int_equal(record.journal[0].time_ns, 2);
	assert_int_equal(record.torn, 0);
	neap_record_fini(&record);
	neap_recorder_destroy(recorder);
}

static struct neap_recorder *racing;
static int overtaking;

/* When the reader has its events and reads the counter once more, two of them have been overwritten. */
static void overtake(size_t length, off_t offset)
{
	if (length != sizeof(uint64_t) || offset != offsetof(struct neap_record_header, allocation_written))
		return;
	overtaking++;
	for (uint64_t n = 5; n < 7; n++)
		emit(racing, numbered(NEAP_EVENT_ALLOC, n));
}

static void test_overtaken(void **state)
{
	(void)state;
	racing = open_recorder(4, 4);
	for (uint64_t n = 1; n < 5; n++)
		emit(racing, numbered(NEAP_EVENT_ALLOC, n));
	before_pread = overtake;
	struct neap_record record = read_record();
	before_pread = NULL;
	neap_recorder_destroy(racing);
	assert_int_equal(overtaking, 1);
	assert_int_equal(record.allocation_count, 2);
	assert_int_equal(record.torn, 2);
	for (size_t i = 0; i < 2; i++) {
		assert_whole(&record.allocations[i]);
		assert_int_equal(record.allocations[i].time_ns, i + 4); /* numbers 3 and 4 */
	}
	neap_record_fini(&record);
}

static void test_names_full(void **state)
{
	struct neap_recorder *recorder = open_recorder(1, 1);
	const struct neap_observer *observer = neap_recorder_observer(recorder);
	char name[100];

	(void)state;
	for (int i = 1; i < NEAP_RECORD_NAMES; i++) {
		snprintf(name, sizeof name, "name %d", i);
		assert_int_equal(observer->name(observer->context, name), i);
	}
	assert_int_equal(observer->name(observer->context, "one too many"), 0);
	assert_int_equal(observer->name(observer->context, "name 17"), 17);
	neap_recorder_destroy(recorder);

	recorder = open_recorder(1, 1); /* replaces the file */
	observer = neap_recorder_observer(recorder);
	memset(name, 'x', sizeof name - 1);
	name[sizeof name - 1] = '\0';
	assert_int_equal(observer->name(observer->context, name), 1);
	assert_int_equal(observer->name(observer->context, name), 1);
	neap_recorder_destroy(recorder);
	struct neap_record record = read_record();
	assert_int_equal(strlen(neap_record_name(&record, 1)), NEAP_RECORD_NAME_ROOM - 1);
	neap_record_fini(&record);
}

static void test_killed_writer(void **state)
{
	struct neap_record record;
	int ready[2], status = 0;
	char byte;

	(void)state;
	assert_int_equal(pipe(ready), 0);
	pid_t child = fork();
	assert_true(child >= 0);
	if (child == 0) {
		struct neap_recorder *recorder = NULL;
		if (neap_recorder_create(path, 64, 512, &recorder, NULL) != NEAP_OK)
			_exit(1);
		for (uint64_t n = 0;; n++) {
			emit(recorder, numbered(NEAP_EVENT_ALLOC, n));
			if (n % 16 == 0)
				emit(recorder, numbered(NEAP_EVENT_STEP, n));
			if (n == 2000 && write(ready[1], "x", 1) != 1)
				_exit(1);
		}
	}
	close(ready[1]);
	assert_int_equal(read(ready[0], &byte, 1), 1);
	close(ready[0]);
	kill(child, SIGKILL);
	assert_int_equal(waitpid(child, &status, 0), child);
	assert_true(WIFSIGNALED(status));

	record = read_record();
	assert_int_equal(record.pid, child);
	assert_true(record.torn <= 1);
	/* Less a 64th, at the overwritten end, and one slot that was claimed but not begun. */
	assert_in_range(record.allocation_count + record.journal_count + record.torn, 512 + 64 - 8 - 1, 512 + 64);
	assert_true(record.allocations_lost >= 2000 - 512);
	for (size_t i = 0; i < record.allocation_count; i++)
		assert_whole(&record.allocations[i]);
	for (size_t i = 0; i < record.journal_count; i++)
		assert_whole(&record.journal[i]);
	neap_record_fini(&record);
}

#define THREADS    4
#define PER_THREAD 20000

struct writer {
	const struct neap_observer *observer;
	uint64_t first;
	uint16_t name;
	pthread_barrier_t *start; /* all start at once, otherwise one would be done before the next begins */
};

static void *write_events(void *argument)
{
	struct writer *writer = argument;
	struct neap_event_run run = {0};

	pthread_barrier_wait(writer->start);
	for (uint64_t n = 0; n < PER_THREAD; n++) {
		struct neap_event event = numbered(NEAP_EVENT_ALLOC, writer->first + n);
		if (writer->first / PER_THREAD % 2)
			emit_to_run(writer->observer, &run, event);
		else
			writer->observer->event(writer->observer->context, &event);
		writer->name = writer->observer->name(writer->observer->context, "shared");
	}
	return NULL;
}

static void run_writers(const struct neap_observer *observer, void (*meanwhile)(void))
{
	struct writer writers[THREADS];
	pthread_t threads[THREADS];
	pthread_barrier_t start;

	assert_int_equal(pthread_barrier_init(&start, NULL, THREADS + 1), 0);
	for (uint64_t i = 0; i < THREADS; i++) {
		writers[i] = (struct writer){.observer = observer, .first = i * PER_THREAD, .start = &start};
		assert_int_equal(pthread_create(&threads[i], NULL, write_events, &writers[i]), 0);
	}
	pthread_barrier_wait(&start);
	if (meanwhile)
		meanwhile();
	for (size_t i = 0; i < THREADS; i++) {
		pthread_join(threads[i], NULL);
		assert_int_equal(writers[i].name, 1);
	}
	pthread_barrier_destroy(&start);
}

static void test_threads(void **state)
{
	/* With space for the slots that runs leave when they are given up. */
	struct neap_recorder *recorder = open_recorder(1, 4 * THREADS * PER_THREAD);
	struct neap_record record;

	(void)state;
	run_writers(neap_recorder_observer(recorder), NULL);
	record = read_record();
	assert_int_equal(record.torn, 0);
	assert_int_equal(record.allocation_count, THREADS * PER_THREAD);
	for (uint64_t n = 0; n < THREADS * PER_THREAD; n++) {
		assert_int_equal(record.allocations[n].time_ns, n + 1); /* each exactly once */
		assert_whole(&record.allocations[n]);
	}
	neap_record_fini(&record);
	neap_recorder_destroy(recorder);
}

static void read_a_few(void)
{
	for (int i = 0; i < 200; i++) {
		struct neap_record record = read_record();
		for (size_t k = 0; k < record.allocation_count; k++)
			assert_whole(&record.allocations[k]);
		neap_record_fini(&record);
	}
}

/* Reading a small ring while others overwrite it: perhaps fewer events, but never a mixed one. */
static void test_read_while_written(void **state)
{
	struct neap_recorder *recorder = open_recorder(1, 1024);

	(void)state;
	run_writers(neap_recorder_observer(recorder), read_a_few);
	neap_recorder_destroy(recorder);
}

/* The bytes of a good small file. */
static struct neap_buffer good_file(void)
{
	struct neap_recorder *recorder = open_recorder(4, 8);
	struct neap_buffer bytes = {0};
	const struct neap_observer *observer = neap_recorder_observer(recorder);

	observer->name(observer->context, "activations");
	for (uint64_t n = 0; n < 11; n++) {
		emit(recorder, numbered(NEAP_EVENT_ALLOC, n));
		emit(recorder, numbered(NEAP_EVENT_STEP, n));
	}
	neap_recorder_destroy(recorder);
	assert_int_equal(neap_file_read(path, 1 << 20, &bytes, NULL), NEAP_OK);
	return bytes;
}

#define FIELD(name) offsetof(struct neap_record_header, name), sizeof((struct neap_record_header *)0)->name

static void test_hostile_headers(void **state)
{
	static const struct {
		size_t offset, length;
		uint64_t value;
		size_t position; /* its position by the error's message; SIZE_MAX: the field itself */
	} cases[] = {
		{FIELD(magic), 0, SIZE_MAX},
		{FIELD(version), 0, SIZE_MAX},
		{FIELD(version), 2, SIZE_MAX},
		{FIELD(version), 4, SIZE_MAX},
		{FIELD(header_bytes), 0, SIZE_MAX},
		{FIELD(header_bytes), 16385, SIZE_MAX},
		{FIELD(pid), 0, SIZE_MAX},
		{FIELD(pid), UINT64_MAX, SIZE_MAX},
		{FIELD(journal_capacity), 0, SIZE_MAX},
		{FIELD(journal_capacity), UINT64_MAX, SIZE_MAX},
		{FIELD(journal_capacity), (1ull << 58) + 4, SIZE_MAX}, /* times 64 it would wrap to the right size */
		{FIELD(journal_capacity), 5, 16384 + 12 * 64},         /* the file is not that long */
		{FIELD(allocation_capacity), 0, SIZE_MAX},
		{FIELD(allocation_capacity), UINT64_MAX, SIZE_MAX},
		{FIELD(allocation_capacity), 7, 16384 + 12 * 64},
		{FIELD(journal_written), UINT64_MAX, SIZE_MAX},
		{FIELD(allocation_written), UINT64_MAX, SIZE_MAX},
		{FIELD(names_used), 0, SIZE_MAX},
		{FIELD(names_used), 257, SIZE_MAX},
		{FIELD(names_used), UINT32_MAX, SIZE_MAX},
	};
	struct neap_buffer good = good_file();

	(void)state;
	for (size_t i = 0; i < sizeof cases / sizeof *cases; i++) {
		struct neap_record record = {.pid = 4711};
		struct neap_error err = {0};
		char saved[8];

		memcpy(saved, good.data + cases[i].offset, cases[i].length);
		memcpy(good.data + cases[i].offset, &cases[i].value, cases[i].length);
		put_file(good.data, good.length);
		memcpy(good.data + cases[i].offset, saved, cases[i].length);
		assert_int_equal(neap_record_read(path, &record, &err), NEAP_EPARSE);
		assert_int_equal(record.pid, 4711); /* untouched */
		assert_int_equal(err.position, cases[i].position == SIZE_MAX ? cases[i].offset : cases[i].position);
		assert_non_null(strstr(err.message, path));
	}
	neap_buffer_fini(&good);
}

/* A counter with a plausible value makes torn events, not errors: a process may die between claiming and storing. */
static void test_lying_counter(void **state)
{
	struct neap_buffer good = good_file();
	uint64_t written = 1000;

	(void)state;
	memcpy(good.data + offsetof(struct neap_record_header, journal_written), &written, sizeof written);
	put_file(good.data, good.length);
	struct neap_record record = read_record();
	assert_int_equal(record.journal_count, 0);
	assert_int_equal(record.torn, 4);
	assert_int_equal(record.journal_lost, 996);
	assert_int_equal(record.allocation_count, 8);
	neap_record_fini(&record);
	neap_buffer_fini(&good);
}

static void test_other_files(void **state)
{
	struct neap_buffer good = good_file();
	struct neap_record record;
	struct neap_error err = {0};

	(void)state;
	for (size_t length = 0; length < good.length; length += 1023) {
		put_file(good.data, length);
		assert_int_equal(neap_record_read(path, &record, &err), NEAP_EPARSE);
		assert_int_equal(err.position, length);
	}
	((struct neap_record_header *)good.data)->version = 2;
	put_file(good.data, good.length);
	assert_int_equal(neap_record_read(path, &record, &err), NEAP_EPARSE);
	assert_non_null(strstr(err.message,
			       " has format 2, and this neap reads formats 1 and 3: read it with the neap that "
			       "recorded it, or record the run again"));
	unlink(path);
	assert_int_equal(neap_record_read(path, &record, &err), NEAP_ENOENT);
	assert_int_equal(neap_record_read(folder, &record, &err), NEAP_EPARSE);
	assert_int_equal(mkfifo(path, 0600), 0);
	assert_int_equal(neap_record_read(path, &record, &err), NEAP_EPARSE); /* and does not hang */
	neap_buffer_fini(&good);
}

static void test_fuzz(void **state)
{
	struct neap_buffer good = good_file();
	uint64_t seed = 0x6e656170;
	char *copy = malloc(good.length);

	(void)state;
	assert_non_null(copy);
	print_message("fuzz seed 0x%llx\n", (unsigned long long)seed);
	for (int round = 0; round < 3000; round++) {
		/* Most of the file is names: so change header fields and events as often. */
		uint64_t flips = 1 + next_random(&seed) % 8;
		size_t length = round % 16 ? good.length : next_random(&seed) % good.length;
		memcpy(copy, good.data, good.length);
		for (uint64_t i = 0; i < flips; i++) {
			uint64_t where = next_random(&seed);
			size_t at = where % 3 == 0   ? where / 3 % 96
				    : where % 3 == 1 ? NEAP_RECORD_HEADER_BYTES + where / 3 % (12 * 64)
						     : where / 3 % good.length;
			copy[at] ^= (char)(1u << next_random(&seed) % 8);
		}
		LLVMFuzzerTestOneInput((const uint8_t *)copy, length);
	}
	free(copy);
	neap_buffer_fini(&good);
}

/* This process's own recording is continued, with its names; another's, and nonsense, is replaced. */
static void test_resume(void **state)
{
	struct neap_recorder *recorder = open_recorder(8, 16);
	struct neap_buffer good = {0};

	(void)state;
	const struct neap_observer *observer = neap_recorder_observer(recorder);
	assert_int_equal(observer->name(observer->context, "loss"), 1);
	emit(recorder, numbered(NEAP_EVENT_EMPTY_CACHE, 1));
	neap_recorder_destroy(recorder);
	assert_int_equal(neap_recorder_resume(path, 8, 16, &recorder, NULL), NEAP_OK);
	observer = neap_recorder_observer(recorder);
	assert_int_equal(observer->name(observer->context, "more"), 2);
	emit(recorder, numbered(NEAP_EVENT_EMPTY_CACHE, 2));
	neap_recorder_destroy(recorder);
	struct neap_record record = read_record();
	assert_int_equal(record.journal_count, 2);
	assert_int_equal(record.names_used, 3);
	assert_string_equal(record.names[1], "loss");
	neap_record_fini(&record);

	assert_int_equal(neap_file_read(path, 1u << 20, &good, NULL), NEAP_OK);
	for (int kind = 0; kind < 7; kind++) {
		struct neap_record_header *header = (struct neap_record_header *)(void *)good.data;
		struct neap_record_header before = *header;
		size_t length = good.length;
		if (kind == 0)
			header->pid++;
		else if (kind == 1)
			header->start_ticks++;
		else if (kind == 2)
			header->version++;
		else if (kind == 3)
			header->journal_capacity *= 2;
		else if (kind == 4)
			header->names_used = NEAP_RECORD_NAMES + 1;
		else if (kind == 5)
			memset(header->names[1], 'x', sizeof header->names[1]);
		else
			length--;
		put_file(good.data, length);
		assert_int_equal(neap_recorder_resume(path, 8, 16, &recorder, NULL), NEAP_OK);
		neap_recorder_destroy(recorder);
		record = read_record();
		assert_int_equal(record.journal_count, 0);
		neap_record_fini(&record);
		*header = before;
	}
	neap_buffer_fini(&good);
}

static void test_create_fails(void **state)
{
	struct neap_recorder *recorder = (struct neap_recorder *)0x1;
	struct neap_error err = {0};
	struct rlimit limit, small;

	(void)state;
	assert_int_equal(neap_recorder_create("/nowhere/at/all/record", 0, 0, &recorder, &err), NEAP_ENOENT);
	assert_int_equal(neap_recorder_create("", 0, 0, &recorder, &err), NEAP_EINVAL);
	assert_int_equal(neap_recorder_create(path, 1ull << 60, 0, &recorder, &err), NEAP_EINVAL);
	/* No space: an error now, not a signal later; the old file stays. */
	put_file("before", 6);
	assert_int_equal(getrlimit(RLIMIT_FSIZE, &limit), 0);
	small = (struct rlimit){.rlim_cur = 65536, .rlim_max = limit.rlim_max};
	assert_int_equal(setrlimit(RLIMIT_FSIZE, &small), 0);
	enum neap_status status = neap_recorder_create(path, 0, 0, &recorder, &err);
	assert_int_equal(setrlimit(RLIMIT_FSIZE, &limit), 0);
	assert_int_equal(status, NEAP_ENOSPC);
	assert_ptr_equal(recorder, (struct neap_recorder *)0x1);
	struct stat file;
	assert_int_equal(stat(path, &file), 0);
	assert_int_equal(file.st_size, 6);
	neap_recorder_destroy(NULL);
}

int main(void)
{
	const struct CMUnitTest tests[] = {
		cmocka_unit_test_setup_teardown(test_round_trip, set_up, tear_down),
		cmocka_unit_test_setup_teardown(test_wrap, set_up, tear_down),
		cmocka_unit_test_setup_teardown(test_overtaken, set_up, tear_down),
		cmocka_unit_test_setup_teardown(test_names_full, set_up, tear_down),
		cmocka_unit_test_setup_teardown(test_killed_writer, set_up, tear_down),
		cmocka_unit_test_setup_teardown(test_threads, set_up, tear_down),
		cmocka_unit_test_setup_teardown(test_read_while_written, set_up, tear_down),
		cmocka_unit_test_setup_teardown(test_hostile_headers, set_up, tear_down),
		cmocka_unit_test_setup_teardown(test_lying_counter, set_up, tear_down),
		cmocka_unit_test_setup_teardown(test_other_files, set_up, tear_down),
		cmocka_unit_test_setup_teardown(test_fuzz, set_up, tear_down),
		cmocka_unit_test_setup_teardown(test_resume, set_up, tear_down),
		cmocka_unit_test_setup_teardown(test_create_fails, set_up, tear_down),
	};
	return cmocka_run_group_tests(tests, NULL, NULL);
}
