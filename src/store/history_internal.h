/* store/history_internal.h: shared by history*.c. */
#ifndef NEAP_STORE_HISTORY_INTERNAL_H
#define NEAP_STORE_HISTORY_INTERNAL_H

#include "store/history.h"

#include <sqlite3.h>

struct neap_history {
	sqlite3 *database;
	char path[4096];
	bool unlisted; /* the file of an earlier neap, which could not be converted: no column is computed */
};

/* The database's last error as ours: "WHAT the history PATH: ...". `database` may be NULL: out of memory. */
enum neap_status neap_history_fail(sqlite3 *database, const char *what, const char *path, struct neap_error *err);

/* history_check.c: whether the file is known to be sound and need not be read whole. */
bool neap_history_is_checked(const char *path);
/* Records that the whole file was read and is sound. */
void neap_history_note_checked(const char *path);
/* Records the file's state when neap closes it. */
void neap_history_note_left(const char *path);
/* Forgets the check: a query found damage, or the file was replaced. */
void neap_history_suspect(const char *path);

#endif
