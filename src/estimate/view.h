/* estimate/view.h: what a simulated run may change, and what it did change. An estimate runs the user's program,
 * which must change nothing that the user has.
 *
 *   overlay    the process gets its own mounts: each writable file system is covered by an overlay whose upper layer
 *              is a tmpfs of this view, of bounded size. The program sees what it writes; all of it goes with the
 *              last process of the view. As an ordinary user this takes a user namespace.
 *   landlock   where the system allows no such mounts: writes outside the run's own folder fail (neap_view_restrict)
 *   in place   neither: only where the user asks for it
 *
 * The run's own folder is written for real in each of them. With overlays so is neap's cache of what it compiles
 * against the installed PyTorch: to do that in each run would take too long. One thread,
 * and a process that has no other.
 */
#ifndef NEAP_ESTIMATE_VIEW_H
#define NEAP_ESTIMATE_VIEW_H

#include "neap/status.h"

#include <stdbool.h>
#include <stddef.h>
#include <stdint.h>

#define NEAP_VIEW_NAMED 4 /* read-only folders that are named */

/* UNKNOWN: the facts were not left, since the keeper (keeper.h) was killed. */
enum neap_view_kind { NEAP_VIEW_UNKNOWN, NEAP_VIEW_IN_PLACE, NEAP_VIEW_LANDLOCK, NEAP_VIEW_MOUNTS };

/* The facts of a run, in RUN/view.json. */
struct neap_view_facts {
	enum neap_view_kind kind;
	bool no_network;
	bool full;                            /* the program's writes reached the limit */
	uint64_t limit_bytes;                 /* limit for the bytes written, which lie in host memory */
	uint64_t files, bytes, deleted;       /* written; deleted: files and folders that were there before */
	char read_only[NEAP_VIEW_NAMED][256]; /* folders that could not be covered by an overlay */
	uint64_t read_only_count;             /* of all of them */
	bool kept;                            /* the written files were copied to --keep-writes */
	char trouble[256];                    /* why they were not copied, or not all; "": no reason */
	char refused[256]; /* the last file that the program could not write, by its own error; "" */
	char reason[64];   /* as the system names it: "Permission denied" */
};

struct neap_view_options {
	const char *folder;   /* of the run, absolute: written for real */
	const char *cache;    /* of what neap compiles for itself, absolute: likewise; NULL: none */
	uint64_t limit_bytes; /* limit for the bytes written */
	bool no_network;      /* nothing but the loopback device */
	char *const *argv;    /* the program's, for paths among them; NULL-terminated */
};

/* The mounts of a view, seen from the process that made it. */
struct neap_view {
	int scratch_fd; /* the tmpfs: up/N are the upper layers */
	char **paths;   /* of each layer: where its overlay stands; NULL: there is none */
	size_t count;
	struct neap_view_facts facts;
};

/* Puts this process into a view of its own, with the same working directory. After a failure the process is of no
 * use: it may be half in a view, and must end. Errors: NEAP_ENOTSUP: the system allows none; NEAP_EIO, NEAP_ENOMEM,
 * NEAP_EPERM: something else failed. */
enum neap_status neap_view_enter(const struct neap_view_options *options, struct neap_view *ret_view,
				 struct neap_error *err);

/* Instead of a view, where the system allows none: binds this process and its children, for good. Landlock refuses
 * to write, make, remove, rename and cut files outside of what is named here with EACCES; what it does not know
 * (modes, owners, times, attributes; before its third version: cutting by path) a filter of system calls refuses with
 * EPERM. Still for real: the run's folder, /dev/shm (the simulator's memory, DataLoader's workers), and devices such
 * as /dev/null and the terminal. Sets TMPDIR and the runtime folders to a folder in the run's. Errors: NEAP_ENOTSUP:
 * this system has no Landlock, or no filter; others: then the process must end. */
enum neap_status neap_view_restrict(const char *folder, struct neap_error *err);

/* Before the program starts: where no overlay stands on the folder of temporary files, they go into the run's. */
enum neap_status neap_view_find_temporary(const char *folder, struct neap_error *err);

/* Fills the facts with what was written there; when nothing writes any more. With `keep_fd` (a folder; -1: none) it
 * is copied there. Failures are facts. */
void neap_view_measure(struct neap_view *view, int keep_fd);

/* RUN/view.json: by the process that made the view, and back. Reading also looks into the
 * program's own errors for a write that was refused. */
enum neap_status neap_view_facts_write(const char *folder, const struct neap_view_facts *facts,
				       struct neap_error *err);
void neap_view_facts_read(const char *folder, struct neap_view_facts *ret_facts);

/* Writes one sentence for people: what was isolated and what was not. */
void neap_view_facts_text(const struct neap_view_facts *facts, char *ret_text, size_t capacity);

#endif
