/* checkpoint/together.c: see the header. */
#include "checkpoint/together.h"

#include "checkpoint/sidecar.h"
#include "checkpoint/trash.h"

#include "base/array.h"
#include "base/descriptor.h"
#include "base/error.h"

#include <errno.h>
#include <fcntl.h>
#include <inttypes.h>
#include <stdlib.h>
#include <string.h>
#include <sys/stat.h>
#include <unistd.h>

#define TEXT_MOST (64 * 1024 * 1024)

/* --- writing --- */

static void put_groups(const struct neap_retention_plan *plan, struct neap_buffer *text)
{
	for (size_t i = 0; i < plan->count; i++) {
		const struct neap_retention_entry *entry = &plan->entries[i];

		if (!entry->drop || entry->part_count < 2)
			continue;
		for (size_t k = 0; k < entry->part_count; k++) {
			neap_buffer_format(text, "%" PRIu64 " %s", entry->parts[k].inode, entry->parts[k].name);
			neap_buffer_append(text, "", 1);
		}
		neap_buffer_append(text, "", 1);
	}
}

static bool write_all(int fd, const char *bytes, size_t length)
{
	while (length > 0) {
		ssize_t n = write(fd, bytes, length);
		if (n < 0 && errno == EINTR)
			continue;
		if (n < 0)
			return false;
		bytes += n;
		length -= (size_t)n;
	}
	return true;
}

enum neap_status checkpoint_together_write(int batch_fd, const struct neap_retention_plan *plan,
					   struct neap_error *err)
{
	struct neap_buffer text = {0};
	enum neap_status status = NEAP_OK;
	int fd = -1;

	put_groups(plan, &text);
	if (text.failed)
		status = neap_fail(err, NEAP_ENOMEM, "out of host memory");
	else if (text.length > 0) {
		fd = neap_fd_above_standard(
			openat(batch_fd, CHECKPOINT_PARTS, O_WRONLY | O_CREAT | O_EXCL | O_CLOEXEC, 0666));
		if (fd < 0 || !write_all(fd, text.data, text.length) || fsync(fd) < 0 || fsync(batch_fd) < 0)
			status = neap_fail_errno(err, errno, "writing which files belong together into the trash");
	}
	if (fd >= 0)
		close(fd);
	if (fd >= 0 && status)
		unlinkat(batch_fd, CHECKPOINT_PARTS, 0);
	neap_buffer_fini(&text);
	return status;
}

/* --- reading --- */

static bool is_plain_name(const char *name) { return name[0] && name[0] != '.' && !strchr(name, '/'); }

/* Reads one record. False: it is damaged. */
static bool read_part(const char *text, struct checkpoint_together_part *part)
{
	char *end;
	size_t digits = strspn(text, "0123456789");

	if (digits == 0 || digits > 20 || text[digits] != ' ' || !is_plain_name(text + digits + 1))
		return false;
	errno = 0;
	part->inode = strtoull(text, &end, 10);
	part->name = end + 1;
	return errno == 0;
}

bool checkpoint_together_parse(struct checkpoint_together *together)
{
	const char *at = neap_buffer_string(&together->text), *end = at + together->text.length;

	while (at < end && memchr(at, '\0', (size_t)(end - at))) {
		struct checkpoint_together_part part = {.group = together->groups};
		size_t length = strlen(at);

		if (length == 0)
			together->groups++;
		if (length > 0 && read_part(at, &part)) {
			if (!neap_array_grow(&together->parts, together->count, sizeof part))
				return false;
			together->parts[together->count++] = part;
		}
		at += length + 1;
	}
	/* the last group has no end: the file was not written whole, so nothing was moved */
	while (together->count > 0 && together->parts[together->count - 1].group == together->groups)
		together->count--;
	return true;
}

enum neap_status checkpoint_together_read(int batch_fd, struct checkpoint_together *ret_together,
					  struct neap_error *err)
{
	int cause;

	*ret_together = (struct checkpoint_together){0};
	if (!checkpoint_text_read(batch_fd, CHECKPOINT_PARTS, TEXT_MOST, &ret_together->text, &cause))
		return cause == ENOENT ? NEAP_OK
				       : neap_fail_errno(err, cause, "reading %s of the trash", CHECKPOINT_PARTS);
	if (!checkpoint_together_parse(ret_together))
		return neap_fail(err, NEAP_ENOMEM, "out of host memory");
	return NEAP_OK;
}

void checkpoint_together_fini(struct checkpoint_together *together)
{
	neap_buffer_fini(&together->text);
	free(together->parts);
	*together = (struct checkpoint_together){0};
}

size_t checkpoint_together_find(const struct checkpoint_together *together, const char *name)
{
	for (size_t i = 0; i < together->count; i++)
		if (!strcmp(together->parts[i].name, name))
			return together->parts[i].group;
	return together->groups;
}

/* --- mending --- */

static bool is_there(int fd, const struct checkpoint_together_part *part)
{
	struct stat info;

	return fstatat(fd, part->name, &info, AT_SYMLINK_NOFOLLOW) == 0 && info.st_ino == part->inode;
}

/* Mends the group of parts[first..last). */
static int mend_group(const struct checkpoint_together *together, size_t first, size_t last, int batch_fd,
		      int folder_fd, struct neap_map *ret_mended)
{
	bool here = false, away = false, mended = false;
	int first_cause = 0;

	for (size_t i = first; i < last; i++) {
		here |= is_there(folder_fd, &together->parts[i]);
		away |= is_there(batch_fd, &together->parts[i]);
	}
	for (size_t i = first; here && away && i < last; i++) {
		const struct checkpoint_together_part *part = &together->parts[i];

		if (!is_there(batch_fd, part))
			continue;
		int cause = checkpoint_bring_back(batch_fd, part->name, folder_fd);
		mended |= cause == 0;
		/* EEXIST: another process has saved this part again */
		if (cause && cause != EEXIST && !first_cause)
			first_cause = cause;
	}
	for (size_t i = first; mended && ret_mended && i < last; i++)
		if (!neap_map_put(ret_mended, together->parts[i].inode, 1) && !first_cause)
			first_cause = ENOMEM;
	return first_cause;
}

int checkpoint_together_mend(const struct checkpoint_together *together, int batch_fd, int folder_fd,
			     struct neap_map *ret_mended)
{
	int first_cause = 0;

	for (size_t first = 0, last; first < together->count; first = last) {
		for (last = first + 1; last < together->count; last++)
			if (together->parts[last].group != together->parts[first].group)
				break;
		int cause = mend_group(together, first, last, batch_fd, folder_fd, ret_mended);
		if (cause && !first_cause)
			first_cause = cause;
	}
	return first_cause;
}
