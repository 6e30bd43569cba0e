/* bench/checkpoints: how long retention takes. Usage: checkpoints [COUNT] (default 100000).
 *
 * decide: the rules over facts in memory. plan: also reads the folder, COUNT files whose names have steps and
 * metrics; then again with a JSON file of metrics beside each. walk: reads the same folder and asks stat(2) about
 * each name: this is what the folder itself costs. Each figure is the median of five, walks and plans in turn. On a
 * busy machine processor time says more. */
#include "neap/checkpoint.h"

#include <dirent.h>
#include <fcntl.h>
#include <math.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/stat.h>
#include <time.h>
#include <unistd.h>

#define ROUNDS 5

struct lap {
	double wall_s, cpu_s;
};

static double read_clock(clockid_t clock)
{
	struct timespec now;

	clock_gettime(clock, &now);
	return (double)now.tv_sec + (double)now.tv_nsec / 1e9;
}

/* The time since `from`; for a zeroed one, since the clocks' epochs. */
static struct lap lap(struct lap from)
{
	return (struct lap){read_clock(CLOCK_MONOTONIC) - from.wall_s,
			    read_clock(CLOCK_PROCESS_CPUTIME_ID) - from.cpu_s};
}

static int ascending(const void *left, const void *right)
{
	double a = *(const double *)left, b = *(const double *)right;

	return (a > b) - (a < b);
}

/* The median of each clock by itself. */
static struct lap median(const struct lap laps[ROUNDS])
{
	double wall_s[ROUNDS], cpu_s[ROUNDS];

	for (size_t i = 0; i < ROUNDS; i++) {
		wall_s[i] = laps[i].wall_s;
		cpu_s[i] = laps[i].cpu_s;
	}
	qsort(wall_s, ROUNDS, sizeof(double), ascending);
	qsort(cpu_s, ROUNDS, sizeof(double), ascending);
	return (struct lap){wall_s[ROUNDS / 2], cpu_s[ROUNDS / 2]};
}

static void name_of(size_t i, char name[64])
{
	snprintf(name, 64, "epoch=%zu-step=%zu-val_loss=%.4f.ckpt", i / 1000, i, 0.5 + 0.4 * sin((double)i));
}

static int decide(size_t count, const struct neap_retention_options *rules)
{
	struct neap_retention_plan plan = {.folder = strdup("bench"), .mode = NEAP_METRIC_MIN, .count = count};
	struct lap laps[ROUNDS], half;

	strcpy(plan.metric, "val_loss");
	plan.entries = calloc(count, sizeof *plan.entries);
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
	for (int round = 0; round < ROUNDS; round++) {
		struct lap begin = lap((struct lap){0});
		if (neap_retention_decide(&plan, rules, count * 60000000000ull, NULL) != NEAP_OK)
			return 70;
		laps[round] = lap(begin);
	}
	half = median(laps);
	printf("decide  %zu checkpoints in %.3f s, %.3f s of a processor (%zu stay, %zu go)\n", count, half.wall_s,
	       half.cpu_s, plan.keep_count, plan.drop_count);
	neap_retention_plan_fini(&plan);
	return 0;
}

/* Reads the folder and asks for each name's type. */
static int walk(const char *path)
{
	DIR *folder = opendir(path);
	struct dirent *entry;
	struct stat info;

	while (folder && (entry = readdir(folder)))
		if (fstatat(dirfd(folder), entry->d_name, &info, AT_SYMLINK_NOFOLLOW) < 0)
			break;
	if (!folder || closedir(folder) < 0)
		return 74;
	return 0;
}

/* Makes a checkpoint, and with `beside` a file with its metrics. */
static int make(int folder_fd, size_t i, bool beside)
{
	const struct timespec when = {.tv_sec = (time_t)(1700000000 + i)};
	char name[64], metrics[64], text[32];
	int length = snprintf(text, sizeof text, "{\"val_loss\": %.4f}", 0.5 + 0.4 * sin((double)i));

	name_of(i, name);
	int file = openat(folder_fd, name, O_WRONLY | O_CREAT, 0600);
	int code = file < 0 || write(file, "weights", 7) != 7 || futimens(file, (struct timespec[]){when, when}) < 0
			   ? 73
			   : 0;
	if (file >= 0)
		close(file);
	if (code || !beside)
		return code;
	*strrchr(name, '.') = '\0';
	snprintf(metrics, sizeof metrics, "%.58s.json", name);
	file = openat(folder_fd, metrics, O_WRONLY | O_CREAT, 0600);
	code = file < 0 || write(file, text, (size_t)length) != length ? 73 : 0;
	if (file >= 0)
		close(file);
	return code;
}

static void empty(const char *path)
{
	DIR *folder = opendir(path);
	struct dirent *entry;

	while (folder && (entry = readdir(folder)))
		unlinkat(dirfd(folder), entry->d_name, 0);
	if (folder)
		closedir(folder);
	rmdir(path);
}

static int plan(size_t count, const struct neap_retention_options *rules, bool beside)
{
	char folder[] = "/tmp/neap-bench-XXXXXX";
	struct neap_retention_plan made = {0};
	struct neap_error err = {0};
	struct lap walks[ROUNDS], plans[ROUNDS];
	size_t keep = 0, drop = 0;
	int fd = mkdtemp(folder) ? open(folder, O_RDONLY | O_DIRECTORY) : -1;
	int code = fd < 0 ? 73 : 0;

	for (size_t i = 0; i < count && !code; i++)
		code = make(fd, i, beside);
	for (int round = 0; round < ROUNDS && !code; round++) {
		struct lap begin = lap((struct lap){0});
		code = walk(folder);
		walks[round] = lap(begin);
		begin = lap((struct lap){0});
		if (neap_retention_plan_make(folder, rules, 0, &made, &err) != NEAP_OK) {
			fprintf(stderr, "%s\n", err.message);
			code = 70;
		}
		plans[round] = lap(begin);
		keep = made.keep_count;
		drop = made.drop_count;
		neap_retention_plan_fini(&made);
	}
	if (!code) {
		struct lap plain = median(walks), half = median(plans);
		printf("walk    %zu files in %.3f s, %.3f s of a processor\n", count * (beside ? 2 : 1), plain.wall_s,
		       plain.cpu_s);
		printf("plan    %zu checkpoints%s in %.3f s, %.3f s of a processor: %.1f times the walk (%zu stay, "
		       "%zu "
		       "go)\n",
		       count, beside ? ", a file of metrics beside each," : "", half.wall_s, half.cpu_s,
		       half.cpu_s / plain.cpu_s, keep, drop);
	}
	if (fd >= 0) {
		close(fd);
		empty(folder);
	}
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
	if (!code)
		code = plan(count, &rules, false);
	return code ? code : plan(count, &rules, true);
}
