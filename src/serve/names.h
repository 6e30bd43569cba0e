/* serve/names.h: the names of this machine that a request may have in its Host header. A page of another web site,
 * whose name was made to resolve to this machine (DNS rebinding), sends its own name, and is refused.
 *
 * Names of this machine are: localhost, any loopback address, the address on which the connection came in, the host
 * name, the host name up to its first dot, and the names that the user adds. If the server does not listen on the
 * loopback, also the machine's full name in DNS or /etc/hosts.
 */
#ifndef NEAP_SERVE_NAMES_H
#define NEAP_SERVE_NAMES_H

#include "neap/status.h"

#include <stdbool.h>
#include <stddef.h>
#include <sys/socket.h>

#define NEAP_SERVE_NAME_CAPACITY 254
#define NEAP_SERVE_NAMES_MOST    32

/* A name or an address, in the form in which they are compared. */
struct neap_serve_name {
	int family;                          /* of an address; 0: a name */
	unsigned char address[16];           /* its first 4 or 16 bytes */
	char text[NEAP_SERVE_NAME_CAPACITY]; /* in small letters, without a dot at the end */
};

struct neap_serve_names {
	struct neap_serve_name names[NEAP_SERVE_NAMES_MOST];
	size_t count;
};

/* Parses a name or an address without a port (an IPv6 address with or without brackets). False: it is neither. */
bool neap_serve_name_parse(const char *text, size_t length, struct neap_serve_name *ret_name);

/* Adds a name. Errors: NEAP_EINVAL: it is no name; NEAP_ENOSPC. */
enum neap_status neap_serve_names_add(struct neap_serve_names *names, const char *text, struct neap_error *err);

/* Adds this machine's host name. `full`: also its full name, for which it may ask DNS. */
void neap_serve_names_add_own(struct neap_serve_names *names, bool full);

/* Whether a Host header names this machine. `local`: the address that the connection came in on. */
bool neap_serve_names_have(const struct neap_serve_names *names, const char *host, const struct sockaddr *local);

#endif
