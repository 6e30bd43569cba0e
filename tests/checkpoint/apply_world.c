/* See the header. */
#include "apply_world.h"

#include <dirent.h>
#include <errno.h>
#include <fcntl.h>
#include <ftw.h>
#include <signal.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/stat.h>
#include <sys/wait.h>
#include <time.h>
#include <unistd.h>

char base[64], folder[128], proc[128];

const struct checkpoint checkpoints[CHECKPOINTS] = {
	{"epoch=1-val_loss=0.9.ckpt", 30, {NULL}, NULL, true},
	{"epoch=2-val_loss=0.1.ckpt", 29, {NULL}, NULL, false}, /* best */
	{"epoch=3.ckpt", 28, {NULL}, "epoch=3.json", true},
	{"epoch=4-val_loss=0.8.ckpt", 27, {"a.bin", "b.bin", "deep/c.bin"}, "epoch=4-val_loss=0.8.ckpt.yaml", true},
	{"epoch=5-val_loss=0.7.ckpt", 26, {"a.bin", "b.bin", "deep/c.bin"}, NULL, false}, /* pinned */
	{"epoch=6-val_loss=0.6.ckpt", 25, {NULL}, NULL, true},
	{"epoch=7.ckpt", 24, {NULL}, "epoch=7.json", false}, /* newest */
	{"model_epoch_0.pt", 31, {NULL}, "model_epoch_0.json", true, {"optimizer_epoch_0.pt", "rng_epoch_0.pt"}},
};
static void put(const char *path, const char *content, int age_days)
{
	const struct timespec when = {.tv_sec = time(NULL) - (time_t)age_days * 86400};
	int fd = open(path, O_WRONLY | O_CREAT | O_EXCL, 0644);

	assert_true(fd >= 0);
	assert_int_equal(write(fd, content, strlen(content)), strlen(content));
	assert_int_equal(futimens(fd, (struct timespec[]){when, when}), 0);
	close(fd);
}

void put_in(const char *parent, const char *name, const char *content, int age_days)
{
	char path[512];

	snprintf(path, sizeof path, "%s/%s", parent, name);
	put(path, content, age_days);
}

static void make(const char *parent, const struct checkpoint *checkpoint)
{
	char path[512];

	if (!checkpoint->parts[0]) {
		put_in(parent, checkpoint->name, checkpoint->name, checkpoint->age_days);
	} else {
		snprintf(path, sizeof path, "%s/%s", parent, checkpoint->name);
		assert_int_equal(mkdir(path, 0755), 0);
		for (size_t i = 0; i < 3; i++) {
			if (strchr(checkpoint->parts[i], '/')) {
				snprintf(path, sizeof path, "%s/%s/deep", parent, checkpoint->name);
				assert_int_equal(mkdir(path, 0755), 0);
			}
			snprintf(path, sizeof path, "%s/%s/%s", parent, checkpoint->name, checkpoint->parts[i]);
			put(path, checkpoint->name, checkpoint->age_days);
		}
	}
	for (size_t i = 0; i < 2 && checkpoint->others[i]; i++)
		put_in(parent, checkpoint->others[i], checkpoint->others[i], checkpoint->age_days);
	if (checkpoint->sidecar)
		put_in(parent, checkpoint->sidecar,
		       strstr(checkpoint->sidecar, "json") ? "{\"val_loss\": 0.5}" : "val_loss: 0.8\n",
		       checkpoint->age_days);
}

static int remove_one(const char *path, const struct stat *info, int type, struct FTW *place)
{
	(void)info;
	(void)type;
	return place->level == 0 ? 0 : remove(path);
}

static void remove_all(void) { assert_int_equal(nftw(base, remove_one, 16, FTW_DEPTH | FTW_PHYS), 0); }

void start_empty(void)
{
	char path[256];

	remove_all();
	snprintf(folder, sizeof folder, "%s/run", base);
	snprintf(proc, sizeof proc, "%s/proc", base);
	assert_int_equal(mkdir(folder, 0755), 0);
	assert_int_equal(mkdir(proc, 0755), 0);
	failing_calls.proc = proc;
	for (size_t i = 0; i < CHECKPOINTS; i++)
		make(folder, &checkpoints[i]);
	put_in(folder, "epoch=5-val_loss=0.7.ckpt.pin", "", 0);
	put_in(folder, "notes.txt", "notes.txt", 100);
	/* what has been in the trash long enough, and what a killed purge has left */
	snprintf(path, sizeof path, "%s/" TRASH, folder);
	assert_int_equal(mkdir(path, 0755), 0);
	snprintf(path, sizeof path, "%s/" TRASH "/until-1000-1-0", folder);
	assert_int_equal(mkdir(path, 0755), 0);
	make(path, &(struct checkpoint){"epoch=0.ckpt", 40, {"a.bin", "b.bin", "deep/c.bin"}, NULL, true});
	snprintf(path, sizeof path, "%s/" TRASH "/gone-until-900-1-0", folder);
	assert_int_equal(mkdir(path, 0755), 0);
	put_in(path, "half.ckpt", "half.ckpt", 40);
}

const struct neap_retention_options rules = {
	.keep_best = 1, .older_than_ns = 7 * DAY_NS, .trash_ns = DAY_NS, .metric = "val_loss"};

bool holds(const char *path, const char *content)
{
	char text[256] = "";
	int fd = open(path, O_RDONLY);

	if (fd < 0)
		return false;
	ssize_t length = read(fd, text, sizeof text - 1);
	close(fd);
	return length == (ssize_t)strlen(content) && !strcmp(text, content);
}

bool exists_in(const char *parent, const char *name)
{
	struct stat info;
	char path[512];

	snprintf(path, sizeof path, "%s/%s", parent, name);
	return lstat(path, &info) == 0;
}

/* Its own name. */
static bool holds_in(const char *parent, const char *name)
{
	char path[512];

	snprintf(path, sizeof path, "%s/%s", parent, name);
	return holds(path, name);
}

bool is_whole(const char *parent, const struct checkpoint *checkpoint)
{
	char path[512];
	bool whole = true;

	snprintf(path, sizeof path, "%s/%s", parent, checkpoint->name);
	if (!checkpoint->parts[0])
		whole = holds(path, checkpoint->name);
	for (size_t i = 0; i < 2 && checkpoint->others[i]; i++)
		whole = whole && holds_in(parent, checkpoint->others[i]);
	if (!checkpoint->parts[0])
		return whole;
	for (size_t i = 0; i < 3; i++) {
		snprintf(path, sizeof path, "%s/%s/%s", parent, checkpoint->name, checkpoint->parts[i]);
		whole = whole && holds(path, checkpoint->name);
	}
	return whole;
}

int in_trash(const struct checkpoint *checkpoint, bool *ret_with_sidecar)
{
	struct dirent *entry;
	char path[400];
	int count = 0;

	snprintf(path, sizeof path, "%s/" TRASH, folder);
	DIR *trash = opendir(path);
	*ret_with_sidecar = false;
	while (trash && count >= 0 && (entry = readdir(trash))) {
		if (strncmp(entry->d_name, "until-", 6))
			continue;
		snprintf(path, sizeof path, "%s/" TRASH "/%.200s", folder, entry->d_name);
		if (!exists_in(path, checkpoint->name))
			continue;
		count = is_whole(path, checkpoint) ? count + 1 : -1;
		*ret_with_sidecar = checkpoint->sidecar && exists_in(path, checkpoint->sidecar);
	}
	if (trash)
		closedir(trash);
	return count;
}

/* Where a file is. Bit 0: in the folder; bit 1: in a batch that can be restored. */
static unsigned places(const char *name)
{
	const struct checkpoint one = {.name = name};
	bool beside;

	return (unsigned)holds_in(folder, name) | (in_trash(&one, &beside) == 1 ? 2u : 0u);
}

static bool is_in_one_batch(const struct checkpoint *checkpoint)
{
	struct dirent *entry;
	char path[400];
	bool found = false;

	snprintf(path, sizeof path, "%s/" TRASH, folder);
	DIR *trash = opendir(path);
	while (trash && !found && (entry = readdir(trash))) {
		snprintf(path, sizeof path, "%s/" TRASH "/%.200s", folder, entry->d_name);
		found = is_whole(path, checkpoint);
	}
	if (trash)
		closedir(trash);
	return found;
}

/* For several files: each is in one place; all are in the same place if apply has since run to its end. */
static void check_group(const struct checkpoint *checkpoint, const char *what, unsigned long call, bool with_trash,
			bool finished)
{
	unsigned all = 3, any = 0;

	for (size_t i = 0; i < 3; i++) {
		unsigned place = places(i == 0 ? checkpoint->name : checkpoint->others[i - 1]);

		all &= place;
		any |= place;
		if (place == 3 || (with_trash && place == 0))
			fail_msg("%s %lu: a part of %s is in %s", what, call, checkpoint->name,
				 place ? "two places" : "no place");
		if (place == 0 && exists_in(folder, checkpoint->name))
			fail_msg("%s %lu: a part of %s went for good before the rest", what, call, checkpoint->name);
	}
	if (finished && (all != any || (with_trash && !is_in_one_batch(checkpoint))))
		fail_msg("%s %lu: %s is split", what, call, checkpoint->name);
	if (finished && (any & 1))
		fail_msg("%s %lu: %s was not removed by the next apply", what, call, checkpoint->name);
}

void check(const char *what, unsigned long call, bool with_trash, bool finished)
{
	for (size_t i = 0; i < CHECKPOINTS; i++) {
		const struct checkpoint *checkpoint = &checkpoints[i];
		if (checkpoint->others[0]) {
			check_group(checkpoint, what, call, with_trash, finished);
			continue;
		}
		bool beside = false, here = exists_in(folder, checkpoint->name);
		int kept = in_trash(checkpoint, &beside);

		if (here && !is_whole(folder, checkpoint))
			fail_msg("%s %lu: %s is not whole", what, call, checkpoint->name);
		if (kept < 0 || (here && kept > 0) || kept > 1)
			fail_msg("%s %lu: %s is not whole in the trash, or in two places", what, call,
				 checkpoint->name);
		if (!checkpoint->goes && !here)
			fail_msg("%s %lu: %s should have stayed", what, call, checkpoint->name);
		if (here && checkpoint->sidecar && !exists_in(folder, checkpoint->sidecar))
			fail_msg("%s %lu: %s lost what stands beside it", what, call, checkpoint->name);
		if (checkpoint->goes && with_trash && !here && kept != 1)
			fail_msg("%s %lu: %s is lost", what, call, checkpoint->name);
		if (checkpoint->goes && finished && here)
			fail_msg("%s %lu: %s was not removed by the next apply", what, call, checkpoint->name);
		if (checkpoint->goes && finished && with_trash && checkpoint->sidecar && !beside)
			fail_msg("%s %lu: %s was not followed by what stood beside it", what, call, checkpoint->name);
		if (checkpoint->goes && finished && checkpoint->sidecar && exists_in(folder, checkpoint->sidecar))
			fail_msg("%s %lu: %s was left", what, call, checkpoint->sidecar);
	}
	assert_true(exists_in(folder, "notes.txt"));
	assert_false(finished && exists_in(folder, TRASH "/until-1000-1-0"));
	assert_false(finished && exists_in(folder, TRASH "/gone-until-900-1-0"));
	assert_false(finished && exists_in(folder, TRASH "/gone-until-1000-1-0-0"));
	assert_false(finished && !with_trash && exists_in(folder, TRASH));
}

struct neap_retention_plan plan(void)
{
	struct neap_retention_plan made = {0};
	struct neap_error err = {0};

	if (neap_retention_plan_make(folder, &rules, 0, &made, &err) != NEAP_OK)
		fail_msg("%s", err.message);
	return made;
}

int begin(void **state)
{
	(void)state;
	/* in memory if possible: it flushes hundreds of times */
	snprintf(base, sizeof base, "%s/neap-apply-XXXXXX", access("/dev/shm", W_OK) ? "/tmp" : "/dev/shm");
	return mkdtemp(base) ? 0 : -1;
}

int end(void **state)
{
	(void)state;
	failing_calls.proc = NULL;
	remove_all();
	return rmdir(base);
}
