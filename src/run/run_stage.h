/* run/run_stage.h: writes each stage of a run's command to disk, before the supervisor acts on it.
 *
 *   RUN/began   one line: the command is started now. Written before the start.
 *   RUN/ended   JSON: the command has ended, how, and what the supervisor knew then. Written before leftovers are
 *               ended and memory has drained, which may take a minute.
 *
 * Both are flushed to disk, and removed once result.json is there and the history has the run. For a folder whose
 * lock is free:
 *
 *   result.json              the run is over
 *   ended                    the supervisor died after its command had ended: the result can still be made
 *   began                    the supervisor died while its command ran, and the command with it: a lost attempt
 *   none of them             nothing was run
 *
 * During a restart with less memory (a rung of --on-oom) a run has no `ended`. If its supervisor dies then, after an
 * OOM and with a rung left, the run is not over: it counts as lost.
 */
#ifndef NEAP_RUN_RUN_STAGE_H
#define NEAP_RUN_RUN_STAGE_H

#include "store/result.h"

enum neap_run_stage { NEAP_STAGE_UNBEGUN, NEAP_STAGE_BEGAN, NEAP_STAGE_ENDED, NEAP_STAGE_OVER };

/* Reads the stage of a run whose lock is free, or held by the caller. */
enum neap_run_stage neap_run_stage_read(const char *folder);

/* Makes result.json of a run that is NEAP_STAGE_ENDED, from `ended`, recordings and logs, and cuts the recordings to
 * their written length; the caller holds its lock. Errors: NEAP_ESTATE when a restart was due; NEAP_EPARSE for a
 * damaged `ended`; NEAP_ENOMEM, NEAP_EIO and NEAP_ENOSPC: try later. */
enum neap_status neap_run_stage_recover(const char *folder, struct neap_error *err);

/* The same, but takes the run's lock itself; succeeds too if another process has made the result by then. Also cuts
 * the recordings of a lost run. NEAP_EBUSY: the lock is held: the run is still running, or another process is making
 * its result. */
enum neap_status neap_run_stage_recover_locked(const char *folder, struct neap_error *err);

/* False: a run that is NEAP_STAGE_OVER may not be in the history yet. */
bool neap_run_stage_is_kept(const char *folder);

/* Removes both files: the result is there, and in the history if it is to be. */
void neap_run_stage_forget(const char *folder);

#endif
