/* run/run_stage.h: what happens to a run's command, on disk as it happens: before anything else is done about it.
 *
 *   RUN/began   one line: the command is started now. Written before the start.
 *   RUN/ended   JSON: the command has ended, how, and what the supervisor knew then. Written before leftovers are
 * ended and memory has drained, which may take a minute.
 *
 * Both are flushed to disk, and removed once result.json is there and the history has the run. So of a folder whose
 * lock is free:
 *
 *   result.json              the run is over
 *   ended                    the supervisor died after its command had ended: the result can still be made
 *   began                    the supervisor died while its command ran, which ended it: a lost attempt
 *   none of them             nothing was run
 *
 * A run that is to be started again with less memory (a rung of --on-oom) has no `ended` while it is started again.
 * One that died in between, after an OOM and with a rung left, has not come to its end: it counts as lost.
 */
#ifndef NEAP_RUN_RUN_STAGE_H
#define NEAP_RUN_RUN_STAGE_H

#include "store/result.h"

enum neap_run_stage { NEAP_STAGE_UNBEGUN, NEAP_STAGE_BEGAN, NEAP_STAGE_ENDED, NEAP_STAGE_OVER };

/* Looks into a run's folder whose lock is free, or the caller's. */
enum neap_run_stage neap_run_stage_read(const char *folder);

/* Makes result.json of a run that is NEAP_STAGE_ENDED, from `ended`, recordings and logs, and cuts the recordings to
 * what was written; the caller holds its lock. Errors: NEAP_ESTATE when it was to be started again; NEAP_EPARSE for a
 * damaged `ended`; NEAP_ENOMEM, NEAP_EIO and NEAP_ENOSPC: try later. */
enum neap_status neap_run_stage_recover(const char *folder, struct neap_error *err);

/* Takes the run's lock for it; where someone else has made the result by then, that is fine too. The recordings of a
 * run that was lost are cut as well. NEAP_EBUSY: the lock is held: the run goes on, or another process makes its
 * result just now. */
enum neap_status neap_run_stage_recover_locked(const char *folder, struct neap_error *err);

/* False: a run that is NEAP_STAGE_OVER may not be in the history yet. */
bool neap_run_stage_is_kept(const char *folder);

/* Removes both files: the result is there, and in the history if it is to be. */
void neap_run_stage_forget(const char *folder);

#endif
