/* cli/targets.h: chooses the attached processes for a command: those of --pid P (repeatable), --all, or the only one.
 */
#ifndef NEAP_CLI_TARGETS_H
#define NEAP_CLI_TARGETS_H

#include "cli/command.h"

#include <sys/types.h>

/* Returns an exit code; has explained any but NEAP_EXIT_OK on stderr. free(*ret_pids). */
int targets_choose(const struct neap_arguments *arguments, const char *runtime_folder, pid_t **ret_pids,
		   size_t *ret_count);

/* Only those of --pid and, with `operands`, of the operands; as targets_choose. */
int targets_given(const struct neap_arguments *arguments, bool operands, pid_t **ret_pids, size_t *ret_count);

#endif
