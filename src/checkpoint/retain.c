/* checkpoint/retain.c: makes a folder's plan: scans, decides, and counts the trash. */
#include "checkpoint/open_files.h"
#include "checkpoint/scan.h"
#include "checkpoint/trash.h"

#include "base/clock.h"
#include "base/error.h"

#include <errno.h>
#include <fcntl.h>
#include <stdlib.h>
#include <string.h>
#include <sys/stat.h>
#include <unistd.h>

#define ROUNDS_MOST 2

struct census {
	struct neap_retention_plan *plan;
	struct neap_map none; /* empty: in the trash it does not matter which files are open */
};

static bool count_batch(void *context, const struct checkpoint_batch *batch)
{
	struct census *census = context;
	struct neap_retention_plan *plan = census->plan;
	struct checkpoint_extent extent;

	struct stat info;

	if (fstat(batch->fd, &info) < 0)
		return true;
	plan->trash_count += checkpoint_trash_count(batch->names, batch->together);
	for (size_t i = 0; i < batch->names->count; i++) {
		if (batch->names->names[i][0] == '.')
			continue;
		if (checkpoint_measure(batch->fd, batch->names->names[i], info.st_dev, &census->none, &extent) != 0)
			continue;
		plan->trash_bytes += extent.bytes;
		if (plan->trash_until_s == 0 || batch->until_s < plan->trash_until_s)
			plan->trash_until_s = batch->until_s;
	}
	return true;
}

static void read_trash(int fd, struct neap_retention_plan *plan)
{
	struct census census = {.plan = plan};
	int trash_fd;

	if (checkpoint_trash_open(fd, false, &trash_fd, NULL) != NEAP_OK)
		return;
	checkpoint_trash_each(trash_fd, false, count_batch, &census, NULL);
	close(trash_fd);
}

/* Whether it can change the plan that this one is torn: it stays, or a limit drops it (then it counted, and may have
 * been among the best), or it may still be written. One that is only too old goes, torn or not, and took no place. */
static bool matters(const struct neap_retention_entry *entry, uint64_t now_ns)
{
	return !entry->drop || (entry->reasons & (NEAP_DROP_COUNT | NEAP_DROP_SIZE)) ||
	       now_ns <= entry->modified_ns || now_ns - entry->modified_ns <= CHECKPOINT_UNFINISHED_NS;
}

/* Decides as if all that nobody has looked at were whole, then looks at those that matter, and decides again if one
 * of them is torn. Looks at all after some rounds, and before it fails. */
static enum neap_status decide(int fd, struct neap_retention_plan *plan, const struct neap_retention_options *options,
			       uint64_t now_ns, struct neap_error *err)
{
	struct neap_error local = {0};
	enum neap_status status;
	unsigned round = 0;
	bool again;

	do {
		status = neap_retention_decide(plan, options, now_ns, &local);
		again = false;
		round++;
		for (size_t i = 0; i < plan->count; i++) {
			struct neap_retention_entry *entry = &plan->entries[i];

			if ((entry->facts & CHECKPOINT_UNSEEN) &&
			    (status || round == ROUNDS_MOST || matters(entry, now_ns)))
				again |= checkpoint_entry_torn(fd, entry);
		}
	} while (again);
	for (size_t i = 0; i < plan->count; i++)
		plan->entries[i].facts &= ~CHECKPOINT_UNSEEN;
	if (status && err)
		*err = local;
	return status;
}

enum neap_status neap_retention_plan_make(const char *folder, const struct neap_retention_options *options,
					  uint64_t now_ns, struct neap_retention_plan *ret_plan,
					  struct neap_error *err)
{
	struct neap_retention_plan plan = {0};
	enum neap_status status = NEAP_OK;
	struct neap_error local = {0};
	int fd = checkpoint_open_folder(folder, &local);

	if (fd < 0) {
		if (err)
			*err = local;
		return local.status;
	}
	plan.folder = strdup(folder);
	if (!plan.folder)
		status = neap_fail(err, NEAP_ENOMEM, "out of host memory");
	if (!status)
		status = checkpoint_scan(fd, options, &plan, err);
	if (!status)
		status = decide(fd, &plan, options, now_ns ? now_ns : neap_wall_ns(), err);
	if (!status)
		read_trash(fd, &plan);
	close(fd);
	if (status)
		neap_retention_plan_fini(&plan);
	else
		*ret_plan = plan;
	return status;
}
