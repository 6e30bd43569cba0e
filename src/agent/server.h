/* agent/server.h: one thread that answers frames on a listening socket. No peer can block it.
 *
 *   poll: wake pipe | listening socket | up to NEAP_SERVER_CLIENTS connections, none of which ever blocks
 *
 *   client:  header -> payload -> request executed here -> reply -> header ...      each turn within the bound
 *
 * If a peer closes its connection before its request starts, the request is not executed, unless it has the field
 * NEAP_FIELD_UNATTENDED. The server drops peers that are slow, silent, of another user, or that break the protocol;
 * the last kind gets an error reply first.
 *
 * When every place is taken and another peer connects, the peer that has been idle longest loses its place, once it
 * has been idle for a fifth of the bound (1 s by default). So stalled peers can delay an honest one but not keep it
 * out, and an honest peer that waits for a processor between connecting and asking is not mistaken for a stalled one.
 *
 * The thread blocks every signal, so that it never runs the host's handlers. Descriptors are close-on-exec. Before
 * each use the server checks that a descriptor is still the file it opened: a host may close descriptors it does not
 * know and open others.
 *
 * The struct is the caller's storage. start, stop, lock, unlock and abandon from one thread at a time.
 */
#ifndef NEAP_AGENT_SERVER_H
#define NEAP_AGENT_SERVER_H

#include "base/buffer.h"
#include "proto/fields.h"
#include "proto/frame.h"

#include <pthread.h>
#include <sys/types.h>

#define NEAP_SERVER_CLIENTS     64
#define NEAP_SERVER_BACKLOG     128 /* peers that wait for the thread, or for a stopped process to continue */
#define NEAP_SERVER_BOUND_NS    5000000000ull
#define NEAP_SERVER_REQUEST_MAX 65536u
#define NEAP_SERVER_REPLY_MAX   65536u

struct neap_server_options {
	/* Executes one request in the server's thread. `command` is unchecked, as the peer sent it. On failure the
	 * reply is dropped and the peer gets *err. */
	enum neap_status (*handle)(void *context, unsigned command, const struct neap_fields *arguments,
				   struct neap_field_writer *reply, struct neap_error *err);
	/* Called in the server's thread when it gives up, as its last action. */
	void (*failed)(void *context, const struct neap_error *err);
	void *context;
	uint64_t bound_ns; /* per turn of a client; 0: NEAP_SERVER_BOUND_NS */
};

struct neap_descriptor {
	int fd; /* -1: none */
	dev_t device;
	ino_t inode;
};

struct neap_server_client {
	struct neap_descriptor socket;
	uint64_t deadline_ns, active_ns; /* the end of its turn; the last time that bytes were received or sent */
	unsigned char header[NEAP_FRAME_HEADER_BYTES];
	size_t header_length;
	struct neap_frame frame; /* once the header is complete */
	struct neap_buffer payload, reply;
	size_t sent;  /* of reply */
	bool closing; /* close the connection once the reply is sent */
};

struct neap_server {
	struct neap_server_options options;
	pthread_t thread;
	bool running;         /* the thread is to be joined */
	pthread_mutex_t lock; /* guards the set of open descriptors, for forks */
	struct neap_descriptor listening, wake_read, wake_write;
	uint64_t accept_after_ns; /* accept no peers before this time, because descriptors had run out */
	struct neap_server_client clients[NEAP_SERVER_CLIENTS];
	unsigned char scratch[NEAP_SERVER_REPLY_MAX];
};

/* Takes `listen_fd` (non-blocking, listening), also on failure, and starts the thread. */
enum neap_status neap_server_start(struct neap_server *server, int listen_fd,
				   const struct neap_server_options *options, struct neap_error *err);

/* Asks the thread to end, and waits up to `bound_ns` (UINT64_MAX: forever) for the request that it may be executing.
 * True: it ended, and everything is closed and freed. False: it still runs, perhaps because the host closed the wake
 * pipe. Idempotent. Must not be called by the thread itself. */
bool neap_server_stop(struct neap_server *server, uint64_t bound_ns);

/* Around a fork, in the parent. */
void neap_server_lock(struct neap_server *server);
void neap_server_unlock(struct neap_server *server);
/* In the child of a fork done between lock and unlock, instead of unlock: closes what it inherited. */
void neap_server_abandon(struct neap_server *server);

#endif
