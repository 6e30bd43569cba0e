/* base/owner.c: see owner.h. */
#include "base/owner.h"

#include "base/buffer.h"
#include "base/descriptor.h"
#include "base/error.h"
#include "base/file.h"
#include "base/process.h"

#include <errno.h>
#include <fcntl.h>
#include <inttypes.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/stat.h>
#include <unistd.h>

#define LINE_BYTES 512
#define TRIES      100 /* other processes may take over from a dead owner at the same time */

struct owner {
	int pid;
	uint64_t ticks;
	char space[64], boot[64], host[128];
};

bool neap_owner_is_needed(int lock_errno)
{
	return lock_errno == ENOLCK || lock_errno == ENOSYS || lock_errno == EOPNOTSUPP || lock_errno == EINVAL;
}

/* Reads the first word of a file, or a link, of /proc; "-": it cannot be read. */
static void read_word(const char *path, bool is_link, char *word, size_t capacity)
{
	struct neap_buffer text = {0};
	ssize_t length = is_link ? readlink(path, word, capacity - 1) : -1;
	if (length > 0)
		word[length] = '\0';
	else if (is_link || neap_file_read(path, 4096, &text, NULL) ||
		 sscanf(neap_buffer_string(&text), "%60s", word) != 1)
		snprintf(word, capacity, "-");
	neap_buffer_fini(&text);
}

static enum neap_status describe(pid_t pid, struct owner *owner, struct neap_error *err)
{
	struct neap_process process;
	enum neap_status status = neap_process_read(pid, &process, err);
	if (status)
		return status;
	owner->pid = (int)pid;
	owner->ticks = process.start_ticks;
	read_word("/proc/self/ns/pid", true, owner->space, sizeof owner->space);
	read_word("/proc/sys/kernel/random/boot_id", false, owner->boot, sizeof owner->boot);
	if (gethostname(owner->host, sizeof owner->host - 1) || !owner->host[0] || strpbrk(owner->host, " \n"))
		strcpy(owner->host, "-");
	return NEAP_OK;
}

/* Reads the owner's file. Errors: NEAP_ENOENT; NEAP_EPARSE if neap did not write it. */
static enum neap_status read_owner(const char *path, struct owner *owner)
{
	struct neap_buffer text = {0};
	enum neap_status status = neap_file_read(path, LINE_BYTES, &text, NULL);
	if (!status && sscanf(neap_buffer_string(&text), "%d %" SCNu64 " %63s %63s %127s", &owner->pid, &owner->ticks,
			      owner->space, owner->boot, owner->host) != 5)
		status = NEAP_EPARSE;
	neap_buffer_fini(&text);
	return status;
}

static bool is_same(const struct owner *a, const struct owner *b)
{
	return a->pid == b->pid && a->ticks == b->ticks && !strcmp(a->space, b->space) && !strcmp(a->boot, b->boot);
}

/* Whether the owner is alive, as far as this process can see. */
static bool lives(const struct owner *owner, const struct owner *self)
{
	bool here = !strcmp(owner->space, self->space) && !strcmp(owner->boot, self->boot);
	bool rebooted = !here && !strcmp(owner->host, self->host) && strcmp(owner->boot, self->boot) != 0;
	return here ? neap_process_alive(owner->pid, owner->ticks) : !rebooted;
}

/* Writes the owner's line to a new file in the folder; `beside` gets its path. */
static enum neap_status write_beside(const char *folder, const struct owner *owner, char beside[4200],
				     struct neap_error *err)
{
	char line[LINE_BYTES];
	if (neap_path_join(beside, 4200, folder, "owner.XXXXXX"))
		return neap_fail(err, NEAP_EINVAL, "the folder's name is too long: %.120s", folder);
	int length = snprintf(line, sizeof line, "%d %" PRIu64 " %s %s %s\n", owner->pid, owner->ticks, owner->space,
			      owner->boot, owner->host);
	int fd = neap_fd_above_standard(mkostemp(beside, O_CLOEXEC));
	if (fd < 0) {
		int cause = errno;
		unlink(beside); /* it was created, but no descriptor above the standard ones was left */
		return neap_fail_errno(err, cause, "creating %.150s", beside);
	}
	enum neap_status status = neap_fd_write(fd, line, (size_t)length, err);
	if (!status && fsync(fd))
		status = neap_fail_errno(err, errno, "flushing %.150s to disk", beside);
	close(fd);
	if (status)
		unlink(beside);
	return status;
}

/* Only one process can make the link. Over NFS a reply may be lost and the call repeated: a count of two links shows
 * that the first call succeeded. */
static bool link_once(const char *beside, const char *path)
{
	struct stat info;
	return !link(beside, path) || (!stat(beside, &info) && info.st_nlink == 2);
}

/* Removes a dead owner's file, unless another process has replaced it. Moves it aside first: only one process can. */
static void bury(const char *path, const struct owner *dead, const struct owner *self)
{
	char aside[4300];
	struct owner moved;
	snprintf(aside, sizeof aside, "%s.dead-%d-%" PRIu64, path, self->pid, self->ticks);
	if (rename(path, aside))
		return;
	if (!read_owner(aside, &moved) && !is_same(&moved, dead))
		link_once(aside, path); /* another process was quicker: put its file back */
	unlink(aside);
}

enum neap_status neap_owner_take(const char *folder, struct neap_error *err)
{
	char path[4200], beside[4200], who[160];
	struct owner self, other;
	if (neap_path_join(path, sizeof path, folder, "owner"))
		return neap_fail(err, NEAP_EINVAL, "the folder's name is too long: %.120s", folder);
	enum neap_status status = describe(getpid(), &self, err);
	if (!status && !read_owner(path, &other) && is_same(&self, &other))
		return NEAP_OK;
	if (!status)
		status = write_beside(folder, &self, beside, err);
	if (status)
		return status;
	for (int tries = 0;; tries++) {
		if (link_once(beside, path))
			break;
		if (errno != EEXIST) {
			status = neap_fail_errno(err, errno, "linking %.150s", path);
			break;
		}
		enum neap_status found = read_owner(path, &other);
		if (found == NEAP_OK && !lives(&other, &self) && tries < TRIES) {
			bury(path, &other, &self);
		} else if (found != NEAP_ENOENT || tries == TRIES) {
			if (!neap_owner_lives(folder, who))
				snprintf(who, sizeof who, "an unknown owner");
			status = neap_fail(
				err, NEAP_EBUSY,
				"%.80s: %.90s has it (this file system has no locks): if that is gone, remove "
				"the file owner in it",
				folder, who);
			break;
		}
	}
	unlink(beside);
	return status;
}

enum neap_status neap_owner_give(const char *folder, pid_t child, struct neap_error *err)
{
	char path[4200], beside[4200];
	struct owner owner;
	enum neap_status status = describe(child, &owner, err);
	if (!status)
		status = write_beside(folder, &owner, beside, err);
	if (status)
		return status;
	if (neap_path_join(path, sizeof path, folder, "owner") || rename(beside, path)) {
		status = neap_fail_errno(err, errno, "renaming %.150s", beside);
		unlink(beside);
	}
	return status;
}

bool neap_owner_lives(const char *folder, char *who)
{
	char path[4200];
	struct owner self, owner;
	if (neap_path_join(path, sizeof path, folder, "owner") || read_owner(path, &owner) ||
	    describe(getpid(), &self, NULL))
		return false;
	if (who)
		snprintf(who, 160, "process %d on %s", owner.pid, owner.host);
	return lives(&owner, &self);
}

bool neap_owner_forget(const char *folder)
{
	char path[4200];
	struct owner self, owner;
	return !neap_path_join(path, sizeof path, folder, "owner") && !read_owner(path, &owner) &&
	       !describe(getpid(), &self, NULL) && strcmp(owner.boot, self.boot) != 0 && !unlink(path);
}

void neap_owner_leave(const char *folder)
{
	char path[4200];
	struct owner self, owner;
	if (!neap_path_join(path, sizeof path, folder, "owner") && !read_owner(path, &owner) &&
	    !describe(getpid(), &self, NULL) && is_same(&self, &owner))
		unlink(path);
}
