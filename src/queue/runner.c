/* queue/runner.c: the user's runner: it starts a `neap run` for each added ticket that has none (added.h). */
#include "queue/added_files.h"

#include "base/clock.h"
#include "base/descriptor.h"
#include "base/error.h"
#include "base/file.h"
#include "base/paths.h"
#include "base/spawn.h"
#include "base/units.h"
#include "run/run_stage.h"

#include <errno.h>
#include <fcntl.h>
#include <inttypes.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/file.h>
#include <sys/stat.h>
#include <sys/wait.h>
#include <unistd.h>

#define LOCK_NS (10 * NEAP_NS_PER_S)
#define LOOK_NS (200 * NEAP_NS_PER_MS)

struct start {
	const char *folder;
	int fd;
};

static int keep_lock(void *context)
{
	const struct start *start = context;
	return fcntl(start->fd, F_SETFD, 0) ? errno : 0;
}

/* Starts `neap run` for the ticket, whose lock `fd` it inherits. */
static enum neap_status start(const struct neap_ticket *ticket, const char *program, int fd, struct neap_error *err)
{
	struct neap_argv argv = {0}, environment = {0};
	char path[4096];
	int log_fd = -1;
	pid_t child;
	bool failed = neap_argv_add(&argv, "neap") || neap_argv_add(&argv, "run") ||
		      neap_argv_add(&argv, "--folder") || neap_argv_add(&argv, ticket->folder) ||
		      neap_argv_add(&argv, "--run-id") || neap_argv_add(&argv, ticket->run_id) ||
		      neap_argv_add(&argv, "--ticket-fd") ||
		      neap_argv_format(&argv, "%d:%" PRIu64, fd, ticket->number) || neap_argv_add(&argv, "--log");
	enum neap_status status = failed ? neap_fail(err, NEAP_ENOMEM, "out of host memory") : NEAP_OK;
	if (!status)
		status = neap_added_read(ticket->folder, &argv, &environment, err);
	if (!status)
		status = neap_path_join(path, sizeof path, ticket->folder, "neap.log");
	if (!status) {
		log_fd = open(path, O_WRONLY | O_CREAT | O_APPEND | O_CLOEXEC | O_NOFOLLOW, 0600);
		log_fd = neap_fd_above_standard(log_fd);
		status = log_fd < 0 ? neap_fail_errno(err, errno, "opening %.150s", path) : NEAP_OK;
	}
	if (!status)
		status = neap_spawn(&(struct neap_spawn){.doing = "starting a run of the queue",
							 .program = program,
							 .argv = argv.items,
							 .environment = environment.items,
							 .run = keep_lock,
							 .context = &(struct start){ticket->folder, fd},
							 .fds = {NEAP_SPAWN_NULL, log_fd, log_fd},
							 .place = NEAP_SPAWN_OWN_SESSION},
				    &child, err);
	neap_fd_close(&log_fd);
	neap_argv_fini(&argv);
	neap_argv_fini(&environment);
	return status;
}

static bool is_run_locked(const char *folder)
{
	char path[4096];
	if (neap_path_join(path, sizeof path, folder, "lock"))
		return false;
	int fd = open(path, O_RDWR | O_CLOEXEC | O_NOFOLLOW);
	bool locked = fd >= 0 && flock(fd, LOCK_EX | LOCK_NB) && errno == EWOULDBLOCK;
	neap_fd_close(&fd);
	return locked;
}

/* Called when the run was lost: makes another one with the same command. */
static enum neap_status make_another(struct neap_ticket *ticket, struct neap_error *err)
{
	struct neap_ticket next = *ticket;
	next.lost++;
	enum neap_status status = neap_added_make_folder(&next, err);
	if (!status)
		status = neap_added_copy(ticket->folder, next.folder, err);
	if (!status)
		*ticket = next;
	else if (next.folder[0] && strcmp(next.folder, ticket->folder) != 0)
		neap_added_remove_folder(next.folder);
	return status;
}

/* Returns the latest time at which the ticket's last start can have failed. The ticket was written before the
 * failure; the report of the failure may be later. */
static uint64_t failed_wall_ns(const struct neap_ticket *ticket)
{
	char path[4096];
	struct stat info;
	if (neap_path_join(path, sizeof path, ticket->folder, "neap.log") || stat(path, &info))
		return ticket->written_wall_ns;
	uint64_t report_ns = (uint64_t)info.st_mtim.tv_sec * NEAP_NS_PER_S + (uint64_t)info.st_mtim.tv_nsec;
	return report_ns > ticket->written_wall_ns ? report_ns : ticket->written_wall_ns;
}

static bool is_paused_after_failure(const struct neap_ticket *ticket)
{
	if (!ticket->tries || ticket->tries >= NEAP_QUEUE_TRIES ||
	    neap_run_stage_read(ticket->folder) == NEAP_STAGE_OVER)
		return false;
	uint64_t failed_ns = failed_wall_ns(ticket), now_ns = neap_wall_ns();
	/* a clock that was set back does not prolong the pause */
	return now_ns >= failed_ns && now_ns - failed_ns < neap_ticket_pause_ns(ticket->tries);
}

/* Counts the start that follows. A process that joins the queue sets the count to 0. */
static enum neap_status count_try(struct neap_queue *queue, struct neap_ticket *ticket, struct neap_error *err)
{
	ticket->tries++;
	ticket->holds = false;
	ticket->pid = 0;
	return neap_queue_write(queue, ticket, err);
}

/* With the queue's lock and the ticket's (`fd`): starts its run, or another run if this one had begun. */
static enum neap_status start_again(struct neap_queue *queue, struct neap_ticket *ticket, const char *program,
				    bool begun, int fd, struct neap_error *err)
{
	const struct neap_ticket before = *ticket;
	enum neap_status made = begun ? make_another(ticket, err) : NEAP_OK;
	enum neap_status status = count_try(queue, ticket, made ? NULL : err);
	if (begun && !made && !status)
		neap_added_forget(before.folder);
	else if (begun && !made)
		neap_added_remove_folder(ticket->folder);
	if (status)
		*ticket = before;
	if (made || status)
		return made ? made : status;
	return neap_ticket_is_given_up(ticket) ? NEAP_OK : start(ticket, program, fd, err);
}

static void forget_ticket(struct neap_queue *queue, const struct neap_ticket *ticket)
{
	neap_added_forget(ticket->folder);
	neap_queue_remove(queue, ticket->number);
}

/* Whether the cause of a failure may pass: a full disk, too little memory, too many processes, a folder that is not
 * mounted yet. */
static bool may_pass(enum neap_status status)
{
	return status == NEAP_ENOSPC || status == NEAP_EIO || status == NEAP_ENOMEM || status == NEAP_EBUSY ||
	       status == NEAP_ENOENT;
}

/* After a failure: gives the ticket up, unless another try may help. */
static void retry_or_give_up(struct neap_queue *queue, struct neap_ticket *ticket, enum neap_status failed)
{
	if (!failed || (may_pass(failed) && ticket->tries < NEAP_QUEUE_TRIES))
		return;
	ticket->lost = NEAP_QUEUE_LOST;
	neap_queue_write(queue, ticket, NULL);
}

/* A ticket whose command has ended without a result. */
struct ended {
	uint64_t number;
	char run_id[sizeof((struct neap_ticket *)0)->run_id];
	char folder[sizeof((struct neap_ticket *)0)->folder];
};

/* With the queue's lock and the ticket's (`fd`): removes the ticket, starts the run again, or gives up. `made`: the
 * status of making its result. */
static void settle(struct neap_queue *queue, struct neap_ticket *ticket, const char *program, enum neap_status made,
		   int fd)
{
	enum neap_status status = made;
	if (!made) {
		forget_ticket(queue, ticket);
		return;
	}
	if (ticket->paused)
		return;
	if (made == NEAP_ESTATE) /* the supervisor was about to restart the command with less memory */
		status = start_again(queue, ticket, program, true, fd, NULL);
	else if (may_pass(made))
		count_try(queue, ticket, NULL);
	retry_or_give_up(queue, ticket, status);
}

/* Makes the result, from recordings that may be large. Holds neither the queue's lock nor the ticket's meanwhile, so
 * the user may have changed the ticket when the result is done. */
static void finish_ended(struct neap_queue *queue, const struct ended *ended, const char *program)
{
	struct neap_tickets tickets = {0};
	int fd = -1;
	enum neap_status status = neap_run_stage_recover_locked(ended->folder, NULL);
	if (status == NEAP_EBUSY || neap_queue_lock(queue, LOCK_NS, NULL))
		return; /* another process makes the result, or has the queue's lock: the next sample shows which */
	if (!neap_queue_read(queue, &tickets, NULL)) {
		struct neap_ticket *ticket = neap_tickets_find(&tickets, ended->number);
		if (ticket && !strcmp(ticket->run_id, ended->run_id) &&
		    !neap_queue_take(queue, ticket->number, &fd, NULL))
			settle(queue, ticket, program, status, fd);
	}
	neap_fd_close(&fd);
	free(tickets.items);
	neap_queue_unlock(queue);
}

/* With the queue's lock and the ticket's (`fd`): acts on the stage of the run that its folder shows. True: the caller
 * must call finish_ended. */
static bool tend_one(struct neap_queue *queue, struct neap_ticket *ticket, const char *program, int fd)
{
	enum neap_run_stage stage = neap_run_stage_read(ticket->folder);
	if (is_run_locked(ticket->folder))
		return false;
	if (stage == NEAP_STAGE_ENDED)
		return true;
	if (stage == NEAP_STAGE_OVER) {
		forget_ticket(queue, ticket);
		return false;
	}
	enum neap_status status = NEAP_EBUSY;
	if (ticket->tries < NEAP_QUEUE_TRIES)
		status = start_again(queue, ticket, program, stage == NEAP_STAGE_BEGAN, fd, NULL);
	retry_or_give_up(queue, ticket, status);
	return false;
}

/* With the queue's lock: looks after the user's tickets. *ret_left: tickets of this user that the runner has to look
 * after. */
static enum neap_status tend(struct neap_queue *queue, const char *program,
			     struct ended ret_ended[NEAP_QUEUE_STARTED], size_t *ret_ended_count, size_t *ret_left,
			     struct neap_error *err)
{
	struct neap_tickets tickets = {0};
	size_t started = 0, left = 0, ended = 0;
	enum neap_status status = neap_queue_read(queue, &tickets, err);
	for (size_t i = 0; !status && i < tickets.count; i++) {
		struct neap_ticket *ticket = &tickets.items[i];
		int fd = -1;
		started += neap_added_is_mine(ticket, geteuid()) && ticket->alive && !ticket->holds;
		left += neap_added_is_mine(ticket, geteuid()) && !neap_ticket_is_given_up(ticket) &&
			!(ticket->paused && !ticket->alive);
		if (!neap_added_is_orphan(ticket, geteuid()) || is_paused_after_failure(ticket) ||
		    started >= NEAP_QUEUE_STARTED || neap_queue_take(queue, ticket->number, &fd, NULL))
			continue;
		started++;
		if (tend_one(queue, ticket, program, fd)) {
			ret_ended[ended].number = ticket->number;
			strcpy(ret_ended[ended].run_id, ticket->run_id);
			strcpy(ret_ended[ended++].folder, ticket->folder);
		}
		close(fd);
	}
	free(tickets.items);
	*ret_ended_count = ended;
	if (!status)
		*ret_left = left;
	return status;
}

enum neap_status neap_queue_open_runner(const struct neap_queue *queue, int *ret_fd, struct neap_error *err)
{
	char name[64];
	struct stat info;
	snprintf(name, sizeof name, "runner.%u", (unsigned)geteuid());
	int fd = openat(queue->folder_fd, name, O_RDWR | O_CREAT | O_CLOEXEC | O_NOFOLLOW | O_NONBLOCK, 0600);
	fd = neap_fd_above_standard(fd);
	if (fd < 0)
		return neap_fail_errno(err, errno, "opening %.150s/%s", queue->folder, name);
	if (fstat(fd, &info) || !S_ISREG(info.st_mode) || info.st_uid != geteuid()) {
		close(fd);
		return neap_fail(err, NEAP_EPERM, "%.150s/%s is another user's", queue->folder, name);
	}
	*ret_fd = fd;
	return NEAP_OK;
}

enum neap_status neap_queue_runner(struct neap_queue *queue, const char *program, struct neap_error *err)
{
	int fd = -1;
	enum neap_status status = neap_queue_open_runner(queue, &fd, err);
	bool taken = !status && !flock(fd, LOCK_EX | LOCK_NB);
	struct ended *ended = calloc(NEAP_QUEUE_STARTED, sizeof *ended);
	if (!ended)
		status = neap_fail(err, NEAP_ENOMEM, "out of host memory");
	for (size_t left = 1, count = 0; taken && !status && left;) {
		status = neap_queue_lock(queue, LOCK_NS, err);
		if (status == NEAP_EBUSY) {
			status = NEAP_OK;
			continue;
		}
		if (!status)
			status = tend(queue, program, ended, &count, &left, err);
		if (!status && !left)
			neap_fd_close(&fd); /* before the next `add` can see the queue: it then starts a runner */
		neap_queue_unlock(queue);
		while (count)
			finish_ended(queue, &ended[--count], program);
		while (waitpid(-1, NULL, WNOHANG) > 0)
			;
		if (left)
			neap_clock_sleep(neap_clock_system(), LOOK_NS);
	}
	free(ended);
	neap_fd_close(&fd);
	return status;
}
