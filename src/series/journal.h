/* series/journal.h: the log of a series. A kill at any instant loses no record.
 *
 *   FOLDER/journal   one record a line:  <crc32, 8 hex digits> <JSON object>\n
 *   FOLDER/lock      held (fcntl) while a process writes the journal
 *
 * Once neap_journal_append returns, the record is written in one piece and flushed to disk. A kill or a full disk can
 * leave a half-written tail; opening cuts it off. A bad line *before* a good one is not a torn write but damage: the
 * journal is refused with the byte position, since records may be missing after it.
 *
 *   invariant: the file has good lines, then at most one torn tail
 *
 * The lock is an fcntl lock: the kernel drops it with its process, and a child between fork and exec does not hold
 * it, unlike a flock. On a file system without locks, FOLDER/owner takes its place (base/owner.h). One thread.
 */
#ifndef NEAP_SERIES_JOURNAL_H
#define NEAP_SERIES_JOURNAL_H

#include "neap/status.h"

#include <jansson.h>
#include <stdbool.h>
#include <stddef.h>

#define NEAP_JOURNAL_LIMIT_BYTES (64u * 1024 * 1024)

struct neap_journal;

/* Opens FOLDER's journal and makes both if they are missing. Locks it, cuts a torn tail, reads every record.
 * Errors: NEAP_EBUSY "another series process holds it: PID"; NEAP_EPARSE for damage, with the position; NEAP_EIO,
 * NEAP_ENOSPC, NEAP_EPERM. */
enum neap_status neap_journal_open(const char *folder, struct neap_journal **ret_journal, struct neap_error *err);

/* The records so far, an array of objects, oldest first. The journal owns it. */
const json_t *neap_journal_records(const struct neap_journal *journal);

/* Whether the last record marks the series as finished. */
bool neap_journal_is_finished(const struct neap_journal *journal);

/* Reads the records of a journal that another process may be writing. The caller owns *ret_records. Leaves a torn
 * tail in place. Errors: NEAP_ENOENT; NEAP_EPARSE for damage; NEAP_ENOMEM, NEAP_EIO. */
enum neap_status neap_journal_read(const char *folder, json_t **ret_records, struct neap_error *err);

/* How many bytes of a torn tail neap_journal_open cut off. */
size_t neap_journal_dropped(const struct neap_journal *journal);

/* Appends `record` (borrowed) and flushes it to disk. On failure the record is not in the journal, or is its torn
 * tail: reopen the journal before you continue. Errors: NEAP_ENOSPC, NEAP_EIO. */
enum neap_status neap_journal_append(struct neap_journal *journal, json_t *record, struct neap_error *err);

void neap_journal_close(struct neap_journal *journal);

/* CRC-32 as in zlib and IEEE 802.3 (polynomial 0xEDB88320, reflected). */
uint32_t neap_journal_crc(const void *bytes, size_t length);

#endif
