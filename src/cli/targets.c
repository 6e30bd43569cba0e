/* cli/targets.c: see targets.h. */
#include "cli/targets.h"

#include "base/error.h"
#include "base/units.h"
#include "cli/print.h"
#include "proto/page.h"

#include <inttypes.h>
#include <stdlib.h>

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
