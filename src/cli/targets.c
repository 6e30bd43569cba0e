/* cli/targets.c: see targets.h. */
#include "cli/targets.h"

#include "base/clock.h"
#include "base/error.h"
#include "base/process.h"
#include "base/units.h"
#include "cli/look.h"
#include "cli/print.h"
#include "proto/page.h"

#include <inttypes.h>
#include <stdlib.h>

/* Emptying a large cache on a busy device takes longer than a question. */
#define BOUND_NS (TARGETS_BOUND_S * NEAP_NS_PER_S)

#define ENDING_LOOKS   200 /* on a loaded machine the moment is a long one */
#define ENDING_LOOK_NS (10 * NEAP_NS_PER_MS)

static bool is_stopped(pid_t pid)
{
	struct neap_process process;
	return neap_process_read(pid, &process, NULL) == NEAP_OK && (process.state == 'T' || process.state == 't');
}

enum neap_status targets_open(const char *runtime_folder, pid_t pid, struct neap_client *ret_client,
			      bool *ret_stopped, struct neap_error *err)
{
	char name[64];
	struct neap_deadline deadline = neap_deadline_in(neap_clock_system(), BOUND_NS);
	enum neap_status status = neap_client_open(runtime_folder, pid, deadline, ret_client, err);
	if (status && status != NEAP_ESTATE)
		return status;
	look_name(pid, name);
	bool stopped = !status && is_stopped(pid);
	if (stopped && !ret_stopped) {
		neap_client_close(ret_client);
		return neap_fail(err, NEAP_ETIMEDOUT,
				 "process %d (%.32s) is stopped and cannot answer; nothing was changed. Continue it "
				 "(kill -CONT %d) and ask again",
				 (int)pid, name, (int)pid);
	}
	if (!status) {
		if (ret_stopped)
			*ret_stopped = stopped;
		return status;
	}
	return neap_fail(
		err, NEAP_ESTATE,
		"process %d (%.32s) is not attached: its cache cannot be emptied, nor its memory limited, from "
		"outside; started with 'neap run -- COMMAND' it can",
		(int)pid, name);
}

/* Its sockets are closed a moment before it is gone. */
static bool is_ending(pid_t pid)
{
	struct neap_process process;
	for (int looks = 0; looks < ENDING_LOOKS; looks++) {
		if (neap_process_read(pid, &process, NULL) != NEAP_OK || process.state == 'Z')
			return true;
		neap_clock_sleep(neap_clock_system(), ENDING_LOOK_NS);
	}
	return false;
}

enum neap_status targets_call(struct neap_client *client, enum neap_request request, const void *arguments,
			      size_t length, struct neap_fields *ret_reply, struct neap_error *err)
{
	enum neap_status status = neap_client_call(client, request, arguments, length, ret_reply, err);
	if (status == NEAP_ETIMEDOUT && is_stopped(client->pid))
		return neap_fail(err, status,
				 "process %d was stopped before it answered; what it has not begun by now it will "
				 "not do. Continue it (kill -CONT %d) and ask again",
				 (int)client->pid, (int)client->pid);
	if (status == NEAP_ETIMEDOUT)
		return neap_fail(err, status,
				 "process %d did not answer within %d s; what it has not begun by now it will not do",
				 (int)client->pid, TARGETS_BOUND_S);
	if (status == NEAP_EIO && is_ending(client->pid))
		return neap_fail(err, NEAP_ENOENT, "process %d ended before it answered", (int)client->pid);
	return status;
}

enum neap_status targets_device_status(uint64_t answered)
{
	if (answered > NEAP_EINTERNAL)
		return NEAP_EPROTO;
	return answered == NEAP_ESTATE ? NEAP_EBUSY : (enum neap_status)answered;
}

int targets_given(const struct neap_arguments *arguments, bool operands, pid_t **ret_pids, size_t *ret_count)
{
	size_t given = 0, count;
	while (neap_argument_nth(arguments, "pid", given))
		given++;
	count = given + (operands ? neap_operand_count(arguments) : 0);
	pid_t *pids = calloc(count, sizeof *pids);
	if (!pids) {
		fputs("neap: out of memory\n", stderr);
		return NEAP_EXIT_OS;
	}
	for (size_t i = 0; i < count; i++) {
		const char *text =
			i < given ? neap_argument_nth(arguments, "pid", i) : neap_operand(arguments, i - given);
		uint64_t pid;
		if (neap_u64_parse(text, &pid, NULL) != NEAP_OK || pid == 0 || pid > INT32_MAX) {
			free(pids);
			return neap_misuse(arguments, "%s'%s' is not a process ID", i < given ? "--pid: " : "", text);
		}
		pids[i] = (pid_t)pid;
	}
	*ret_pids = pids;
	*ret_count = count;
	return NEAP_EXIT_OK;
}

static int complain_number(const struct neap_attached *attached, size_t count)
{
	if (count == 0) {
		fputs("neap: no process is attached; an allocator can only be reached inside its process: start it "
		      "with 'neap run -- COMMAND'\n",
		      stderr);
		return NEAP_EXIT_UNAVAILABLE;
	}
	fprintf(stderr, "neap: %zu processes are attached; say which with --pid, or --all:\n", count);
	for (size_t i = 0; i < count; i++)
		fprintf(stderr, "  %8d  %s\n", (int)attached[i].pid, NEAP_PRINTABLE(attached[i].name));
	return NEAP_EXIT_USAGE;
}

int targets_choose(const struct neap_arguments *arguments, const char *runtime_folder, pid_t **ret_pids,
		   size_t *ret_count)
{
	struct neap_attached *attached = NULL;
	size_t count = 0;
	struct neap_error err = {0};
	bool all = neap_argument(arguments, "all");
	if (neap_argument(arguments, "pid") && all)
		return neap_misuse(arguments, "--pid or --all, not both");
	if (neap_argument(arguments, "pid"))
		return targets_given(arguments, false, ret_pids, ret_count);
	if (neap_page_list(runtime_folder, &attached, &count, &err) != NEAP_OK)
		return neap_complain(NULL, &err);
	int code = NEAP_EXIT_OK;
	pid_t *pids = calloc(count + 1, sizeof *pids);
	if (!pids) {
		fputs("neap: out of memory\n", stderr);
		code = NEAP_EXIT_OS;
	} else if (count == 0 || (count > 1 && !all)) {
		code = complain_number(attached, count);
	} else {
		for (size_t i = 0; i < count; i++)
			pids[i] = attached[i].pid;
		*ret_pids = pids;
		*ret_count = count;
		pids = NULL;
	}
	free(pids);
	free(attached);
	return code;
}
