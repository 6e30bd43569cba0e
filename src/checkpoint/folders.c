/* checkpoint/folders.c: finds the folders with checkpoints below a folder, breadth first. Does not enter a folder
 * that is itself a checkpoint, a hidden one, a link or a mount. */
#include "checkpoint/listing.h"
#include "checkpoint/role.h"
#include "checkpoint/scan.h"
#include "checkpoint/writer.h"

#include "base/array.h"
#include "base/error.h"

#include <dirent.h>
#include <errno.h>
#include <fcntl.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/stat.h>
#include <unistd.h>

#define DEPTH_MOST 16

struct search {
	const struct neap_retention_options *options;
	struct neap_retention_folders *found; /* with those still to be searched, which have a count of 0 */
	unsigned *depths;                     /* of each folder in `found` */
};

static bool add(struct search *search, const char *path, unsigned depth)
{
	struct neap_retention_folders *found = search->found;

	if (!neap_array_grow(&found->at, found->count, sizeof *found->at) ||
	    !neap_array_grow(&search->depths, found->count, sizeof *search->depths))
		return false;
	char *copy = strdup(path);
	if (!copy)
		return false;
	search->depths[found->count] = depth;
	found->at[found->count++] = (struct neap_retention_folder){.path = copy};
	return true;
}

/* Whether the name is surely a checkpoint's: by a step, a metric, a pattern, or a mark in the folder. */
static bool is_checkpoint(const struct search *search, int fd, const char *name, bool folder)
{
	enum checkpoint_class class = checkpoint_classify(name, folder, search->options->pattern);
	enum checkpoint_count kind;
	uint64_t count;

	if (class == CHECKPOINT_OTHER && folder && !search->options->pattern)
		return checkpoint_is_marked(fd, name);
	if (class != CHECKPOINT_ONE && class != CHECKPOINT_PART)
		return false;
	return search->options->pattern || checkpoint_count_read(name, &kind, &count) || checkpoint_has_metric(name);
}

static bool is_folder(int fd, const char *name, unsigned char type)
{
	struct stat info;

	if (type != DT_UNKNOWN)
		return type == DT_DIR;
	return fstatat(fd, name, &info, AT_SYMLINK_NOFOLLOW) == 0 && S_ISDIR(info.st_mode);
}

/* Counts or adds one name of the folder at `index`. False: the host is out of memory. */
static bool visit_name(struct search *search, size_t index, int fd, const char *name, unsigned char type)
{
	char path[4096];
	bool folder = is_folder(fd, name, type);

	if (!strcmp(name, ".neap-trash"))
		search->found->at[index].trash = true;
	if (name[0] == '.' || type == DT_LNK)
		return true;
	if (is_checkpoint(search, fd, name, folder)) {
		search->found->at[index].count++;
		return true;
	}
	if (!folder || checkpoint_classify(name, true, NULL) != CHECKPOINT_OTHER || checkpoint_is_mount(fd, name))
		return true;
	const char *above = search->found->at[index].path;
	bool slash = above[0] && above[strlen(above) - 1] == '/';
	int needed = snprintf(path, sizeof path, "%s%s%s", above, slash ? "" : "/", name);
	if (search->depths[index] == DEPTH_MOST || needed <= 0 || (size_t)needed >= sizeof path) {
		search->found->incomplete = true;
		return true;
	}
	return add(search, path, search->depths[index] + 1);
}

static bool search_folder(struct search *search, size_t index)
{
	struct checkpoint_listing names = {0};
	int fd = open(search->found->at[index].path, O_RDONLY | O_DIRECTORY | O_CLOEXEC | (index ? O_NOFOLLOW : 0));
	bool fine = true;

	if (fd < 0 || checkpoint_listing_read(fd, &names, NULL) != NEAP_OK)
		search->found->incomplete = true;
	for (size_t i = 0; fd >= 0 && fine && i < names.count; i++)
		fine = visit_name(search, index, fd, names.names[i], names.types[i]);
	checkpoint_listing_fini(&names);
	if (fd >= 0)
		close(fd);
	return fine;
}

static int by_path(const void *left, const void *right)
{
	const struct neap_retention_folder *a = left, *b = right;

	return strcmp(a->path, b->path);
}

/* Drops the first, which is the searched folder itself, and folders without checkpoints and trash. */
static void keep_holders(struct neap_retention_folders *found)
{
	size_t kept = 0;

	for (size_t i = 0; i < found->count; i++) {
		if (i > 0 && (found->at[i].count > 0 || found->at[i].trash))
			found->at[kept++] = found->at[i];
		else
			free(found->at[i].path);
	}
	found->count = kept;
	if (kept > 1)
		qsort(found->at, kept, sizeof *found->at, by_path);
}

enum neap_status neap_retention_find_folders(const char *folder, const struct neap_retention_options *options,
					     size_t most, struct neap_retention_folders *ret_folders,
					     struct neap_error *err)
{
	struct neap_retention_folders found = {0};
	struct search search = {.options = options, .found = &found};
	enum neap_status status = NEAP_OK;
	size_t looked = 0;
	int fd = checkpoint_open_folder(folder, err);

	if (fd < 0)
		return err ? err->status : NEAP_EIO;
	close(fd);
	bool fine = add(&search, folder, 0);
	for (; fine && looked < found.count && (most == 0 || looked < most); looked++)
		fine = search_folder(&search, looked);
	found.incomplete |= looked < found.count;
	if (!fine)
		status = neap_fail(err, NEAP_ENOMEM, "out of host memory");
	keep_holders(&found);
	free(search.depths);
	if (fine)
		*ret_folders = found;
	else
		neap_retention_folders_fini(&found);
	return status;
}

void neap_retention_folders_fini(struct neap_retention_folders *folders)
{
	if (!folders)
		return;
	for (size_t i = 0; i < folders->count; i++)
		free(folders->at[i].path);
	free(folders->at);
	*folders = (struct neap_retention_folders){0};
}
