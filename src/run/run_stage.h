/* run/run_stage.h: writes each stage of a run's command to disk, before the supervisor acts on it.
 *
 *   RUN/began   one line: the command is being started. Written before the start.
 *   RUN/ended   JSON: how the command ended, and what the supervisor knew then. Written before leftovers are
 *               ended and memory has drained, which may take a minute. The guard (run/guard.h) writes it if the
 *               supervisor is killed before.
 *
 * Both are flushed to disk, and removed once result.json exists and the history has the run, or if the first start
 * fails before it has started a command. In a folder whose lock is free, the first of these files that exists tells
 * the stage:
 *
 *   result.json              the run is over
 *   ended                    the supervisor died after its command had ended: the result can still be made
 *   began                    the supervisor died while its command ran, and the command was ended: a lost attempt
 *   none of them             no command was started
 *
 * While a run restarts with less memory (a rung of --on-oom), it has no `ended`. If its supervisor is killed then,
 * the run does not count as over but as lost: after an OOM, with a rung left.
 */
#ifndef NEAP_RUN_RUN_STAGE_H
#define NEAP_RUN_RUN_STAGE_H

#include "store/result.h"

enum neap_run_stage { NEAP_STAGE_UNBEGUN, NEAP_STAGE_BEGAN, NEAP_STAGE_ENDED, NEAP_STAGE_OVER };

/* Reads the stage of a run. The lock must be free, or the caller must hold it. */
enum neap_run_stage neap_run_stage_read(const char *folder);

/* For a run that is NEAP_STAGE_ENDED: makes result.json from `ended`, recordings and logs, and cuts the recordings to
 * their written length. The caller holds the run's lock. Errors: NEAP_ESTATE when a restart was due; NEAP_EPARSE for
 * a damaged `ended`; NEAP_ENOMEM, NEAP_EIO and NEAP_ENOSPC: try later. */
enum neap_status neap_run_stage_recover(const char *folder, struct neap_error *err);

/* The same, but takes the run's lock itself. Succeeds too if another process has made the result meanwhile. Also cuts
 * the recordings of a lost run. NEAP_EBUSY: the lock is held, because the run is still running or another process is
 * making its result. */
enum neap_status neap_run_stage_recover_locked(const char *folder, struct neap_error *err);

/* For a run whose supervisor was our child and has ended: waits at most a minute for its guard, and makes the result
 * if the command had ended. NEAP_STAGE_BEGAN: the supervisor was killed, and the command with it. */
enum neap_run_stage neap_run_stage_resolve(const char *folder);

/* For a run that is NEAP_STAGE_OVER. False: it may not be in the history yet. */
bool neap_run_stage_is_kept(const char *folder);

/* Removes both files. Call when the result exists, and is in the history if it goes there. */
void neap_run_stage_forget(const char *folder);

#endif
