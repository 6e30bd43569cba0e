/* bench/checkpoints: how long retention takes. Usage: checkpoints [COUNT] (default 100000).
 *
 * decide: the rules over facts in memory. plan: the same with the folder read, COUNT empty files of names with steps
 * and metrics. Each is the best of three. On a busy machine the time of a processor says more. */
#include "neap/checkpoint.h"

#include <fcntl.h>
#include <math.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/stat.h>
#include <time.h>
#include <unistd.h>

struct lap {
	double wall_s, cpu_s;
};

static double read_clock(clockid_t clock)
{
	struct timespec now;

	clock_gettime(clock, &now);
	return (double)now.tv_sec + (double)now.tv_nsec / 1e9;
}

/* Since `from`; a zeroed one: since the epochs of the clocks. */
static struct lap lap(struct lap from)
{
	return (struct lap){read_clock(CLOCK_MONOTONIC) - from.wall_s,
			    read_clock(CLOCK_PROCESS_CPUTIME_ID) - from.cpu_s};
}

static struct lap better(struct lap a, struct lap b)
{
	return (struct lap){fmin(a.wall_s, b.wall_s), fmin(a.cpu_s, b.cpu_s)};
}

static void name_of(size_t i, char name[64])
{
	snprintf(name, 64, "epoch=%zu-step=%zu-val_loss=%.4f.ckpt", i / 1000, i, 0.5 + 0.4 * sin((double)i));
}

static int decide(size_t count, const struct neap_retention_options *rules)
{
	struct neap_retention_plan plan = {.folder = strdup("bench"), .mode = NEAP_METRIC_MIN, .count = count};
	struct lap best = {INFINITY, INFINITY};

	strcpy(plan.metric, "val_loss");
	plan.entries = calloc(count, sizeof(*plan.entries));
	for (size_t i = 0; plan.folder && plan.entries && i < count; i++) {
		char name[64];
		name_of(i, name);
		plan.entries[i] = (struct neap_retention_entry){.name = strdup(name),
								.bytes = 1000000,
								.modified_ns = i * 60000000000ull,
								.step = i,
								.metric = 0.5 + 0.4 * sin((double)i),
								.facts = NEAP_CHECKPOINT_MEASURED};
		if (!plan.entries[i].name)
			return 71;
	}
	if (!plan.folder || !plan.entries)
		return 71;
	for (int round = 0; round < 3; round++) {
		struct lap begin = lap((struct lap){0});
		if (neap_retention_decide(&plan, rules, count * 60000000000ull, NULL) != NEAP_OK)
			return 70;
		best = better(best, lap(begin));
	}
	printf("decide  %zu checkpoints in %.3f s, %.3f s of a processor (%zu stay, %zu go)\n", count, best.wall_s,
	       best.cpu_s, plan.keep_count, plan.drop_count);
	neap_retention_plan_fini(&plan);
	return 0;
}

static int plan(size_t count, const struct neap_retention_options *rules)
{
	char folder[] = "/tmp/neap-bench-XXXXXX", name[64];
	struct neap_retention_plan made = {0};
	struct neap_error err = {0};
	struct lap best = {INFINITY, INFINITY};
	int code = 0;
	int fd = mkdtemp(folder) ? open(folder, O_RDONLY | O_DIRECTORY) : -1;

	if (fd < 0)
		return 73;
	for (size_t i = 0; i < count && !code; i++) {
		name_of(i, name);
		int file = openat(fd, name, O_WRONLY | O_CREAT, 0600);
		struct timespec times[2] = {{.tv_sec = (time_t)(1700000000 + i)},
					    {.tv_sec = (time_t)(1700000000 + i)}};
		code = file < 0 || futimens(file, times) < 0 ? 73 : 0;
		if (file >= 0)
			close(file);
	}
	for (int round = 0; round < 3 && !code; round++) {
		struct lap begin = lap((struct lap){0});
		if (neap_retention_plan_make(folder, rules, 0, &made, &err) != NEAP_OK) {
			fprintf(stderr, "%s\n", err.message);
			code = 70;
		}
		best = better(best, lap(begin));
		if (!code && round == 2)
			printf("plan    %zu checkpoints in %.3f s, %.3f s of a processor, the folder read (%zu stay, "
			       "%zu go)\n",
			       made.count, best.wall_s, best.cpu_s, made.keep_count, made.drop_count);
		neap_retention_plan_fini(&made);
	}
	for (size_t i = 0; i < count; i++) {
		name_of(i, name);
		unlinkat(fd, name, 0);
	}
	close(fd);
	rmdir(folder);
	return code;
}

int main(int argc, char **argv)
{
	size_t count = argc > 1 ? strtoul(argv[1], NULL, 10) : 100000;
	struct neap_retention_options rules;

	if (count == 0 || count > 10000000) {
		fputs("usage: checkpoints [COUNT]\n", stderr);
		return 64;
	}
	neap_retention_defaults(&rules);
	rules.keep_every_steps = 1000;
	rules.max_total_bytes = 50000000000ull;
	int code = decide(count, &rules);
	return code ? code : plan(count, &rules);
}
