/* store/history.h: every run that ever was, in SQLite (WAL) at STATE/history.db.
 *
 * Threads: one handle, one thread. Several processes may write at once (they wait up to 5 s for each other).
 */
#ifndef NEAP_STORE_HISTORY_H
#define NEAP_STORE_HISTORY_H

#include "store/result.h"

struct neap_history;

/* Opens, making and migrating it where needed. A damaged file is set aside as PATH.damaged-TIME, and a new one begun:
 * `ret_note` (room for 512, may be NULL) then says so, else is "". Errors: NEAP_EIO, NEAP_ENOSPC, NEAP_EPERM,
 * NEAP_EBUSY, and NEAP_ENOTSUP for the file of a newer neap. */
enum neap_status neap_history_open(const char *path, struct neap_history **ret_history, char *ret_note,
				   struct neap_error *err);
void neap_history_close(struct neap_history *history);

/* Adds a run; a second time with the same run_id replaces it (so that a resumed series adds nothing twice). */
enum neap_status neap_history_put(struct neap_history *history, const char *series, const struct neap_result *result,
				  struct neap_error *err);

/* The highest device bytes any successful run of this experiment in this series took: the driver's figure, or what its
 * allocators reserved where that is more (the driver's is sampled, and may have missed the peak). NEAP_ENOENT: no such
 * run, or none was measured. */
enum neap_status neap_history_peak(struct neap_history *history, const char *series, const char *experiment,
				   uint64_t *ret_bytes, struct neap_error *err);

/* Runs, newest first, without their samples (those stay in the run's folder). */
enum neap_status neap_history_each(struct neap_history *history,
				   bool (*visit)(void *context, const char *series, const struct neap_result *result),
				   void *context, struct neap_error *err);

#endif
