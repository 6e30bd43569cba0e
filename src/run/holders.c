/* run/holders.c: see holders.h. */
#include "run/holders.h"

#include <ctype.h>
#include <dirent.h>
#include <errno.h>
#include <limits.h>
#include <stdio.h>
#include <string.h>
#include <unistd.h>

#define KERNEL_THREADS 2 /* kthreadd, the parent of all kernel threads: they open no files */

struct search {
	const char *prefix;
	char own[PATH_MAX]; /* this program; "" unknown */
	struct neap_holders *found;
};

/* Reads the target of a link in /proc. False: it cannot be read. */
static bool read_link(const char *path, char *target, size_t capacity)
{
	ssize_t length = readlink(path, target, capacity - 1);
	if (length < 0)
		return false;
	target[length] = '\0';
	return true;
}

static bool is_device(const char *path, const char *prefix)
{
	size_t length = strlen(prefix);
	if (strncmp(path, prefix, length) || !path[length])
		return false;
	return strspn(path + length, "0123456789") == strlen(path + length);
}

/* Copies the path of the process's first open device file. False: it has none. */
static bool has_open(pid_t pid, const char *prefix, char *path, size_t capacity, bool *unseen)
{
	char folder[64], link[PATH_MAX], target[PATH_MAX];
	bool found = false;
	snprintf(folder, sizeof folder, "/proc/%d/fd", (int)pid);
	DIR *files = opendir(folder);
	*unseen = !files && (errno == EACCES || errno == EPERM);
	for (struct dirent *entry; files && !found && (entry = readdir(files));) {
		snprintf(link, sizeof link, "%s/%.32s", folder, entry->d_name);
		found = isdigit((unsigned char)entry->d_name[0]) && read_link(link, target, sizeof target) &&
			is_device(target, prefix);
	}
	if (found)
		snprintf(path, capacity, "%.*s", (int)(capacity - 1), target);
	if (files)
		closedir(files);
	return found;
}

static bool is_left_out(const struct search *search, const struct neap_process *process)
{
	char link[64], program[PATH_MAX];
	snprintf(link, sizeof link, "/proc/%d/exe", (int)process->pid);
	return process->pid == getpid() || process->pid == KERNEL_THREADS || process->parent == KERNEL_THREADS ||
	       !strcmp(process->command, "nvidia-persiste") || /* comm has 15 bytes of nvidia-persistenced */
	       (search->own[0] && read_link(link, program, sizeof program) && !strcmp(program, search->own));
}

static bool visit(void *context, const struct neap_process *process)
{
	struct search *search = context;
	struct neap_holders *found = search->found;
	char path[sizeof found->items[0].path];
	bool unseen = false;
	if (is_left_out(search, process))
		return true;
	if (has_open(process->pid, search->prefix, path, sizeof path, &unseen)) {
		if (found->count < NEAP_HOLDERS) {
			if (neap_process_read(process->pid, &found->items[found->count].process, NULL))
				found->items[found->count].process = *process; /* else the process has just ended */
			memcpy(found->items[found->count].path, path, sizeof path);
		}
		found->count++;
	}
	found->unseen += unseen;
	return true;
}

enum neap_status neap_holders_find(const char *prefix, struct neap_holders *ret_holders, struct neap_error *err)
{
	struct neap_holders found = {0};
	struct search search = {.prefix = prefix, .found = &found};
	if (!read_link("/proc/self/exe", search.own, sizeof search.own))
		search.own[0] = '\0';
	enum neap_status status = neap_process_each(visit, &search, err);
	if (!status)
		*ret_holders = found;
	return status;
}

void neap_holders_text(const struct neap_holders *holders, struct neap_buffer *out)
{
	size_t named = holders->count < NEAP_HOLDERS ? holders->count : NEAP_HOLDERS;
	for (size_t i = 0; i < named; i++)
		neap_buffer_format(out, "%sprocess %d (%s) has %s open", i ? ", " : "",
				   (int)holders->items[i].process.pid, holders->items[i].process.command,
				   holders->items[i].path);
	if (holders->count > named)
		neap_buffer_format(out, " and %zu more", holders->count - named);
	if (!holders->count)
		neap_buffer_text(out, "no visible process has the device's file open");
	if (holders->unseen)
		neap_buffer_format(out, "; %zu process%s of other users cannot be inspected (root can)",
				   holders->unseen, holders->unseen == 1 ? "" : "es");
}
