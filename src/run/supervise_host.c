/* run/supervise_host.c: reads how often the host's OOM killer has killed: from our control group's counter, else from
 * the machine's.
 */
#include "run/supervise_internal.h"

#include "base/file.h"

#include <stdio.h>
#include <stdlib.h>
#include <string.h>

/* The number after "oom_kill " in a counters file. */
static bool read_counter(const char *path, uint64_t *ret_count)
{
	struct neap_buffer text = {0};
	bool found = false;
	if (!neap_file_read(path, 1u << 20, &text, NULL)) {
		const char *line = strstr(neap_buffer_string(&text), "oom_kill ");
		if (line && (line == text.data || line[-1] == '\n')) {
			*ret_count = strtoull(line + strlen("oom_kill "), NULL, 10);
			found = true;
		}
	}
	neap_buffer_fini(&text);
	return found;
}

uint64_t neap_host_kills(const char **ret_name)
{
	struct neap_buffer groups = {0};
	uint64_t count = 0;
	bool found = false;
	if (!neap_file_read("/proc/self/cgroup", 1u << 16, &groups, NULL)) {
		char *line = strstr(groups.data ? groups.data : "", "0::");
		char path[4200];
		if (line) {
			line[strcspn(line, "\n")] = '\0';
			snprintf(path, sizeof path, "/sys/fs/cgroup%s/memory.events", line + 3);
			found = read_counter(path, &count);
		}
	}
	neap_buffer_fini(&groups);
	*ret_name = "the control group's oom_kill counter";
	if (!found && read_counter("/proc/vmstat", &count))
		*ret_name = "the host's oom_kill counter";
	return count;
}
