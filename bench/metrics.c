/* bench/metrics: how long the text of a scrape of `neap serve` takes. Usage: metrics [PROCESSES] (default 1660).
 *
 * Generates figures of eight devices and of PROCESSES attached processes on them, six time series each: some 10 000.
 * Prints the median of 21 runs, and that of strlen(3) over the text, which reads it once. A scrape also sends it. */
#include "serve/metrics.h"
#include "base/clock.h"

#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <time.h>

#define ROUNDS  21
#define DEVICES 8

static double processor_ms(void)
{
	struct timespec now;

	clock_gettime(CLOCK_PROCESS_CPUTIME_ID, &now);
	return (double)now.tv_sec * 1e3 + (double)now.tv_nsec / 1e6;
}

static int ascending(const void *left, const void *right)
{
	double a = *(const double *)left, b = *(const double *)right;

	return (a > b) - (a < b);
}

static void make(struct neap_metrics_device *devices, struct neap_metrics_process *processes, size_t count)
{
	static const char *const uuids[DEVICES] = {
		"GPU-0a1b2c3d-0001-4000-8000-000000000001", "GPU-0a1b2c3d-0001-4000-8000-000000000002",
		"GPU-0a1b2c3d-0001-4000-8000-000000000003", "GPU-0a1b2c3d-0001-4000-8000-000000000004",
		"GPU-0a1b2c3d-0001-4000-8000-000000000005", "GPU-0a1b2c3d-0001-4000-8000-000000000006",
		"GPU-0a1b2c3d-0001-4000-8000-000000000007", "GPU-0a1b2c3d-0001-4000-8000-000000000008"};
	static const uint64_t mib = 1 << 20;

	for (size_t d = 0; d < DEVICES; d++) {
		devices[d] = (struct neap_metrics_device){
			.uuid = uuids[d], .name = "NVIDIA H100 80GB HBM3", .utilization_percent = 10 * (int)d};
		devices[d].ledger = (struct neap_ledger){.total = 81559 * mib, .free = (7000 + d) * mib};
	}
	for (size_t p = 0; p < count; p++)
		processes[p] = (struct neap_metrics_process){.device = p % DEVICES,
							     .user = "researcher",
							     .name = "python train.py --config large.yaml",
							     .run = "20261128-120000-4711-123456789",
							     .run_ns = (60 + p) * NEAP_NS_PER_S + 123456789,
							     .account = {.pid = (pid_t)(4711 + p),
									 .attached = true,
									 .bytes = (500 + p) * mib,
									 .context = 460 * mib,
									 .allocated = (30 + p) * mib + 512,
									 .cached = 9 * mib,
									 .other = (int64_t)mib}};
}

int main(int argc, char **argv)
{
	size_t count = argc > 1 ? strtoul(argv[1], NULL, 10) : 1660, lines = 0;
	struct neap_metrics_device devices[DEVICES];
	struct neap_metrics_process *processes = calloc(count + 1, sizeof *processes);
	double took[ROUNDS], least[ROUNDS];
	size_t length = 0;

	if (!processes)
		return 1;
	make(devices, processes, count);
	const struct neap_metrics metrics = {true, "bench", NEAP_NS_PER_MS, devices, DEVICES, processes, count};
	for (size_t i = 0; i < ROUNDS; i++) {
		struct neap_buffer text = {0};
		double begin = processor_ms();
		neap_metrics_write(&text, &metrics);
		took[i] = processor_ms() - begin;
		if (neap_buffer_status(&text, NULL))
			return 1;
		begin = processor_ms();
		length = strlen(text.data);
		least[i] = processor_ms() - begin;
		lines = 0;
		for (const char *at = text.data; *at; at = strchr(at, '\n') + 1)
			lines += *at != '#';
		neap_buffer_fini(&text);
	}
	qsort(took, ROUNDS, sizeof *took, ascending);
	qsort(least, ROUNDS, sizeof *least, ascending);
	printf("%zu time series, %zu bytes: %.2f ms of a processor; to read them once %.2f ms\n", lines, length,
	       took[ROUNDS / 2], least[ROUNDS / 2]);
	free(processes);
	return 0;
}
