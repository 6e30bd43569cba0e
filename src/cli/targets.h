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

/* Those given with --pid, and with `operands` those without; as targets_choose. */
int targets_given(const struct neap_arguments *arguments, bool operands, pid_t **ret_pids, size_t *ret_count);

/* How long a process may take to answer: connecting and every call of its client together. */
#define TARGETS_BOUND_S 30

/* As neap_client_open; where the process is not attached the message says what that means and what to do. One that is
 * stopped (a signal, a debugger) cannot answer: with `ret_stopped` it is opened all the same, for neap_client_post;
 * else NEAP_ETIMEDOUT at once, nothing was asked of it. */
enum neap_status targets_open(const char *runtime_folder, pid_t pid, struct neap_client *ret_client,
			      bool *ret_stopped, struct neap_error *err);

/* As neap_client_call, and NEAP_ENOENT when the process ends instead of answering. A request that was not begun when
 * TARGETS_BOUND_S is over is withdrawn when the client is closed. */
enum neap_status targets_call(struct neap_client *client, enum neap_request request, const void *arguments,
			      size_t length, struct neap_fields *ret_reply, struct neap_error *err);

/* The status of a device that refused its part, as the agent answered it. A graph that is being captured just then
 * (NEAP_ESTATE there) is a reason to try again: NEAP_EBUSY. */
enum neap_status targets_device_status(uint64_t answered);

#endif
