/* trace/trace_test.h: one file in a folder of its own, written, read as a trace, and the messages about it. */
#ifndef NEAP_TESTS_TRACE_TEST_H
#define NEAP_TESTS_TRACE_TEST_H

#include "support/test.h"
#include "trace/trace.h"

#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <unistd.h>

static char folder[TEST_FOLDER_CAPACITY];
static char path[128];

static inline int set_up(void **state)
{
	(void)state;
	if (make_folder(folder, "trace"))
		return -1;
	snprintf(path, sizeof path, "%s/trace", folder);
	return 0;
}

static inline int tear_down(void **state)
{
	(void)state;
	unlink(path);
	return rmdir(folder); /* fails if a temporary file was left behind */
}

static inline struct neap_trace *read_bytes(const void *bytes, size_t length, struct neap_error *err)
{
	struct neap_trace *trace = NULL;
	FILE *file = fopen(path, "w");

	assert_non_null(file);
	assert_int_equal(fwrite(bytes, 1, length, file), length);
	assert_int_equal(fclose(file), 0);
	enum neap_status status = neap_trace_read(path, &trace, err);
	assert_int_equal(status == NEAP_OK, trace != NULL);
	return trace;
}

static inline void assert_warned(const struct neap_trace *trace, const char *text)
{
	for (size_t i = 0; i < trace->warning_count; i++)
		if (strstr(trace->warnings[i].text, text))
			return;
	fail_msg("no warning says '%s'", text);
}

#endif
