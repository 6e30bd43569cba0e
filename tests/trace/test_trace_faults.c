/* Makes every host allocation fail that reading and writing a trace makes, one after the other: each time there is an
 * error that says so, no leak (a sanitizer checks), and no half-written file. */
#include "trace/trace.h"

#include "support/host_fails.h"
#include "support/test.h"

#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <unistd.h>

static char folder[64], text[96], snapshot[96], other[96];

static int make_files(void **state)
{
	struct neap_trace *trace = NULL;

	(void)state;
	strcpy(folder, "/tmp/neap-faults-XXXXXX");
	if (!mkdtemp(folder))
		return -1;
	snprintf(text, sizeof text, "%s/text", folder);
	snprintf(snapshot, sizeof snapshot, "%s/snapshot", folder);
	snprintf(other, sizeof other, "%s/other", folder);
	FILE *file = fopen(text, "w");
	if (!file)
		return -1;
	fprintf(file, "m second\nm first\n");
	for (int i = 0; i < 300; i++)
		fprintf(file, "a %d %d %d\nm mark %d\n", i, i * 700 + 1, i % 40, i);
	for (int i = 0; i < 200; i++)
		fprintf(file, "f %d\nr %d 1\ns\n", i, 299);
	fclose(file);
	if (neap_trace_read(text, &trace, NULL) != NEAP_OK ||
	    neap_trace_write_snapshot(trace, snapshot, NULL) != NEAP_OK)
		return -1;
	neap_trace_free(trace);
	return 0;
}

static int remove_files(void **state)
{
	(void)state;
	unlink(text);
	unlink(snapshot);
	unlink(other);
	return rmdir(folder); /* fails, and so shows it, if a temporary was left behind */
}

/* Fails each allocation in turn; returns how many there were. */
static long sweep(enum neap_status (*operation)(const struct neap_trace *trace, struct neap_error *err),
		  const struct neap_trace *trace)
{
	for (long n = 0;; n++) {
		struct neap_error err = {0};
		host_countdown = n;
		enum neap_status status = operation(trace, &err);
		long left = host_countdown;
		host_countdown = -1;
		if (left >= 0) {
			assert_int_equal(status, NEAP_OK);
			unlink(other);
			return n;
		}
		/* An allocation that only shrinks something may fail without harm. */
		if (status && (status != NEAP_ENOMEM || !strstr(err.message, "memory")))
			fail_msg("allocation %ld: %s: %s", n, neap_status_name(status), err.message);
		if (status && access(other, F_OK) == 0)
			fail_msg("allocation %ld: a file was left", n);
		unlink(other);
	}
}

static enum neap_status read_path(const char *path, struct neap_error *err)
{
	struct neap_trace *trace = NULL;
	enum neap_status status = neap_trace_read(path, &trace, err);

	assert_int_equal(status == NEAP_OK, trace != NULL);
	neap_trace_free(trace);
	return status;
}

static enum neap_status read_text(const struct neap_trace *trace, struct neap_error *err)
{
	(void)trace;
	return read_path(text, err);
}

static enum neap_status read_snapshot(const struct neap_trace *trace, struct neap_error *err)
{
	(void)trace;
	return read_path(snapshot, err);
}

static enum neap_status write_text(const struct neap_trace *trace, struct neap_error *err)
{
	return neap_trace_write_text(trace, 0, other, err);
}

static enum neap_status write_snapshot(const struct neap_trace *trace, struct neap_error *err)
{
	return neap_trace_write_snapshot(trace, other, err);
}

static void test_reading(void **state)
{
	(void)state;
	assert_true(sweep(read_text, NULL) > 20);
	assert_true(sweep(read_snapshot, NULL) > 20);
}

static void test_writing(void **state)
{
	struct neap_trace *trace = NULL;

	(void)state;
	assert_int_equal(neap_trace_read(snapshot, &trace, NULL), NEAP_OK);
	assert_true(sweep(write_text, trace) > 5);
	assert_true(sweep(write_snapshot, trace) > 4);
	neap_trace_free(trace);
}

int main(void)
{
	const struct CMUnitTest tests[] = {cmocka_unit_test(test_reading), cmocka_unit_test(test_writing)};

	return cmocka_run_group_tests(tests, make_files, remove_files);
}
