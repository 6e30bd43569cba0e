/* store/history_internal.h: what the history's file and its rows share. */
#ifndef NEAP_STORE_HISTORY_INTERNAL_H
#define NEAP_STORE_HISTORY_INTERNAL_H

#include "store/history.h"

#include <sqlite3.h>

struct neap_history {
	sqlite3 *database;
	char path[4096];
};

/* The database's last error as ours: "WHAT the history PATH: ...". `database` may be NULL: out of memory. */
enum neap_status neap_history_fail(sqlite3 *database, const char *what, const char *path, struct neap_error *err);

#endif
