/* machine/who.c: see who.h. */
#include "machine/who.h"

#include "base/clock.h"
#include "base/printable.h"
#include "base/process.h"

#include <inttypes.h>
#include <pwd.h>
#include <stdio.h>
#include <string.h>
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
	uint64_t hertz = (uint64_t)sysconf(_SC_CLK_TCK), now_ns = neap_boot_ns();

	if (hertz == 0)
		return NEAP_WHO_UNKNOWN;
	uint64_t start_ns = start_ticks / hertz * NEAP_NS_PER_S + start_ticks % hertz * NEAP_NS_PER_S / hertz;
	return now_ns > start_ns ? now_ns - start_ns : 0;
}

/* The command line with spaces between its arguments. `line` has room for one more byte. */
static void take_command(char *line, size_t length, char *ret_text, size_t capacity)
{
	line[length] = '\0';
	const char *slash = strrchr(line, '/'); /* only in the first argument */
	char *start = slash && slash[1] ? line + (slash + 1 - line) : line;
	for (char *c = start; c < line + length; c++)
		if (!*c)
			*c = ' ';
	neap_who_cut(NEAP_PRINTABLE(start), capacity - 1, ret_text, capacity);
}

void neap_who_read(pid_t pid, const struct neap_who *known, struct neap_who *ret_who)
{
	struct neap_who who = {.run_ns = NEAP_WHO_UNKNOWN};
	struct neap_process process;
	char line[2048];
	size_t length;

	if (neap_process_read_line(pid, &process, line, sizeof line, &length, NULL) == NEAP_OK) {
		who.uid = process.uid;
		if (known && known->user[0] && known->uid == process.uid)
			memcpy(who.user, known->user, sizeof who.user);
		else
			read_user(process.uid, who.user);
		who.parent = process.parent;
		who.start_ticks = process.start_ticks;
		who.rss_bytes = process.rss_bytes;
		who.cpu_ns = process.cpu_ns;
		who.run_ns = run_time(process.start_ticks);
		neap_printable(who.name, sizeof who.name, process.command);
		if (length > 0)
			take_command(line, length, who.command, sizeof who.command);
		else
			neap_printable(who.command, sizeof who.command, process.command);
	}
	*ret_who = who;
}

const char *neap_who_time_format(uint64_t run_ns, char text[NEAP_WHO_TIME_CAPACITY])
{
	uint64_t s = run_ns / NEAP_NS_PER_S;

	if (run_ns == NEAP_WHO_UNKNOWN)
		snprintf(text, NEAP_WHO_TIME_CAPACITY, "?");
	else if (s < 3600)
		snprintf(text, NEAP_WHO_TIME_CAPACITY, "%02" PRIu64 ":%02" PRIu64, s / 60, s % 60);
	else if (s < 86400)
		snprintf(text, NEAP_WHO_TIME_CAPACITY, "%" PRIu64 ":%02" PRIu64 ":%02" PRIu64, s / 3600, s / 60 % 60,
			 s % 60);
	else
		snprintf(text, NEAP_WHO_TIME_CAPACITY, "%" PRIu64 "-%02" PRIu64 ":%02" PRIu64 ":%02" PRIu64,
			 s / 86400, s / 3600 % 24, s / 60 % 60, s % 60);
	return text;
}

/* Bytes of at most `columns` characters, and of at most `capacity`. */
static size_t prefix(const char *text, size_t columns, size_t capacity)
{
	size_t length = strlen(text), at = 0;
	uint32_t character;

	while (at < length && columns-- > 0) {
		size_t next = neap_utf8_next(text + at, length - at, &character);
		if (at + next > capacity)
			break;
		at += next;
	}
	return at;
}

const char *neap_who_cut(const char *text, size_t columns, char *ret_text, size_t capacity)
{
	size_t most = columns ? columns : SIZE_MAX, length = prefix(text, most, capacity - 1);
	bool cut = text[length] != '\0';

	if (cut && capacity > 4)
		length = prefix(text, most > 3 ? most - 3 : 0, capacity - 4);
	snprintf(ret_text, capacity, "%.*s%s", (int)length, text, cut ? "..." : "");
	return ret_text;
}
