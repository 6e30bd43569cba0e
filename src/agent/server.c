/* agent/server.c: the poll loop. The picture is in server.h. */
#include "agent/server.h"

#include "base/clock.h"
#include "base/descriptor.h"
#include "base/error.h"
#include "base/wait.h"
#include "proto/commands.h"
#include "proto/socket.h"

#include <errno.h>
#include <fcntl.h>
#include <poll.h>
#include <signal.h>
#include <string.h>
#include <sys/socket.h>
#include <sys/stat.h>
#include <time.h>
#include <unistd.h>

#define ACCEPT_PAUSE_NS (200 * NEAP_NS_PER_MS)
#define REPLACE_SHARE   5 /* of the bound, see server.h */

static const struct neap_descriptor closed = {.fd = -1};

static uint64_t now_ns(void) { return neap_clock_now(neap_clock_system()); }

static struct neap_descriptor descriptor_of(int fd)
{
	struct stat info;
	struct neap_descriptor descriptor = {.fd = fd};
	if (fstat(fd, &info) == 0) {
		descriptor.device = info.st_dev;
		descriptor.inode = info.st_ino;
	}
	return descriptor;
}

static bool still_ours(const struct neap_descriptor *descriptor)
{
	struct stat info;
	return descriptor->fd >= 0 && fstat(descriptor->fd, &info) == 0 && info.st_dev == descriptor->device &&
	       info.st_ino == descriptor->inode;
}

static void descriptor_close(struct neap_descriptor *descriptor)
{
	if (still_ours(descriptor))
		close(descriptor->fd);
	*descriptor = closed;
}

static void client_begin_turn(struct neap_server *server, struct neap_server_client *client)
{
	client->header_length = 0;
	client->sent = 0;
	neap_buffer_clear(&client->payload);
	neap_buffer_clear(&client->reply);
	client->active_ns = now_ns();
	client->deadline_ns = client->active_ns + server->options.bound_ns;
}

static void client_drop(struct neap_server *server, struct neap_server_client *client)
{
	pthread_mutex_lock(&server->lock);
	descriptor_close(&client->socket);
	pthread_mutex_unlock(&server->lock);
	neap_buffer_fini(&client->payload);
	neap_buffer_fini(&client->reply);
	client->closing = false;
}

/* Queues a reply for the peer: `length` bytes of fields from scratch, or the error's message. */
static void client_answer(struct neap_server *server, struct neap_server_client *client, enum neap_status status,
			  size_t length, const struct neap_error *err)
{
	unsigned char header[NEAP_FRAME_HEADER_BYTES];
	if (status) {
		struct neap_field_writer writer = {.data = server->scratch, .capacity = sizeof server->scratch};
		neap_write_string(&writer, NEAP_FIELD_ERROR, err->message);
		length = writer.length;
	}
	struct neap_frame frame = {.version = NEAP_FRAME_VERSION,
				   .command = client->frame.command,
				   .request = client->frame.request,
				   .status = (uint32_t)status,
				   .length = (uint32_t)length};
	neap_frame_encode(&frame, header);
	neap_buffer_append(&client->reply, header, sizeof header);
	neap_buffer_append(&client->reply, server->scratch, length);
	client->active_ns = now_ns();
	client->deadline_ns = client->active_ns + server->options.bound_ns;
	if (neap_buffer_status(&client->reply, NULL) != NEAP_OK)
		client_drop(server, client);
}

/* Answers a broken frame with the error, then closes: the bytes after it cannot be read. */
static void client_refuse(struct neap_server *server, struct neap_server_client *client, const struct neap_error *err)
{
	client->closing = true;
	client_answer(server, client, err->status, 0, err);
}

/* Whether the peer still waits. A peer that has hung up assumes that its request failed (perhaps this process was
 * stopped), so the request must not be executed later. */
static bool client_waits(const struct neap_server_client *client)
{
	struct pollfd peer = {.fd = client->socket.fd};
	return poll(&peer, 1, 0) >= 0 && !(peer.revents & (POLLHUP | POLLERR | POLLNVAL));
}

static void client_execute(struct neap_server *server, struct neap_server_client *client)
{
	struct neap_fields arguments;
	struct neap_error err = {0};
	struct neap_field_writer reply = {.data = server->scratch, .capacity = sizeof server->scratch};
	uint64_t unattended = 0;
	enum neap_status status = neap_fields_open(client->payload.data, client->payload.length, &arguments, &err);
	if (status) {
		client_refuse(server, client, &err);
		return;
	}
	neap_fields_u64(&arguments, NEAP_FIELD_UNATTENDED, &unattended);
	if (!unattended && !client_waits(client)) {
		client_drop(server, client);
		return;
	}
	status = server->options.handle(server->options.context, client->frame.command, &arguments, &reply, &err);
	if (!status && reply.overflow)
		status = neap_fail(&err, NEAP_EINTERNAL, "the answer is longer than %u bytes", NEAP_SERVER_REPLY_MAX);
	client_answer(server, client, status, reply.length, &err);
}

/* Checks the complete header. */
static void client_check_header(struct neap_server *server, struct neap_server_client *client)
{
	struct neap_error err;
	client->frame = (struct neap_frame){0};
	if (neap_frame_decode(client->header, &client->frame, &err) != NEAP_OK) {
		client_refuse(server, client, &err);
	} else if (client->frame.length > NEAP_SERVER_REQUEST_MAX) {
		neap_fail(&err, NEAP_EPROTO, "a request of %u bytes is longer than the limit of %u",
			  client->frame.length, NEAP_SERVER_REQUEST_MAX);
		client_refuse(server, client, &err);
	} else if (client->frame.length == 0) {
		client_execute(server, client);
	}
}

/* Receives available bytes, at most to the end of this request, so that one peer cannot occupy the thread. */
static void client_receive(struct neap_server *server, struct neap_server_client *client)
{
	unsigned char piece[4096];
	bool in_header = client->header_length < sizeof client->header;
	size_t want = in_header ? sizeof client->header - client->header_length
				: client->frame.length - client->payload.length;
	ssize_t got = recv(client->socket.fd, piece, want < sizeof piece ? want : sizeof piece, MSG_DONTWAIT);
	if (got < 0 && (errno == EAGAIN || errno == EINTR))
		return;
	if (got <= 0) {
		client_drop(server, client);
		return;
	}
	client->active_ns = now_ns();
	if (in_header) {
		memcpy(client->header + client->header_length, piece, (size_t)got);
		client->header_length += (size_t)got;
		if (client->header_length == sizeof client->header)
			client_check_header(server, client);
		return;
	}
	neap_buffer_append(&client->payload, piece, (size_t)got);
	if (neap_buffer_status(&client->payload, NULL) != NEAP_OK)
		client_drop(server, client);
	else if (client->payload.length == client->frame.length)
		client_execute(server, client);
}

static void client_send(struct neap_server *server, struct neap_server_client *client)
{
	ssize_t sent = send(client->socket.fd, client->reply.data + client->sent, client->reply.length - client->sent,
			    MSG_NOSIGNAL | MSG_DONTWAIT);
	if (sent < 0 && (errno == EAGAIN || errno == EINTR))
		return;
	if (sent < 0) {
		client_drop(server, client);
		return;
	}
	client->sent += (size_t)sent;
	client->active_ns = now_ns();
	if (client->sent < client->reply.length)
		return;
	if (client->closing)
		client_drop(server, client);
	else
		client_begin_turn(server, client);
}

/* The events to wait for: the socket takes more of a reply, or more of a request arrives. */
static short client_events(const struct neap_server_client *client)
{
	return client->reply.length > 0 ? POLLOUT : POLLIN;
}

static struct neap_server_client *free_client(struct neap_server *server)
{
	for (size_t i = 0; i < NEAP_SERVER_CLIENTS; i++)
		if (server->clients[i].socket.fd < 0)
			return &server->clients[i];
	return NULL;
}

static struct neap_server_client *idlest_client(struct neap_server *server)
{
	struct neap_server_client *idlest = &server->clients[0];
	for (size_t i = 1; i < NEAP_SERVER_CLIENTS; i++)
		if (server->clients[i].active_ns < idlest->active_ns)
			idlest = &server->clients[i];
	return idlest;
}

/* The time from which a new peer may take this one's place. */
static uint64_t replaceable_ns(const struct neap_server *server, const struct neap_server_client *client)
{
	return client->active_ns + server->options.bound_ns / REPLACE_SHARE;
}

/* Frees a place when all are taken. A peer whose socket is ready is not idle: this process kept it waiting. */
static struct neap_server_client *make_place(struct neap_server *server)
{
	struct neap_server_client *client = idlest_client(server);
	struct pollfd peer = {.fd = client->socket.fd, .events = client_events(client)};
	if (now_ns() < replaceable_ns(server, client))
		return NULL;
	if (still_ours(&client->socket) && poll(&peer, 1, 0) > 0) {
		client->active_ns = now_ns();
		return NULL;
	}
	client_drop(server, client);
	return client;
}

/* Returns an error only if the listening socket is unusable for good. */
static enum neap_status accept_client(struct neap_server *server, struct neap_error *err)
{
	struct neap_server_client *client = free_client(server);
	if (!client)
		client = make_place(server);
	if (!client)
		return NEAP_OK;
	pthread_mutex_lock(&server->lock);
	int fd = neap_fd_above_standard(accept4(server->listening.fd, NULL, NULL, SOCK_NONBLOCK | SOCK_CLOEXEC));
	int error_number = errno;
	if (fd >= 0)
		client->socket = descriptor_of(fd);
	pthread_mutex_unlock(&server->lock);
	if (fd >= 0) {
		client_begin_turn(server, client);
		if (neap_socket_check_peer(fd, NULL) != NEAP_OK)
			client_drop(server, client);
		return NEAP_OK;
	}
	switch (error_number) {
	case EMFILE:
	case ENFILE:
	case ENOBUFS:
	case ENOMEM:
		server->accept_after_ns = now_ns() + ACCEPT_PAUSE_NS;
		return NEAP_OK;
	case EBADF:
	case EINVAL:
	case ENOTSOCK:
	case EOPNOTSUPP:
		return neap_fail_errno(err, error_number, "accepting a connection");
	default:
		return NEAP_OK;
	}
}

struct polled {
	struct pollfd fds[2 + NEAP_SERVER_CLIENTS];
	int timeout_ms;
};

static void sooner(struct polled *polled, uint64_t deadline_ns, uint64_t now)
{
	uint64_t ms = deadline_ns > now ? (deadline_ns - now) / NEAP_NS_PER_MS + 1 : 0;
	if (polled->timeout_ms < 0 || ms < (uint64_t)polled->timeout_ms)
		polled->timeout_ms = ms > 60000 ? 60000 : (int)ms;
}

/* Fills in what to wait for, and until when. poll skips entries whose descriptor is negative. */
static void prepare(struct neap_server *server, struct polled *polled)
{
	uint64_t now = now_ns();
	polled->timeout_ms = -1;
	polled->fds[0] = (struct pollfd){.fd = server->wake_read.fd, .events = POLLIN};
	polled->fds[1] = (struct pollfd){.fd = server->listening.fd, .events = POLLIN};
	if (server->accept_after_ns > now) {
		polled->fds[1].fd = -1;
		sooner(polled, server->accept_after_ns, now);
	} else if (!free_client(server)) {
		uint64_t after_ns = replaceable_ns(server, idlest_client(server));
		if (after_ns > now) {
			polled->fds[1].fd = -1;
			sooner(polled, after_ns, now);
		}
	}
	for (size_t i = 0; i < NEAP_SERVER_CLIENTS; i++) {
		const struct neap_server_client *client = &server->clients[i];
		polled->fds[2 + i] = (struct pollfd){.fd = client->socket.fd, .events = client_events(client)};
		if (client->socket.fd >= 0)
			sooner(polled, client->deadline_ns, now);
	}
}

static void serve_client(struct neap_server *server, struct neap_server_client *client, short events)
{
	if (client->socket.fd < 0)
		return;
	if (!still_ours(&client->socket) || (events == 0 && now_ns() >= client->deadline_ns))
		client_drop(server, client);
	else if (events != 0 && client->reply.length > 0)
		client_send(server, client);
	else if (events != 0)
		client_receive(server, client);
}

static enum neap_status serve(struct neap_server *server, struct neap_error *err)
{
	for (;;) {
		struct polled polled;
		prepare(server, &polled);
		int count = poll(polled.fds, sizeof polled.fds / sizeof *polled.fds, polled.timeout_ms);
		if (count < 0 && errno != EINTR)
			return neap_fail_errno(err, errno, "waiting for requests");
		if (!still_ours(&server->listening) || !still_ours(&server->wake_read))
			return neap_fail(err, NEAP_ESTATE, "the program closed the agent's descriptors");
		if (count >= 0 && polled.fds[0].revents)
			return NEAP_OK;
		for (size_t i = 0; i < NEAP_SERVER_CLIENTS; i++)
			if (polled.fds[2 + i].fd == server->clients[i].socket.fd)
				serve_client(server, &server->clients[i], count < 0 ? 0 : polled.fds[2 + i].revents);
		if (count > 0 && polled.fds[1].revents) {
			enum neap_status status = accept_client(server, err);
			if (status)
				return status;
		}
	}
}

static void *serve_thread(void *argument)
{
	struct neap_server *server = argument;
	struct neap_error err = {0};
	if (serve(server, &err) != NEAP_OK)
		server->options.failed(server->options.context, &err);
	return NULL;
}

static void close_descriptors(struct neap_server *server)
{
	for (size_t i = 0; i < NEAP_SERVER_CLIENTS; i++)
		descriptor_close(&server->clients[i].socket);
	descriptor_close(&server->listening);
	descriptor_close(&server->wake_read);
	descriptor_close(&server->wake_write);
}

/* Closes and frees everything; the thread is not running. */
static void close_all(struct neap_server *server)
{
	close_descriptors(server);
	for (size_t i = 0; i < NEAP_SERVER_CLIENTS; i++) {
		neap_buffer_fini(&server->clients[i].payload);
		neap_buffer_fini(&server->clients[i].reply);
	}
}

static int start_thread(struct neap_server *server)
{
	sigset_t all, before;
	sigfillset(&all);
	int result = pthread_sigmask(SIG_SETMASK, &all, &before);
	if (result != 0)
		return result;
	result = pthread_create(&server->thread, NULL, serve_thread, server);
	pthread_sigmask(SIG_SETMASK, &before, NULL);
	if (result == 0)
		pthread_setname_np(server->thread, "neap-agent");
	return result;
}

static int make_pipe(int fds[2])
{
	if (pipe2(fds, O_CLOEXEC | O_NONBLOCK) != 0)
		return -1;
	for (int i = 0; i < 2; i++)
		fds[i] = neap_fd_above_standard(fds[i]);
	if (fds[0] >= 0 && fds[1] >= 0)
		return 0;
	int cause = errno;
	for (int i = 0; i < 2; i++)
		if (fds[i] >= 0)
			close(fds[i]);
	errno = cause;
	return -1;
}

enum neap_status neap_server_start(struct neap_server *server, int listen_fd,
				   const struct neap_server_options *options, struct neap_error *err)
{
	int pipe_fds[2];
	memset(server, 0, sizeof *server);
	server->options = *options;
	if (server->options.bound_ns == 0)
		server->options.bound_ns = NEAP_SERVER_BOUND_NS;
	for (size_t i = 0; i < NEAP_SERVER_CLIENTS; i++)
		server->clients[i].socket = closed;
	server->wake_read = server->wake_write = closed;
	server->listening = descriptor_of(listen_fd);
	int error_number = pthread_mutex_init(&server->lock, NULL);
	if (error_number == 0 && make_pipe(pipe_fds) != 0) {
		error_number = errno;
	} else if (error_number == 0) {
		server->wake_read = descriptor_of(pipe_fds[0]);
		server->wake_write = descriptor_of(pipe_fds[1]);
		error_number = start_thread(server);
	}
	if (error_number != 0) {
		close_all(server);
		return neap_fail_errno(err, error_number, "starting the agent's thread");
	}
	server->running = true;
	return NEAP_OK;
}

bool neap_server_stop(struct neap_server *server, uint64_t bound_ns)
{
	if (!server->running)
		return true;
	if (!still_ours(&server->wake_write) || write(server->wake_write.fd, "", 1) < 0)
		return false;
	if (bound_ns == UINT64_MAX) {
		pthread_join(server->thread, NULL);
	} else {
		struct timespec until = neap_clock_after(bound_ns);
		if (neap_join_until(server->thread, &until) != 0)
			return false;
	}
	server->running = false;
	close_all(server);
	pthread_mutex_destroy(&server->lock);
	return true;
}

void neap_server_lock(struct neap_server *server) { pthread_mutex_lock(&server->lock); }

void neap_server_unlock(struct neap_server *server) { pthread_mutex_unlock(&server->lock); }

void neap_server_abandon(struct neap_server *server)
{
	pthread_mutex_unlock(&server->lock);
	server->running = false;
	close_descriptors(server); /* not the buffers: the thread may have been changing one */
}
