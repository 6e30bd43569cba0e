/* store/history_check.c: records when neap last read the history's whole file and found no damage.
 *
 *   PATH.checked   one line "CHECKED INODE SIZE TIME": when (nanoseconds since 1970), and the file as neap left it
 *
 * `PRAGMA quick_check` reads the whole file, which takes seconds once that has years of runs. So neap runs it at most
 * once a day, unless the file has changed since neap left it (restored, copied over, or its last writer was killed),
 * or a query has found damage.
 */
#include "store/history_internal.h"

#include "base/buffer.h"
#include "base/clock.h"
#include "base/file.h"

#include <fcntl.h>
#include <inttypes.h>
#include <stdio.h>
#include <string.h>
#include <sys/stat.h>
#include <unistd.h>

#define DAY_NS (24ull * 3600 * NEAP_NS_PER_S)

struct stamp {
	uint64_t checked_ns, inode, size, time_ns;
};

static bool stamp_path(const char *path, char text[4200])
{
	return (size_t)snprintf(text, 4200, "%s.checked", path) < 4200;
}

static bool take_stamp(const char *path, struct stamp *stamp)
{
	struct stat info;
	if (stat(path, &info))
		return false;
	stamp->inode = info.st_ino;
	stamp->size = (uint64_t)info.st_size;
	stamp->time_ns = (uint64_t)info.st_mtim.tv_sec * NEAP_NS_PER_S + (uint64_t)info.st_mtim.tv_nsec;
	return true;
}

static bool read_stamp(const char *path, struct stamp *stamp)
{
	char name[4200];
	struct neap_buffer text = {0};
	bool whole = stamp_path(path, name) && !neap_file_read(name, 256, &text, NULL) &&
		     sscanf(neap_buffer_string(&text), "%" SCNu64 " %" SCNu64 " %" SCNu64 " %" SCNu64,
			    &stamp->checked_ns, &stamp->inode, &stamp->size, &stamp->time_ns) == 4;
	neap_buffer_fini(&text);
	return whole;
}

bool neap_history_is_checked(const char *path)
{
	struct stamp then, now = {0};
	uint64_t now_ns = neap_wall_ns();
	return read_stamp(path, &then) && take_stamp(path, &now) && then.inode == now.inode &&
	       then.size == now.size && then.time_ns == now.time_ns && then.checked_ns <= now_ns &&
	       now_ns - then.checked_ns < DAY_NS;
}

/* A torn stamp, or a failure to write it, only causes one more check. */
static void write_stamp(const char *path, uint64_t checked_ns)
{
	char name[4200], line[128];
	struct stamp stamp = {0};
	if (!take_stamp(path, &stamp) || !stamp_path(path, name))
		return;
	int length = snprintf(line, sizeof line, "%" PRIu64 " %" PRIu64 " %" PRIu64 " %" PRIu64 "\n", checked_ns,
			      stamp.inode, stamp.size, stamp.time_ns);
	int fd = open(name, O_WRONLY | O_CREAT | O_TRUNC | O_NOFOLLOW | O_CLOEXEC, 0600);
	if (fd >= 0) {
		neap_fd_write(fd, line, (size_t)length, NULL);
		close(fd);
	}
}

void neap_history_note_checked(const char *path) { write_stamp(path, neap_wall_ns()); }

void neap_history_note_left(const char *path)
{
	struct stamp stamp;
	if (read_stamp(path, &stamp)) /* else another process has found damage meanwhile */
		write_stamp(path, stamp.checked_ns);
}

void neap_history_suspect(const char *path)
{
	char name[4200];
	if (stamp_path(path, name))
		unlink(name);
}
