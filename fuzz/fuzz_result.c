/* fuzz/fuzz_result.c: any bytes as a result.json must give a result or an error with its place, never a fault; a
 * result that was read can be written, and read again. The reader of lines gives the same fields, or none. Built with
 * libFuzzer (clang -fsanitize=fuzzer,address -Iinclude -Isrc fuzz/fuzz_result.c src/store/result.c
 * src/store/result_lines.c src/base/... -ljansson), and run over a generated corpus by tests/store. */
#include "store/result.h"

#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/mman.h>
#include <unistd.h>

int LLVMFuzzerTestOneInput(const uint8_t *data, size_t size);

static void use(const struct neap_result *result)
{
	struct neap_result again;
	struct neap_error err = {0};
	char path[64];
	const char *texts[] = {result->name,        result->command,    result->parameters,  result->run_id,
			       result->device_name, result->evidence,   result->device_uuid, result->backend,
			       result->drain_note,  result->rung,       result->cleanup,     result->leak_verdict,
			       result->oom_card,    result->fluctuation};
	for (size_t i = 0; i < sizeof texts / sizeof *texts; i++)
		if (!texts[i])
			abort();
	if (result->outcome >= NEAP_OUTCOME_COUNT || result->exit_status < 0 || result->exit_status > 255)
		abort();
	snprintf(path, sizeof path, "/tmp/neap-fuzz-result-%d", (int)getpid());
	if (neap_result_write(path, result, &err) != NEAP_OK || neap_result_read(path, &again, &err) != NEAP_OK) {
		fprintf(stderr, "%s\n", err.message);
		abort();
	}
	if (again.outcome != result->outcome || strcmp(again.command, result->command) != 0 ||
	    again.sample_count != result->sample_count || again.rank_count != result->rank_count)
		abort();
	neap_result_fini(&again);
	unlink(path);
}

/* Reads the fields by lines. `whole`: the parser's result; NULL: it found an error, on this line. */
static void read_lines(const uint8_t *data, size_t size, const struct neap_result *whole, uint32_t line)
{
	struct neap_result fields;
	struct neap_buffer text = {0}, want = {0}, got = {0};
	if (neap_result_init(&fields, NULL))
		abort();
	neap_buffer_append(&text, data, size);
	bool read = neap_result_read_lines(neap_buffer_string(&text), &fields);
	if (read && !whole && line < NEAP_RESULT_FIELDS + 3) /* before the lists */
		abort();
	if (read && whole) {
		struct neap_result same = *whole; /* which owns the strings */
		same.sample_count = same.mark_count = same.rank_count = 0;
		if (neap_result_format("", &same, &want, NULL) || neap_result_format("", &fields, &got, NULL) ||
		    strcmp(want.data, got.data))
			abort();
	}
	neap_buffer_fini(&text);
	neap_buffer_fini(&want);
	neap_buffer_fini(&got);
	neap_result_fini(&fields);
}

int LLVMFuzzerTestOneInput(const uint8_t *data, size_t size)
{
	struct neap_result result;
	struct neap_error err = {0};
	char path[64];
	int fd = memfd_create("result", MFD_CLOEXEC);
	if (fd < 0)
		return 0;
	snprintf(path, sizeof path, "/proc/self/fd/%d", fd);
	if (write(fd, data, size) != (ssize_t)size)
		abort();
	enum neap_status status = neap_result_read(path, &result, &err);
	read_lines(data, size, status ? NULL : &result, err.line);
	if (!status) {
		use(&result);
		neap_result_fini(&result);
	} else if (!err.message[0]) {
		abort();
	}
	close(fd);
	return 0;
}
