/* serve/places.h: decides which connections of `neap serve` have a place, so that no client can keep the others out.
 * Pure: it opens and closes nothing. The caller locks.
 *
 *   take   a connection was accepted: it gets a place; if all are taken, another connection loses its own
 *   wait   a request was answered: the connection may send the next one
 *   give   the connection was closed
 *
 * The address with the most places loses one: the place whose current or next request has taken the longest. The
 * newest connections are spared, so that the server can first read what they sent. So a new connection always gets a
 * place, and an address loses none while another has more. All addresses of an IPv6 network (/64) count as one.
 */
#ifndef NEAP_SERVE_PLACES_H
#define NEAP_SERVE_PLACES_H

#include "base/clock.h"

#include <stdint.h>
#include <sys/socket.h>

#define NEAP_SERVE_PLACES 64
#define NEAP_SERVE_SPARED 32 /* the newest: libmicrohttpd accepts up to 11 before it reads again from those it has */

struct neap_serve_place {
	int fd;                   /* -1: free */
	unsigned char peer[8];    /* the IPv4 address, or the network of an IPv6 one */
	struct neap_deadline end; /* of the current request, or of the next one */
	uint64_t number;          /* increases with each request that is awaited: the smallest has waited longest */
	uint64_t taken;           /* increases with each connection */
};

struct neap_serve_places {
	const struct neap_clock *clock;
	uint64_t request_ns; /* the time that a request may take, its answer included */
	uint64_t last_number, last_taken;
	struct neap_serve_place places[NEAP_SERVE_PLACES];
};

void neap_serve_places_init(struct neap_serve_places *places, const struct neap_clock *clock, uint64_t request_ns);

/* Returns the descriptor of the connection that lost its place, for the caller to shut down; -1: none did. */
int neap_serve_places_take(struct neap_serve_places *places, int fd, const struct sockaddr *peer);

/* Notes that the connection may send the next request. No effect if it has lost its place. */
void neap_serve_places_wait(struct neap_serve_places *places, int fd);
void neap_serve_places_give(struct neap_serve_places *places, int fd);

#endif
