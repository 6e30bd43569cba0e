/* run/folder.h: chooses, for a command whose argument is a run's folder, the recording to explain and the trace to
 * read. One thread. */
#ifndef NEAP_RUN_FOLDER_H
#define NEAP_RUN_FOLDER_H

#include "neap/status.h"

#include "trace/trace.h"

#include <stdbool.h>
#include <stddef.h>

#define NEAP_RUN_FOLDER_PATH 4200

bool neap_run_folder_is(const char *path);

struct neap_run_recordings {
	/* The recording of the last start's process with the highest peak. */
	char path[NEAP_RUN_FOLDER_PATH];
	size_t others; /* how many other recordings that start has */
	/* A recording in which memory ran out: `path` itself if memory ran out in it, else one of the newest start
	 * that has such a recording; "": there is none. */
	char failed[NEAP_RUN_FOLDER_PATH];
};

/* Chooses the recordings that explain a run. Errors: NEAP_ENOENT if there is none (the message says so if the folder
 * is a series'); if none can be read, the errors of reading. */
enum neap_status neap_run_folder_recordings(const char *folder, struct neap_run_recordings *ret_found,
					    struct neap_error *err);

struct neap_run_trace {
	char path[NEAP_RUN_FOLDER_PATH];
	size_t others; /* recordings of other processes in the folder */
};

/* Finds the trace that a command reads for PATH: PATH itself if it is a file. If it is a run's folder: the recording
 * of the process with the highest peak, or the snapshot of that process that neap estimate left beside the recording.
 * Errors: those of neap_run_folder_recordings; NEAP_EINVAL for a path that is too long. */
enum neap_status neap_run_folder_trace(const char *path, struct neap_run_trace *ret_trace, struct neap_error *err);

/* Reads which GPU the trace at PATH is of, from the run's folder that it lies in. Zeroed: it lies in none. While the
 * run goes on, only whether it is simulated is known. */
struct neap_trace_origin neap_run_folder_origin(const char *path);

#endif
