/* series/journal.c: see journal.h. */
#include "series/journal.h"

#include "base/error.h"
#include "base/file.h"
#include "base/owner.h"
#include "store/json.h"

#include <errno.h>
#include <fcntl.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/stat.h>
#include <unistd.h>

struct neap_journal {
	char path[4096];
	char folder[4096];
	bool owned;  /* without locks: base/owner.h */
	int fd;      /* appending */
	int lock_fd; /* the only descriptor of the lock file: closing any other would drop the lock */
	size_t dropped;
	json_t *records;
};

uint32_t neap_journal_crc(const void *bytes, size_t length)
{
	uint32_t crc = 0xffffffffu;
	for (size_t i = 0; i < length; i++) {
		crc ^= ((const unsigned char *)bytes)[i];
		for (int bit = 0; bit < 8; bit++)
			crc = crc & 1 ? crc >> 1 ^ 0xedb88320u : crc >> 1;
	}
	return ~crc;
}

/* Parses one line without its newline. NULL: it is not a record, or memory is short. */
static json_t *parse_line(const char *line, size_t length)
{
	if (length < 11 || line[8] != ' ' || memchr(line, 0, length))
		return NULL;
	uint32_t crc = 0;
	for (int i = 0; i < 8; i++) {
		const char *digit = memchr("0123456789abcdef", line[i], 16);
		if (!digit)
			return NULL;
		crc = crc << 4 | (uint32_t)(digit - "0123456789abcdef");
	}
	if (crc != neap_journal_crc(line + 9, length - 9))
		return NULL;
	json_t *record = NULL;
	if (neap_json_parse("", line + 9, length - 9, &record, NULL))
		return NULL;
	if (!json_is_object(record)) {
		json_decref(record);
		return NULL;
	}
	return record;
}

/* True when a good line begins after `at`. */
static bool good_line_after(const char *text, size_t length, size_t at)
{
	while (at < length) {
		const char *end = memchr(text + at, '\n', length - at);
		if (!end)
			return false;
		json_t *record = parse_line(text + at, (size_t)(end - text) - at);
		json_decref(record);
		if (record)
			return true;
		at = (size_t)(end - text) + 1;
	}
	return false;
}

/* Reads all good lines. *ret_good: where they end. */
static enum neap_status read_lines(const char *path, const char *text, size_t length, json_t *records,
				   size_t *ret_good, struct neap_error *err)
{
	const uint64_t failures = neap_json_failures();
	size_t at = 0;
	while (at < length) {
		const char *end = memchr(text + at, '\n', length - at);
		json_t *record = end ? parse_line(text + at, (size_t)(end - text) - at) : NULL;
		/* If memory was short, the line may be good: do not take it for torn or damaged. */
		if ((record && json_array_append_new(records, record)) || neap_json_failures() != failures)
			return neap_fail(err, NEAP_ENOMEM, "reading %.150s: out of memory", path);
		if (!record)
			break;
		at = (size_t)(end - text) + 1;
	}
	const char *bad_end = at < length ? memchr(text + at, '\n', length - at) : NULL;
	if (bad_end && good_line_after(text, length, (size_t)(bad_end - text) + 1))
		return neap_fail(err, NEAP_EPARSE,
				 "%.120s is damaged at byte %zu: its record does not match its checksum, though good "
				 "ones follow; restore the file or begin a new series with --folder DIR",
				 path, at);
	*ret_good = at;
	return NEAP_OK;
}

static enum neap_status lock(struct neap_journal *journal, const char *folder, struct neap_error *err)
{
	char path[4096];
	if (neap_path_join(path, sizeof path, folder, "lock"))
		return neap_fail(err, NEAP_EINVAL, "the folder's name is too long: %.100s", folder);
	journal->lock_fd = open(path, O_RDWR | O_CREAT | O_CLOEXEC | O_NOFOLLOW, 0600);
	if (journal->lock_fd < 0)
		return neap_fail_errno(err, errno, "opening %.150s", path);
	struct flock whole = {.l_type = F_WRLCK, .l_whence = SEEK_SET};
	if (!fcntl(journal->lock_fd, F_SETLK, &whole))
		return NEAP_OK;
	if (neap_owner_is_needed(errno)) {
		enum neap_status status = neap_owner_take(folder, err);
		journal->owned = !status;
		return status;
	}
	if (errno != EACCES && errno != EAGAIN)
		return neap_fail_errno(err, errno, "locking %.150s", path);
	if (fcntl(journal->lock_fd, F_GETLK, &whole) || whole.l_type == F_UNLCK)
		return neap_fail(err, NEAP_EBUSY, "%.150s: another series process held it: try again", folder);
	return neap_fail(err, NEAP_EBUSY, "%.150s: another series process holds it: %ld", folder, (long)whole.l_pid);
}

static enum neap_status load(struct neap_journal *journal, struct neap_error *err)
{
	struct neap_buffer text = {0};
	size_t good = 0;
	enum neap_status status = neap_file_read(journal->path, NEAP_JOURNAL_LIMIT_BYTES, &text, err);
	if (!status)
		status = read_lines(journal->path, neap_buffer_string(&text), text.length, journal->records, &good,
				    err);
	if (!status && good < text.length) {
		journal->dropped = text.length - good;
		if (ftruncate(journal->fd, (off_t)good) || fdatasync(journal->fd))
			status = neap_fail_errno(err, errno, "cutting the torn end of %.150s", journal->path);
	}
	neap_buffer_fini(&text);
	return status;
}

enum neap_status neap_journal_open(const char *folder, struct neap_journal **ret_journal, struct neap_error *err)
{
	struct neap_journal *journal = calloc(1, sizeof *journal);
	if (!journal || !(journal->records = json_array())) {
		free(journal);
		return neap_fail(err, NEAP_ENOMEM, "opening a journal: out of memory");
	}
	journal->fd = journal->lock_fd = -1;
	enum neap_status status = neap_make_folder(folder, 0700, err);
	if (!status && neap_path_join(journal->path, sizeof journal->path, folder, "journal"))
		status = neap_fail(err, NEAP_EINVAL, "the folder's name is too long: %.100s", folder);
	snprintf(journal->folder, sizeof journal->folder, "%s", folder);
	if (!status)
		status = lock(journal, folder, err);
	if (!status) {
		journal->fd = open(journal->path, O_WRONLY | O_APPEND | O_CREAT | O_CLOEXEC | O_NOFOLLOW, 0600);
		if (journal->fd < 0)
			status = neap_fail_errno(err, errno, "opening %.150s", journal->path);
	}
	if (!status)
		status = neap_sync_folder(folder, err);
	if (!status)
		status = load(journal, err);
	if (status) {
		neap_journal_close(journal);
		return status;
	}
	*ret_journal = journal;
	return NEAP_OK;
}

enum neap_status neap_journal_read(const char *folder, json_t **ret_records, struct neap_error *err)
{
	char path[4096];
	struct neap_buffer text = {0};
	size_t good;
	if (neap_path_join(path, sizeof path, folder, "journal"))
		return neap_fail(err, NEAP_EINVAL, "the folder's name is too long: %.100s", folder);
	json_t *records = json_array();
	enum neap_status status = records ? neap_file_read(path, NEAP_JOURNAL_LIMIT_BYTES, &text, err)
					  : neap_fail(err, NEAP_ENOMEM, "reading %.150s: out of memory", path);
	if (!status)
		status = read_lines(path, neap_buffer_string(&text), text.length, records, &good, err);
	neap_buffer_fini(&text);
	if (status)
		json_decref(records);
	else
		*ret_records = records;
	return status;
}

const json_t *neap_journal_records(const struct neap_journal *journal) { return journal->records; }

bool neap_journal_is_finished(const struct neap_journal *journal)
{
	size_t count = json_array_size(journal->records);
	const json_t *last = count ? json_array_get(journal->records, count - 1) : NULL;
	return !strcmp(neap_json_get_text(last, "type"), "finish");
}

size_t neap_journal_dropped(const struct neap_journal *journal) { return journal->dropped; }

enum neap_status neap_journal_append(struct neap_journal *journal, json_t *record, struct neap_error *err)
{
	struct neap_buffer line = {0};
	char *json = neap_json_dump(record, JSON_COMPACT);
	if (!json)
		return neap_fail(err, NEAP_ENOMEM, "writing %.150s: out of memory", journal->path);
	neap_buffer_format(&line, "%08x %s\n", neap_journal_crc(json, strlen(json)), json);
	free(json);
	enum neap_status status = neap_buffer_status(&line, err);
	if (!status)
		status = neap_fd_write(journal->fd, line.data, line.length, err);
	if (!status && fdatasync(journal->fd))
		status = neap_fail_errno(err, errno, "flushing to disk");
	if (status)
		neap_error_prefix(err, "writing the series journal %.120s", journal->path);
	neap_buffer_fini(&line);
	if (!status && json_array_append(journal->records, record))
		status = neap_fail(err, NEAP_ENOMEM, "keeping a record of %.150s: out of memory", journal->path);
	return status;
}

void neap_journal_close(struct neap_journal *journal)
{
	if (!journal)
		return;
	if (journal->fd >= 0)
		close(journal->fd);
	if (journal->owned)
		neap_owner_leave(journal->folder);
	if (journal->lock_fd >= 0)
		close(journal->lock_fd);
	json_decref(journal->records);
	free(journal);
}
