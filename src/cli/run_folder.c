/* cli/run_folder.c: see run_folder.h. */
#include "cli/run_folder.h"

#include "base/file.h"
#include "cli/print.h"

#include <fcntl.h>
#include <stdlib.h>
#include <string.h>
#include <sys/stat.h>
#include <unistd.h>

#define LOG_SHOWN (64 * 1024) /* bytes of each log's end */

enum neap_status run_folder_trace(const char *verb, const char *path, char ret_path[NEAP_RUN_FOLDER_PATH],
				  struct neap_error *err)
{
	struct neap_run_trace trace;
	enum neap_status status = neap_run_folder_trace(path, &trace, err);
	if (status)
		return status;
	strcpy(ret_path, trace.path);
	if (trace.others)
		fprintf(stderr,
			"neap %s: %s, the process with the highest peak; %zu other recording%s in the folder\n", verb,
			NEAP_PRINTABLE(ret_path), trace.others, trace.others == 1 ? " is" : "s are");
	return NEAP_OK;
}

static bool print_log(const char *folder, const char *name, FILE *out)
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

void run_folder_print_lost(const char *command, FILE *out)
{
	fprintf(out,
		"neap %s: the program's supervisor ('neap run') was killed while the program ran, and the program "
		"ended "
		"with it: nothing is known of its memory. Does the program end its parent processes, or all "
		"processes "
		"of its user? Leave these alone. Else the host may have run out of memory: 'dmesg' tells\n",
		command);
}
