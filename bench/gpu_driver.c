/* bench/gpu_driver.c: what calls of the CUDA driver cost on this machine, and what the driver decides: addresses; the
 * memory of a context, of a kernel's code and of its local memory; how long memory takes to come back; and limits.
 *
 *     gpu_driver [--out FILE] [PART...]        all parts take a minute on a GPU; --list names them
 *
 * Writes a line of JSON for each part, to stdout or at the end of FILE: {"part": NAME, ...}, with "failed" where
 * one stopped. Loads libcuda.so.1 and libnvidia-ml.so.1 by dlopen, as libneap does (NEAP_DEVICE=sim: the
 * simulator's), and needs the C library alone. The process that prints never touches the driver: each part is a
 * child, ended after 60 s.
 */
#include "gpu_driver.h"

#include <errno.h>
#include <inttypes.h>
#include <signal.h>
#include <stdlib.h>
#include <string.h>
#include <sys/prctl.h>
#include <sys/wait.h>
#include <time.h>
#include <unistd.h>

#define PART_SECONDS 60

static const struct {
	const char *name;
	part_fn *run;
} parts[] = {
	{"machine", part_machine},     {"start", part_start},         {"small", part_small},   {"pages", part_pages},
	{"busy", part_busy},           {"places", part_places},       {"drain", part_drain},   {"code", part_code},
	{"code_lazy", part_code_lazy}, {"processes", part_processes}, {"limits", part_limits},
};

/* -- the report ------------------------------------------------------------------------------------------------- */

static struct {
	bool more; /* a member was written at this level */
	char end;
} levels[16];
static size_t level;

static void member(FILE *out, const char *key)
{
	if (levels[level].more)
		fputc(',', out);
	levels[level].more = true;
	if (key)
		fprintf(out, "\"%s\":", key);
}

static void open_level(FILE *out, const char *key, char begin, char end)
{
	member(out, key);
	fputc(begin, out);
	level++;
	levels[level].more = false;
	levels[level].end = end;
}

void report_object(FILE *out, const char *key) { open_level(out, key, '{', '}'); }
void report_list(FILE *out, const char *key) { open_level(out, key, '[', ']'); }

void report_close(FILE *out)
{
	fputc(levels[level].end, out);
	level--;
}

void report_begin(FILE *out, const char *part)
{
	level = 0;
	levels[0].more = false;
	open_level(out, NULL, '{', '}');
	report_text(out, "part", part);
}

void report_end(FILE *out)
{
	while (level > 0)
		report_close(out);
	fputc('\n', out);
	fflush(out);
}

void report_number(FILE *out, const char *key, double value)
{
	member(out, key);
	fprintf(out, "%.3f", value);
}

void report_count(FILE *out, const char *key, uint64_t value)
{
	member(out, key);
	fprintf(out, "%" PRIu64, value);
}

void report_signed(FILE *out, const char *key, int64_t value)
{
	member(out, key);
	fprintf(out, "%" PRId64, value);
}

void report_hex(FILE *out, const char *key, uint64_t value)
{
	member(out, key);
	fprintf(out, "\"0x%" PRIx64 "\"", value);
}

void report_text(FILE *out, const char *key, const char *value)
{
	member(out, key);
	fputc('"', out);
	for (const char *c = value; *c; c++)
		if (*c == '"' || *c == '\\')
			fprintf(out, "\\%c", *c);
		else
			fputc((unsigned char)*c < ' ' || (unsigned char)*c > '~' ? ' ' : *c, out);
	fputc('"', out);
}

/* -- times ------------------------------------------------------------------------------------------------------ */

uint64_t now_ns(void)
{
	struct timespec time = {0};

	clock_gettime(CLOCK_MONOTONIC, &time);
	return (uint64_t)time.tv_sec * 1000000000ull + (uint64_t)time.tv_nsec;
}

void times_add(struct times *times, uint64_t began_ns)
{
	uint64_t ns = now_ns() - began_ns;

	if (times->count < TIMES_CAPACITY)
		times->ns[times->count++] = ns;
}

static int by_size(const void *a, const void *b)
{
	uint64_t x = *(const uint64_t *)a, y = *(const uint64_t *)b;

	return (x > y) - (x < y);
}

void times_report(struct times *times, FILE *out, const char *key)
{
	size_t n = times->count;

	if (n == 0)
		return;
	qsort(times->ns, n, sizeof times->ns[0], by_size);
	report_object(out, key);
	report_number(out, "median_us", (double)times->ns[n / 2] / 1e3);
	report_number(out, "p99_us", (double)times->ns[n * 99 / 100] / 1e3);
	report_number(out, "worst_us", (double)times->ns[n - 1] / 1e3);
	report_count(out, "calls", n);
	report_close(out);
}

/* -- the device ------------------------------------------------------------------------------------------------- */

bool ok(struct bench *bench, CUresult result, const char *what)
{
	struct neap_error err = {0};

	if (result == CUDA_SUCCESS)
		return true;
	neap_cuda_fail(bench->cuda, result, &err, what);
	if (!bench->failed[0])
		snprintf(bench->failed, sizeof bench->failed, "%.250s", err.message);
	return false;
}

uint64_t free_bytes(struct bench *bench)
{
	size_t bytes = 0, total = 0;

	return ok(bench, bench->cuda->cuMemGetInfo(&bytes, &total), "cuMemGetInfo") ? bytes : 0;
}

bool bench_open(struct bench *bench)
{
	struct neap_error err = {0};
	CUcontext context = NULL;
	CUuuid uuid = {{0}};

	if (neap_driver_open(NEAP_BACKEND_DEFAULT, &bench->driver, &err)) {
		snprintf(bench->failed, sizeof bench->failed, "%.250s", err.message);
		return false;
	}
	bench->cuda = neap_driver_cuda(bench->driver);
	bench->dry = neap_driver_backend(bench->driver) == NEAP_BACKEND_SIM;
	if (!ok(bench, bench->cuda->cuDeviceGet(&bench->device, 0), "cuDeviceGet") ||
	    !ok(bench, bench->cuda->cuDeviceGetUuid(&uuid, bench->device), "cuDeviceGetUuid") ||
	    !ok(bench, bench->cuda->cuDevicePrimaryCtxRetain(&context, bench->device), "cuDevicePrimaryCtxRetain") ||
	    !ok(bench, bench->cuda->cuCtxSetCurrent(context), "cuCtxSetCurrent"))
		return false;
	if (neap_driver_monitor(bench->driver, &bench->monitor, NULL) ||
	    neap_monitor_find(bench->monitor, (const unsigned char *)uuid.bytes, &bench->index, NULL))
		bench->monitor = NULL;
	return true;
}

/* -- the program ------------------------------------------------------------------------------------------------ */

static void run_here(size_t i, FILE *out)
{
	struct bench bench = {.out = out};

	report_begin(out, parts[i].name);
	parts[i].run(&bench);
	while (level > 1) /* closes the lists in which a part stopped */
		report_close(out);
	if (bench.failed[0])
		report_text(out, "failed", bench.failed);
	report_end(out);
}

/* The part's line, or why there is none. The child writes into a pipe that is read to its end, so that a torn line
 * is never kept. */
static bool run_part(size_t i, FILE *out)
{
	int ends[2], status = 0;
	char *text = NULL;
	size_t length = 0;
	char piece[4096];
	ssize_t got;

	fflush(NULL);
	if (pipe(ends))
		return false;
	pid_t child = fork();
	if (child == 0) {
		close(ends[0]);
		prctl(PR_SET_PDEATHSIG, SIGKILL);
		setpgid(0, 0);
		alarm(PART_SECONDS);
		FILE *line = fdopen(ends[1], "w");
		if (!line)
			_exit(1);
		run_here(i, line);
		fclose(line);
		_exit(0);
	}
	close(ends[1]);
	FILE *all = open_memstream(&text, &length);
	while (all && ((got = read(ends[0], piece, sizeof piece)) > 0 || (got < 0 && errno == EINTR)))
		if (got > 0)
			fwrite(piece, 1, (size_t)got, all);
	if (all)
		fclose(all);
	close(ends[0]);
	if (child > 0) {
		waitpid(child, &status, 0);
		kill(-child, SIGKILL); /* processes that the part started */
	}
	if (text && length > 0 && text[length - 1] == '\n') {
		fwrite(text, 1, length, out);
	} else {
		report_begin(out, parts[i].name);
		report_text(out, "failed",
			    WIFSIGNALED(status) && WTERMSIG(status) == SIGALRM ? "took longer than 60 s"
									       : "its process ended");
		report_signed(out, "status", status);
		report_end(out);
	}
	fflush(out);
	bool good = text && length > 0 && text[length - 1] == '\n' && !strstr(text, "\"failed\":");
	free(text);
	return good;
}

static bool chosen(const char *name, char **names)
{
	if (!*names)
		return true;
	for (; *names; names++)
		if (strcmp(*names, name) == 0)
			return true;
	return false;
}

int main(int argc, char **argv)
{
	const size_t count = sizeof parts / sizeof parts[0];
	FILE *out = stdout;
	bool good = true;

	(void)argc;
	argv++;
	if (*argv && strcmp(*argv, "--list") == 0) {
		for (size_t i = 0; i < count; i++)
			puts(parts[i].name);
		return 0;
	}
	if (*argv && strcmp(*argv, "--out") == 0 && argv[1]) {
		if (!(out = fopen(argv[1], "a"))) {
			fprintf(stderr, "gpu_driver: %s cannot be written\n", argv[1]);
			return 73;
		}
		argv += 2;
	}
	for (char **name = argv; *name; name++) {
		size_t i = 0;
		while (i < count && strcmp(parts[i].name, *name) != 0)
			i++;
		if (i == count) {
			fprintf(stderr, "gpu_driver: no part is called '%s': --list names them\n", *name);
			return 64;
		}
	}
	for (size_t i = 0; i < count; i++)
		if (chosen(parts[i].name, argv))
			good = run_part(i, out) && good;
	return good ? 0 : 1;
}
