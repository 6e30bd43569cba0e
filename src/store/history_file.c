/* store/history_file.c: opens the history's file, converts that of neap 0.1, and sets aside a file that is damaged or
 * of a neap before 0.1.
 *
 * A process holds a shared lock (flock) on the folder while it opens the file, and an exclusive lock while it sets
 * the file aside. Under the exclusive lock it checks again: another process may have set the bad file aside, and the
 * file may be a good one now. The exclusive lock also makes sure that no process is opening the old file: on closing
 * it, that process would remove the new file's log, which has the same name.
 *
 * `PRAGMA user_version` is the schema's version, 0 in a new file. neap reads it again under the write lock: if two
 * processes open a new file, only one makes the table. Likewise only one converts a file of neap 0.1.
 */
#include "store/history_internal.h"

#include "base/clock.h"
#include "base/error.h"

#include <errno.h>
#include <fcntl.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/file.h>
#include <sys/stat.h>
#include <unistd.h>

#define BUSY_MS 30000 /* how long to wait for another process */

#define VERSION           NEAP_HISTORY_SCHEMA
#define UNLISTED_VERSION  3 /* without the computed columns */
#define CONVERTED_VERSION 2 /* neap 0.1's: a column for each figure, which `result` has as well */
_Static_assert(VERSION == 4, "the last line of `listed` has it");
static const char schema[] =
	"CREATE TABLE runs (id INTEGER PRIMARY KEY, series TEXT NOT NULL, experiment_key TEXT NOT NULL,"
	" run_id TEXT NOT NULL UNIQUE, name TEXT NOT NULL, outcome TEXT NOT NULL, ended_wall_ns INTEGER NOT NULL,"
	" result TEXT NOT NULL);CREATE INDEX runs_experiment ON runs (series, name, outcome);CREATE INDEX runs_ended "
	"ON runs (ended_wall_ns);";

/* What a list shows and filters ask for, in one index, so that neither reads `result`. The columns are computed from
 * `result`; NULL where it is no JSON. They have no type, so that SQLite does not make a number of a text. runs_ended
 * stays, because SQLite counts runs in its smallest index. */
#define COMPUTED(name, value) "ALTER TABLE runs ADD COLUMN " name " AS (iif(json_valid(result), " value ", NULL));"
#define FIELD(name)           "json_extract(result, '$." name "')"
/* clang-format off */
static const char listed[] =
	COMPUTED("peak_bytes", "max(" FIELD("peak_device_bytes") ", " FIELD("peak_reserved_bytes") ")")
	COMPUTED("duration_ns", FIELD("duration_ns"))
	COMPUTED("steps", FIELD("steps"))
	COMPUTED("rung", FIELD("rung"))
	"CREATE INDEX runs_listed ON runs (ended_wall_ns, id, series, run_id, name, outcome, peak_bytes, duration_ns, "
	"steps, rung);PRAGMA user_version = 4";
/* clang-format on */

/* Rows that neap 0.1 had converted from a development version have no `result`: their main figures are kept. */
static const char convert_before[] = "ALTER TABLE runs RENAME TO earlier; DROP INDEX runs_experiment; DROP INDEX "
				     "runs_ended;";
static const char convert_after[] =
	"INSERT INTO runs SELECT id, series, experiment_key, run_id, name, outcome, ended_wall_ns, CASE WHEN result "
	"<> '' THEN result ELSE json_object('schema', 1, 'run_id', run_id, 'name', name, 'command', command, "
	"'outcome', outcome, "
	"'exit_status', exit_status, 'device_name', device_name, 'device_uuid', device_uuid, 'started_wall_ns', "
	"started_wall_ns, 'ended_wall_ns', ended_wall_ns, 'duration_ns', duration_ns, 'device_total_bytes', "
	"device_total_bytes, 'peak_allocated_bytes', peak_allocated_bytes, 'peak_reserved_bytes', "
	"peak_reserved_bytes, 'peak_device_bytes', peak_device_bytes) END FROM earlier ORDER BY id; DROP TABLE "
	"earlier;";

/* Why a file is set aside: the suffix of its new name, and the words of the note. */
static const struct misfit {
	const char *suffix, *words;
} damaged = {"damaged", "was damaged"}, earlier = {"earlier", "is of an earlier version of neap"};

static bool is_damage(int code) { return (code & 0xff) == SQLITE_CORRUPT || (code & 0xff) == SQLITE_NOTADB; }

enum neap_status neap_history_fail(sqlite3 *database, const char *what, const char *path, struct neap_error *err)
{
	int code = database ? sqlite3_errcode(database) : SQLITE_NOMEM;
	enum neap_status status = NEAP_EIO;
	if (is_damage(code))
		neap_history_suspect(path);
	switch (code & 0xff) {
	case SQLITE_FULL:
		status = NEAP_ENOSPC;
		break;
	case SQLITE_BUSY:
	case SQLITE_LOCKED:
	case SQLITE_PROTOCOL: /* lost the race for the log's locks many times in a row */
		status = NEAP_EBUSY;
		break;
	case SQLITE_NOMEM:
		status = NEAP_ENOMEM;
		break;
	case SQLITE_PERM:
	case SQLITE_AUTH:
	case SQLITE_READONLY:
		status = NEAP_EPERM;
		break;
	}
	return neap_fail(err, status, "%s the history %.120s: %.80s", what, path,
			 database ? sqlite3_errmsg(database) : "out of memory");
}

/* Returns the first column of the first row as an integer; -1: failure. Copies it also to `text`, unless that is
 * NULL. */
static sqlite3_int64 ask(sqlite3 *database, const char *sql, char *text, size_t capacity)
{
	sqlite3_stmt *statement = NULL;
	sqlite3_int64 value = -1;
	if (sqlite3_prepare_v2(database, sql, -1, &statement, NULL) == SQLITE_OK &&
	    sqlite3_step(statement) == SQLITE_ROW) {
		value = sqlite3_column_int64(statement, 0);
		const unsigned char *found = sqlite3_column_text(statement, 0);
		if (text)
			snprintf(text, capacity, "%s", found ? (const char *)found : "");
	}
	sqlite3_finalize(statement);
	return value;
}

/* Makes the table of a new file (`version` 0), or converts the file. Another process may have done so: then it finds
 * another version under the write lock, and does nothing. */
static enum neap_status make_table(struct neap_history *history, sqlite3_int64 version,
				   const struct misfit **ret_misfit, struct neap_error *err)
{
	bool convert = version == CONVERTED_VERSION;
	const char *const steps[] = {convert ? convert_before : "", version == UNLISTED_VERSION ? "" : schema,
				     convert ? convert_after : "", listed};
	sqlite3 *database = history->database;
	if (sqlite3_exec(database, "BEGIN IMMEDIATE", NULL, NULL, NULL) != SQLITE_OK)
		return neap_history_fail(database, "opening", history->path, err);
	int code = SQLITE_OK;
	bool ours = ask(database, "PRAGMA user_version", NULL, 0) == version;
	for (size_t i = 0; ours && i < sizeof steps / sizeof *steps && code == SQLITE_OK; i++)
		code = sqlite3_exec(database, steps[i], NULL, NULL, NULL);
	if (code == SQLITE_OK)
		code = sqlite3_exec(database, "COMMIT", NULL, NULL, NULL);
	if (code == SQLITE_OK)
		return NEAP_OK;
	enum neap_status status =
		neap_history_fail(database, version ? "converting" : "beginning", history->path, err);
	*ret_misfit = is_damage(code)                                        ? &damaged
		      : version == CONVERTED_VERSION && code == SQLITE_ERROR ? &earlier
									     : NULL;
	sqlite3_exec(database, "ROLLBACK", NULL, NULL, NULL);
	return status;
}

static enum neap_status check_version(struct neap_history *history, const struct misfit **ret_misfit,
				      struct neap_error *err)
{
	sqlite3_int64 version = ask(history->database, "PRAGMA user_version", NULL, 0);
	bool make = version == 0 || version == CONVERTED_VERSION || version == UNLISTED_VERSION;
	enum neap_status status = make ? make_table(history, version, ret_misfit, err) : NEAP_OK;
	if (status && status != NEAP_EBUSY && !*ret_misfit && version == UNLISTED_VERSION) {
		history->unlisted = true; /* it lacks the computed columns alone, and may be another user's */
		if (err)
			*err = (struct neap_error){0};
		return NEAP_OK;
	}
	if (status)
		return status;
	if (make)
		version = ask(history->database, "PRAGMA user_version", NULL, 0);
	if (version == VERSION)
		return NEAP_OK;
	if (version < 0) {
		*ret_misfit = is_damage(sqlite3_errcode(history->database)) ? &damaged : NULL;
		return neap_history_fail(history->database, "opening", history->path, err);
	}
	if (version < VERSION)
		*ret_misfit = &earlier;
	return neap_fail(err, NEAP_ENOTSUP,
			 "the history %.120s has schema version %d, and this neap knows %d: use a newer neap",
			 history->path, (int)version, VERSION);
}

/* Opens and checks the file. On failure *ret_misfit tells what is wrong with the file; NULL: nothing. */
static enum neap_status open_checked(struct neap_history *history, const struct misfit **ret_misfit,
				     struct neap_error *err)
{
	char verdict[128] = "";
	*ret_misfit = NULL;
	int code = sqlite3_open_v2(history->path, &history->database,
				   SQLITE_OPEN_READWRITE | SQLITE_OPEN_CREATE | SQLITE_OPEN_NOMUTEX, NULL);
	if (code != SQLITE_OK)
		return neap_history_fail(history->database, "opening", history->path, err);
	sqlite3_busy_timeout(history->database, BUSY_MS);
	code = sqlite3_exec(history->database, "PRAGMA journal_mode = WAL; PRAGMA synchronous = FULL;", NULL, NULL,
			    NULL);
	if (code != SQLITE_OK) {
		*ret_misfit = is_damage(code) ? &damaged : NULL;
		return neap_history_fail(history->database, "opening", history->path, err);
	}
	bool checked = neap_history_is_checked(history->path);
	if (!checked)
		ask(history->database, "PRAGMA quick_check(1)", verdict, sizeof verdict);
	code = sqlite3_errcode(history->database);
	if (!checked && !strcmp(verdict, "ok"))
		neap_history_note_checked(history->path);
	if (!checked && strcmp(verdict, "ok") && (is_damage(code) || *verdict)) {
		*ret_misfit = &damaged;
		neap_history_suspect(history->path);
		return neap_fail(err, NEAP_EIO, "the history %.120s is damaged: %.100s", history->path, verdict);
	}
	return check_version(history, ret_misfit, err);
}

/* SQLite's busy timeout does not cover the change of a new file to WAL: a process that loses that race gets
 * SQLITE_BUSY at once. So this retries for as long as the timeout. */
static enum neap_status open_patiently(struct neap_history *history, const struct misfit **ret_misfit,
				       struct neap_error *err)
{
	const struct neap_deadline end = neap_deadline_in_ms(neap_clock_system(), BUSY_MS);
	for (;;) {
		enum neap_status status = open_checked(history, ret_misfit, err);
		if (status != NEAP_EBUSY || neap_deadline_over(&end))
			return status;
		sqlite3_close(history->database);
		history->database = NULL;
		neap_clock_sleep(end.clock, 5 * NEAP_NS_PER_MS);
	}
}

/* Writes the path as a URI. `uri` has room for three times the path's length and 32. */
static void write_uri(const char *path, char *uri)
{
	static const char digits[] = "0123456789abcdef";
	size_t length = (size_t)sprintf(uri, "file:");
	for (const char *c = path; *c; c++) {
		bool plain = (*c >= 'a' && *c <= 'z') || (*c >= 'A' && *c <= 'Z') || (*c >= '0' && *c <= '9') ||
			     strchr("/._-", *c);
		if (plain) {
			uri[length++] = *c;
			continue;
		}
		uri[length++] = '%';
		uri[length++] = digits[(unsigned char)*c >> 4];
		uri[length++] = digits[*c & 15];
	}
	strcpy(uri + length, "?immutable=1");
}

/* Opens the file as it is, for reading, if SQLite could not make the log's index beside it, or convert it: the disk
 * is full, or the file is another user's. All versions have what readers need. False if there is a log: its rows
 * would be missing. */
static bool open_as_it_stands(struct neap_history *history)
{
	char log[4200], uri[3 * sizeof history->path + 32], verdict[128] = "";
	struct stat info;
	sqlite3_close(history->database);
	history->database = NULL;
	snprintf(log, sizeof log, "%s-wal", history->path);
	if (!stat(log, &info) && info.st_size > 0)
		return false;
	write_uri(history->path, uri);
	if (sqlite3_open_v2(uri, &history->database, SQLITE_OPEN_READONLY | SQLITE_OPEN_URI | SQLITE_OPEN_NOMUTEX,
			    NULL) != SQLITE_OK)
		return false;
	if (neap_history_is_checked(history->path))
		strcpy(verdict, "ok");
	else
		ask(history->database, "PRAGMA quick_check(1)", verdict, sizeof verdict);
	sqlite3_int64 version = ask(history->database, "PRAGMA user_version", NULL, 0);
	history->unlisted = version != VERSION;
	return !strcmp(verdict, "ok") && version >= CONVERTED_VERSION && version <= VERSION;
}

/* Renames the file, never over a file that was set aside before. Renames also a log that SQLite has left, as it may
 * hold rows that can be saved. Deletes the log's index, which SQLite can make again. */
static enum neap_status set_aside(const char *path, const struct misfit *misfit, char *ret_note,
				  struct neap_error *err)
{
	char aside[4200], log[4200], aside_log[4300], number[16] = "";
	unsigned long long now_s = (unsigned long long)(neap_wall_ns() / NEAP_NS_PER_S);
	int result = -1;
	errno = EEXIST;
	for (unsigned n = 0; n < 1000 && result && errno == EEXIST; n++) {
		if (n)
			snprintf(number, sizeof number, "-%u", n);
		snprintf(aside, sizeof aside, "%s.%s-%llu%s", path, misfit->suffix, now_s, number);
		result = renameat2(AT_FDCWD, path, AT_FDCWD, aside, RENAME_NOREPLACE);
		if (result && errno == EINVAL) /* the file system does not know RENAME_NOREPLACE */
			result = access(aside, F_OK) ? rename(path, aside) : (errno = EEXIST, -1);
	}
	if (result)
		return neap_fail_errno(err, errno, "setting the history %.120s aside, which %s", path, misfit->words);
	neap_history_suspect(path);
	snprintf(log, sizeof log, "%s-wal", path);
	snprintf(aside_log, sizeof aside_log, "%s-wal", aside);
	if (rename(log, aside_log))
		unlink(log);
	snprintf(log, sizeof log, "%s-shm", path);
	unlink(log);
	if (ret_note)
		snprintf(ret_note, 512, "the history %.180s %s: set aside as %.220s, and a new one started", path,
			 misfit->words, aside);
	return NEAP_OK;
}

/* Opens the file's folder, to lock it; -1: there is none, so opening the file will fail too. */
static int open_folder(const char *path)
{
	char folder[4096];
	const char *slash = strrchr(path, '/');
	size_t length = !slash ? 1 : slash == path ? 1 : (size_t)(slash - path);
	memcpy(folder, slash ? path : ".", length);
	folder[length] = '\0';
	return open(folder, O_RDONLY | O_DIRECTORY | O_CLOEXEC);
}

/* Waits up to BUSY_MS for the lock. Then goes on without it: the process that holds the lock may be stopped. Goes on
 * at once if the file system has no locks. */
static void lock(int folder_fd, int operation)
{
	const struct neap_deadline end = neap_deadline_in_ms(neap_clock_system(), BUSY_MS);

	while (folder_fd >= 0 && flock(folder_fd, operation | LOCK_NB) && (errno == EINTR || errno == EWOULDBLOCK) &&
	       !neap_deadline_over(&end))
		neap_clock_sleep(end.clock, 5 * NEAP_NS_PER_MS);
}

/* Opens the file. If it is damaged or of an earlier neap, sets it aside and starts a new one. */
static enum neap_status open_or_begin(struct neap_history *history, int folder_fd, char *ret_note,
				      const struct misfit **ret_misfit, struct neap_error *err)
{
	enum neap_status status = NEAP_OK;
	const int operations[] = {LOCK_SH, LOCK_EX};
	for (int round = 0; round < 2; round++) {
		lock(folder_fd, operations[round]);
		status = open_patiently(history, ret_misfit, err);
		if (!status || !*ret_misfit)
			return status;
		sqlite3_close(history->database);
		history->database = NULL;
	}
	status = set_aside(history->path, *ret_misfit, ret_note, err);
	return status ? status : open_patiently(history, ret_misfit, err);
}

enum neap_status neap_history_open(const char *path, struct neap_history **ret_history, char *ret_note,
				   struct neap_error *err)
{
	char note[512] = "";
	struct neap_history *history = calloc(1, sizeof *history);
	if (!history)
		return neap_fail(err, NEAP_ENOMEM, "opening the history: out of memory");
	if ((size_t)snprintf(history->path, sizeof history->path, "%s", path) >= sizeof history->path) {
		free(history);
		return neap_fail(err, NEAP_EINVAL, "the history's path is too long: %.100s", path);
	}
	const struct misfit *misfit = NULL;
	int folder_fd = open_folder(history->path);
	enum neap_status status = open_or_begin(history, folder_fd, note, &misfit, err);
	lock(folder_fd, LOCK_UN); /* a child forked meanwhile may keep the descriptor, and the lock */
	if (folder_fd >= 0)
		close(folder_fd);
	bool refused = status == NEAP_EIO || status == NEAP_ENOSPC || status == NEAP_EPERM;
	if (refused && !misfit && open_as_it_stands(history)) {
		snprintf(note, sizeof note, "for reading only: %.400s", err ? err->message : "the disk is full");
		status = NEAP_OK;
	}
	if (status) {
		neap_history_close(history);
		return status;
	}
	if (ret_note)
		memcpy(ret_note, note, sizeof note);
	*ret_history = history;
	return NEAP_OK;
}

void neap_history_close(struct neap_history *history)
{
	if (!history)
		return;
	if (history->database) {
		sqlite3_close(history->database);
		neap_history_note_left(history->path);
	}
	free(history);
}
