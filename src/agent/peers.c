/* agent/peers.c: asks other processes to give back cached memory when a request found none.
 *
 *   thread of the request                     agent's thread of each peer
 *   pages in RUNTIME: same run or series,
 *   same device
 *   connect ------------------------------>   release.c: gives back what it can have at once
 *   poll, all peers at once, until the    <-- how many bytes those were
 *   last answer or the deadline
 *
 * The thread belongs to the program. It waits here for 200 ms at most, even if a peer is stopped, silent, or sends
 * garbage. It holds no lock that is needed to answer another process's request, so two processes that are out of
 * memory at once can answer each other. One thread asks at a time, in static storage; another thread waits for its
 * turn within its own 200 ms.
 */
#include "agent/agent.h"

#include "base/clock.h"
#include "base/descriptor.h"
#include "base/wait.h"
#include "proto/commands.h"
#include "proto/frame.h"
#include "proto/socket.h"

#include <errno.h>
#include <poll.h>
#include <pthread.h>
#include <string.h>
#include <sys/socket.h>
#include <sys/un.h>
#include <unistd.h>

#define BOUND_MS         200
#define ANSWER_MS        150 /* for the peers to answer; the rest is for sending and receiving */
#define CONNECT_MS       5   /* between tries to connect to a peer whose queue is full */
#define PEERS            64
#define REQUEST_CAPACITY 512
#define REPLY_CAPACITY   512 /* an answer is some 40 bytes */

enum phase { CONNECTING, SENDING, RECEIVING, ANSWERED };

struct peer {
	int fd; /* -1: closed */
	pid_t pid;
	enum phase phase;
	size_t done; /* bytes sent, or received */
	unsigned char reply[REPLY_CAPACITY];
	uint64_t freed_bytes; /* once ANSWERED */
};

static struct {
	pthread_mutex_t lock; /* guards all of this; its holder waits only for the kernel */
	bool forking;         /* agent_peers_lock holds the lock */
	const struct agent_identity *self;
	unsigned char uuid[16];
	struct neap_deadline deadline;
	unsigned char request[REQUEST_CAPACITY];
	size_t request_length;
	struct peer peers[PEERS];
	size_t count;
} asking = {.lock = PTHREAD_MUTEX_INITIALIZER};

bool agent_is_related(const struct agent_identity *self, const char *run_id, const char *series)
{
	bool same_run = run_id[0] && strcmp(run_id, self->run_id) == 0;
	bool same_series = series[0] && strcmp(series, self->series) == 0;
	return self->peers != AGENT_PEERS_OFF && (same_run || same_series || self->peers == AGENT_PEERS_USER);
}

static void drop(struct peer *peer)
{
	if (peer->fd >= 0)
		close(peer->fd);
	peer->fd = -1;
}

/* Whether the peer belongs to this user and is the process whose page was read. */
static bool is_expected(const struct peer *peer)
{
	struct ucred other;
	socklen_t length = sizeof other;
	return getsockopt(peer->fd, SOL_SOCKET, SO_PEERCRED, &other, &length) == 0 && other.uid == geteuid() &&
	       other.pid == peer->pid;
}

static void try_to_connect(struct peer *peer)
{
	struct sockaddr_un address;
	int folder_fd = -1;
	if (neap_socket_address(asking.self->folder, peer->pid, &address, &folder_fd, NULL) != NEAP_OK) {
		drop(peer);
		return;
	}
	int result = connect(peer->fd, (const struct sockaddr *)&address, sizeof address);
	bool later = result != 0 && (errno == EAGAIN || errno == EINTR);
	if (folder_fd >= 0)
		close(folder_fd);
	if (result == 0 && is_expected(peer))
		peer->phase = SENDING;
	else if (!later)
		drop(peer);
}

/* Reads one page in RUNTIME, and adds its process as a peer if it may help. False: stop looking. */
static bool consider(void *context, pid_t pid)
{
	struct neap_page_place place;
	struct peer *peer = &asking.peers[asking.count];
	bool here = false;
	(void)context;
	if (pid == (pid_t)asking.self->pid || neap_page_read_place(asking.self->folder, pid, &place, NULL) != NEAP_OK)
		return !neap_deadline_over(&asking.deadline);
	for (size_t i = 0; i < place.device_count; i++)
		here = here || memcmp(place.uuids[i], asking.uuid, sizeof asking.uuid) == 0;
	if (!here || !agent_is_related(asking.self, place.run_id, place.series))
		return !neap_deadline_over(&asking.deadline);
	peer->fd = neap_fd_above_standard(socket(AF_UNIX, SOCK_STREAM | SOCK_NONBLOCK | SOCK_CLOEXEC, 0));
	if (peer->fd < 0)
		return false;
	peer->pid = pid;
	peer->phase = CONNECTING;
	peer->done = 0;
	peer->freed_bytes = 0;
	asking.count++;
	return asking.count < PEERS && !neap_deadline_over(&asking.deadline);
}

static void write_request(void)
{
	unsigned char *payload = asking.request + NEAP_FRAME_HEADER_BYTES;
	struct neap_field_writer writer = {.data = payload, .capacity = REQUEST_CAPACITY - NEAP_FRAME_HEADER_BYTES};
	neap_write_bytes(&writer, NEAP_FIELD_UUID, asking.uuid, sizeof asking.uuid);
	neap_write_string(&writer, NEAP_FIELD_RUN_ID, asking.self->run_id);
	neap_write_string(&writer, NEAP_FIELD_SERIES, asking.self->series);
	neap_write_u64(&writer, NEAP_FIELD_MILLISECONDS, ANSWER_MS);
	struct neap_frame frame = {.version = NEAP_FRAME_VERSION,
				   .command = NEAP_REQUEST_RELEASE,
				   .request = 1,
				   .length = (uint32_t)writer.length};
	neap_frame_encode(&frame, asking.request);
	asking.request_length = NEAP_FRAME_HEADER_BYTES + writer.length;
}

static void send_on(struct peer *peer)
{
	ssize_t sent = send(peer->fd, asking.request + peer->done, asking.request_length - peer->done,
			    MSG_NOSIGNAL | MSG_DONTWAIT);
	if (sent > 0)
		peer->done += (size_t)sent;
	else if (errno != EAGAIN && errno != EINTR)
		drop(peer);
	if (peer->done == asking.request_length) {
		peer->done = 0;
		peer->phase = RECEIVING;
	}
}

/* Reads the complete answer and closes the connection. */
static void read_answer(struct peer *peer, const struct neap_frame *frame)
{
	struct neap_fields fields;
	bool given =
		frame->status == NEAP_OK && frame->command == NEAP_REQUEST_RELEASE && frame->request == 1 &&
		neap_fields_open(peer->reply + NEAP_FRAME_HEADER_BYTES, frame->length, &fields, NULL) == NEAP_OK &&
		neap_fields_u64(&fields, NEAP_FIELD_FREED, &peer->freed_bytes);
	drop(peer);
	if (given)
		peer->phase = ANSWERED;
}

static void receive_on(struct peer *peer)
{
	struct neap_frame frame = {0};
	bool in_header = peer->done < NEAP_FRAME_HEADER_BYTES;
	size_t whole = NEAP_FRAME_HEADER_BYTES;
	if (!in_header && neap_frame_decode(peer->reply, &frame, NULL) == NEAP_OK)
		whole += frame.length;
	ssize_t got = recv(peer->fd, peer->reply + peer->done, whole - peer->done, MSG_DONTWAIT);
	if (got < 0 && (errno == EAGAIN || errno == EINTR))
		return;
	if (got <= 0) {
		drop(peer);
		return;
	}
	peer->done += (size_t)got;
	if (in_header && peer->done == NEAP_FRAME_HEADER_BYTES) {
		bool sound = neap_frame_decode(peer->reply, &frame, NULL) == NEAP_OK &&
			     frame.length <= REPLY_CAPACITY - NEAP_FRAME_HEADER_BYTES;
		whole += frame.length;
		if (!sound) {
			drop(peer);
			return;
		}
	}
	if (peer->done == whole && peer->done >= NEAP_FRAME_HEADER_BYTES)
		read_answer(peer, &frame);
}

static void step(struct peer *peer)
{
	if (peer->phase == CONNECTING)
		try_to_connect(peer);
	else if (peer->phase == SENDING)
		send_on(peer);
	else if (peer->phase == RECEIVING)
		receive_on(peer);
}

/* Advances each peer as far as possible without waiting, and waits for all of them together. */
static void talk(void)
{
	struct pollfd fds[PEERS];
	while (!neap_deadline_over(&asking.deadline)) {
		int timeout_ms = neap_deadline_poll_ms(&asking.deadline);
		bool open = false;
		for (size_t i = 0; i < asking.count; i++) {
			struct peer *peer = &asking.peers[i];
			if (peer->fd >= 0 && peer->phase == CONNECTING)
				step(peer);
			bool connecting = peer->phase == CONNECTING;
			open = open || peer->fd >= 0;
			fds[i] = (struct pollfd){.fd = connecting ? -1 : peer->fd,
						 .events = peer->phase == SENDING ? POLLOUT : POLLIN};
			if (peer->fd >= 0 && connecting && timeout_ms > CONNECT_MS)
				timeout_ms = CONNECT_MS;
		}
		if (!open)
			break;
		int ready = poll(fds, asking.count, timeout_ms);
		if (ready < 0 && errno != EINTR)
			break;
		for (size_t i = 0; ready > 0 && i < asking.count; i++)
			if (fds[i].fd >= 0 && fds[i].revents)
				step(&asking.peers[i]);
	}
}

/* The lock is held. The peers' bytes count up to `most_bytes` together: a peer may report more than it gave. */
static void ask(uint64_t most_bytes, struct neap_asked *ret_asked)
{
	struct neap_asked asked = {0};
	asking.count = 0;
	neap_page_each(asking.self->folder, consider, NULL, NULL);
	write_request();
	talk();
	for (size_t i = 0; i < asking.count; i++) {
		struct peer *peer = &asking.peers[i];
		drop(peer);
		asked.processes += peer->phase != CONNECTING; /* a process that crashed leaves its page behind */
		if (peer->phase != ANSWERED)
			continue;
		asked.answered++;
		uint64_t headroom = most_bytes - asked.freed_bytes;
		asked.freed_bytes += peer->freed_bytes < headroom ? peer->freed_bytes : headroom;
	}
	*ret_asked = asked;
}

void agent_ask_peers(struct neap_alloc *alloc, struct neap_asked *ret_asked)
{
	struct neap_deadline deadline = neap_deadline_in_ms(neap_clock_system(), BOUND_MS);
	struct timespec until = neap_clock_after(BOUND_MS * NEAP_NS_PER_MS);
	const struct neap_device_info *info = neap_device_info(neap_alloc_device(alloc));
	struct agent_identity self;
	int cancelled;
	if (!agent_identify_until(&self, &until) || self.peers == AGENT_PEERS_OFF)
		return;
	/* A thread cancelled in here would never release the lock. */
	pthread_setcancelstate(PTHREAD_CANCEL_DISABLE, &cancelled);
	if (neap_lock_until(&asking.lock, &until) == 0) {
		asking.self = &self;
		asking.deadline = deadline;
		memcpy(asking.uuid, info->uuid, sizeof asking.uuid);
		ask(info->total_bytes, ret_asked);
		asking.self = NULL;
		pthread_mutex_unlock(&asking.lock);
	}
	pthread_setcancelstate(cancelled, NULL);
}

/* Forks: locking ensures that the child inherits no sockets. A thread that forks in a signal handler while it asks
 * waits for itself, until the bound; then it continues to ask in the child, too. */

void agent_peers_lock(const struct timespec *until) { asking.forking = neap_lock_until(&asking.lock, until) == 0; }

void agent_peers_unlock(void)
{
	if (asking.forking)
		pthread_mutex_unlock(&asking.lock);
}
