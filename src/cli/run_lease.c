/* cli/run_lease.c: see run_lease.h. */
#include "cli/run_lease.h"

#include "base/error.h"
#include "base/units.h"
#include "cli/progress.h"
#include "run/run_stage.h"

#include <fcntl.h>
#include <stdlib.h>
#include <string.h>

static int parse_gpus(const struct neap_arguments *arguments, struct neap_supervise_options *run, uint32_t *ret_gpus)
{
	const char *text = neap_argument(arguments, "gpus");
	struct neap_error err = {0};
	uint64_t gpus = 1;
	if (text && (neap_u64_parse(text, &gpus, &err) || !gpus || gpus > NEAP_GPUS))
		return neap_misuse(arguments, "--gpus: expected a number from 1 to %d, not '%s'", NEAP_GPUS, text);
	if (text && run->device && gpus > 1)
		return neap_misuse(arguments, "--gpus %s, and one device named: give one of them", text);
	if (text && neap_argument(arguments, "needs") && run->needs.kind == NEAP_NEEDS_NONE)
		return neap_misuse(arguments, "--gpus needs memory: --needs none takes no turn");
	if (text && run->needs.kind == NEAP_NEEDS_NONE)
		run->needs.kind = NEAP_NEEDS_DEVICE;
	*ret_gpus = (uint32_t)gpus;
	return NEAP_EXIT_OK;
}

int run_lease_ticket(struct run_lease *lease, const struct neap_arguments *arguments)
{
	struct neap_lease_wanted *wanted = &lease->wanted;
	const char *text = neap_argument(arguments, "ticket-fd"), *colon = text ? strchr(text, ':') : NULL;
	char number[24] = "";
	uint64_t fd = 0;
	wanted->ticket_fd = -1;
	if (!text)
		return NEAP_EXIT_OK;
	if (colon && (size_t)(colon - text) < sizeof number)
		memcpy(number, text, (size_t)(colon - text));
	if (neap_u64_parse(number, &fd, NULL) || fd > 1u << 20 || neap_u64_parse(colon + 1, &wanted->ticket, NULL))
		return neap_misuse(arguments, "--ticket-fd: expected N:TICKET, not '%s'", text);
	wanted->ticket_fd = (int)fd;
	fcntl(wanted->ticket_fd, F_SETFD, FD_CLOEXEC); /* no program that we start may hold it; the guard may */
	return NEAP_EXIT_OK;
}

int run_lease_begin(struct run_lease *lease, const struct neap_arguments *arguments,
		    struct neap_supervise_options *run)
{
	struct neap_error err = {0};
	struct neap_turn *turn = NULL;
	struct neap_monitor *monitor = NULL;
	lease->begun = true;
	int code = parse_gpus(arguments, run, &lease->wanted.gpus);
	if (code || run->needs.kind == NEAP_NEEDS_NONE)
		return code;
	bool added = lease->wanted.ticket_fd >= 0;
	if (neap_monitor_open(NEAP_BACKEND_DEFAULT, &monitor, &err))
		return added ? neap_complain("run", &err) : NEAP_EXIT_OK; /* the supervisor reports the error */
	bool inside = !added && neap_lease_inside(neap_monitor_backend(monitor));
	neap_monitor_close(monitor);
	if (inside)
		return NEAP_EXIT_OK;
	lease->wanted.needs = run->needs;
	lease->wanted.device = run->device;
	lease->wanted.run_id = run->run_id;
	lease->wanted.folder = run->folder;
	lease->wanted.command = run->command;
	if (neap_lease_create(&lease->wanted, &lease->lease, &turn, &err))
		return neap_complain("run", &err);
	turn->patient = !neap_argument(arguments, "wait-limit");
	if (added && turn->patient)
		run->wait_limit_ns = UINT64_MAX; /* no user watches, and no other run waits for it */
	turn->show = progress_able(stderr) && !neap_argument(arguments, "quiet") ? progress_show : NULL;
	run->turn = turn;
	return NEAP_EXIT_OK;
}

void run_lease_end(struct run_lease *lease, int code)
{
	bool hopeless = !lease->begun || code == NEAP_EXIT_USAGE;
	if (hopeless && lease->wanted.ticket_fd >= 0 && !lease->over)
		neap_lease_give_up(lease->wanted.ticket);
	bool passes = code == NEAP_EXIT_IO || code == NEAP_EXIT_OS || code == NEAP_EXIT_TRY_AGAIN;
	bool again = passes && lease->lease && neap_run_stage_read(lease->wanted.folder) != NEAP_STAGE_BEGAN;
	neap_lease_destroy(lease->lease, lease->over, again);
	lease->lease = NULL;
}
