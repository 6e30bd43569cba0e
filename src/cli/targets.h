/* cli/targets.h: which attached processes a command is meant for: --pid P (again and again), --all, or the only one.
 */
#ifndef NEAP_CLI_TARGETS_H
#define NEAP_CLI_TARGETS_H

#include "cli/command.h"
#include "proto/client.h"

#include <sys/types.h>

/* An exit code; unless it is NEAP_EXIT_OK it was explained on stderr. free(*ret_pids). */
int targets_choose(const struct neap_arguments *arguments, const char *runtime_folder, pid_t **ret_pids,
		   size_t *ret_count);

/* Those given with --pid alone; as targets_choose. */
int targets_given(const struct neap_arguments *arguments, pid_t **ret_pids, size_t *ret_count);

/* As neap_client_open; where the process is not attached the message says what that means and what to do. */
enum neap_status targets_open(const char *runtime_folder, pid_t pid, struct neap_client *ret_client,
			      struct neap_error *err);

#endif
