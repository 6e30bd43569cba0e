/* serve/http.c: see http.h. libmicrohttpd is loaded, not linked: its TLS library would cost every command
 * of neap milliseconds. */
#include "serve/http.h"

#include "base/clock.h"
#include "base/error.h"
#include "base/units.h"
#include "serve/names.h"
#include "serve/places.h"

#include <arpa/inet.h>
#include <dlfcn.h>
#include <errno.h>
#include <microhttpd.h>
#include <netdb.h>
#include <netinet/in.h>
#include <netinet/tcp.h>
#include <pthread.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/socket.h>
#include <unistd.h>

#define LIBRARY       "libmicrohttpd.so.12"
#define CLOSING       32u /* connections that lost their place, until the server closes them */
#define REQUEST_BYTES (16u << 10)
#define SILENT_S      10u
#define REQUEST_NS    (30 * NEAP_NS_PER_S)

struct neap_serve_http {
	struct neap_serve_http_options options;
	struct MHD_Daemon *daemon;
	int fd; /* the listening socket */
	bool local;
	char address[NEAP_SERVE_ADDRESS_CAPACITY];
	struct neap_serve_names names;
	pthread_mutex_t lock; /* guards the places; a leaf */
	struct neap_serve_places places;
};

static struct {
	__typeof__(MHD_start_daemon) *start_daemon;
	__typeof__(MHD_stop_daemon) *stop_daemon;
	__typeof__(MHD_create_response_from_buffer) *create_response;
	__typeof__(MHD_add_response_header) *add_header;
	__typeof__(MHD_queue_response) *queue_response;
	__typeof__(MHD_destroy_response) *destroy_response;
	__typeof__(MHD_get_connection_values) *get_values;
	__typeof__(MHD_get_connection_info) *connection_info;
} mhd;

static enum neap_status load(struct neap_error *err)
{
	void *library = dlopen(LIBRARY, RTLD_NOW | RTLD_LOCAL);
	char why[128] = "it lacks a function";
	if (!library) {
		snprintf(why, sizeof why, "%s", dlerror());
		library = dlopen(NULL, RTLD_NOW); /* in a wheel it is linked under another name */
	}
	bool whole = library != NULL;
#define LOAD(member, name) whole = whole && (mhd.member = (__typeof__(name) *)dlsym(library, #name))
	LOAD(start_daemon, MHD_start_daemon);
	LOAD(stop_daemon, MHD_stop_daemon);
	LOAD(create_response, MHD_create_response_from_buffer);
	LOAD(add_header, MHD_add_response_header);
	LOAD(queue_response, MHD_queue_response);
	LOAD(destroy_response, MHD_destroy_response);
	LOAD(get_values, MHD_get_connection_values);
	LOAD(connection_info, MHD_get_connection_info);
#undef LOAD
	if (whole)
		return NEAP_OK;
	return neap_fail(err, NEAP_ENOTSUP, "serving needs " LIBRARY " (Debian's package libmicrohttpd12): %.100s",
			 why);
}

/* -- where it listens -------------------------------------------------------------------------------------------- */

/* "ADDR:PORT" or "[ADDR]:PORT", numbers alone. */
static enum neap_status parse_address(const char *text, struct addrinfo **ret_info, struct neap_error *err)
{
	char host[NEAP_SERVE_ADDRESS_CAPACITY];
	const struct addrinfo hints = {.ai_socktype = SOCK_STREAM,
				       .ai_flags = AI_NUMERICHOST | AI_NUMERICSERV | AI_PASSIVE};
	const char *colon = strrchr(text, ':'), *from = text, *to = colon;
	uint64_t port;
	bool good = colon && neap_u64_parse(colon + 1, &port, NULL) == NEAP_OK && port <= UINT16_MAX &&
		    (size_t)(colon - text) < sizeof host;
	if (good && *text == '[') {
		from = text + 1;
		to = colon - 1;
		good = to > from && *to == ']';
	} else if (good) {
		good = colon > text && !memchr(text, ':', (size_t)(colon - text));
	}
	if (good) {
		snprintf(host, sizeof host, "%.*s", (int)(to - from), from);
		good = getaddrinfo(host, colon + 1, &hints, ret_info) == 0;
	}
	return good ? NEAP_OK
		    : neap_fail(err, NEAP_EINVAL,
				"'%.60s' is not an address and port; such as 127.0.0.1:9401, 0.0.0.0:9401 or "
				"[::1]:9401",
				text);
}

static bool is_loopback(const struct sockaddr_storage *address)
{
	if (address->ss_family == AF_INET6)
		return IN6_IS_ADDR_LOOPBACK(&((const struct sockaddr_in6 *)address)->sin6_addr);
	return ntohl(((const struct sockaddr_in *)address)->sin_addr.s_addr) >> 24 == 127;
}

static void describe(struct neap_serve_http *http)
{
	struct sockaddr_storage address = {0};
	socklen_t length = sizeof address;
	char host[INET6_ADDRSTRLEN] = "?", port[8] = "?";
	getsockname(http->fd, (struct sockaddr *)&address, &length);
	getnameinfo((struct sockaddr *)&address, length, host, sizeof host, port, sizeof port,
		    NI_NUMERICHOST | NI_NUMERICSERV);
	snprintf(http->address, sizeof http->address, address.ss_family == AF_INET6 ? "[%s]:%s" : "%s:%s", host,
		 port);
	http->local = is_loopback(&address);
}

static enum neap_status open_socket(struct neap_serve_http *http, struct neap_error *err)
{
	struct addrinfo *info = NULL;
	const int on = 1, silent_s = SILENT_S;
	enum neap_status status = parse_address(http->options.listen, &info, err);
	if (status)
		return status;
	http->fd = socket(info->ai_family, SOCK_STREAM | SOCK_CLOEXEC | SOCK_NONBLOCK, 0);
	bool good = http->fd >= 0 && setsockopt(http->fd, SOL_SOCKET, SO_REUSEADDR, &on, sizeof on) == 0 &&
		    (info->ai_family != AF_INET6 ||
		     setsockopt(http->fd, IPPROTO_IPV6, IPV6_V6ONLY, &on, sizeof on) == 0) &&
		    bind(http->fd, info->ai_addr, info->ai_addrlen) == 0 && listen(http->fd, SOMAXCONN) == 0;
	if (!good)
		status = neap_fail(err,
				   errno == EADDRINUSE ? NEAP_EBUSY
				   : errno == EACCES   ? NEAP_EPERM
						       : NEAP_EIO,
				   "listening on %.60s: %s", http->options.listen, strerror(errno));
	freeaddrinfo(info);
	if (status)
		return status;
	/* A connection takes its place only when its request begins to arrive. So it cannot lose it before that. */
	(void)setsockopt(http->fd, IPPROTO_TCP, TCP_DEFER_ACCEPT, &silent_s, sizeof silent_s);
	describe(http);
	return status;
}

/* -- requests ---------------------------------------------------------------------------------------------------- */

static struct neap_serve_reply refuse(unsigned code, const char *why)
{
	char *text = strdup(why);
	return (struct neap_serve_reply){code, "text/plain; charset=utf-8", text, text ? strlen(text) : 0};
}

/* The page loads nothing from elsewhere, is not cached, and cannot be framed. */
static const char *const headers[][2] = {
	{"Content-Security-Policy",
	 "default-src 'none'; script-src 'self'; style-src 'self'; img-src data:; connect-src 'self'; "
	 "base-uri 'none'; form-action 'none'; frame-ancestors 'none'"},
	{"X-Content-Type-Options", "nosniff"},
	{"Referrer-Policy", "no-referrer"},
	{"Cache-Control", "no-store"},
};

static enum MHD_Result send_reply(struct MHD_Connection *connection, struct neap_serve_reply *reply)
{
	if (!reply->text)
		return MHD_NO;
	struct MHD_Response *response = mhd.create_response(reply->length, reply->text, MHD_RESPMEM_MUST_FREE);
	if (!response) {
		free(reply->text);
		return MHD_NO;
	}
	mhd.add_header(response, "Content-Type", reply->type);
	for (size_t i = 0; i < sizeof headers / sizeof headers[0]; i++)
		mhd.add_header(response, headers[i][0], headers[i][1]);
	if (reply->code == MHD_HTTP_METHOD_NOT_ALLOWED)
		mhd.add_header(response, "Allow", "GET, HEAD");
	enum MHD_Result result = mhd.queue_response(connection, reply->code, response);
	mhd.destroy_response(response);
	return result;
}

struct host {
	const char *text; /* NULL: the request has none */
	size_t count;
};

static enum MHD_Result find_host(void *context, enum MHD_ValueKind kind, const char *key, const char *value)
{
	struct host *host = context;
	(void)kind;
	if (strcasecmp(key, "Host") == 0) {
		host->text = value ? value : "";
		host->count++;
	}
	return MHD_YES;
}

static int fd_of(struct MHD_Connection *connection)
{
	const union MHD_ConnectionInfo *info = mhd.connection_info(connection, MHD_CONNECTION_INFO_CONNECTION_FD);
	return info ? info->connect_fd : -1;
}

/* Whether the request names this machine; if not, `ret_reply` refuses it. An HTTP/1.0 request may have no name: no
 * browser sends such a request. */
static bool check_host(const struct neap_serve_http *http, struct MHD_Connection *connection, const char *version,
		       struct neap_serve_reply *ret_reply)
{
	struct host host = {0};
	struct sockaddr_storage local = {0};
	socklen_t length = sizeof local;
	mhd.get_values(connection, MHD_HEADER_KIND, find_host, &host);
	if (host.count > 1 || (host.count == 0 && strcmp(version, "HTTP/1.0") != 0)) {
		*ret_reply = refuse(MHD_HTTP_BAD_REQUEST, "a request has one Host header\n");
		return false;
	}
	getsockname(fd_of(connection), (struct sockaddr *)&local, &length);
	if (host.count == 0 || neap_serve_names_have(&http->names, host.text, (const struct sockaddr *)&local))
		return true;
	*ret_reply = refuse(MHD_HTTP_FORBIDDEN, "the Host header is not a name of this machine; neap serve --host "
						"NAME adds one\n");
	return false;
}

static enum MHD_Result handle(void *context, struct MHD_Connection *connection, const char *url, const char *method,
			      const char *version, const char *upload, size_t *upload_size, void **own)
{
	struct neap_serve_http *http = context;
	struct neap_serve_reply reply = {0};
	static char first; /* only its address is used */
	(void)upload;
	bool reads = strcmp(method, "GET") == 0 || strcmp(method, "HEAD") == 0;
	if (!*own ||
	    *upload_size > 0) { /* drop the body as it arrives, because the client sends all of it before it reads */
		*own = &first;
		*upload_size = 0;
		return MHD_YES;
	}
	if (!reads)
		reply = refuse(MHD_HTTP_METHOD_NOT_ALLOWED, "neap serve only reads: GET and HEAD\n");
	else if (check_host(http, connection, version, &reply))
		http->options.answer(http->options.context, url, &reply);
	return send_reply(connection, &reply);
}

/* -- places ------------------------------------------------------------------------------------------------------ */

static void connection_changed(void *context, struct MHD_Connection *connection, void **own,
			       enum MHD_ConnectionNotificationCode code)
{
	struct neap_serve_http *http = context;
	const union MHD_ConnectionInfo *peer = mhd.connection_info(connection, MHD_CONNECTION_INFO_CLIENT_ADDRESS);
	int fd = fd_of(connection), lost = -1;
	(void)own;
	pthread_mutex_lock(&http->lock);
	if (code == MHD_CONNECTION_NOTIFY_STARTED)
		lost = neap_serve_places_take(&http->places, fd, peer ? peer->client_addr : NULL);
	else
		neap_serve_places_give(&http->places, fd);
	if (lost >= 0)
		shutdown(lost, SHUT_RDWR); /* the server sees the end of the connection, and closes it */
	pthread_mutex_unlock(&http->lock);
}

static void request_ended(void *context, struct MHD_Connection *connection, void **own,
			  enum MHD_RequestTerminationCode code)
{
	struct neap_serve_http *http = context;
	(void)own;
	(void)code;
	pthread_mutex_lock(&http->lock);
	neap_serve_places_wait(&http->places, fd_of(connection));
	pthread_mutex_unlock(&http->lock);
}

void neap_serve_http_sweep(struct neap_serve_http *http)
{
	pthread_mutex_lock(&http->lock);
	for (size_t i = 0; i < NEAP_SERVE_PLACES; i++) {
		const struct neap_serve_place *place = &http->places.places[i];
		if (place->fd >= 0 && neap_deadline_over(&place->end))
			shutdown(place->fd, SHUT_RDWR);
	}
	pthread_mutex_unlock(&http->lock);
}

/* -- start and stop ---------------------------------------------------------------------------------------------- */

enum neap_status neap_serve_http_start(const struct neap_serve_http_options *options,
				       struct neap_serve_http **ret_http, struct neap_error *err)
{
	struct neap_serve_http *http = calloc(1, sizeof *http);
	if (!http)
		return neap_fail(err, NEAP_ENOMEM, "starting the server: out of memory");
	http->options = *options;
	http->fd = -1;
	pthread_mutex_init(&http->lock, NULL);
	neap_serve_places_init(&http->places, neap_clock_system(), REQUEST_NS);
	enum neap_status status = open_socket(http, err);
	for (size_t i = 0; !status && options->hosts && options->hosts[i]; i++)
		status = neap_serve_names_add(&http->names, options->hosts[i], err);
	if (!status)
		status = load(err);
	if (!status)
		neap_serve_names_add_own(&http->names, !http->local);
	if (!status) {
		http->daemon = mhd.start_daemon(
			MHD_USE_INTERNAL_POLLING_THREAD | MHD_USE_EPOLL, 0, NULL, NULL, handle, http,
			MHD_OPTION_LISTEN_SOCKET, (MHD_socket)http->fd, MHD_OPTION_CONNECTION_LIMIT,
			NEAP_SERVE_PLACES + CLOSING, MHD_OPTION_CONNECTION_MEMORY_LIMIT, (size_t)REQUEST_BYTES,
			MHD_OPTION_CONNECTION_TIMEOUT, SILENT_S, MHD_OPTION_NOTIFY_CONNECTION, connection_changed,
			http, MHD_OPTION_NOTIFY_COMPLETED, request_ended, http, MHD_OPTION_END);
		if (!http->daemon)
			status = neap_fail(err, NEAP_EIO, "starting the server on %s: %s", http->address,
					   strerror(errno));
	}
	if (status)
		neap_serve_http_stop(http);
	else
		*ret_http = http;
	return status;
}

void neap_serve_http_stop(struct neap_serve_http *http)
{
	if (!http)
		return;
	if (http->daemon)
		mhd.stop_daemon(http->daemon); /* closes the socket, too */
	else if (http->fd >= 0)
		close(http->fd);
	pthread_mutex_destroy(&http->lock);
	free(http);
}

const char *neap_serve_http_address(const struct neap_serve_http *http) { return http->address; }
bool neap_serve_http_is_local(const struct neap_serve_http *http) { return http->local; }
