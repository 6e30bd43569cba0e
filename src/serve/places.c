/* serve/places.c: see places.h. */
#include "serve/places.h"

#include <netinet/in.h>
#include <string.h>

void neap_serve_places_init(struct neap_serve_places *places, const struct neap_clock *clock, uint64_t request_ns)
{
	*places = (struct neap_serve_places){.clock = clock, .request_ns = request_ns};
	for (size_t i = 0; i < NEAP_SERVE_PLACES; i++)
		places->places[i].fd = -1;
}

static void read_peer(const struct sockaddr *address, unsigned char ret_peer[8])
{
	memset(ret_peer, 0, 8);
	if (address && address->sa_family == AF_INET)
		memcpy(ret_peer, &((const struct sockaddr_in *)address)->sin_addr, 4);
	else if (address && address->sa_family == AF_INET6)
		memcpy(ret_peer, &((const struct sockaddr_in6 *)address)->sin6_addr, 8);
}

static size_t count_of(const struct neap_serve_places *places, const unsigned char peer[8])
{
	size_t count = 0;
	for (size_t i = 0; i < NEAP_SERVE_PLACES; i++)
		count += memcmp(places->places[i].peer, peer, 8) == 0;
	return count;
}

/* Chooses the place to take away when all are taken. Spares the NEAP_SERVE_SPARED newest connections. */
static struct neap_serve_place *find_victim(struct neap_serve_places *places)
{
	struct neap_serve_place *victim = NULL;
	size_t most = 0;
	for (size_t i = 0; i < NEAP_SERVE_PLACES; i++) {
		struct neap_serve_place *place = &places->places[i];
		size_t count = count_of(places, place->peer);
		if (places->last_taken - place->taken < NEAP_SERVE_SPARED)
			continue;
		bool sooner = victim && place->number < victim->number;
		if (count > most || (count == most && sooner))
			victim = place;
		most = count > most ? count : most;
	}
	return victim;
}

static struct neap_serve_place *find(struct neap_serve_places *places, int fd)
{
	for (size_t i = 0; i < NEAP_SERVE_PLACES; i++)
		if (places->places[i].fd == fd)
			return &places->places[i];
	return NULL;
}

static void await_request(struct neap_serve_places *places, struct neap_serve_place *place)
{
	place->number = ++places->last_number;
	place->end = neap_deadline_in(places->clock, places->request_ns);
}

int neap_serve_places_take(struct neap_serve_places *places, int fd, const struct sockaddr *peer)
{
	struct neap_serve_place *place = find(places, -1);
	int lost = -1;
	if (!place) {
		place = find_victim(places);
		lost = place->fd;
	}
	place->fd = fd;
	place->taken = ++places->last_taken;
	read_peer(peer, place->peer);
	await_request(places, place);
	return lost;
}

void neap_serve_places_wait(struct neap_serve_places *places, int fd)
{
	struct neap_serve_place *place = find(places, fd);
	if (place)
		await_request(places, place);
}

void neap_serve_places_give(struct neap_serve_places *places, int fd)
{
	struct neap_serve_place *place = find(places, fd);
	if (place)
		place->fd = -1;
}
