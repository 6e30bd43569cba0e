/* proto/client.h: asks an attached process.
 *
 *   RUNTIME/PID.sock    each side checks that the other is of the same user (SO_PEERCRED)
 *
 * One client, one thread. Nothing here waits beyond the deadline with which it was opened.
 */
#ifndef NEAP_PROTO_CLIENT_H
#define NEAP_PROTO_CLIENT_H

#include "base/buffer.h"
#include "base/clock.h"
#include "proto/commands.h"
#include "proto/fields.h"

#include <sys/types.h>

struct neap_client {
	int fd;
	pid_t pid;
	struct neap_deadline deadline; /* of connecting and all calls */
	uint32_t request;              /* of the last call */
	struct neap_buffer payload;
};

/* Connects. Errors: NEAP_ENOENT (no such process), NEAP_EPERM (another user's),
 * NEAP_ESTATE (not attached), NEAP_ETIMEDOUT, NEAP_EIO. On failure there is nothing to close. */
enum neap_status neap_client_open(const char *runtime_folder, pid_t pid, struct neap_deadline deadline,
				  struct neap_client *ret_client, struct neap_error *err);

/* Sends a request and waits for its reply. `arguments`: fields, may be NULL with length 0. *ret_reply lives until the
 * next call or close. Errors: NEAP_ETIMEDOUT (at once when the process is stopped meanwhile), NEAP_EPROTO, NEAP_EIO;
 * and what the agent answered, with its message. After an error of the first three the client is only good for
 * closing. */
enum neap_status neap_client_call(struct neap_client *client, enum neap_request request, const void *arguments,
				  size_t length, struct neap_fields *ret_reply, struct neap_error *err);

/* Sends a request without waiting for the answer: the arguments contain NEAP_FIELD_UNATTENDED. A stopped process
 * executes it when it continues, in the order of posting, even if the client closed long before. After it the client
 * may only be closed. Errors: NEAP_ETIMEDOUT, NEAP_EIO. */
enum neap_status neap_client_post(struct neap_client *client, enum neap_request request, const void *arguments,
				  size_t length, struct neap_error *err);

/* Idempotent. */
void neap_client_close(struct neap_client *client);

#endif
