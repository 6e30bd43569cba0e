/* A recording is cut to what was written, or stays as it is. */
#include "record_test.h"

#include "base/buffer.h"
#include "base/file.h"

#include <fcntl.h>
#include <signal.h>
#include <stdio.h>
#include <string.h>
#include <sys/resource.h>
#include <sys/stat.h>
#include <sys/wait.h>
#include <unistd.h>

/* A recording by a process that has ended: one journal event, three allocations and a name, in rings of `journal` and
 * `allocations` events. */
static void record_in_a_child(uint64_t journal, uint64_t allocations)
{
	fflush(NULL);
	pid_t child = fork();
	if (child == 0) {
		struct neap_recorder *recorder = NULL;
		if (neap_recorder_create(path, journal, allocations, &recorder, NULL) != NEAP_OK)
			_exit(1);
		const struct neap_observer *observer = neap_recorder_observer(recorder);
		struct neap_event step = {.time_ns = 9,
					  .kind = NEAP_EVENT_STEP,
					  .step = {.number = 7, .name = observer->name(observer->context, "loss")}};
		observer->event(observer->context, &step);
		for (uint64_t n = 1; n < 4; n++) {
			struct neap_event event = numbered(NEAP_EVENT_ALLOC, n);
			observer->event(observer->context, &event);
		}
		_exit(0);
	}
	int wait_status = -1;
	assert_int_equal(waitpid(child, &wait_status, 0), child);
	assert_int_equal(wait_status, 0);
}

static void assert_one_and_three(void)
{
	struct neap_record record = read_record();
	uint64_t step = 0;
	double loss;

	assert_int_equal(record.journal_count, 1);
	assert_int_equal(record.allocation_count, 3);
	assert_int_equal(record.journal_lost + record.allocations_lost + record.torn, 0);
	assert_string_equal(neap_record_name(&record, record.journal[0].step.name), "loss");
	for (size_t i = 0; i < 3; i++)
		assert_whole(&record.allocations[i]);
	neap_record_fini(&record);
	assert_int_equal(neap_record_last_step(path, &step, &loss, NULL), NEAP_OK);
	assert_int_equal(step, 7);
}

static struct stat look(void)
{
	struct stat file;

	assert_int_equal(stat(path, &file), 0);
	return file;
}

static void test_cut(void **state)
{
	const struct timespec times[] = {{1000, 0}, {2000, 0}};
	struct neap_error err = {0};
	struct neap_buffer first = {0}, second = {0};

	(void)state;
	record_in_a_child(0, 0);
	assert_int_equal(look().st_size, NEAP_RECORD_BYTES);
	assert_int_equal(utimensat(AT_FDCWD, path, times, 0), 0);
	if (neap_record_cut(path, &err) != NEAP_OK)
		fail_msg("%s", err.message);
	struct stat file = look();
	assert_int_equal(file.st_size, 16384 + 6 * 64);
	assert_true(file.st_blocks * 512 <= 2 * 16384);
	assert_int_equal(file.st_mode & 07777, 0600);
	assert_int_equal(file.st_mtime, 2000);
	assert_one_and_three();
	/* Cutting once more changes nothing. */
	assert_int_equal(neap_file_read(path, 1u << 20, &first, NULL), NEAP_OK);
	assert_int_equal(neap_record_cut(path, NULL), NEAP_OK);
	assert_int_equal(neap_file_read(path, 1u << 20, &second, NULL), NEAP_OK);
	assert_int_equal(first.length, second.length);
	assert_memory_equal(first.data, second.data, first.length);
	/* Cut by another program it is damaged, and reported as damaged. */
	for (size_t length = first.length - 1; length >= 16384; length -= 64) {
		struct neap_record record;
		put_file(first.data, length);
		assert_int_equal(neap_record_read(path, &record, &err), NEAP_EPARSE);
		assert_non_null(strstr(err.message, "is damaged: it was cut short"));
		assert_int_equal(err.position, length);
		assert_int_equal(neap_record_cut(path, NULL), NEAP_EPARSE);
		assert_int_equal(look().st_size, length);
	}
	neap_buffer_fini(&first);
	neap_buffer_fini(&second);
}

/* A ring that has wrapped stays whole, next to one that is cut; so does a ring that is exactly full. */
static void test_cut_wrapped(void **state)
{
	struct neap_error err = {0};

	(void)state;
	record_in_a_child(100, 2);
	assert_int_equal(neap_record_cut(path, &err), NEAP_OK);
	assert_int_equal(look().st_size, 16384 + 4 * 64);
	struct neap_record record = read_record();
	assert_int_equal(record.allocation_count, 2);
	assert_int_equal(record.allocations_lost, 1);
	assert_whole(&record.allocations[0]);
	assert_int_equal(record.allocations[0].time_ns, 3);
	neap_record_fini(&record);

	record_in_a_child(100, 3);
	assert_int_equal(neap_record_cut(path, &err), NEAP_OK);
	assert_int_equal(look().st_size, 16384 + 5 * 64);
	assert_one_and_three();
}

/* A living process's recording is not touched, and neither is the target of a link. */
static void test_cut_refused(void **state)
{
	struct neap_recorder *recorder = open_recorder(8, 16);
	struct neap_error err = {0};
	char link[140];

	(void)state;
	assert_int_equal(neap_record_cut(path, &err), NEAP_EBUSY);
	assert_int_equal(look().st_size, 16384 + 24 * 64);
	emit(recorder, numbered(NEAP_EVENT_ALLOC, 1));
	neap_recorder_destroy(recorder);
	struct neap_record record = read_record();
	assert_int_equal(record.allocation_count, 1);
	neap_record_fini(&record);
	snprintf(link, sizeof link, "%s/link", folder);
	assert_int_equal(symlink(path, link), 0);
	assert_int_equal(neap_record_cut(link, &err), NEAP_EINVAL);
	unlink(link);
	unlink(path);
	assert_int_equal(neap_record_cut(path, &err), NEAP_ENOENT);
}

/* If the cut copy cannot be written, the recording stays, but still frees what it did not use. */
static void test_cut_without_room(void **state)
{
	struct rlimit limit, small;

	(void)state;
	record_in_a_child(0, 0);
	int64_t blocks = look().st_blocks;
	assert_int_equal(getrlimit(RLIMIT_FSIZE, &limit), 0);
	small = (struct rlimit){.rlim_cur = 4096, .rlim_max = limit.rlim_max};
	void (*before)(int) = signal(SIGXFSZ, SIG_IGN);
	assert_int_equal(setrlimit(RLIMIT_FSIZE, &small), 0);
	enum neap_status status = neap_record_cut(path, NULL);
	assert_int_equal(setrlimit(RLIMIT_FSIZE, &limit), 0);
	signal(SIGXFSZ, before);
	assert_int_equal(status, NEAP_EIO);
	assert_int_equal(look().st_size, NEAP_RECORD_BYTES);
	assert_true(look().st_blocks < blocks / 10);
	assert_one_and_three();
}

int main(void)
{
	const struct CMUnitTest tests[] = {
		cmocka_unit_test_setup_teardown(test_cut, set_up, tear_down),
		cmocka_unit_test_setup_teardown(test_cut_wrapped, set_up, tear_down),
		cmocka_unit_test_setup_teardown(test_cut_refused, set_up, tear_down),
		cmocka_unit_test_setup_teardown(test_cut_without_room, set_up, tear_down),
	};
	return cmocka_run_group_tests(tests, NULL, NULL);
}
