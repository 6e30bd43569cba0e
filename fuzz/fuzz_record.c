/* Fuzz target for the reader of recordings: any bytes must give events or an error, never a fault.
 *
 *     clang -fsanitize=fuzzer,address -Iinclude -Isrc fuzz/fuzz_record.c src/trace/record.c src/base/error.c ...
 *
 * The test run drives the same function over a generated corpus. */
#include "trace/record.h"

#include <stdio.h>
#include <stdlib.h>
#include <sys/mman.h>
#include <unistd.h>

int LLVMFuzzerTestOneInput(const uint8_t *data, size_t size);

/* Reads everything that the reader returned, so that a sanitizer sees bytes that do not exist. */
static void use(const struct neap_record *record)
{
	uint64_t previous = 0;

	for (size_t i = 0; i < record->journal_count; i++) {
		const struct neap_event *event = &record->journal[i];
		if (event->time_ns < previous)
			abort();
		previous = event->time_ns;
	}
	for (uint64_t name = 0; name <= NEAP_RECORD_NAMES; name++)
		for (const char *c = neap_record_name(record, name); *c; c++)
			if (*c < 0x20 || *c > 0x7e)
				abort();
	previous = 0;
	for (size_t i = 0; i < record->allocation_count; i++) {
		if (record->allocations[i].time_ns < previous)
			abort();
		previous = record->allocations[i].time_ns;
	}
}

int LLVMFuzzerTestOneInput(const uint8_t *data, size_t size)
{
	struct neap_record record;
	char path[64];
	int fd = memfd_create("record", MFD_CLOEXEC);

	if (fd < 0)
		return 0;
	snprintf(path, sizeof path, "/proc/self/fd/%d", fd);
	if (write(fd, data, size) == (ssize_t)size && neap_record_read(path, &record, NULL) == NEAP_OK) {
		use(&record);
		neap_record_fini(&record);
	}
	close(fd);
	return 0;
}
