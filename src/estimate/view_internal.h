/* estimate/view_internal.h: functions shared by view_forks.c, view_mounts.c and view_places.c. */
#ifndef NEAP_ESTIMATE_VIEW_INTERNAL_H
#define NEAP_ESTIMATE_VIEW_INTERNAL_H

#include "estimate/view.h"

#include <sys/stat.h>

/* The folders that the program will probably write to and may write to. Each exists, and its path is resolved. In a
 * user namespace an overlay cannot copy up a folder of another owner, so these folders are made in the upper layer
 * beforehand. A zeroed struct is empty. */
struct neap_view_places {
	char **items;
	size_t count;
};

/* Finds the working directory, the home folder, /tmp and the like, and the folders that the environment and `argv`
 * name. Looks at each, so that an automounter mounts it. */
enum neap_status neap_view_places_find(char *const *argv, struct neap_view_places *ret_places,
				       struct neap_error *err);
void neap_view_places_fini(struct neap_view_places *places);

/* Makes, in the upper layer `upper_fd`, the folders of `path` that lie below `lower`, with their modes. */
enum neap_status neap_view_place_make(int upper_fd, const char *lower, const char *path, struct neap_error *err);

/* Returns the mode for our own copy of a folder, which itself may belong to another user. */
mode_t neap_view_mode(const char *path, const struct stat *about);

/* Makes a user namespace, and those of `flags`, for an ordinary user. In it our user and group stay the same, and
 * there are no others. */
enum neap_status neap_view_unshare_as_user(int flags, struct neap_error *err);

/* Copies what is in the layer of `from` whose overlay stands at `path` into the folder `upper_fd`. */
enum neap_status neap_view_copy_layer(const struct neap_view *from, const char *path, int upper_fd,
				      struct neap_error *err);

/* Sets TMPDIR, the runtime folders and Triton's to a folder in the run's. */
enum neap_status neap_view_move_folders(const char *folder, struct neap_error *err);

#endif
