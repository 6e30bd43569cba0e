/* base/paths.h: the folders in which neap keeps its files, by the XDG rules.
 *
 *   runtime   $XDG_RUNTIME_DIR/neap, else /tmp/neap-UID   sockets and statistics pages; 0700, owned by us, checked.
 *                                                         STATE/runtime where another user has made /tmp/neap-UID
 *   state     $XDG_STATE_HOME/neap, else ~/.local/state/neap   history, runs, series journals
 */
#ifndef NEAP_BASE_PATHS_H
#define NEAP_BASE_PATHS_H

#include "neap/status.h"

#include <stdbool.h>
#include <stddef.h>

/* Writes the folder's path to `text`, and creates it if it is missing. Errors: NEAP_EPERM when the runtime folder
 * belongs to someone else, is a link, or others may enter it; NEAP_EIO and the like with the path in the message. */
enum neap_status neap_path_runtime(char *text, size_t capacity, struct neap_error *err);
/* As above. `ret_note`: why it is not the usual folder, and what to do about that; "": it is the usual one. */
enum neap_status neap_path_runtime_noted(char *text, size_t capacity, char ret_note[320], struct neap_error *err);
enum neap_status neap_path_state(char *text, size_t capacity, struct neap_error *err);

/* Whether a folder of PATH that may be searched has a file of this name. exec also reports EACCES for folders that
 * may not be searched, which may hide this. The file's path goes to `ret_path` (PATH_MAX bytes, or NULL).
 * Async-signal-safe. */
bool neap_path_search(const char *name, char *ret_path);

#endif
