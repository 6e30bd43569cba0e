/* cli/run_folder.c: see run_folder.h. */
#include "cli/run_folder.h"

#include "analyze/run.h"
#include "base/error.h"
#include "base/file.h"
#include "base/units.h"
#include "cli/print.h"
#include "trace/record.h"

#include <dirent.h>
#include <errno.h>
#include <fcntl.h>
#include <stdlib.h>
#include <string.h>
#include <sys/stat.h>
#include <unistd.h>

#define LOG_SHOWN (64 * 1024) /* bytes of each log's end */

bool run_folder_is(const char *path)
{
	struct stat info;
	return stat(path, &info) == 0 && S_ISDIR(info.st_mode);
}

/* "record.4711" */
static bool is_recording(const char *name)
{
	uint64_t pid;
	return strncmp(name, "record.", 7) == 0 && neap_u64_parse(name + 7, &pid, NULL) == NEAP_OK;
}

/* True: it can be read. */
static bool peak_of(const char *path, uint64_t *ret_peak_bytes, struct neap_error *err)
{
	struct neap_record record = {0};
	struct neap_run_facts facts;
	if (neap_record_read(path, &record, err) != NEAP_OK)
		return false;
	neap_run_facts(&record, 0, &facts);
	neap_record_fini(&record);
	*ret_peak_bytes = facts.peak_reserved_bytes;
	return true;
}

static enum neap_status complain_of_none(const char *folder, struct neap_error *err)
{
	char journal[RUN_FOLDER_PATH];
	if (neap_path_join(journal, sizeof journal, folder, "journal") == NEAP_OK && access(journal, F_OK) == 0)
		return neap_fail(err, NEAP_ENOENT,
				 "%.200s is the folder of a series: give one of its runs, in %.200s/runs", folder,
				 folder);
	return neap_fail(err, NEAP_ENOENT, "no recording (record.PID) in %.200s: no process of that run was attached",
			 folder);
}

enum neap_status run_folder_recording(const char *folder, char ret_path[RUN_FOLDER_PATH], size_t *ret_others,
				      struct neap_error *err)
{
	DIR *entries = opendir(folder);
	uint64_t best_bytes = 0;
	size_t count = 0, unread = 0;
	bool found = false;

	if (!entries)
		return neap_fail_errno(err, errno, "reading %.200s", folder);
	for (struct dirent *entry; (entry = readdir(entries));) {
		char path[RUN_FOLDER_PATH];
		uint64_t peak_bytes = 0;
		if (!is_recording(entry->d_name) ||
		    neap_path_join(path, sizeof path, folder, entry->d_name) != NEAP_OK)
			continue;
		if (!peak_of(path, &peak_bytes, err)) {
			unread++;
			continue;
		}
		count++;
		if (found && peak_bytes <= best_bytes)
			continue;
		found = true;
		best_bytes = peak_bytes;
		strcpy(ret_path, path);
	}
	closedir(entries);
	if (!found)
		return unread && err ? err->status : complain_of_none(folder, err);
	*ret_others = count + unread - 1;
	return NEAP_OK;
}

static bool print_log(const char *folder, const char *name, FILE *out)
{
	char path[RUN_FOLDER_PATH], *text = NULL;
	struct stat info;
	if (neap_path_join(path, sizeof path, folder, name) != NEAP_OK)
		return false;
	int fd = open(path, O_RDONLY | O_CLOEXEC | O_NONBLOCK | O_NOCTTY);
	if (fd < 0)
		return false;
	bool is_log = fstat(fd, &info) == 0 && S_ISREG(info.st_mode) && (text = malloc(LOG_SHOWN + 1));
	off_t from = is_log && info.st_size > LOG_SHOWN ? info.st_size - LOG_SHOWN : 0;
	ssize_t length = is_log ? pread(fd, text, LOG_SHOWN, from) : -1;
	close(fd);
	if (length >= 0) {
		text[length] = '\0';
		for (char *zero = text; (zero = memchr(zero, '\0', (size_t)(text + length - zero)));)
			*zero = '?';
		const char *shown = from ? strchr(text, '\n') : text; /* from a line's beginning */
		shown = shown ? shown + (from != 0) : text;
		fprintf(out, "%s%s\n", NEAP_PRINTABLE(path), from ? " (its end)" : length ? "" : " (empty)");
		print_safe_lines(out, shown);
		if (length && text[length - 1] != '\n')
			fputc('\n', out);
	}
	free(text);
	return length >= 0;
}

bool run_folder_print_logs(const char *folder, FILE *out)
{
	static const char *const names[] = {"stdout.log", "stderr.log", "neap.log"};
	bool any = false;
	for (size_t i = 0; i < sizeof names / sizeof *names; i++)
		any |= print_log(folder, names[i], out);
	return any;
}
