/* estimate/mountinfo.h: the mounts that this process sees, from /proc/self/mountinfo. Pure but for neap_mounts_read.
 *
 * Another mount on the same folder, or on a folder above, may hide a mount. Only visible mounts matter, since no path
 * reaches the others. One thread.
 */
#ifndef NEAP_ESTIMATE_MOUNTINFO_H
#define NEAP_ESTIMATE_MOUNTINFO_H

#include "neap/status.h"

#include <stdbool.h>
#include <stddef.h>
#include <stdint.h>
#include <sys/types.h>

#define NEAP_MOUNTS_MOST 100000

struct neap_mount {
	uint64_t id, parent;
	dev_t device;     /* of its file system */
	const char *path; /* where it is mounted, decoded */
	const char *type; /* of the file system: "ext4" */
	bool read_only;   /* the mount, or its file system */
	bool visible;
};

/* Sorted by path: a mount comes after the mounts that it lies below. A zeroed struct is empty. */
struct neap_mounts {
	struct neap_mount *items;
	size_t count;
	char *text; /* holds the strings */
};

/* Errors: NEAP_EPARSE with the line for text that is not of the form; NEAP_EINVAL for more than NEAP_MOUNTS_MOST;
 * NEAP_ENOMEM. */
enum neap_status neap_mounts_parse(const char *text, size_t length, struct neap_mounts *ret_mounts,
				   struct neap_error *err);
enum neap_status neap_mounts_read(struct neap_mounts *ret_mounts, struct neap_error *err);
void neap_mounts_fini(struct neap_mounts *mounts);

/* Whether `path` is `folder` or lies below it. Both absolute, without a slash at the end but for "/". */
bool neap_path_is_below(const char *path, const char *folder);

/* What a mount becomes in the view of a simulated run (view.h). */
enum neap_view_action {
	NEAP_VIEW_AS_IT_IS,  /* the kernel's own (/proc, /sys), and what is read-only already */
	NEAP_VIEW_READ_ONLY, /* no overlay can stand on it, or it holds nothing but devices */
	NEAP_VIEW_OVERLAY,   /* a file system with the user's files: writes go to memory */
};
enum neap_view_action neap_view_plan(const struct neap_mount *mount);

#endif
