/* machine/attached.h: sends requests to one attached process, which may be stopped, end meanwhile, or not answer. One
 * thread. */
#ifndef NEAP_MACHINE_ATTACHED_H
#define NEAP_MACHINE_ATTACHED_H

#include "proto/client.h"

#include <sys/types.h>

/* The time in which a process must answer: for connecting and all calls of its client together. */
#define NEAP_ATTACHED_BOUND_S 30

/* As neap_client_open; if the process is not attached, the message says what that means and what to do. A process
 * that is stopped (by a signal or a debugger) cannot answer: with `ret_stopped` it is still opened, for
 * neap_client_post; without, the call fails at once with NEAP_ETIMEDOUT and sends nothing. */
enum neap_status neap_attached_open(const char *runtime_folder, pid_t pid, struct neap_client *ret_client,
				    bool *ret_stopped, struct neap_error *err);

/* As neap_client_call, but NEAP_ENOENT if the process ends instead of answering. Closing the client withdraws a
 * request that the process has not begun within NEAP_ATTACHED_BOUND_S. */
enum neap_status neap_attached_call(struct neap_client *client, enum neap_request request, const void *arguments,
				    size_t length, struct neap_fields *ret_reply, struct neap_error *err);

/* Translates the agent's status of a device that refused its part of a request. NEAP_ESTATE, a graph capture at that
 * moment, becomes NEAP_EBUSY: retry. */
enum neap_status neap_attached_device_status(uint64_t answered);

#endif
