/* estimate/mountinfo.c: see mountinfo.h. A line is
 *
 *   36 35 98:0 /root /mount/point rw,noatime master:1 ... - ext3 /dev/root rw,errors=continue
 *
 * with blanks, tabs, line ends and backslashes in paths as \040, \011, \012 and \134. */
#include "estimate/mountinfo.h"

#include "base/error.h"
#include "base/file.h"
#include "base/units.h"

#include <stdlib.h>
#include <string.h>
#include <sys/sysmacros.h>

#define TEXT_BYTES (64u << 20)

/* The next word of the line, which is ended in place. NULL: none. */
static char *next_word(char **at)
{
	char *word = *at;
	if (!word || !*word)
		return NULL;
	char *blank = strchr(word, ' ');
	if (blank)
		*blank++ = '\0';
	*at = blank;
	return word;
}

static bool is_octal(char digit) { return digit >= '0' && digit <= '7'; }

/* Decodes in place: \040 becomes a blank. */
static void decode(char *text)
{
	char *to = text;
	for (const char *from = text; *from; to++) {
		if (from[0] == '\\' && from[1] >= '0' && from[1] <= '3' && is_octal(from[2]) && is_octal(from[3])) {
			*to = (char)((from[1] - '0') << 6 | (from[2] - '0') << 3 | (from[3] - '0'));
			from += 4;
		} else {
			*to = *from++;
		}
	}
	*to = '\0';
}

static bool has_word(const char *list, const char *word)
{
	size_t length = strlen(word);
	for (const char *at = list; at; at = strchr(at, ',') ? strchr(at, ',') + 1 : NULL)
		if (strcspn(at, ",") == length && strncmp(at, word, length) == 0)
			return true;
	return false;
}

static bool parse_device(char *text, dev_t *ret_device)
{
	uint64_t number[2];
	char *colon = strchr(text, ':');
	if (!colon)
		return false;
	*colon++ = '\0';
	if (neap_u64_parse(text, &number[0], NULL) || neap_u64_parse(colon, &number[1], NULL) ||
	    number[0] > UINT32_MAX || number[1] > UINT32_MAX)
		return false;
	*ret_device = makedev((unsigned)number[0], (unsigned)number[1]);
	return true;
}

static bool parse_line(char *line, struct neap_mount *mount)
{
	char *words[6], *at = line, *word, *type, *of_system;
	for (size_t i = 0; i < 6; i++)
		if (!(words[i] = next_word(&at)))
			return false;
	do
		word = next_word(&at);
	while (word && strcmp(word, "-") != 0);
	type = next_word(&at);
	if (!word || !type || !next_word(&at))
		return false;
	of_system = next_word(&at); /* options of the file system: may be none */
	if (neap_u64_parse(words[0], &mount->id, NULL) || neap_u64_parse(words[1], &mount->parent, NULL) ||
	    !parse_device(words[2], &mount->device) || words[4][0] != '/')
		return false;
	decode(words[4]);
	mount->path = words[4];
	mount->type = type;
	mount->read_only = has_word(words[5], "ro") || (of_system && has_word(of_system, "ro"));
	return true;
}

/* --- which ones can be seen --- */

static int by_parent(const void *a, const void *b)
{
	const struct neap_mount *first = *(const struct neap_mount *const *)a,
				*second = *(const struct neap_mount *const *)b;
	if (first->parent != second->parent)
		return first->parent < second->parent ? -1 : 1;
	return strcmp(first->path, second->path);
}

/* The mount that stands on `parent` at the first `length` bytes of `path`. NULL: none. */
static struct neap_mount *find_child(struct neap_mount *const *sorted, size_t count, uint64_t parent,
				     const char *path, size_t length)
{
	size_t low = 0, high = count;
	while (low < high) {
		size_t middle = low + (high - low) / 2;
		const struct neap_mount *mount = sorted[middle];
		int order = mount->parent < parent ? -1 : mount->parent > parent ? 1 : 0;
		if (!order)
			order = strncmp(mount->path, path, length);
		if (!order)
			order = mount->path[length] != '\0';
		if (order < 0)
			low = middle + 1;
		else
			high = middle;
	}
	if (low == count || sorted[low]->parent != parent || strncmp(sorted[low]->path, path, length) != 0 ||
	    sorted[low]->path[length] != '\0')
		return NULL;
	return sorted[low];
}

/* Follows `path` from the root as the kernel does: at each folder to the mount on top of it. */
static struct neap_mount *resolve(struct neap_mount *const *sorted, size_t count, struct neap_mount *root,
				  const char *path)
{
	struct neap_mount *current = root, *child;
	size_t steps = 0;
	for (size_t length = 1;; length++) {
		bool whole = length == 1 || path[length] == '/' || path[length] == '\0';
		while (whole && steps++ < count && (child = find_child(sorted, count, current->id, path, length)) &&
		       child != current)
			current = child;
		if (path[length] == '\0' || path[1] == '\0')
			return current;
	}
}

/* This process's root lies on the mount whose parent is not in the list. */
static struct neap_mount *find_root(struct neap_mounts *mounts)
{
	for (size_t i = 0; i < mounts->count; i++) {
		size_t parent = 0;
		if (strcmp(mounts->items[i].path, "/") != 0)
			continue;
		while (parent < mounts->count && (mounts->items[parent].id != mounts->items[i].parent || parent == i))
			parent++;
		if (parent == mounts->count)
			return &mounts->items[i];
	}
	return NULL;
}

static enum neap_status mark_visible(struct neap_mounts *mounts, struct neap_error *err)
{
	struct neap_mount **sorted = calloc(mounts->count ? mounts->count : 1, sizeof *sorted),
			  *root = find_root(mounts);
	if (!sorted)
		return neap_fail(err, NEAP_ENOMEM, "out of memory");
	for (size_t i = 0; i < mounts->count; i++)
		sorted[i] = &mounts->items[i];
	qsort(sorted, mounts->count, sizeof(struct neap_mount *), by_parent);
	for (size_t i = 0; root && i < mounts->count; i++)
		mounts->items[i].visible =
			resolve(sorted, mounts->count, root, mounts->items[i].path) == &mounts->items[i];
	free(sorted);
	return root ? NEAP_OK : neap_fail(err, NEAP_EPARSE, "the list of mounts has no root");
}

static int by_path(const void *a, const void *b)
{
	const struct neap_mount *first = a, *second = b;
	return strcmp(first->path, second->path);
}

enum neap_status neap_mounts_parse(const char *text, size_t length, struct neap_mounts *ret_mounts,
				   struct neap_error *err)
{
	struct neap_mounts mounts = {0};
	uint32_t lines = 0;
	enum neap_status status = NEAP_OK;
	for (size_t i = 0; i < length; i++)
		lines += text[i] == '\n';
	if (lines >= NEAP_MOUNTS_MOST)
		return neap_fail(err, NEAP_EINVAL, "more than %d mounts", NEAP_MOUNTS_MOST);
	mounts.text = malloc(length + 1);
	mounts.items = calloc(lines + 1u, sizeof *mounts.items);
	if (!mounts.text || !mounts.items) {
		neap_mounts_fini(&mounts);
		return neap_fail(err, NEAP_ENOMEM, "out of memory");
	}
	if (length)
		memcpy(mounts.text, text, length);
	mounts.text[length] = '\0';
	for (char *line = mounts.text, *next; !status && line && *line; line = next) {
		next = strchr(line, '\n');
		if (next)
			*next++ = '\0';
		if (parse_line(line, &mounts.items[mounts.count]))
			mounts.count++;
		else
			status = neap_fail_at(err, (uint32_t)mounts.count + 1, 1,
					      "the list of mounts is not of the form");
	}
	if (!status)
		qsort(mounts.items, mounts.count, sizeof *mounts.items, by_path);
	if (!status)
		status = mark_visible(&mounts, err);
	if (status)
		neap_mounts_fini(&mounts);
	else
		*ret_mounts = mounts;
	return status;
}

enum neap_status neap_mounts_read(struct neap_mounts *ret_mounts, struct neap_error *err)
{
	struct neap_buffer text = {0};
	enum neap_status status = neap_file_read("/proc/self/mountinfo", TEXT_BYTES, &text, err);
	if (!status)
		status = neap_mounts_parse(neap_buffer_string(&text), text.length, ret_mounts, err);
	neap_buffer_fini(&text);
	return status;
}

void neap_mounts_fini(struct neap_mounts *mounts)
{
	free(mounts->items);
	free(mounts->text);
	*mounts = (struct neap_mounts){0};
}

bool neap_path_is_below(const char *path, const char *folder)
{
	size_t length = strcmp(folder, "/") ? strlen(folder) : 0;
	return strncmp(path, folder, length) == 0 && (path[length] == '/' || path[length] == '\0');
}

/* There a program reaches the kernel's state, devices or a service, but no files. (An automounter's folder holds
 * nothing but mount points.) */
static const char *const kernels[] = {"proc",   "sysfs",      "cgroup",    "cgroup2",     "devpts",
				      "mqueue", "debugfs",    "tracefs",   "securityfs",  "bpf",
				      "pstore", "configfs",   "efivarfs",  "fusectl",     "autofs",
				      "nsfs",   "rpc_pipefs", "selinuxfs", "binfmt_misc", "resctrl"};

static bool is_of_the_kernel(const char *type)
{
	for (size_t i = 0; i < sizeof kernels / sizeof *kernels; i++)
		if (strcmp(type, kernels[i]) == 0)
			return true;
	return false;
}

/* /dev is a tmpfs in a container; a device can be written on a read-only mount all the same. */
static bool holds_devices(const struct neap_mount *mount)
{
	return strcmp(mount->type, "devtmpfs") == 0 || strcmp(mount->type, "hugetlbfs") == 0 ||
	       (neap_path_is_below(mount->path, "/dev") && !neap_path_is_below(mount->path, "/dev/shm"));
}

enum neap_view_action neap_view_plan(const struct neap_mount *mount)
{
	if (mount->read_only || is_of_the_kernel(mount->type))
		return NEAP_VIEW_AS_IT_IS;
	return holds_devices(mount) ? NEAP_VIEW_READ_ONLY : NEAP_VIEW_OVERLAY;
}
