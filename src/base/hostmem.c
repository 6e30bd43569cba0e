/* base/hostmem.c: the host's available memory, lowered to what each control group from ours up to the root allows.
 *
 * In a container the process sees only a part of the tree, and a group's own file may be missing. Then the groups
 * above are still read, up to the root of the mount, which in a container is the container's own group.
 */
#include "base/hostmem.h"

#include "base/error.h"
#include "base/file.h"

#include <ctype.h>
#include <errno.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#define FILE_MAX_BYTES (1u << 20)
#define PATH_CAPACITY  4600

/* The two versions of the interface. */
struct kind {
	const char *mount, *limit, *use, *cache;
};
static const struct kind version_2 = {"/sys/fs/cgroup", "memory.max", "memory.current", "inactive_file "};
static const struct kind version_1 = {"/sys/fs/cgroup/memory", "memory.limit_in_bytes", "memory.usage_in_bytes",
				      "total_inactive_file "};

static bool parse_number(const char *text, uint64_t *ret_number)
{
	char *end;

	if (!isdigit((unsigned char)*text))
		return false;
	errno = 0;
	uint64_t number = strtoull(text, &end, 10);
	if (errno)
		return false;
	*ret_number = number;
	return true;
}

/* Finds the number after `key`, at the start of a line. */
static bool find_number(const char *text, const char *key, uint64_t *ret_number)
{
	for (const char *line = text; line; line = strchr(line, '\n')) {
		line += *line == '\n';
		if (strncmp(line, key, strlen(key)) != 0)
			continue;
		line += strlen(key);
		return parse_number(line + strspn(line, " \t"), ret_number);
	}
	return false;
}

/* Reads a number from one file of one group; `key` NULL: the whole file is the number. False also for "max", which
 * means no limit. */
static bool read_group(const char *root, const struct kind *kind, const char *group, const char *name,
		       const char *key, uint64_t *ret_number)
{
	struct neap_buffer text = {0};
	char path[PATH_CAPACITY];
	int length = snprintf(path, sizeof path, "%s%s%s/%s", root, kind->mount, group, name);
	bool found = length > 0 && (size_t)length < sizeof path &&
		     neap_file_read(path, FILE_MAX_BYTES, &text, NULL) == NEAP_OK &&
		     (key ? find_number(neap_buffer_string(&text), key, ret_number)
			  : parse_number(neap_buffer_string(&text), ret_number));

	neap_buffer_fini(&text);
	return found;
}

static void narrow_by_group(const char *root, const struct kind *kind, const char *group,
			    struct neap_host_memory *memory)
{
	uint64_t limit, use, cache = 0;

	if (!read_group(root, kind, group, kind->limit, NULL, &limit) ||
	    !read_group(root, kind, group, kind->use, NULL, &use))
		return;
	read_group(root, kind, group, "memory.stat", kind->cache, &cache);
	use = use > cache ? use - cache : 0;
	uint64_t left = limit > use ? limit - use : 0;
	if (left < memory->available_bytes) {
		memory->available_bytes = left;
		memory->by_group = true;
	}
}

/* Applies `group` ("/a/b") and the groups above it. Shortens `group` to "". */
static void narrow_by_groups(const char *root, const struct kind *kind, char *group, struct neap_host_memory *memory)
{
	for (;;) {
		char *slash = strrchr(group, '/');
		if (slash && !slash[1]) /* "/" itself is "" */
			*slash = '\0';
		narrow_by_group(root, kind, group, memory);
		slash = strrchr(group, '/');
		if (!slash)
			return;
		*slash = '\0';
	}
}

/* Whether "memory" is one of the controllers in "a,b,c". */
static bool has_memory(const char *controllers, size_t length)
{
	static const char name[] = "memory";

	for (size_t at = 0; at + strlen(name) <= length; at++) {
		size_t end = at + strlen(name);
		if ((at == 0 || controllers[at - 1] == ',') && !memcmp(controllers + at, name, strlen(name)) &&
		    (end == length || controllers[end] == ','))
			return true;
	}
	return false;
}

/* Lines of /proc/self/cgroup: "ID:CONTROLLERS:/GROUP"; version 2 has ID 0 and no controllers. */
static void narrow(const char *root, char *lines, struct neap_host_memory *memory)
{
	char *rest = NULL;

	for (char *line = strtok_r(lines, "\n", &rest); line; line = strtok_r(NULL, "\n", &rest)) {
		char *controllers = strchr(line, ':');
		char *group = controllers ? strchr(++controllers, ':') : NULL;
		if (!group || group[1] != '/' || strstr(group, "/..")) /* we are not inside this group */
			continue;
		if (!strncmp(line, "0::", 3))
			narrow_by_groups(root, &version_2, group + 1, memory);
		else if (has_memory(controllers, (size_t)(group - controllers)))
			narrow_by_groups(root, &version_1, group + 1, memory);
	}
}

enum neap_status neap_host_memory_read(const char *root, struct neap_host_memory *ret_memory, struct neap_error *err)
{
	struct neap_buffer text = {0};
	struct neap_host_memory memory = {0};
	char path[PATH_CAPACITY];
	uint64_t kib = 0;

	snprintf(path, sizeof path, "%s/proc/meminfo", root);
	enum neap_status status = neap_file_read(path, FILE_MAX_BYTES, &text, err);
	if (!status && (!find_number(neap_buffer_string(&text), "MemAvailable:", &kib) ||
			__builtin_mul_overflow(kib, 1024u, &memory.host_available_bytes)))
		status = neap_fail(err, NEAP_EPARSE, "%s says no MemAvailable", path);
	memory.available_bytes = memory.host_available_bytes;
	if (!status && (!find_number(neap_buffer_string(&text), "MemTotal:", &kib) ||
			__builtin_mul_overflow(kib, 1024u, &memory.host_total_bytes)))
		status = neap_fail(err, NEAP_EPARSE, "%s says no MemTotal", path);
	neap_buffer_fini(&text);
	if (status)
		return status;
	text = (struct neap_buffer){0};
	snprintf(path, sizeof path, "%s/proc/self/cgroup", root);
	if (neap_file_read(path, FILE_MAX_BYTES, &text, NULL) == NEAP_OK && text.data)
		narrow(root, text.data, &memory);
	neap_buffer_fini(&text);
	*ret_memory = memory;
	return NEAP_OK;
}
