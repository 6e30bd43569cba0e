/* See the header. */
#include "record_test.h"

#include "base/file.h"
#include "base/slot.h"

#include <fcntl.h>
#include <signal.h>
#include <stdio.h>
#include <sys/resource.h>
#include <sys/stat.h>
#include <sys/wait.h>
#include <unistd.h>

char folder[TEST_FOLDER_CAPACITY];
char path[128];

int set_up(void **state)
{
	(void)state;
	if (make_folder(folder, "record"))
		return -1;
	snprintf(path, sizeof path, "%s/record", folder);
	return 0;
}

int tear_down(void **state)
{
	(void)state;
	unlink(path);
	return rmdir(folder); /* fails if a temporary file was left behind */
}

/* An event whose words all follow from `n`, so that a torn event is noticed. */
struct neap_event numbered(uint16_t kind, uint64_t n)
{
	return (struct neap_event){
		.time_ns = n + 1, .kind = kind, .payload = {n, n * 3, ~n, n << 7, n ^ 0x5555, n + 77}};
}

void assert_whole(const struct neap_event *event)
{
	struct neap_event expected = numbered(event->kind, event->time_ns - 1);

	expected.sequence = event->sequence;
	assert_memory_equal(event, &expected, sizeof expected);
}

struct neap_recorder *open_recorder(uint64_t journal, uint64_t allocations)
{
	struct neap_recorder *recorder = NULL;
	struct neap_error err = {0};

	if (neap_recorder_create(path, journal, allocations, &recorder, &err) != NEAP_OK)
		fail_msg("%s", err.message);
	return recorder;
}

struct neap_record read_record(void)
{
	struct neap_record record;
	struct neap_error err = {0};

	if (neap_record_read(path, &record, &err) != NEAP_OK)
		fail_msg("%s", err.message);
	return record;
}

void emit(struct neap_recorder *recorder, struct neap_event event)
{
	const struct neap_observer *observer = neap_recorder_observer(recorder);

	observer->event(observer->context, &event);
}

void emit_to_run(const struct neap_observer *observer, struct neap_event_run *run, struct neap_event event)
{
	uint64_t *slot = neap_slot_next(observer, run);

	assert_non_null(slot);
	neap_slot_store(slot, run->next - 1, event.time_ns, neap_slot_kind(event.kind, event.device), event.payload);
}

void put_file(const void *bytes, size_t length)
{
	FILE *file = fopen(path, "w");

	assert_non_null(file);
	assert_int_equal(fwrite(bytes, 1, length, file), length);
	assert_int_equal(fclose(file), 0);
}
