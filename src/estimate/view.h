/* estimate/view.h: limits the changes that a simulated run may make, and reports those that it made. An estimate runs
 * the user's program, but must change none of the user's files.
 *
 *   overlay    the process gets its own mounts: an overlay covers each writable file system; its upper layer is a
 *              tmpfs of this view, of bounded size. The program sees what it writes; all of it vanishes with the last
 *              process of the view. An ordinary user needs a user namespace for this.
 *   landlock   where the system allows no such mounts: writes outside the run's own folder fail (neap_view_restrict)
 *   in place   neither of them: only if the user asks for it
 *
 * Writes to the run's own folder are always real. With overlays, so are writes to neap's cache of libraries compiled
 * against the installed PyTorch: compiling them in each run would take too long. One thread, in a process without
 * other threads.
 */
#ifndef NEAP_ESTIMATE_VIEW_H
#define NEAP_ESTIMATE_VIEW_H

#include "neap/status.h"

#include <stdbool.h>
#include <stddef.h>
#include <stdint.h>

#define NEAP_VIEW_NAMED 4 /* read-only folders that are named */

/* UNKNOWN: the keeper (keeper.h) was killed before it left the facts. */
enum neap_view_kind { NEAP_VIEW_UNKNOWN, NEAP_VIEW_IN_PLACE, NEAP_VIEW_LANDLOCK, NEAP_VIEW_MOUNTS };

/* The facts of a run, in RUN/view.json. */
struct neap_view_facts {
	enum neap_view_kind kind;
	bool no_network;
	bool full;                            /* the program's writes reached the limit */
	uint64_t limit_bytes;                 /* limit for the bytes written, which lie in host memory */
	uint64_t files, bytes, deleted;       /* written; deleted: files and folders that were there before */
	char read_only[NEAP_VIEW_NAMED][256]; /* folders that could not be covered by an overlay */
	uint64_t read_only_count;             /* how many such folders there are in all */
	bool kept;                            /* the written files were copied to --keep-writes */
	char trouble[256];                    /* why they were not copied, or not all; "": no reason */
	char refused[256]; /* the last file that the program could not write, taken from its error; "": none */
	char reason[64];   /* the system's name for the error: "Permission denied" */
};

struct neap_view_options {
	const char *folder; /* the run's, absolute: writes to it are real */
	/* The cache of libraries that neap compiles, absolute: writes to it are real too; NULL: none. */
	const char *cache;
	uint64_t limit_bytes; /* limit for the bytes written */
	bool no_network;      /* the program sees only the loopback device */
	char *const *argv;    /* the program's argv: paths among the words become writable; NULL-terminated */
	size_t forks;         /* how many views neap_view_serve may make of this one; 0: none */
	/* A view of the same files: its writes are visible here from the start. NULL: none. */
	const struct neap_view *from;
};

/* The mounts of a view, seen from the process that made it. */
struct neap_view {
	int scratch_fd; /* the tmpfs: up/N are the upper layers */
	char **paths;   /* for each layer the folder that its overlay covers; NULL: there is none */
	size_t count;
	int machine_fd; /* with `forks`: the mount namespace with the machine's mounts; else -1 */
	int root_fd;    /* the root directory in it */
	struct neap_view_facts facts;
};

/* Puts this process into a view of its own, with the same working directory. After a failure the process must end: it
 * may be half in a view. Errors: NEAP_ENOTSUP: the system allows none; NEAP_EIO, NEAP_ENOMEM, NEAP_EPERM: something
 * else failed. */
enum neap_status neap_view_enter(const struct neap_view_options *options, struct neap_view *ret_view,
				 struct neap_error *err);

/* Makes the socket in the run's folder through which processes of the view ask for views of their own. Call it before
 * the program starts. Returns the socket; -1: it cannot be made. */
int neap_view_listen(const char *folder);
void neap_view_stop_listening(const char *folder);

/* In a child of the process that made `view` with these options: makes a view of the same files, with what has been
 * written by then, for each connection to the socket; together they may take as much as `view`. Over a connection the
 * asking process sends a folder in the run's. It gets the PID of a process in the new view, whose namespaces it may
 * join (python/neap/_shared_runs.py). When it closes the connection, the writes are measured, and that folder gets
 * the facts. If a view cannot be made, the connection ends. Returns an exit code once all `forks` have asked. */
int neap_view_serve(int socket_fd, const struct neap_view *view, const struct neap_view_options *options);

/* Restricts this process and its children for good, where the system allows no view. Outside the places listed here,
 * Landlock refuses to write, make, remove, rename and truncate files, with EACCES. Landlock has no rights for modes,
 * owners, times and attributes, nor before its third version for truncating by path; a filter of system calls refuses
 * these with EPERM. Writes stay real in the run's folder, in /dev/shm (the simulator's memory, DataLoader's workers),
 * and to devices such as /dev/null and the terminal. Sets TMPDIR and the runtime folders to a folder in the run's.
 * Errors: NEAP_ENOTSUP: this system has no Landlock, or no filter; others: then the process must end. */
enum neap_status neap_view_restrict(const char *folder, struct neap_error *err);

/* Call it before the program starts. If no overlay covers the folder of temporary files, moves them into the run's
 * folder. */
enum neap_status neap_view_find_temporary(const char *folder, struct neap_error *err);

/* Fills the facts with the files that were written in the view. Call it when no process of the view writes any more.
 * Copies the written files to `keep_fd` (a folder; -1: none). Failures become facts. */
void neap_view_measure(struct neap_view *view, int keep_fd);

/* Write and read RUN/view.json. The process that made the view writes it. Reading also looks into the program's own
 * errors for a write that was refused. */
enum neap_status neap_view_facts_write(const char *folder, const struct neap_view_facts *facts,
				       struct neap_error *err);
void neap_view_facts_read(const char *folder, struct neap_view_facts *ret_facts);

/* Writes one sentence for people: what was isolated and what was not. */
void neap_view_facts_text(const struct neap_view_facts *facts, char *ret_text, size_t capacity);

#endif
