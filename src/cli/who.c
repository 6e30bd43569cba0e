/* cli/who.c: see who.h. */
#include "cli/who.h"

#include "base/clock.h"
#include "base/printable.h"
#include "base/process.h"

#include <fcntl.h>
#include <inttypes.h>
#include <pwd.h>
#include <stdio.h>
#include <string.h>
#include <time.h>
#include <unistd.h>

static void read_user(uid_t uid, char user[64])
{
	struct passwd entry, *found = NULL;
	char space[4096];

	if (getpwuid_r(uid, &entry, space, sizeof space, &found) == 0 && found)
		neap_printable(user, 64, found->pw_name);
	else
		snprintf(user, 64, "%u", (unsigned)uid);
}

static uint64_t run_time(uint64_t start_ticks)
{
	struct timespec now;
	uint64_t hertz = (uint64_t)sysconf(_SC_CLK_TCK);

	if (clock_gettime(CLOCK_BOOTTIME, &now) != 0 || hertz == 0)
		return WHO_UNKNOWN;
	uint64_t now_ns = (uint64_t)now.tv_sec * NEAP_NS_PER_S + (uint64_t)now.tv_nsec;
	uint64_t start_ns = start_ticks / hertz * NEAP_NS_PER_S + start_ticks % hertz * NEAP_NS_PER_S / hertz;
	return now_ns > start_ns ? now_ns - start_ns : 0;
}

/* The command line with spaces between its arguments; false where it is empty or cannot be read. */
static bool read_command_line(pid_t pid, char *ret_text, size_t room)
{
	char path[32], bytes[2048];

	snprintf(path, sizeof path, "/proc/%d/cmdline", (int)pid);
	int fd = open(path, O_RDONLY | O_CLOEXEC);
	if (fd < 0)
		return false;
	ssize_t length = read(fd, bytes, sizeof bytes - 1);
	close(fd);
	while (length > 0 && bytes[length - 1] == '\0')
		length--;
	if (length <= 0)
		return false;
	bytes[length] = '\0';
	const char *slash = strrchr(bytes, '/'); /* of the first argument alone */
	char *start = slash && slash[1] ? bytes + (slash + 1 - bytes) : bytes;
	for (char *c = start; c < bytes + length; c++)
		if (!*c)
			*c = ' ';
	who_cut(NEAP_PRINTABLE(start), room - 1, ret_text, room);
	return true;
}

void who_read(pid_t pid, struct who *ret_who)
{
	struct who who = {.run_ns = WHO_UNKNOWN};
	struct neap_process process;

	if (neap_process_read(pid, &process, NULL) == NEAP_OK) {
		read_user(process.uid, who.user);
		who.parent = process.parent;
		who.start_ticks = process.start_ticks;
		who.run_ns = run_time(process.start_ticks);
		if (!read_command_line(pid, who.command, sizeof who.command))
			neap_printable(who.command, sizeof who.command, process.command);
	}
	*ret_who = who;
}

const char *who_time_format(uint64_t run_ns, char text[WHO_TIME_ROOM])
{
	uint64_t s = run_ns / NEAP_NS_PER_S;

	if (run_ns == WHO_UNKNOWN)
		snprintf(text, WHO_TIME_ROOM, "?");
	else if (s < 3600)
		snprintf(text, WHO_TIME_ROOM, "%02" PRIu64 ":%02" PRIu64, s / 60, s % 60);
	else if (s < 86400)
		snprintf(text, WHO_TIME_ROOM, "%" PRIu64 ":%02" PRIu64 ":%02" PRIu64, s / 3600, s / 60 % 60, s % 60);
	else
		snprintf(text, WHO_TIME_ROOM, "%" PRIu64 "-%02" PRIu64 ":%02" PRIu64 ":%02" PRIu64, s / 86400,
			 s / 3600 % 24, s / 60 % 60, s % 60);
	return text;
}

/* Bytes of at most `columns` characters, and of at most `room`. */
static size_t prefix(const char *text, size_t columns, size_t room)
{
	size_t length = strlen(text), at = 0;
	uint32_t character;

	while (at < length && columns-- > 0) {
		size_t next = neap_utf8_next(text + at, length - at, &character);
		if (at + next > room)
			break;
		at += next;
	}
	return at;
}

const char *who_cut(const char *text, size_t columns, char *ret_text, size_t room)
{
	size_t most = columns ? columns : SIZE_MAX, length = prefix(text, most, room - 1);
	bool cut = text[length] != '\0';

	if (cut && room > 4)
		length = prefix(text, most > 3 ? most - 3 : 0, room - 4);
	snprintf(ret_text, room, "%.*s%s", (int)length, text, cut ? "..." : "");
	return ret_text;
}
