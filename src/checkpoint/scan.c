/* checkpoint/scan.c: see the header.
 *
 *   names  ->  groups, measured  ->  which number counts  ->  what links and `latest` files name  ->  the metric
 */
#include "checkpoint/scan.h"

#include "checkpoint/open_files.h"
#include "checkpoint/scan_internal.h"
#include "checkpoint/whole.h"
#include "checkpoint/writer.h"

#include "base/array.h"
#include "base/error.h"

#include <dirent.h>
#include <errno.h>
#include <fcntl.h>
#include <fnmatch.h>
#include <math.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/stat.h>
#include <unistd.h>

#define POINTER_MOST_BYTES 4096

/* --- names --- */

/* Notes the target of a symbolic link, so that it is kept: someone uses the link. */
static bool add_link(struct scan *scan, const char *name)
{
	struct stat info;

	scan->plan->link_count++;
	if (fstatat(scan->fd, name, &info, 0) < 0)
		return true; /* leads nowhere */
	return neap_map_put(&scan->links, checkpoint_file_key(info.st_dev, info.st_ino), 1);
}

/* The type of a name, DT_REG and so on; DT_UNKNOWN: the file is gone. */
static unsigned char type_of(const struct scan *scan, size_t index)
{
	struct stat info;

	if (scan->listing.types[index] != DT_UNKNOWN)
		return scan->listing.types[index];
	return fstatat(scan->fd, scan->listing.names[index], &info, AT_SYMLINK_NOFOLLOW) < 0 ? DT_UNKNOWN
											     : IFTODT(info.st_mode);
}

/* Whether the name is only an addition to a checkpoint, which has another name: see group.h. */
static bool is_extra(const struct scan *scan, const char *name, bool folder, const struct checkpoint_role *role)
{
	const char *pattern = scan->options->pattern;

	if (role->index)
		return true;
	if (checkpoint_is_beside(name)) /* if it belongs to one file, it goes with that file anyway */
		return role->numbered && !checkpoint_listing_stem_shared(&scan->listing, name, 0);
	if (pattern && role->part && checkpoint_classify(name, folder, NULL) != CHECKPOINT_OTHER)
		return true;
	return role->aux && role->numbered && (folder || checkpoint_is_helper(name));
}

static enum checkpoint_class class_of(const struct scan *scan, const char *name, bool folder,
				      const struct checkpoint_role *role)
{
	enum checkpoint_class class = checkpoint_classify(name, folder, scan->options->pattern);

	if (class != CHECKPOINT_OTHER)
		return class;
	if (folder && !scan->options->pattern && checkpoint_is_marked(scan->fd, name))
		return CHECKPOINT_ONE;
	return is_extra(scan, name, folder, role) ? CHECKPOINT_EXTRA : CHECKPOINT_OTHER;
}

/* Reads the name's place in time. consolidated.00.pth has none (00 is a part's number); model010000.pt has one. */
static void read_count(const char *name, struct checkpoint_member *member)
{
	if (!member->role.numbered)
		return;
	if (checkpoint_count_read(name, &member->kind, &member->count))
		return;
	member->kind = CHECKPOINT_COUNTS;
	if (!member->role.part || member->role.only == UINT64_MAX)
		return;
	member->kind = CHECKPOINT_BARE;
	member->count = member->role.only;
}

static enum neap_status read_names(struct scan *scan, struct neap_error *err)
{
	scan->members = calloc(scan->listing.count + 1, sizeof *scan->members);
	bool fine = scan->members && checkpoint_listing_count_stems(&scan->listing);

	for (size_t i = 0; fine && i < scan->listing.count; i++) {
		const char *name = scan->listing.names[i];
		struct checkpoint_member *member = &scan->members[i];
		unsigned char type = name[0] == '.' ? DT_UNKNOWN : type_of(scan, i);

		member->kind = CHECKPOINT_COUNTS;
		if (type == DT_LNK)
			fine = add_link(scan, name);
		if (type != DT_REG && type != DT_DIR)
			continue;
		checkpoint_role_read(name, &member->role);
		member->class = class_of(scan, name, type == DT_DIR, &member->role);
		if (member->class != CHECKPOINT_OTHER && member->class != CHECKPOINT_TEMPORARY)
			read_count(name, member);
	}
	return fine ? NEAP_OK : neap_fail(err, NEAP_ENOMEM, "out of host memory");
}

/* --- entries --- */

static bool is_pinned(const struct scan *scan, const char *name)
{
	char pin[512];

	for (size_t i = 0; i < scan->options->pin_count; i++)
		if (!strcmp(scan->options->pins[i], name) || fnmatch(scan->options->pins[i], name, 0) == 0)
			return true;
	int needed = scan->listing.beside_count ? snprintf(pin, sizeof pin, "%s.pin", name) : 0;
	return needed > 0 && (size_t)needed < sizeof pin &&
	       checkpoint_listing_find(&scan->listing, pin) < scan->listing.count;
}

/* Adds a part at the end. NULL: the host is out of memory. */
static struct neap_retention_part *add_part(struct neap_retention_entry *entry, const char *name)
{
	struct neap_retention_part part = {.name = strdup(name)};

	if (!part.name || !neap_array_grow(&entry->parts, entry->part_count, sizeof part)) {
		free(part.name);
		return NULL;
	}
	entry->parts[entry->part_count] = part;
	return &entry->parts[entry->part_count++];
}

static void merge(struct neap_retention_entry *entry, const struct checkpoint_extent *extent, bool beside)
{
	entry->bytes += extent->bytes;
	entry->freed_bytes += extent->freed_bytes;
	if (extent->modified_ns > entry->modified_ns && !beside)
		entry->modified_ns = extent->modified_ns;
	entry->facts |= extent->facts;
}

/* Updates an entry's facts by the name of one of its parts. */
static void note_name(struct scan *scan, struct neap_retention_entry *entry, const char *name,
		      const struct checkpoint_member *member)
{
	if (is_pinned(scan, name))
		entry->facts |= NEAP_CHECKPOINT_PINNED;
	if (scan->options->resume && !strcmp(scan->options->resume, name))
		entry->facts |= NEAP_CHECKPOINT_RESUME;
	if (checkpoint_is_named(name) && !checkpoint_is_beside(name))
		entry->facts |= NEAP_CHECKPOINT_NAMED;
	if (!member->role.aux && !checkpoint_is_beside(name))
		entry->facts &= ~(uint32_t)NEAP_CHECKPOINT_HALF;
	if (scan->options->pattern || member->kind != CHECKPOINT_COUNTS || checkpoint_has_metric(name))
		entry->facts &= ~(uint32_t)NEAP_CHECKPOINT_UNNUMBERED;
	entry->facts |= CHECKPOINT_UNSEEN;
}

/* Adds a name to the entry of its group. False: the host is out of memory. */
static bool add_name(struct scan *scan, size_t index)
{
	const char *name = scan->listing.names[index];
	const struct checkpoint_member *member = &scan->members[index];
	struct neap_retention_entry *entry = &scan->plan->entries[member->group - 1];
	struct checkpoint_extent extent;

	if (checkpoint_measure(scan->fd, name, scan->device, &scan->open_files, &extent) != 0)
		return true; /* gone, or it cannot be a checkpoint */
	struct neap_retention_part *part = add_part(entry, name);
	if (!part)
		return false;
	part->bytes = extent.bytes;
	part->modified_ns = extent.modified_ns;
	part->device = extent.device;
	part->inode = extent.inode;
	part->folder = extent.facts & NEAP_CHECKPOINT_FOLDER;
	if (entry->part_count == 1)
		entry->facts = NEAP_CHECKPOINT_UNNUMBERED | NEAP_CHECKPOINT_HALF;
	merge(entry, &extent, checkpoint_is_beside(name));
	if (member->class == CHECKPOINT_TEMPORARY) {
		entry->facts &= ~(uint32_t)(NEAP_CHECKPOINT_UNNUMBERED | NEAP_CHECKPOINT_HALF);
		entry->facts |= NEAP_CHECKPOINT_UNFINISHED;
		return true;
	}
	note_name(scan, entry, name, member);
	return checkpoint_sets_count(&scan->sets[member->group - 1], &member->role);
}

static int part_order(const struct neap_retention_part *a, const struct neap_retention_part *b)
{
	struct checkpoint_role first, second;

	checkpoint_role_read(a->name, &first);
	checkpoint_role_read(b->name, &second);
	bool helps_a = first.aux || checkpoint_is_beside(a->name),
	     helps_b = second.aux || checkpoint_is_beside(b->name);
	return helps_a != helps_b ? helps_a - helps_b : strcmp(a->name, b->name);
}

static int compare_parts(const void *left, const void *right) { return part_order(left, right); }

bool checkpoint_entry_torn(int fd, struct neap_retention_entry *entry)
{
	bool unseen = entry->facts & CHECKPOINT_UNSEEN;

	entry->facts &= ~CHECKPOINT_UNSEEN;
	for (size_t i = 0; unseen && !entry->torn && i < entry->part_count; i++)
		if (!checkpoint_is_beside(entry->parts[i].name))
			entry->torn = checkpoint_torn(fd, entry->parts[i].name, entry->parts[i].folder);
	if (unseen && entry->torn)
		entry->facts |= NEAP_CHECKPOINT_TORN;
	return entry->facts & NEAP_CHECKPOINT_TORN;
}

/* Sorts the parts, the model first, and gives the entry the model's name. False: the host is out of memory. */
static bool finish_entry(struct scan *scan, size_t index)
{
	struct neap_retention_entry *entry = &scan->plan->entries[index];

	if (entry->part_count == 0)
		return true;
	if (entry->part_count > 1)
		qsort(entry->parts, entry->part_count, sizeof *entry->parts, compare_parts);
	entry->name = strdup(entry->parts[0].name);
	entry->device = entry->parts[0].device;
	entry->inode = entry->parts[0].inode;
	if (checkpoint_sets_miss(&scan->sets[index]) && !checkpoint_entry_torn(scan->fd, entry)) {
		entry->torn = checkpoint_parts_missing;
		entry->facts |= NEAP_CHECKPOINT_TORN;
	}
	if (entry->facts & NEAP_CHECKPOINT_NAMED)
		entry->facts &= ~(uint32_t)NEAP_CHECKPOINT_UNNUMBERED; /* one reason is enough */
	return entry->name != NULL;
}

/* Clears HALF where it would mislead: for all entries if the folder has only optimizers and the like, which then are
 * the checkpoints; and for an entry that is kept for another reason. */
static void correct_halves(struct neap_retention_plan *plan)
{
	const uint32_t others = NEAP_CHECKPOINT_UNNUMBERED | NEAP_CHECKPOINT_NAMED;
	bool whole = false;

	for (size_t i = 0; i < plan->count; i++)
		whole |= plan->entries[i].part_count > 0 &&
			 !(plan->entries[i].facts & (NEAP_CHECKPOINT_HALF | NEAP_CHECKPOINT_UNFINISHED));
	for (size_t i = 0; i < plan->count; i++)
		if (!whole || (plan->entries[i].facts & others))
			plan->entries[i].facts &= ~(uint32_t)NEAP_CHECKPOINT_HALF;
}

static enum neap_status make_entries(struct scan *scan, struct neap_error *err)
{
	struct neap_retention_plan *plan = scan->plan;
	size_t groups = 0;
	enum neap_status status = checkpoint_group(scan->members, scan->listing.count, &groups, err);

	if (status)
		return status;
	plan->entries = calloc(groups + 1, sizeof *plan->entries);
	scan->sets = calloc(groups + 1, sizeof *scan->sets);
	bool fine = plan->entries && scan->sets;
	for (size_t i = 0; fine && i < groups; i++)
		plan->entries[i] = (struct neap_retention_entry){.step = NEAP_STEP_UNKNOWN, .metric = (double)NAN};
	plan->count = fine ? groups : 0;
	for (size_t i = 0; fine && i < scan->listing.count; i++)
		fine = scan->members[i].group == 0 || add_name(scan, i);
	for (size_t i = 0; fine && i < groups; i++)
		fine = finish_entry(scan, i);
	if (fine)
		correct_halves(plan);
	return fine ? NEAP_OK : neap_fail(err, NEAP_ENOMEM, "out of host memory");
}

/* Drops entries whose files were gone before they could be measured. */
static void drop_empty(struct neap_retention_plan *plan)
{
	size_t kept = 0;

	for (size_t i = 0; i < plan->count; i++)
		if (plan->entries[i].part_count > 0)
			plan->entries[kept++] = plan->entries[i];
	plan->count = kept;
}

/* --- which number counts --- */

static void set_steps(struct scan *scan)
{
	for (size_t i = 0; i < scan->listing.count; i++)
		if (scan->members[i].group && scan->members[i].kind != CHECKPOINT_COUNTS)
			scan->kinds[scan->members[i].kind]++;
	for (size_t kind = 1; kind < CHECKPOINT_COUNTS; kind++)
		if (scan->kinds[kind] > scan->kinds[scan->kind])
			scan->kind = (enum checkpoint_count)kind;
	for (size_t i = 0; i < scan->listing.count; i++) {
		const struct checkpoint_member *member = &scan->members[i];

		if (!member->group || member->kind != scan->kind)
			continue;
		struct neap_retention_entry *entry = &scan->plan->entries[member->group - 1];
		if (entry->step == NEAP_STEP_UNKNOWN || member->count > entry->step)
			entry->step = member->count;
	}
}

/* --- what a restart resumes from --- */

static void resume_from(struct scan *scan, const char *name)
{
	size_t index = checkpoint_listing_find(&scan->listing, name);

	if (index < scan->listing.count && scan->members[index].group)
		scan->plan->entries[scan->members[index].group - 1].facts |= NEAP_CHECKPOINT_RESUME;
}

/* A file `latest` has a name ("global_step500") or a number ("500"). TensorFlow's file `checkpoint` has it in quotes.
 */
static void read_pointer(struct scan *scan, const char *name)
{
	char text[POINTER_MOST_BYTES + 1], *rest = NULL;
	uint64_t step;
	int fd = openat(scan->fd, name, O_RDONLY | O_NOFOLLOW | O_NONBLOCK | O_CLOEXEC);

	if (fd < 0)
		return;
	ssize_t length = read(fd, text, POINTER_MOST_BYTES);
	close(fd);
	if (length <= 0)
		return;
	text[length] = '\0';
	for (char *word = strtok_r(text, " \t\r\n\"'", &rest); word; word = strtok_r(NULL, " \t\r\n\"'", &rest)) {
		const char *slash = strrchr(word, '/');

		resume_from(scan, slash && slash[1] ? slash + 1 : word);
		size_t digits = strspn(word, "0123456789");
		if (word[digits] || digits == 0 || digits > 18)
			continue;
		step = strtoull(word, NULL, 10);
		for (size_t i = 0; i < scan->plan->count; i++)
			if (scan->plan->entries[i].step == step)
				scan->plan->entries[i].facts |= NEAP_CHECKPOINT_RESUME;
	}
}

static void find_resumed(struct scan *scan)
{
	static const char *const pointers[] = {"latest", "latest_checkpointed_iteration.txt", "checkpoint",
					       "last_checkpoint", "latest.txt"};

	for (size_t i = 0; i < scan->plan->count; i++) {
		struct neap_retention_entry *entry = &scan->plan->entries[i];

		for (size_t k = 0; k < entry->part_count; k++) {
			uint64_t key = checkpoint_file_key(entry->parts[k].device, entry->parts[k].inode);

			if (neap_map_get(&scan->links, key, &(uint64_t){0}))
				entry->facts |= NEAP_CHECKPOINT_RESUME;
		}
	}
	for (size_t i = 0; i < sizeof pointers / sizeof *pointers; i++)
		if (checkpoint_listing_find(&scan->listing, pointers[i]) < scan->listing.count)
			read_pointer(scan, pointers[i]);
}

static void scan_fini(struct scan *scan, size_t sets)
{
	for (size_t i = 0; scan->sets && i < sets; i++)
		checkpoint_sets_fini(&scan->sets[i]);
	free(scan->sets);
	free(scan->members);
	checkpoint_listing_fini(&scan->listing);
	neap_map_fini(&scan->open_files);
	neap_map_fini(&scan->links);
}

enum neap_status checkpoint_scan(int fd, const struct neap_retention_options *options,
				 struct neap_retention_plan *plan, struct neap_error *err)
{
	struct scan scan = {.fd = fd, .options = options, .plan = plan};
	char *real = NULL;
	size_t sets = 0;
	struct stat info;
	enum neap_status status = NEAP_OK;

	if (fstat(fd, &info) < 0)
		return neap_fail_errno(err, errno, "looking at %.150s", plan->folder);
	scan.device = info.st_dev;
	scan.real = real = realpath(plan->folder, NULL);
	/* first: a file opened after this was not open when the scan judged it old */
	status = checkpoint_open_files(real ? real : plan->folder, &scan.open_files, err);
	if (!status)
		status = checkpoint_listing_read(fd, &scan.listing, err);
	if (!status && checkpoint_is_one(&scan.listing))
		status = neap_fail(err, NEAP_ESTATE, "it is one checkpoint: name the folder that it lies in");
	if (!status)
		status = read_names(&scan, err);
	if (!status)
		status = make_entries(&scan, err);
	sets = plan->count;
	if (status)
		goto out;
	set_steps(&scan);
	find_resumed(&scan);
	if (options->keep_best)
		status = checkpoint_find_metric(&scan, err);
	drop_empty(plan);
out:
	if (status)
		neap_error_prefix(err, "%.150s", plan->folder);
	free(real);
	scan_fini(&scan, sets);
	return status;
}
