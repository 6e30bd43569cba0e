/* cli/serve_http.h: a small web server for `neap serve`, over libmicrohttpd, which is loaded when it starts. It only
 * reads: GET and HEAD, no bodies.
 *
 * What a client can take is bounded: 64 connections, 16 KiB for a request, 10 s of silence, 30 s for a request. On a
 * loopback address, a request whose Host is another name is refused: a page of another site that was pointed here
 * could read what is shown otherwise.
 *
 * Threads: start, sweep and stop are called by one; `answer` by the server's own, one call at a time.
 */
#ifndef NEAP_CLI_SERVE_HTTP_H
#define NEAP_CLI_SERVE_HTTP_H

#include "neap/status.h"

#include <stdbool.h>
#include <stddef.h>

#define SERVE_ADDRESS_ROOM 128

struct serve_reply {
	unsigned code;    /* of HTTP */
	const char *type; /* "text/plain; charset=utf-8"; static storage */
	char *text;       /* malloc; the server frees it. NULL: memory was short */
	size_t length;
};

struct serve_http_options {
	const char *listen; /* "127.0.0.1:9401", "[::1]:0": port 0 takes any that is free */
	void (*answer)(void *context, const char *path, struct serve_reply *ret_reply);
	void *context;
};

struct serve_http;

/* Errors: NEAP_EINVAL: `listen` is no address and port; NEAP_ENOTSUP: no libmicrohttpd; NEAP_EBUSY: the port is
 * taken; NEAP_EPERM, NEAP_EIO. */
enum neap_status serve_http_start(const struct serve_http_options *options, struct serve_http **ret_http,
				  struct neap_error *err);
void serve_http_stop(struct serve_http *http);

/* "127.0.0.1:9401", the port as it is. */
const char *serve_http_address(const struct serve_http *http);
/* Whether only this machine can reach it. */
bool serve_http_is_local(const struct serve_http *http);

/* Ends connections whose request takes too long. Call it every second or so. */
void serve_http_sweep(struct serve_http *http);

/* Whether a Host header names this machine's loopback, or `address`; NULL, which no browser sends, does. Pure. */
bool serve_http_host_good(const char *host, const char *address);

#endif
