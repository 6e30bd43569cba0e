/* fuzz/fuzz_analyze.c: every trace that a reader accepts must be analysed, replayed and described; a written trace
 * must be read again with as many events; never a fault. Built and run by fuzz/run.sh. */
#include "report/analysis.h"
#include "report/trace_page.h"

#include "base/buffer.h"

#include <fcntl.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/mman.h>
#include <unistd.h>

int LLVMFuzzerTestOneInput(const uint8_t *data, size_t size);

static void check(bool ok)
{
	if (!ok)
		abort();
}

static bool go_on(void *context, uint64_t done, uint64_t total)
{
	(void)context;
	(void)total;
	return done < 20000;
}

static void write_page(const struct neap_analysis *analysis, const struct neap_analysis_options *options)
{
	struct neap_trace_page_options page = {.path = "a file", .top = 5, .analysis = options};
	int fd = open("/dev/null", O_WRONLY | O_CLOEXEC);
	uint64_t bytes = 0;

	if (fd < 0)
		return;
	enum neap_status status = neap_trace_page_write(fd, analysis, &page, &bytes, NULL);
	check(status == NEAP_ECANCELED || (!status && bytes > 0));
	close(fd);
}

static void analyze(const struct neap_trace *trace)
{
	struct neap_analysis_options options = {.device = SIZE_MAX, .progress = go_on};
	struct neap_analysis analysis = {0};
	struct neap_buffer out = {0};
	struct neap_error err = {0};

	enum neap_status status = neap_analyze(trace, &options, &analysis, &err);
	if (!status) {
		neap_report_analysis(&out, &analysis, "a file", 5);
		check(neap_buffer_status(&out, &err) == NEAP_OK && strlen(neap_buffer_string(&out)) > 0);
		write_page(&analysis, &options);
	} else {
		check(status == NEAP_ECANCELED || err.message[0]);
	}
	neap_buffer_fini(&out);
	neap_analysis_fini(&analysis);
}

static uint64_t count_events(const struct neap_trace *trace)
{
	uint64_t count = 0;
	for (size_t i = 0; i < trace->device_count; i++)
		count += trace->devices[i].event_count;
	return count;
}

/* A snapshot is written again unchanged, as far as a snapshot can express it. */
static void write_again(const struct neap_trace *trace)
{
	struct neap_trace *again = NULL;
	struct neap_error err = {0};
	char path[] = "/tmp/neap-fuzz-XXXXXX";
	int fd = mkstemp(path);

	if (fd < 0)
		return;
	close(fd);
	check(neap_trace_write_snapshot(trace, path, &err) == NEAP_OK);
	check(neap_trace_read(path, &again, &err) == NEAP_OK);
	if (trace->source == NEAP_TRACE_SNAPSHOT)
		check(count_events(trace) == count_events(again) && trace->segment_count == again->segment_count &&
		      trace->block_count == again->block_count);
	neap_trace_free(again);
	again = NULL;
	enum neap_status status = neap_trace_write_text(trace, 0, path, &err);
	check(!status || status == NEAP_EINVAL); /* a text trace must not have such sizes */
	if (!status)
		check(neap_trace_read(path, &again, &err) == NEAP_OK || strstr(err.message, "it is empty"));
	neap_trace_free(again);
	again = NULL;
	check(neap_trace_write_recording(trace, NULL, NULL, path, &err) == NEAP_OK);
	check(neap_trace_read(path, &again, &err) == NEAP_OK && again->mark_count == trace->mark_count);
	neap_trace_free(again);
	unlink(path);
}

int LLVMFuzzerTestOneInput(const uint8_t *data, size_t size)
{
	struct neap_trace *trace = NULL;
	char path[64];
	int fd = memfd_create("trace", MFD_CLOEXEC);

	if (fd < 0)
		return 0;
	snprintf(path, sizeof path, "/proc/self/fd/%d", fd);
	if (write(fd, data, size) == (ssize_t)size && neap_trace_read(path, &trace, NULL) == NEAP_OK) {
		analyze(trace);
		write_again(trace);
	}
	neap_trace_free(trace);
	close(fd);
	return 0;
}
