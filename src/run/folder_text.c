/* run/folder_text.c: see folder_text.h. */
#include "run/folder_text.h"

#include "base/file.h"
#include "base/printable.h"
#include "base/units.h"
#include "run/folder.h"

#include <dirent.h>
#include <fcntl.h>
#include <limits.h>
#include <stdlib.h>
#include <string.h>
#include <sys/stat.h>
#include <unistd.h>

#define LOG_SHOWN   (64 * 1024) /* bytes of each log's end */
#define NOTES_SHOWN 16          /* more would only repeat these */

static bool put_log(struct neap_buffer *out, const char *folder, const char *name)
{
	char path[NEAP_RUN_FOLDER_PATH], *text = NULL;
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
		char *shown = from ? strchr(text, '\n') : text; /* from a line's beginning */
		bool ends_open = length && text[length - 1] != '\n';
		shown = shown ? shown + (from != 0) : text;
		neap_buffer_format(out, "%s%s\n", NEAP_PRINTABLE(path),
				   from     ? " (its end)"
				   : length ? ""
					    : " (empty)");
		neap_buffer_text(out, neap_printable_lines(shown));
		if (ends_open)
			neap_buffer_text(out, "\n");
	}
	free(text);
	return length >= 0;
}

bool neap_run_folder_logs(struct neap_buffer *out, const char *folder)
{
	static const char *const names[] = {"stdout.log", "stderr.log", "neap.log"};
	bool any = false;
	for (size_t i = 0; i < sizeof names / sizeof *names; i++)
		any |= put_log(out, folder, names[i]);
	return any;
}

void neap_run_folder_last_lines(struct neap_buffer *out, const char *folder, size_t most)
{
	static const char *const names[] = {"stderr.log", "stdout.log"};
	bool found = false;
	for (size_t i = 0; i < 2 && !found; i++) {
		struct neap_buffer text = {0};
		char path[NEAP_RUN_FOLDER_PATH];
		found = neap_path_join(path, sizeof path, folder, names[i]) == NEAP_OK &&
			neap_file_read(path, 64u << 20, &text, NULL) == NEAP_OK && text.length;
		if (found) {
			const char *whole = neap_buffer_string(&text), *at = whole + text.length;
			for (size_t lines = 0; at > whole && (at[-1] != '\n' || ++lines <= most); at--)
				;
			neap_buffer_text(out, at);
		}
		neap_buffer_fini(&text);
	}
}

void neap_run_folder_notes(struct neap_buffer *out, const char *folder)
{
	DIR *entries = opendir(folder);
	struct dirent *entry;
	size_t printed = 0;
	while (entries && printed < NOTES_SHOWN && (entry = readdir(entries))) {
		struct neap_buffer text = {0};
		char path[PATH_MAX];
		uint64_t pid;
		if (strncmp(entry->d_name, "note.", 5) != 0 ||
		    neap_u64_parse(entry->d_name + 5, &pid, NULL) != NEAP_OK ||
		    neap_path_join(path, sizeof path, folder, entry->d_name) != NEAP_OK)
			continue;
		if (neap_file_read(path, 65536, &text, NULL) == NEAP_OK) {
			(void)neap_buffer_string(&text); /* ends it with a NUL */
			char *rest = text.data, *note;
			while (printed < NOTES_SHOWN && (note = strsep(&rest, "\n")) != NULL) {
				if (!*note)
					continue;
				neap_buffer_format(out, "  note      process %s: ", entry->d_name + 5);
				neap_buffer_text(out, neap_printable(note, strlen(note) + 1, note));
				neap_buffer_text(out, "\n");
				printed++;
			}
		}
		neap_buffer_fini(&text);
	}
	if (entries)
		closedir(entries);
}
