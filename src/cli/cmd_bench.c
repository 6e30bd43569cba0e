/* cli/cmd_bench.c: `neap bench alloc`: times the allocator, and glibc's malloc in the same minutes. */
#include "base/units.h"
#include "bench/suite.h"
#include "cli/command.h"
#include "cli/print.h"
#include "store/json_rows.h"

#include <math.h>
#include <string.h>
#include <unistd.h>

#define SCHEMA 1

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

static void print_progress(size_t number, size_t count) { fprintf(stderr, "\r%zu of %zu ", number, count); }

static int print_json(const struct neap_bench_suite *suite)
{
	json_t *root = json_object(), *list = json_array();
	JSON_PUT(root, INTEGER("schema", SCHEMA), REAL("loop_ns", suite->loop_ns));
	for (size_t i = 0; i < suite->count; i++) {
		const struct neap_bench_row *row = &suite->rows[i];
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

static void print_people(const struct neap_bench_suite *suite)
{
	printf("Nanoseconds per malloc and free, the loop's %.1f included, in processor time: the median of 7 runs, "
	       "the "
	       "fastest,\nthe slowest; the median of the time that elapsed; and the 999th of 1000 single pairs\n",
	       suite->loop_ns);
	printf("  %-12s %9s %8s %7s %9s %9s %9s %9s %9s %9s %9s\n", "case", "size", "live", "threads", "neap",
	       "fastest", "slowest", "elapsed", "99.9 %", "glibc", "99.9 %");
	for (size_t i = 0; i < suite->count; i++) {
		const struct neap_bench_row *row = &suite->rows[i];
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

static int read_arguments(const struct neap_arguments *arguments, struct neap_bench_suite *suite)
{
	struct neap_error err;
	const char *size = neap_argument(arguments, "size"), *threads = neap_argument(arguments, "threads"), *name;
	uint64_t bytes = 0, most = 2;
	if (strcmp(neap_operand(arguments, 0), "alloc") != 0)
		return neap_misuse(arguments, "'%s' is nothing to measure: alloc", neap_operand(arguments, 0));
	if (size && (neap_size_parse(size, &bytes, &err) != NEAP_OK || !bytes || bytes > 1 << 30))
		return neap_misuse(arguments, "--size: expected a size from 1 B to 1 GiB such as 4KiB, not '%s'",
				   size);
	if (threads && (neap_u64_parse(threads, &most, &err) != NEAP_OK || !most || most > NEAP_BENCH_STREAMS))
		return neap_misuse(arguments, "--threads: expected a number from 1 to %d, not '%s'",
				   NEAP_BENCH_STREAMS, threads);
	suite->bytes = (size_t)bytes;
	suite->threads = (unsigned)most;
	for (size_t n = 0; (name = neap_argument_nth(arguments, "case", n)); n++)
		if (!neap_bench_suite_add(suite, name))
			return neap_misuse(arguments, "--case: there is no case '%s'", name);
	if (!suite->count)
		neap_bench_suite_add(suite, NULL);
	return NEAP_EXIT_OK;
}

static int run(const struct neap_arguments *arguments)
{
	struct neap_bench_suite suite = {0};
	struct neap_error err = {0};
	int code = read_arguments(arguments, &suite);
	if (code)
		return code;
	bool json = neap_argument(arguments, "json"), shown = !json && isatty(STDERR_FILENO);
	enum neap_status status = neap_bench_suite_measure(&suite, shown ? print_progress : NULL, &err);
	if (shown)
		fputs("\r          \r", stderr);
	if (status)
		return neap_complain("bench", &err);
	if (json)
		return print_json(&suite);
	print_people(&suite);
	return NEAP_EXIT_OK;
}
