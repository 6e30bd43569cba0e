/* proto/client.c: sends requests to an agent and receives its answers. */
#include "proto/client.h"

#include "base/clock.h"
#include "base/descriptor.h"
#include "base/error.h"
#include "base/process.h"
#include "proto/frame.h"
#include "proto/socket.h"

#include <errno.h>
#include <fcntl.h>
#include <poll.h>
#include <stdbool.h>
#include <stdio.h>
#include <string.h>
#include <sys/socket.h>
#include <sys/time.h>
#include <sys/un.h>
#include <unistd.h>

#define POLL_MS 100 /* between checks whether the process is stopped */

static enum neap_status connect_to(int fd, const struct sockaddr_un *address, pid_t pid,
				   const struct neap_deadline *deadline, struct neap_error *err)
{
	/* If the backlog is full, a Unix socket's connect waits as long as its send timeout. */
	uint64_t left_us = neap_deadline_left_ns(deadline) / 1000 + 1; /* 0 would mean: without end */
	struct timeval bound = {.tv_sec = (time_t)(left_us / 1000000), .tv_usec = (suseconds_t)(left_us % 1000000)};
	if (setsockopt(fd, SOL_SOCKET, SO_SNDTIMEO, &bound, sizeof bound) != 0)
		return neap_fail_errno(err, errno, "setting the socket's bound");
	int result;
	do
		result = connect(fd, (const struct sockaddr *)address, sizeof *address);
	while (result != 0 && errno == EINTR);
	if (result == 0)
		return NEAP_OK;
	if (errno == ENOENT || errno == ECONNREFUSED)
		return neap_fail(err, NEAP_ESTATE, "process %d is not attached", (int)pid);
	if (errno == EAGAIN)
		return neap_fail(err, NEAP_ETIMEDOUT, "process %d did not take the connection in time", (int)pid);
	return neap_fail_errno(err, errno, "connecting to process %d", (int)pid);
}

enum neap_status neap_client_open(const char *runtime_folder, pid_t pid, struct neap_deadline deadline,
				  struct neap_client *ret_client, struct neap_error *err)
{
	struct neap_client client = {.fd = -1, .pid = pid, .deadline = deadline};
	struct neap_process process;
	struct sockaddr_un address;
	int folder_fd = -1;
	if (neap_process_read(pid, &process, NULL) != NEAP_OK || process.state == 'Z')
		return neap_fail(err, NEAP_ENOENT, "there is no process %d", (int)pid);
	if (process.uid != geteuid())
		return neap_fail(err, NEAP_EPERM, "process %d (%s) belongs to user %u: only that user can ask it",
				 (int)pid, process.command, (unsigned)process.uid);
	enum neap_status status = neap_socket_address(runtime_folder, pid, &address, &folder_fd, err);
	if (status)
		return status;
	client.fd = neap_fd_above_standard(socket(AF_UNIX, SOCK_STREAM | SOCK_CLOEXEC, 0));
	if (client.fd < 0)
		status = neap_fail_errno(err, errno, "making a socket");
	if (!status)
		status = connect_to(client.fd, &address, pid, &client.deadline, err);
	if (!status)
		status = neap_socket_check_peer(client.fd, err);
	if (folder_fd >= 0)
		close(folder_fd);
	if (!status)
		*ret_client = client;
	else if (client.fd >= 0)
		close(client.fd);
	return status;
}

/* The agent refused: returns its status and message. */
static enum neap_status refused(const struct neap_client *client, const struct neap_frame *frame,
				const struct neap_fields *reply, struct neap_error *err)
{
	char message[200] = "no reason given";
	enum neap_status status = frame->status <= NEAP_EINTERNAL ? (enum neap_status)frame->status : NEAP_EPROTO;
	neap_fields_string(reply, NEAP_FIELD_ERROR, message, sizeof message);
	return neap_fail(err, status, "process %d answered: %s", (int)client->pid, message);
}

static enum neap_status send_request(struct neap_client *client, enum neap_request request, const void *arguments,
				     size_t length, struct neap_frame *ret_frame, struct neap_error *err)
{
	struct neap_frame frame = {.version = NEAP_FRAME_VERSION,
				   .command = (uint16_t)request,
				   .request = ++client->request,
				   .length = (uint32_t)length};
	if (length > NEAP_FRAME_PAYLOAD_MAX)
		return neap_fail(err, NEAP_EINVAL, "a request of %zu bytes", length);
	*ret_frame = frame;
	return neap_frame_send(client->fd, &frame, arguments, &client->deadline, err);
}

enum neap_status neap_client_post(struct neap_client *client, enum neap_request request, const void *arguments,
				  size_t length, struct neap_error *err)
{
	struct neap_frame frame;
	enum neap_status status = send_request(client, request, arguments, length, &frame, err);
	if (status)
		neap_error_prefix(err, "leaving %s with process %d", neap_request_name(request), (int)client->pid);
	return status;
}

/* Waits for the answer to begin. A process that is stopped meanwhile cannot answer. Checks twice, so that a process
 * that is stopped only for a moment (by a debugger, say) may still answer. */
static enum neap_status wait_for_answer(const struct neap_client *client, struct neap_error *err)
{
	struct pollfd peer = {.fd = client->fd, .events = POLLIN};
	struct neap_process process;

	for (unsigned stopped = 0; stopped < 2;) {
		int count = poll(&peer, 1, POLL_MS);
		if (count > 0 || (count < 0 && errno != EINTR) || neap_deadline_over(&client->deadline))
			return NEAP_OK; /* receiving reports which of them */
		bool is_stopped = neap_process_read(client->pid, &process, NULL) == NEAP_OK &&
				  (process.state == 'T' || process.state == 't');
		stopped = is_stopped ? stopped + 1 : 0;
	}
	return neap_fail(err, NEAP_ETIMEDOUT, "it was stopped before it answered");
}

enum neap_status neap_client_call(struct neap_client *client, enum neap_request request, const void *arguments,
				  size_t length, struct neap_fields *ret_reply, struct neap_error *err)
{
	struct neap_frame frame = {0}, answer = {0};
	struct neap_fields reply = {0};
	enum neap_status status = send_request(client, request, arguments, length, &frame, err);
	if (!status)
		status = wait_for_answer(client, err);
	if (!status)
		status = neap_frame_receive(client->fd, &answer, &client->payload, &client->deadline, err);
	if (!status)
		status = neap_fields_open(client->payload.data, client->payload.length, &reply, err);
	/* An error may concern the frame itself: then its header repeats only the fields that could be read. */
	if (!status && answer.status == 0 && (answer.request != frame.request || answer.command != frame.command))
		status = neap_fail(err, NEAP_EPROTO, "the answer is to another request");
	if (status) {
		neap_error_prefix(err, "asking process %d for %s", (int)client->pid, neap_request_name(request));
		return status;
	}
	if (answer.status != 0)
		return refused(client, &answer, &reply, err);
	*ret_reply = reply;
	return NEAP_OK;
}

void neap_client_close(struct neap_client *client)
{
	if (client->fd >= 0)
		close(client->fd);
	client->fd = -1;
	neap_buffer_fini(&client->payload);
}
