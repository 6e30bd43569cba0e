/* run/recordings.h: the recordings in a run's folder, once its processes have ended. */
#ifndef NEAP_RUN_RECORDINGS_H
#define NEAP_RUN_RECORDINGS_H

#include <stdbool.h>

/* Whether a name is "record.PID", or "start-N.record.PID" (a start that ran out of memory). */
bool neap_recording_is_named(const char *name);

/* The same, or a file that belongs to a recording: "stacks.PID", "kept.PID". */
bool neap_recording_is_part(const char *name);

/* Cuts each recording in `folder` to its written length, and adds the kept events beside it (trace/record.h). The
 * caller holds the run's lock. A recording that cannot be cut stays as it is: it costs only disk space. */
void neap_recordings_cut(const char *folder);

#endif
