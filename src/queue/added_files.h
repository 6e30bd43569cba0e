/* queue/added_files.h: the folder and the file RUN/queued of an added run (added.h). For src/queue alone. */
#ifndef NEAP_QUEUE_ADDED_FILES_H
#define NEAP_QUEUE_ADDED_FILES_H

#include "queue/added.h"

/* Makes STATE/runs/ID, and fills the ticket's run and folder. Errors: NEAP_EINVAL: the path is too long; those of
 * making a folder. */
enum neap_status neap_added_make_folder(struct neap_ticket *ticket, struct neap_error *err);

/* Removes the folder of a run that has not begun. */
void neap_added_remove_folder(const char *folder);

/* Writes FOLDER/queued, with this process's environment, whole or not at all. */
enum neap_status neap_added_write(const struct neap_queue *queue, const char *folder, const struct neap_added *added,
				  struct neap_error *err);

/* Copies the file of one run's folder to another's, whole or not at all. */
enum neap_status neap_added_copy(const char *from, const char *to, struct neap_error *err);

/* Reads and splits it: adds the options and the command to `argv`, the environment to `environment`. The caller frees
 * both, also after a failure. Errors: NEAP_EPARSE, NEAP_ENOMEM, those of reading. */
enum neap_status neap_added_read(const char *folder, struct neap_argv *argv, struct neap_argv *environment,
				 struct neap_error *err);

/* Whether `neap queue add` made the ticket for this user. */
static inline bool neap_added_is_mine(const struct neap_ticket *ticket, uid_t user)
{
	return ticket->added && ticket->uid == user;
}

/* Whether the ticket is this user's, and should have a process but has none. */
static inline bool neap_added_is_orphan(const struct neap_ticket *ticket, uid_t user)
{
	return neap_added_is_mine(ticket, user) && !ticket->alive && !ticket->dropped && !ticket->paused &&
	       !neap_ticket_is_given_up(ticket);
}

/* Opens the lock of this user's runner, which is not taken yet. Errors: NEAP_EPERM: another user's file; NEAP_EIO. */
enum neap_status neap_queue_open_runner(const struct neap_queue *queue, int *ret_fd, struct neap_error *err);

#endif
