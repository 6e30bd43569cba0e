/* bench/suite.c: see the header. */
#include "bench/suite.h"

#include "base/error.h"
#include "neap/trace.h"

#include <errno.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <unistd.h>

#define DEVICE_BYTES (256ull << 30) /* the simulator would take minutes to make the pages of a larger device */
/* How much of this machine's memory glibc's blocks may take: a page of each is touched. */
#define GLIBC_BYTES (640ull << 20)
#define GLIBC_MAPS  30000 /* blocks of 128 KiB and more are mappings, and a process may have 65530 */

static void add_plan(struct neap_bench_suite *suite, const char *name, struct neap_bench_plan plan)
{
	if (plan.bytes && suite->bytes)
		plan.bytes = suite->bytes;
	if (plan.live * plan.bytes > DEVICE_BYTES)
		return;
	for (size_t i = 0; i < suite->count; i++)
		if (strcmp(suite->rows[i].name, name) == 0 && suite->rows[i].plan.bytes == plan.bytes &&
		    suite->rows[i].plan.live == plan.live && suite->rows[i].plan.threads == plan.threads)
			return;
	if (suite->count < NEAP_BENCH_ROWS)
		suite->rows[suite->count++] = (struct neap_bench_row){
			.name = name, .plan = plan, .recorded = strcmp(name, "recorder") == 0};
}

static void add_hits(struct neap_bench_suite *suite)
{
	const size_t sizes[] = {512, 4096, 64 << 10, 1 << 20, 16 << 20, 64 << 20};
	for (size_t i = 0; i < sizeof sizes / sizeof sizes[0]; i++)
		add_plan(suite, "hit", (struct neap_bench_plan){NEAP_BENCH_HIT, sizes[i], 100, 1});
	for (size_t live = 1000; live <= 1000000; live *= 10)
		add_plan(suite, "hit", (struct neap_bench_plan){NEAP_BENCH_HIT, 512, live, 1});
	for (size_t live = 1000; live <= 100000; live *= 10)
		add_plan(suite, "hit", (struct neap_bench_plan){NEAP_BENCH_HIT, 64 << 10, live, 1});
}

static void add_batches(struct neap_bench_suite *suite)
{
	add_plan(suite, "batch", (struct neap_bench_plan){NEAP_BENCH_BATCH, 4096, 100, 1});
	add_plan(suite, "batch", (struct neap_bench_plan){NEAP_BENCH_BATCH, 1 << 20, 100, 1});
}

static void add_replacements(struct neap_bench_suite *suite)
{
	for (size_t live = 1000; live <= 100000; live *= 10)
		add_plan(suite, "replacement", (struct neap_bench_plan){NEAP_BENCH_REPLACEMENT, 0, live, 1});
}

static void add_shapes(struct neap_bench_suite *suite)
{
	for (size_t live = 1000; live <= 100000; live *= 10)
		add_plan(suite, "shapes", (struct neap_bench_plan){NEAP_BENCH_SHAPES, 0, live, 1});
}

static void add_populated(struct neap_bench_suite *suite)
{
	add_plan(suite, "populated", (struct neap_bench_plan){NEAP_BENCH_POPULATED, 0, 10000, 1});
}

static void add_misses(struct neap_bench_suite *suite)
{
	add_plan(suite, "miss", (struct neap_bench_plan){NEAP_BENCH_MISS, 0, 1000, 1});
	add_plan(suite, "miss", (struct neap_bench_plan){NEAP_BENCH_MISS, 0, 100000, 1});
}

static void add_cross(struct neap_bench_suite *suite)
{
	add_plan(suite, "cross", (struct neap_bench_plan){NEAP_BENCH_CROSS, 4096, 100, 2});
}

static void add_threads(struct neap_bench_suite *suite)
{
	for (unsigned threads = 1; threads <= suite->threads; threads++)
		add_plan(suite, "threads", (struct neap_bench_plan){NEAP_BENCH_HIT, 4096, 100, threads});
}

static void add_recorder(struct neap_bench_suite *suite)
{
	add_plan(suite, "recorder", (struct neap_bench_plan){NEAP_BENCH_HIT, 4096, 100, 1});
}

static const struct {
	const char *name;
	void (*add)(struct neap_bench_suite *suite);
} cases[] = {{"hit", add_hits},      {"batch", add_batches},       {"replacement", add_replacements},
	     {"shapes", add_shapes}, {"populated", add_populated}, {"miss", add_misses},
	     {"cross", add_cross},   {"threads", add_threads},     {"recorder", add_recorder}};
#define CASES (sizeof cases / sizeof cases[0])

static enum neap_status measure_own(struct neap_recorder *recorder, struct neap_bench_row *row,
				    struct neap_error *err)
{
	struct neap_bench_heap heap = {0};
	const struct neap_observer *observer = row->recorded ? neap_recorder_observer(recorder) : NULL;
	enum neap_status status = neap_bench_heap_open(observer, &heap, err);
	if (!status)
		status = neap_bench_run(&heap, &row->plan, &row->own, err);
	if (!status)
		status = neap_alloc_check(heap.alloc, err);
	neap_bench_heap_close(&heap);
	return status;
}

static enum neap_status measure_glibc(struct neap_bench_row *row, struct neap_error *err)
{
	struct neap_bench_heap heap = neap_bench_heap_glibc();
	size_t bytes = row->plan.bytes ? row->plan.bytes : 64 << 10;
	uint64_t blocks = (uint64_t)row->plan.live * row->plan.threads;
	if (row->plan.kind == NEAP_BENCH_POPULATED)
		blocks *= 2;
	if (blocks * (bytes < 4096 ? bytes : 4096) > GLIBC_BYTES ||
	    (row->plan.bytes >= 128 << 10 && blocks > GLIBC_MAPS))
		return NEAP_OK;
	row->has_glibc = true;
	return neap_bench_run(&heap, &row->plan, &row->glibc, err);
}

bool neap_bench_suite_add(struct neap_bench_suite *suite, const char *name)
{
	bool found = false;
	for (size_t i = 0; i < CASES; i++) {
		if (name && strcmp(cases[i].name, name) != 0)
			continue;
		cases[i].add(suite);
		found = true;
	}
	return found;
}

static enum neap_status measure_loop(double *ret_ns, struct neap_error *err)
{
	struct neap_bench_heap empty = neap_bench_heap_empty();
	struct neap_bench_plan plan = {NEAP_BENCH_HIT, 512, 0, 1};
	struct neap_bench_figures figures;
	enum neap_status status = neap_bench_run(&empty, &plan, &figures, err);
	if (!status)
		*ret_ns = figures.ns;
	return status;
}

static enum neap_status open_recording(char path[64], struct neap_recorder **ret_recorder, struct neap_error *err)
{
	snprintf(path, 64, "/tmp/neap-bench-XXXXXX");
	int fd = mkstemp(path);
	if (fd < 0)
		return neap_fail_errno(err, errno, "making %s", path);
	close(fd);
	return neap_recorder_create(path, 0, 0, ret_recorder, err);
}

enum neap_status neap_bench_suite_measure(struct neap_bench_suite *suite,
					  void (*progress)(size_t number, size_t count), struct neap_error *err)
{
	struct neap_recorder *recorder = NULL;
	char recording[64];
	enum neap_status status = open_recording(recording, &recorder, err);
	if (!status)
		status = measure_loop(&suite->loop_ns, err);
	for (size_t i = 0; !status && i < suite->count; i++) {
		if (progress)
			progress(i + 1, suite->count);
		status = measure_own(recorder, &suite->rows[i], err);
		if (!status)
			status = measure_glibc(&suite->rows[i], err);
	}
	neap_recorder_destroy(recorder);
	unlink(recording);
	return status;
}
