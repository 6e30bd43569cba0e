/* cli/cmd_bench.c: `neap bench alloc`: how long the allocator takes, beside glibc's malloc in the same minutes. */
#include "base/error.h"
#include "base/units.h"
#include "bench/cases.h"
#include "cli/command.h"
#include "cli/json_print.h"
#include "neap/trace.h"
#include "store/json_rows.h"

#include <errno.h>
#include <math.h>
#include <stdlib.h>
#include <string.h>
#include <unistd.h>

#define SCHEMA       1
#define PLANS        64
#define DEVICE_BYTES (256ull << 30) /* more pages than this holds would take the simulator minutes to make */
#define THREADS_MAX  NEAP_BENCH_STREAMS
/* What glibc's blocks would take of this machine's memory: a page of each is touched. */
#define GLIBC_BYTES (640ull << 20)
#define GLIBC_MAPS  30000 /* blocks of 128 KiB and more are mappings, and a process may have 65530 */

static int run(const struct neap_arguments *arguments);

const struct neap_command neap_command_bench = {
	.name = "bench",
	.usage = "alloc [--case NAME]... [--size SIZE] [--threads N] [--json]",
	.summary = "how long the allocator takes on this machine, beside glibc's malloc",
	.details = neap_help_bench,
	.options =
		(const struct neap_option[]){
			{"case", "NAME",
			 "only this one: hit, batch, replacement, shapes, populated, miss, cross, threads, recorder"},
			{"size", "SIZE", "of hit, batch, cross, threads and recorder: only this size"},
			{"threads", "N", "of threads: the most threads; default 2"},
			{"json", NULL, "every figure, as JSON"},
			{NULL, NULL, NULL},
		},
	.operands_min = 1,
	.operands_max = 1,
	.run = run,
};

/* One line of the result. */
struct row {
	const char *name;
	struct neap_bench_plan plan;
	bool recorded; /* with the recorder on */
	bool has_glibc;
	struct neap_bench_figures own, glibc;
};

struct task {
	size_t bytes;     /* 0: each case's own */
	unsigned threads; /* the most */
	bool json;
	struct row rows[PLANS];
	size_t count;
	double loop_ns; /* of a pair of calls that do nothing */
	struct neap_recorder *recorder;
	char recording[64];
};

static void add_plan(struct task *task, const char *name, struct neap_bench_plan plan)
{
	if (plan.bytes && task->bytes)
		plan.bytes = task->bytes;
	if (plan.live * plan.bytes > DEVICE_BYTES)
		return;
	for (size_t i = 0; i < task->count; i++)
		if (strcmp(task->rows[i].name, name) == 0 && task->rows[i].plan.bytes == plan.bytes &&
		    task->rows[i].plan.live == plan.live && task->rows[i].plan.threads == plan.threads)
			return;
	if (task->count < PLANS)
		task->rows[task->count++] =
			(struct row){.name = name, .plan = plan, .recorded = strcmp(name, "recorder") == 0};
}

static void add_hits(struct task *task)
{
	const size_t sizes[] = {512, 4096, 64 << 10, 1 << 20, 16 << 20, 64 << 20};
	for (size_t i = 0; i < sizeof sizes / sizeof sizes[0]; i++)
		add_plan(task, "hit", (struct neap_bench_plan){NEAP_BENCH_HIT, sizes[i], 100, 1});
	for (size_t live = 1000; live <= 1000000; live *= 10)
		add_plan(task, "hit", (struct neap_bench_plan){NEAP_BENCH_HIT, 512, live, 1});
	for (size_t live = 1000; live <= 100000; live *= 10)
		add_plan(task, "hit", (struct neap_bench_plan){NEAP_BENCH_HIT, 64 << 10, live, 1});
}

static void add_batches(struct task *task)
{
	add_plan(task, "batch", (struct neap_bench_plan){NEAP_BENCH_BATCH, 4096, 100, 1});
	add_plan(task, "batch", (struct neap_bench_plan){NEAP_BENCH_BATCH, 1 << 20, 100, 1});
}

static void add_replacements(struct task *task)
{
	for (size_t live = 1000; live <= 100000; live *= 10)
		add_plan(task, "replacement", (struct neap_bench_plan){NEAP_BENCH_REPLACEMENT, 0, live, 1});
}

static void add_shapes(struct task *task)
{
	for (size_t live = 1000; live <= 100000; live *= 10)
		add_plan(task, "shapes", (struct neap_bench_plan){NEAP_BENCH_SHAPES, 0, live, 1});
}

static void add_populated(struct task *task)
{
	add_plan(task, "populated", (struct neap_bench_plan){NEAP_BENCH_POPULATED, 0, 10000, 1});
}

static void add_misses(struct task *task)
{
	add_plan(task, "miss", (struct neap_bench_plan){NEAP_BENCH_MISS, 0, 1000, 1});
	add_plan(task, "miss", (struct neap_bench_plan){NEAP_BENCH_MISS, 0, 100000, 1});
}

static void add_cross(struct task *task)
{
	add_plan(task, "cross", (struct neap_bench_plan){NEAP_BENCH_CROSS, 4096, 100, 2});
}

static void add_threads(struct task *task)
{
	for (unsigned threads = 1; threads <= task->threads; threads++)
		add_plan(task, "threads", (struct neap_bench_plan){NEAP_BENCH_HIT, 4096, 100, threads});
}

static void add_recorder(struct task *task)
{
	add_plan(task, "recorder", (struct neap_bench_plan){NEAP_BENCH_HIT, 4096, 100, 1});
}

static const struct {
	const char *name;
	void (*add)(struct task *task);
} cases[] = {{"hit", add_hits},      {"batch", add_batches},       {"replacement", add_replacements},
	     {"shapes", add_shapes}, {"populated", add_populated}, {"miss", add_misses},
	     {"cross", add_cross},   {"threads", add_threads},     {"recorder", add_recorder}};
#define CASES (sizeof cases / sizeof cases[0])

static enum neap_status measure_own(struct task *task, struct row *row, struct neap_error *err)
{
	struct neap_bench_heap heap = {0};
	const struct neap_observer *observer = row->recorded ? neap_recorder_observer(task->recorder) : NULL;
	enum neap_status status = neap_bench_heap_open(observer, &heap, err);
	if (!status)
		status = neap_bench_run(&heap, &row->plan, &row->own, err);
	if (!status)
		status = neap_alloc_check(heap.alloc, err);
	neap_bench_heap_close(&heap);
	return status;
}

static enum neap_status measure_glibc(struct row *row, struct neap_error *err)
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

static enum neap_status measure_all(struct task *task, struct neap_error *err)
{
	struct neap_bench_heap empty = neap_bench_heap_empty();
	struct neap_bench_plan plan = {NEAP_BENCH_HIT, 512, 0, 1};
	struct neap_bench_figures figures;
	enum neap_status status = neap_bench_run(&empty, &plan, &figures, err);
	if (!status)
		task->loop_ns = figures.ns;
	for (size_t i = 0; !status && i < task->count; i++) {
		if (!task->json && isatty(STDERR_FILENO))
			fprintf(stderr, "\r%zu of %zu ", i + 1, task->count);
		status = measure_own(task, &task->rows[i], err);
		if (!status)
			status = measure_glibc(&task->rows[i], err);
	}
	if (!task->json && isatty(STDERR_FILENO))
		fputs("\r          \r", stderr);
	return status;
}

static enum neap_status open_recording(struct task *task, struct neap_error *err)
{
	snprintf(task->recording, sizeof task->recording, "/tmp/neap-bench-XXXXXX");
	int fd = mkstemp(task->recording);
	if (fd < 0)
		return neap_fail_errno(err, errno, "making %s", task->recording);
	close(fd);
	return neap_recorder_create(task->recording, 0, 0, &task->recorder, err);
}

static int print_json(const struct task *task)
{
	json_t *root = json_object(), *list = json_array();
	JSON_PUT(root, INTEGER("schema", SCHEMA), REAL("loop_ns", task->loop_ns));
	for (size_t i = 0; i < task->count; i++) {
		const struct row *row = &task->rows[i];
		neap_json_add(list,
			      JSON(TEXT("case", row->name), GIVEN("size", row->plan.bytes),
				   NUMBER("threads", row->plan.threads), NUMBER("live_blocks", row->plan.live),
				   REAL("ns_per_pair", row->own.ns), REAL("ns_low", row->own.low),
				   REAL("ns_high", row->own.high), REAL("elapsed_ns_per_pair", row->own.elapsed),
				   KNOWN("p999_ns", row->own.p999),
				   ONLY(row->has_glibc, REAL("glibc_ns_per_pair", row->glibc.ns)),
				   ONLY(row->has_glibc, KNOWN("glibc_p999_ns", row->glibc.p999))));
	}
	neap_json_set(root, "results", list);
	return json_print("bench", root, JSON_INDENT(2));
}

static void print_ns(double ns)
{
	if (isnan(ns))
		printf(" %9s", "-");
	else
		printf(" %9.1f", ns);
}

static void print_people(const struct task *task)
{
	printf("Nanoseconds per malloc and free, the loop's %.1f included, in processor time: the median of 7 runs, "
	       "the "
	       "fastest,\nthe slowest; the median of the time that elapsed; and the 999th of 1000 single pairs\n",
	       task->loop_ns);
	printf("  %-12s %9s %8s %7s %9s %9s %9s %9s %9s %9s %9s\n", "case", "size", "live", "threads", "neap",
	       "fastest", "slowest", "elapsed", "99.9 %", "glibc", "99.9 %");
	for (size_t i = 0; i < task->count; i++) {
		const struct row *row = &task->rows[i];
		char size[NEAP_UNITS_CAPACITY];
		printf("  %-12s %9s %8zu %7u", row->name,
		       row->plan.bytes ? neap_size_format(row->plan.bytes, size) : "many", row->plan.live,
		       row->plan.threads);
		print_ns(row->own.ns);
		print_ns(row->own.low);
		print_ns(row->own.high);
		print_ns(row->own.elapsed);
		print_ns(row->own.p999);
		print_ns(row->has_glibc ? row->glibc.ns : NAN);
		print_ns(row->has_glibc ? row->glibc.p999 : NAN);
		putchar('\n');
	}
}

static int read_arguments(const struct neap_arguments *arguments, struct task *task)
{
	struct neap_error err;
	const char *size = neap_argument(arguments, "size"), *threads = neap_argument(arguments, "threads"), *name;
	uint64_t bytes = 0, most = 2;
	if (strcmp(neap_operand(arguments, 0), "alloc") != 0)
		return neap_misuse(arguments, "'%s' is nothing to measure: alloc", neap_operand(arguments, 0));
	if (size && (neap_size_parse(size, &bytes, &err) != NEAP_OK || !bytes || bytes > 1 << 30))
		return neap_misuse(arguments, "--size: expected a size from 1 B to 1 GiB such as 4KiB, not '%s'",
				   size);
	if (threads && (neap_u64_parse(threads, &most, &err) != NEAP_OK || !most || most > THREADS_MAX))
		return neap_misuse(arguments, "--threads: expected a number from 1 to %d, not '%s'", THREADS_MAX,
				   threads);
	task->bytes = (size_t)bytes;
	task->threads = (unsigned)most;
	task->json = neap_argument(arguments, "json");
	for (size_t n = 0; (name = neap_argument_nth(arguments, "case", n)); n++) {
		size_t i = 0;
		while (i < CASES && strcmp(cases[i].name, name) != 0)
			i++;
		if (i == CASES)
			return neap_misuse(arguments, "--case: there is no case '%s'", name);
		cases[i].add(task);
	}
	for (size_t i = 0, chosen = task->count; !chosen && i < CASES; i++)
		cases[i].add(task);
	return NEAP_EXIT_OK;
}

static int run(const struct neap_arguments *arguments)
{
	struct task task = {0};
	struct neap_error err = {0};
	int code = read_arguments(arguments, &task);
	if (code)
		return code;
	enum neap_status status = open_recording(&task, &err);
	if (!status)
		status = measure_all(&task, &err);
	neap_recorder_destroy(task.recorder);
	unlink(task.recording);
	if (status)
		return neap_complain("bench", &err);
	if (task.json)
		return print_json(&task);
	print_people(&task);
	return NEAP_EXIT_OK;
}
