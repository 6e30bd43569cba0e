/* run/supervise_last.c: reads the end of the command's output, depending on where it goes:
 *
 *   --log                       RUN/stderr.log
 *   stderr is a file            that file, from where this start began, without neap's own lines
 *   a pipe, a socket, /dev/null the tee's copy (run/tee.h)
 *   a terminal, closed          not read. For a PyTorch program, RUN/error.PID has the exception that
 *                               ended it (python/neap/hooks.py)
 */
#include "run/supervise_internal.h"

#include "base/buffer.h"
#include "base/file.h"
#include "base/printable.h"

#include <fcntl.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/stat.h>
#include <unistd.h>

/* The position where the next byte is written to this file; false: it is not a plain file. */
static bool position_of(int fd, uint64_t *ret_position)
{
	struct stat file;
	if (fstat(fd, &file) || !S_ISREG(file.st_mode))
		return false;
	off_t at = fcntl(fd, F_GETFL) & O_APPEND ? file.st_size : lseek(fd, 0, SEEK_CUR);
	*ret_position = at > 0 ? (uint64_t)at : 0;
	return true;
}

void neap_supervise_last_begin(struct neap_supervise *run)
{
	run->last = (struct neap_last_output){0};
	run->tee_offset = neap_tee_passed(&run->tee);
	run->log_offset = 0;
	if (!run->options.log_files)
		position_of(STDERR_FILENO, &run->log_offset);
}

/* Reads the end of a file: at most its last `capacity` bytes, none before `from`. */
static size_t read_end(int fd, uint64_t from, char *ret_text, size_t capacity)
{
	struct stat file;
	if (fstat(fd, &file) || !S_ISREG(file.st_mode) || (uint64_t)file.st_size <= from)
		return 0;
	uint64_t end = (uint64_t)file.st_size, length = end - from < capacity ? end - from : capacity;
	ssize_t got = pread(fd, ret_text, length, (off_t)(end - length));
	return got > 0 ? (size_t)got : 0;
}

/* Whether neap wrote the line: a line of our log, or of the OOM card that was shown. */
static bool is_ours(const char *line, size_t length, const char *card)
{
	static const char stamp[] = "dddd-dd-dd dd:dd:dd,ddd neap ";
	char text[256];
	size_t at = 0;
	while (at < sizeof stamp - 1 && at < length &&
	       (stamp[at] == 'd' ? line[at] >= '0' && line[at] <= '9' : line[at] == stamp[at]))
		at++;
	if (at == sizeof stamp - 1)
		return true;
	if (length < 8 || length > sizeof text - 3)
		return false;
	snprintf(text, sizeof text, "\n%.*s\n", (int)length, line);
	return !strncmp(card, text + 1, length + 1) || strstr(card, text);
}

/* Removes our own lines, in place. Returns the remaining length. */
static size_t without_ours(char *text, size_t length, const char *card)
{
	size_t kept = 0;
	for (size_t at = 0; at < length;) {
		const char *newline = memchr(text + at, '\n', length - at);
		size_t end = newline ? (size_t)(newline - text) : length;
		size_t whole = newline ? end + 1 - at : end - at;
		if (!is_ours(text + at, end - at, card)) {
			memmove(text + kept, text + at, whole);
			kept += whole;
		}
		at += whole;
	}
	return kept;
}

static size_t read_file(struct neap_supervise *run, char *ret_text, size_t capacity)
{
	char path[4200] = "/proc/self/fd/2";
	uint64_t position;
	bool log = run->options.log_files;
	if (log ? neap_path_join(path, sizeof path, run->folder, "stderr.log") != NEAP_OK
		: !position_of(STDERR_FILENO, &position))
		return 0;
	int fd = open(path, O_RDONLY | O_CLOEXEC | O_NONBLOCK | O_NOCTTY);
	if (fd < 0)
		return 0;
	snprintf(run->last.of, sizeof run->last.of, "stderr");
	size_t length = read_end(fd, run->log_offset, ret_text, capacity);
	close(fd);
	return log ? length : without_ours(ret_text, length, neap_buffer_string(&run->last_card));
}

struct first_error {
	struct timespec when;
	char line[sizeof((struct neap_last_output *)0)->error];
};

/* Keeps the earliest error: if several processes failed, the first caused the others to fail. */
static void read_error(struct neap_supervise *run, const char *path, pid_t pid, void *context)
{
	struct first_error *first = context;
	struct neap_buffer text = {0};
	struct stat file;
	(void)run, (void)pid;
	bool later = stat(path, &file) ||
		     (first->line[0] &&
		      (file.st_mtim.tv_sec > first->when.tv_sec ||
		       (file.st_mtim.tv_sec == first->when.tv_sec && file.st_mtim.tv_nsec >= first->when.tv_nsec)));
	if (!later && neap_file_read(path, NEAP_LAST_READ_BYTES, &text, NULL) == NEAP_OK && text.length) {
		text.data[strcspn(text.data, "\n")] = '\0';
		neap_printable(first->line, sizeof first->line, text.data);
		first->when = file.st_mtim;
	}
	neap_buffer_fini(&text);
}

void neap_supervise_last_read(struct neap_supervise *run, struct neap_evidence *evidence)
{
	char *text = malloc(NEAP_LAST_READ_BYTES);
	size_t length;
	if (!text)
		return;
	if (run->tee.ring) {
		neap_tee_flush(&run->tee);
		length = neap_tee_read(&run->tee, run->tee_offset, text, NEAP_LAST_READ_BYTES);
		snprintf(run->last.of, sizeof run->last.of, "%s", run->tee.both ? "stdout and stderr" : "stderr");
	} else {
		length = read_file(run, text, NEAP_LAST_READ_BYTES);
	}
	neap_last_output_find(text, length, &run->last);
	struct first_error first = {0};
	if (!run->last.error[0])
		neap_facts_each_file(run, "error.", read_error, &first);
	if (first.line[0])
		memcpy(run->last.error, first.line, sizeof first.line);
	snprintf(evidence->error_line, sizeof evidence->error_line, "%s", run->last.error);
	char line[sizeof evidence->stderr_line];
	neap_outcome_scan(text, length, NEAP_FAILURE_OOM, line, sizeof line);
	neap_printable(evidence->stderr_line, sizeof evidence->stderr_line, line);
	neap_outcome_scan(text, length, NEAP_FAILURE_LOST, line, sizeof line);
	neap_printable(evidence->lost_line, sizeof evidence->lost_line, line);
	free(text);
}
