/* serve/http.h: a small web server for `neap serve`, which uses libmicrohttpd and loads it when it starts. It only
 * serves GET and HEAD, and ignores bodies.
 *
 * Limits on clients: 64 connections (places.h assigns them), 16 KiB per request, 10 s of silence, 30 s per request.
 * The server refuses a request whose Host is not a name of this machine (names.h): otherwise a page of another web
 * site, whose name was made to resolve to this machine, could read the data.
 *
 * Threads: one thread calls start, sweep and stop; the server's own thread calls `answer`, one call at a time.
 */
#ifndef NEAP_SERVE_HTTP_H
#define NEAP_SERVE_HTTP_H

#include "neap/status.h"

#include <stdbool.h>
#include <stddef.h>

#define NEAP_SERVE_ADDRESS_CAPACITY 128

struct neap_serve_reply {
	unsigned code;    /* HTTP status */
	const char *type; /* "text/plain; charset=utf-8"; static storage */
	char *text;       /* malloc'ed; the server frees it. NULL: out of memory */
	size_t length;
};

struct neap_serve_http_options {
	const char *listen;       /* "127.0.0.1:9401", "[::1]:0": with port 0, any free port */
	const char *const *hosts; /* other names of this machine; the list ends with NULL; NULL: none */
	void (*answer)(void *context, const char *path, struct neap_serve_reply *ret_reply);
	void *context;
};

struct neap_serve_http;

/* Errors: NEAP_EINVAL: `listen` is no address and port, or one of `hosts` is no name; NEAP_ENOTSUP: no libmicrohttpd;
 * NEAP_EBUSY: the port is taken; NEAP_EPERM, NEAP_EIO. */
enum neap_status neap_serve_http_start(const struct neap_serve_http_options *options,
				       struct neap_serve_http **ret_http, struct neap_error *err);
void neap_serve_http_stop(struct neap_serve_http *http);

/* Returns the address with the port that the server really has: "127.0.0.1:9401". */
const char *neap_serve_http_address(const struct neap_serve_http *http);
/* Whether only this machine can reach the server. */
bool neap_serve_http_is_local(const struct neap_serve_http *http);

/* Ends connections whose request takes too long. Call it every second or so. */
void neap_serve_http_sweep(struct neap_serve_http *http);

#endif
