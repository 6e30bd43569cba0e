/* queue/added.c: see added.h. */
#include "queue/added_files.h"

#include "base/clock.h"
#include "base/descriptor.h"
#include "base/error.h"
#include "base/file.h"
#include "base/paths.h"
#include "base/spawn.h"
#include "base/units.h"
#include "queue/lease.h"
#include "queue/sample.h"

#include <stdlib.h>
#include <string.h>
#include <sys/file.h>
#include <unistd.h>

#define LOCK_NS (10 * NEAP_NS_PER_S)

/* Refuses needs that no GPU can ever meet: nobody would see the command fail later. */
static enum neap_status check_possible(struct neap_ticket *ticket, struct neap_monitor *monitor,
				       struct neap_error *err)
{
	const struct neap_tickets alone = {ticket, 1};
	struct neap_queue_sample sample;
	char why[160];
	enum neap_status status = neap_queue_sample_take(&alone, monitor, &sample, err);
	if (!status && sample.answers[0].verdict == NEAP_QUEUE_NEVER) {
		neap_lease_explain(&alone, &sample, 0, why, sizeof why);
		status = neap_fail(err, NEAP_EINVAL, "%s", why);
	}
	neap_queue_sample_fini(&sample);
	return status;
}

enum neap_status neap_queue_add(struct neap_queue *queue, struct neap_monitor *monitor,
				const struct neap_added *added, struct neap_ticket *ret_ticket,
				struct neap_error *err)
{
	struct neap_ticket ticket = {.added = true, .since_wall_ns = neap_wall_ns()};
	const struct neap_lease_wanted wanted = {.needs = added->needs,
						 .gpus = added->gpus,
						 .device = added->device,
						 .run_id = "",
						 .folder = "",
						 .command = added->command};
	int fd = -1;
	enum neap_status status = neap_lease_describe(&wanted, monitor, &ticket, err);
	if (!status)
		status = check_possible(&ticket, monitor, err);
	ticket.pid = 0;
	ticket.start_ticks = 0;
	if (!status)
		status = neap_added_make_folder(&ticket, err);
	if (status)
		return status;
	status = neap_added_write(queue, ticket.folder, added, err);
	if (!status)
		status = neap_queue_lock(queue, LOCK_NS, err);
	if (!status) {
		status = neap_queue_claim(queue, &ticket, &fd, err);
		neap_fd_close(&fd);
		neap_queue_unlock(queue);
	}
	if (status)
		neap_added_remove_folder(ticket.folder);
	else
		*ret_ticket = ticket;
	return status;
}

/* --- the runner, which may have to be started --- */

/* Called inside a run. When a run is over, it ends its leftover processes; a runner that was started now would be one
 * of them. So the run itself starts the runner when it is over. */
static enum neap_status leave_to(const char *run_folder, const struct neap_queue *queue, struct neap_error *err)
{
	char path[4096];
	enum neap_status status = neap_path_join(path, sizeof path, run_folder, "revive");
	return status ? status : neap_file_write(path, queue->folder, strlen(queue->folder), err);
}

enum neap_status neap_queue_revive(struct neap_queue *queue, const char *program, struct neap_error *err)
{
	const char *run_folder = getenv("NEAP_RUN_DIR");
	struct neap_tickets tickets = {0};
	bool needed = false, busy = false;
	int fd = -1;
	enum neap_status status = neap_queue_lock(queue, LOCK_NS, err);
	if (status)
		return status;
	status = neap_queue_read(queue, &tickets, err);
	for (size_t i = 0; !status && i < tickets.count; i++)
		needed = needed || neap_added_is_orphan(&tickets.items[i], geteuid());
	if (!status && needed)
		status = neap_queue_open_runner(queue, &fd, err);
	if (fd >= 0)
		busy = flock(fd, LOCK_EX | LOCK_NB) != 0;
	neap_fd_close(&fd);
	neap_queue_unlock(queue);
	free(tickets.items);
	if (status || !needed || busy)
		return status;
	if (run_folder && *run_folder)
		return leave_to(run_folder, queue, err);
	setenv("NEAP_QUEUE", queue->folder, 1);
	return neap_spawn(&(struct neap_spawn){.doing = "starting the queue's runner",
					       .program = program,
					       .argv = (char *[]){"neap", "queue", "run", NULL},
					       .fds = {NEAP_SPAWN_NULL, NEAP_SPAWN_NULL, NEAP_SPAWN_NULL},
					       .place = NEAP_SPAWN_OWN_SESSION},
			  &(pid_t){0}, err);
}

enum neap_status neap_queue_revive_left(const char *run_folder, const char *program, struct neap_error *err)
{
	char path[4096];
	struct neap_buffer folder = {0};
	struct neap_queue queue = {0};
	if (neap_path_join(path, sizeof path, run_folder, "revive") || access(path, F_OK))
		return NEAP_OK;
	enum neap_status status = neap_file_read(path, sizeof queue.folder, &folder, err);
	unlink(path);
	if (!status)
		setenv("NEAP_QUEUE", neap_buffer_string(&folder), 1);
	if (!status)
		status = neap_queue_open(NEAP_BACKEND_DEFAULT, &queue, err);
	if (!status)
		status = neap_queue_revive(&queue, program, err);
	neap_queue_close(&queue);
	neap_buffer_fini(&folder);
	return status;
}
