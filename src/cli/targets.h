/* cli/targets.h: which attached processes a command is meant for: --pid P (again and again), --all, or the only one.
 */
#ifndef NEAP_CLI_TARGETS_H
#define NEAP_CLI_TARGETS_H

#include "cli/command.h"

#include <sys/types.h>

/* An exit code; unless it is NEAP_EXIT_OK it was explained on stderr. free(*ret_pids). */
int targets_choose(const struct neap_arguments *arguments, const char *runtime_folder, pid_t **ret_pids,
		   size_t *ret_count);

/* Those given with --pid, and with `operands` those without; as targets_choose. */
int targets_given(const struct neap_arguments *arguments, bool operands, pid_t **ret_pids, size_t *ret_count);

#endif
